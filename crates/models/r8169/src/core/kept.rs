//! What of the NIC is in memory that outlives its process ([`model::Kept`]): IMR, where the rings stand, and what is under way there.
//!
//! Drivers go through a ring in order and look at OWN only. So the first descriptor of a batch is given back last, which gives the
//! driver all of them. Before that it has a *mark* in its second word, which no driver reads while OWN is set, and none leaves there
//! when it fills the descriptor again: whether the driver has been given the batch is known by the mark.
//!
//! Sent packets that are not known to be given back are passed over. Received frames are in their buffers by then: what their
//! descriptors are about to say is kept, so that another process can finish.

use std::sync::atomic::AtomicU64;

pub(crate) use datapath::kept::put;
use datapath::kept::{OPEN, Step};
use guest_mem::View;
use model::Kept;

use crate::core::queues::{Desc, MOST, place};
use crate::core::row::Walk;
use crate::regs::bits::{desc, tx};
use crate::regs::variant::Variant;

/// The words.
pub(crate) const RX: usize = 0;
pub(crate) const TX: usize = 1;
pub(crate) const IMR: usize = 2;
/// A large packet at the head of the transmit ring, of which the sink may have taken a part.
const LARGE: usize = 3;
/// What received descriptors say: one word, or one for each.
const SAID: usize = 64;

/// In a ring's word: descriptors of the batch, where the ring ends in it, and the index behind it.
const COUNT_AT: u32 = 16;
const END_AT: u32 = 32;
/// Each descriptor says something else.
const EACH: u64 = 1 << 62;

/// The second word of a receive descriptor that is the chip's: none that a driver or a frame leaves there.
pub(crate) const RX_MARK: u32 = 0x0a53_0000;
/// In the second word of a transmit descriptor: a bit that neither version uses.
pub(crate) const TX_MARK: u32 = 1 << 16;
/// Where the second word is.
const SECOND: u64 = 4;

/// Where a test lets the process die.
#[cfg(test)]
pub(crate) use crate::kept_tests::Steps;
#[cfg(not(test))]
pub(crate) type Steps = ();

/// A ring stands there, and nothing is under way.
pub(crate) fn stands(kept: &Kept, at: usize, next: u32) {
    put::<Steps>(kept, at, u64::from(next as u16));
}

/// The transmit ring stands there, and none of its packets was begun.
pub(crate) fn begins_at(kept: &Kept, next: u32) {
    stands(kept, TX, next);
    put::<Steps>(kept, LARGE, 0);
}

fn write(view: &View<'_>, at: u64, bytes: &[u8]) {
    Steps::step();
    // If it is out of reach, so is what is published there.
    let _ = view.write_release(at, bytes);
}

fn field(word: u64, at: u32) -> u32 {
    u32::from((word >> at) as u16)
}

/// Both words of options of a descriptor. One that is out of reach is as it was.
fn options(view: &View<'_>, base: u64, index: u32) -> Option<(u32, u32)> {
    let mut words = [0; 8];
    view.read(place(base, index), &mut words).ok()?;
    let words = u64::from_le_bytes(words);
    Some((words as u32, (words >> 32) as u32))
}

/// Frames are in their buffers, and are given to the driver as `walk` goes: all say the same, or each its own.
#[derive(Debug)]
pub(crate) enum Says<'w> {
    /// So many times this, and EOR where the ring ends.
    Same(usize, u64),
    /// Each with its EOR.
    Each(&'w mut [u64]),
}

impl Says<'_> {
    fn count(&self) -> usize {
        match self {
            Says::Same(count, _) => *count,
            Says::Each(words) => words.len(),
        }
    }

    /// Stores it in the descriptors, in the first last: a driver goes by that one. There is one at least.
    #[inline]
    fn store(self, (view, base): (&View<'_>, u64), walk: Walk, faults: &AtomicU64) {
        let (first, rest) = walk.split();
        match self {
            Says::Same(count, word) => {
                rest.store_same(view, base, (count - 1, word), faults);
                Steps::step();
                first.store_same(view, base, (1, word), faults);
            }
            Says::Each(words) => {
                let (one, others) = words.split_at_mut(1);
                rest.store(view, base, others, faults);
                Steps::step();
                first.store(view, base, one, faults);
            }
        }
    }
}

/// Gives received descriptors to the driver. Not inlined: who keeps nothing is not to pay for it.
#[inline(never)]
pub(crate) fn publish(
    kept: &Kept,
    (view, base): (&View<'_>, u64),
    walk: Walk,
    says: Says<'_>,
    faults: &AtomicU64,
) {
    let (n, word) = match &says {
        Says::Same(n, word) => {
            kept.put(SAID, *word);
            (*n, (walk.wrap() as u64) << END_AT)
        }
        Says::Each(words) => {
            kept.put_all(SAID, words);
            (words.len(), EACH)
        }
    };
    if n == 0 {
        return;
    }
    let mark = place(base, walk.begin()) + SECOND;
    write(view, mark, &RX_MARK.to_le_bytes());
    let batch = u64::from(walk.begin()) | (n as u64) << COUNT_AT;
    put::<Steps>(kept, RX, OPEN | word | batch);
    says.store((view, base), walk, faults);
    stands(kept, RX, walk.behind(n));
}

/// Finishes what was under way in the receive ring. Returns where it stands. `None`: the word is none that it can have left.
pub(crate) fn finish(kept: &Kept, view: &View<'_>, base: u64) -> Option<u32> {
    let word = kept.get(RX);
    let (first, n) = (field(word, 0), field(word, COUNT_AT));
    let wrap = field(word, END_AT);
    if first >= MOST || n > MOST || wrap > MOST {
        return None;
    }
    if word & OPEN == 0 {
        return Some(first);
    }
    if n == 0 {
        return None;
    }
    let marked = options(view, base, first).is_none_or(|(_, second)| second == RX_MARK);
    let mut one = None;
    let mut at = first;
    for i in 0..n {
        let ends = i + 1 == wrap;
        let says = match word & EACH {
            0 => kept.get(SAID) | u64::from(if ends { desc::EOR } else { 0 }),
            _ => kept.get(SAID + i as usize),
        };
        if i == 0 {
            one = Some(says);
        } else if marked {
            write(view, place(base, at), &says.to_le_bytes());
        }
        at = behind(at, says as u32);
    }
    if let Some(says) = one.filter(|_| marked) {
        write(view, place(base, first), &says.to_le_bytes());
    }
    stands(kept, RX, at);
    Some(at)
}

fn behind(index: u32, opts1: u32) -> u32 {
    let desc = Desc {
        index,
        opts1,
        ..Desc::default()
    };
    desc.next()
}

/// Packets that are about to be delivered: the first of their descriptors, how many, and the index behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub first: u32,
    pub n: u32,
    pub next: u32,
}

impl Sending {
    /// Those as `walk` goes.
    pub fn of(walk: &Walk, n: usize) -> Self {
        Sending {
            first: walk.begin(),
            n: n as u32,
            next: walk.behind(n),
        }
    }

    fn put(self, kept: &Kept) {
        put::<Steps>(kept, TX, self.word());
    }

    fn word(self) -> u64 {
        let Sending { first, n, next } = self;
        OPEN | u64::from(first) | u64::from(n) << COUNT_AT | u64::from(next) << END_AT
    }

    /// `None`: no word says that.
    fn from_word(word: u64) -> Option<Self> {
        let what = Sending {
            first: field(word, 0),
            n: field(word, COUNT_AT),
            next: field(word, END_AT),
        };
        let Sending { first, n, next } = what;
        (first < MOST && next < MOST && (1..=MOST).contains(&n)).then_some(what)
    }
}

/// The sink may have taken a part of this packet, which is the next: should the process die, it is not sent again.
pub(crate) fn may_have_begun(kept: &Kept, what: Sending) {
    put::<Steps>(kept, LARGE, what.word());
}

/// They are delivered next. `opts2` is what the first one's second word says.
#[inline(never)]
pub(crate) fn delivers(kept: &Kept, (view, base): (&View<'_>, u64), what: Sending, opts2: u32) {
    let mark = opts2 | TX_MARK;
    write(view, place(base, what.first) + SECOND, &mark.to_le_bytes());
    what.put(kept);
    if kept.get(LARGE) != 0 {
        // It is the first of these.
        put::<Steps>(kept, LARGE, 0);
    }
}

/// None of them was taken.
#[inline(never)]
pub(crate) fn refused(kept: &Kept, (view, base): (&View<'_>, u64), what: Sending, opts2: u32) {
    stands(kept, TX, what.first);
    // The short way takes none that asks for something.
    write(view, place(base, what.first) + SECOND, &opts2.to_le_bytes());
}

/// The first `sent` descriptors as `walk` goes are given back, of `n` that were offered; what they say is the same, or `words`.
#[inline(never)]
pub(crate) fn sent(
    kept: &Kept,
    (view, base): (&View<'_>, u64),
    (walk, n): (Walk, usize),
    says: Says<'_>,
    faults: &AtomicU64,
) {
    let count = says.count();
    if count < n {
        Sending::of(&walk, count).put(kept);
    }
    says.store((view, base), walk, faults);
    stands(kept, TX, walk.behind(count));
}

/// The same of descriptors that were taken one by one, of which `n` were offered.
pub(crate) fn give_back(
    kept: &Kept,
    (view, base): (&View<'_>, u64),
    (descs, n): (&[Desc], usize),
    faults: &AtomicU64,
) {
    let (Some((first, rest)), Some(last)) = (descs.split_first(), descs.last()) else {
        return;
    };
    if descs.len() < n {
        let what = Sending {
            first: first.index,
            n: descs.len() as u32,
            next: last.next(),
        };
        what.put(kept);
    }
    for desc in rest.iter().chain([first]) {
        Steps::step();
        // The second word too: the mark is there.
        let words = u64::from(desc.opts2 & !TX_MARK) << 32 | u64::from(desc.opts1 & !desc::OWN);
        if view
            .write_release(place(base, desc.index), &words.to_le_bytes())
            .is_err()
        {
            datapath::counters::count_alone(faults, 1);
        }
    }
    stands(kept, TX, last.next());
}

/// Passes over what was perhaps sent. Returns where the transmit ring stands, and how many frames that were. `None`: a word is none
/// that it can have left.
pub(crate) fn pass_over(
    kept: &Kept,
    memory: (&View<'_>, u64),
    variant: Variant,
) -> Option<(u32, u64)> {
    let (next, frames) = pass_over_batch(kept, memory, variant)?;
    let large = kept.get(LARGE);
    if large == 0 {
        return Some((next, frames));
    }
    let what = Sending::from_word(large)?;
    let (view, base) = memory;
    let first = options(view, base, what.first);
    match first.filter(|(opts1, _)| what.first == next && opts1 & desc::OWN != 0) {
        Some((_, opts2)) => delivers(kept, memory, what, opts2),
        None => put::<Steps>(kept, LARGE, 0),
    }
    let (next, more) = pass_over_batch(kept, memory, variant)?;
    Some((next, frames + more))
}

fn pass_over_batch(
    kept: &Kept,
    (view, base): (&View<'_>, u64),
    variant: Variant,
) -> Option<(u32, u64)> {
    let word = kept.get(TX);
    if word & OPEN == 0 {
        let first = field(word, 0);
        return (first < MOST).then_some((first, 0));
    }
    let Sending { first, n, next } = Sending::from_word(word)?;
    let mut frames = 0;
    let marked = |(one, second): &(u32, u32)| second & TX_MARK != 0 && one & desc::OWN != 0;
    if let Some((one, second)) = options(view, base, first).filter(marked) {
        let mut at = first;
        let (mut begins, mut bytes) = ((one, second), 0);
        for _ in 0..n {
            // One that is out of reach was out of reach.
            let (opts1, opts2) = options(view, base, at).unwrap_or_default();
            if opts1 & desc::FS != 0 {
                (begins, bytes) = ((opts1, opts2), 0);
            }
            bytes += opts1 & tx::LENGTH;
            if opts1 & desc::LS != 0 {
                frames += u64::from(variant.most_frames(begins, bytes));
            }
            if at != first {
                let back = (opts1 & !desc::OWN).to_le_bytes();
                write(view, place(base, at), &back);
            }
            at = behind(at, opts1);
        }
        let back = u64::from(second & !TX_MARK) << 32 | u64::from(one & !desc::OWN);
        write(view, place(base, first), &back.to_le_bytes());
    }
    stands(kept, TX, next);
    Some((next, frames))
}

impl Variant {
    /// Frames that a packet of so many bytes is at most, by the words of its first descriptor.
    fn most_frames(self, (opts1, opts2): (u32, u32), bytes: u32) -> u32 {
        let (large, mss) = match self.is_first() {
            true => (tx::LARGE, opts1 >> tx::v1::MSS_SHIFT),
            false => (
                tx::LARGE | tx::LARGE_V4 | tx::LARGE_V6,
                opts2 >> tx::MSS_SHIFT,
            ),
        };
        match mss & tx::MSS {
            mss if mss > 0 && opts1 & large != 0 => bytes.div_ceil(mss),
            _ => 1,
        }
    }
}

//! The word of a receive ring.
//!
//! A chip whose descriptors keep their buffer's address when they are written back takes back what the guest has not been given
//! ([`TakesBack`]). Where write-back overwrites the address, it is finished instead ([`Finishes`]): the frames are in their buffers
//! by then, and what the descriptors say is kept before the first of them is written.

use std::marker::PhantomData;

use guest_mem::View;
use model::Kept;

use super::{OPEN, Step, put};
use crate::ring::Ring;
use crate::rx::{Firsts, Publish, Says, Words};

/// The second word of a receive descriptor that is the device's: no length, no status, and something else that no driver and no
/// frame leaves there.
pub const RX_MARK: u64 = 0xa5c3_0000_0000_0000;

/// Most descriptors that are finished at once.
pub const AT_ONCE: usize = 64;
/// Words for what they say.
pub const SAID: usize = 2 * AT_ONCE;

/// What is kept of their first and of their second words.
const FIRSTS_AT: u32 = 56;
const SECONDS_AT: u32 = 58;
const KIND: u64 = 3;
const STAY: u64 = 0;
const SAME: u64 = 1;
const EACH: u64 = 2;
/// All the same but for the last.
const LAST: u64 = 3;

/// Puts the mark into the descriptor at an address, and stores a word: a batch is under way. Not inlined, as all that follows from
/// it that somebody keeps words: who keeps none is not to pay for it in the loops around.
#[inline(never)]
fn open<S: Step>(kept: &Kept, ring: usize, word: u64, view: &View<'_>, at: u64) {
    S::step();
    // If it is out of reach, so is what is published there.
    let _ = view.write_release(at.wrapping_add(8), &RX_MARK.to_le_bytes());
    put::<S>(kept, ring, OPEN | word);
}

fn second(view: &View<'_>, ring: &Ring, index: u32) -> Option<u64> {
    let mut word = [0; 8];
    let at = ring.address(index).wrapping_add(8);
    view.read(at, &mut word).ok()?;
    Some(u64::from_le_bytes(word))
}

/// The receiver stands there, and nothing is under way.
#[inline(never)]
pub fn stands<S: Step>(kept: &Kept, at: usize, head: u32) {
    put::<S>(kept, at, u64::from(head as u16));
}

/// How descriptors are written back that can be taken back.
#[derive(Clone, Copy, Debug)]
pub struct TakesBack<'a, S> {
    kept: Option<&'a Kept>,
    at: usize,
    step: PhantomData<S>,
}

impl<'a, S: Step> TakesBack<'a, S> {
    /// With the word at a place, if somebody keeps it.
    #[inline]
    pub fn new(kept: Option<&'a Kept>, at: usize) -> Self {
        TakesBack {
            kept,
            at,
            step: PhantomData,
        }
    }

    /// What was under way, if something was, or the head.
    pub fn found(kept: &Kept, at: usize) -> Result<u32, (u32, u32)> {
        let word = kept.get(at);
        let (first, n) = (word as u16, (word >> 16) as u16);
        match word & OPEN {
            0 => Ok(first.into()),
            _ => Err((first.into(), n.into())),
        }
    }

    /// Takes back what was written back of `n` descriptors from the head of `ring` on, if the guest has not been given them. Returns
    /// where the receiver stands, and whether it has.
    pub fn settle(view: &View<'_>, ring: &Ring, n: u32) -> (u32, bool) {
        if second(view, ring, ring.head).is_some_and(|word| word != RX_MARK) {
            return (ring.behind(n), true);
        }
        for i in 1..n {
            let at = ring.address(ring.behind(i)).wrapping_add(8);
            S::step();
            // One that is out of reach was out of reach.
            let _ = view.write_release(at, &[0; 8]);
        }
        (ring.head, false)
    }
}

impl<S: Step> Publish for TakesBack<'_, S> {
    #[inline]
    fn begins<'s>(
        &self,
        view: &View<'_>,
        (index, at): (u32, u64),
        n: usize,
        _: impl FnOnce() -> Says<'s>,
    ) -> bool {
        let Some(kept) = self.kept.filter(|_| n > 0) else {
            return false;
        };
        let word = (n as u64) << 16 | u64::from(index);
        open::<S>(kept, self.at, word, view, at);
        true
    }

    #[inline]
    fn ended(&self, next: u32) {
        if let Some(kept) = self.kept {
            stands::<S>(kept, self.at, next);
        }
    }
}

/// Where the words of a ring are whose write-backs are finished.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Its own.
    pub ring: usize,
    /// What the mark has overwritten.
    pub marked: usize,
    /// What descriptors say: [`SAID`] words.
    pub said: usize,
}

/// Where a chip has the words of its queues.
pub trait Places: Step {
    /// Those of a queue's receive ring.
    fn rx(queue: u32) -> At;
}

/// How descriptors are written back that are finished.
#[derive(Clone, Copy, Debug)]
pub struct Finishes<'a, S> {
    kept: Option<&'a Kept>,
    queue: u32,
    /// What the mark overwrites is the address of a buffer.
    splits: bool,
    /// The bit of a second word that ends a frame.
    ends: u64,
    step: PhantomData<S>,
}

impl<'a, S: Places> Finishes<'a, S> {
    /// Those of a queue, if somebody keeps words. `splits`: what is in the place of the mark is the address of a buffer; the bit
    /// `ends` in a second word says that a frame ends there.
    #[inline(always)]
    pub fn new(kept: Option<&'a Kept>, queue: u32, splits: bool, ends: u64) -> Self {
        Finishes {
            kept,
            queue,
            splits,
            ends,
            step: PhantomData,
        }
    }

    #[inline(never)]
    fn begin(kept: &Kept, (queue, splits): (u32, bool), view: &View<'_>, at: u64, open: Batch<'_>) {
        let to = S::rx(queue);
        let word = keep(kept, to.said, open.says) | open.n << 16 | u64::from(open.index);
        if splits {
            let mut word = [0; 8];
            let _ = view.read(at.wrapping_add(8), &mut word);
            put::<S>(kept, to.marked, u64::from_le_bytes(word));
        }
        self::open::<S>(kept, to.ring, word, view, at);
    }

    #[inline(never)]
    fn end(kept: &Kept, queue: u32, next: u32) {
        stands::<S>(kept, S::rx(queue).ring, next);
    }
}

/// A batch that begins with this descriptor.
struct Batch<'s> {
    index: u32,
    n: u64,
    says: Says<'s>,
}

impl<S: Places> Publish for Finishes<'_, S> {
    fn cut(&self, second: &[u64]) -> usize {
        if self.kept.is_none() || second.len() <= AT_ONCE {
            return second.len();
        }
        // A frame's descriptors are published together.
        let ends = |word: &u64| word & self.ends != 0;
        let last = second[..AT_ONCE].iter().rposition(ends);
        last.map_or(AT_ONCE, |at| at + 1)
    }

    #[inline]
    fn begins<'s>(
        &self,
        view: &View<'_>,
        (index, at): (u32, u64),
        n: usize,
        says: impl FnOnce() -> Says<'s>,
    ) -> bool {
        let Some(kept) = self.kept else {
            return false;
        };
        if !(1..=AT_ONCE).contains(&n) {
            return false;
        }
        let (n, says) = (n as u64, says());
        let batch = Batch { index, n, says };
        Self::begin(kept, (self.queue, self.splits), view, at, batch);
        true
    }

    #[inline]
    fn ended(&self, next: u32) {
        if let Some(kept) = self.kept {
            Self::end(kept, self.queue, next);
        }
    }
}

/// Keeps what descriptors say. Nobody looks there yet. Returns of which kind it is.
#[inline(never)]
fn keep(kept: &Kept, at: usize, says: Says<'_>) -> u64 {
    let seconds = at + AT_ONCE;
    let one = |words: Words| match words {
        Words::Second(second) => {
            kept.put(seconds, second);
            STAY
        }
        Words::Both([first, second]) => {
            kept.put(at, first);
            kept.put(seconds, second);
            SAME
        }
    };
    let (firsts, seconds) = match says {
        Says::Same(words) => (one(words), SAME),
        Says::ButLast(words, last) => {
            let (Words::Second(word) | Words::Both([_, word])) = last;
            kept.put(seconds + 1, word);
            (one(words), LAST)
        }
        Says::Each(firsts, each) => {
            kept.put_all(seconds, each);
            let kind = match firsts {
                Firsts::Stay => STAY,
                Firsts::Same(first) => {
                    kept.put(at, first);
                    SAME
                }
                Firsts::Each(each) => {
                    kept.put_all(at, each);
                    EACH
                }
            };
            (kind, EACH)
        }
    };
    firsts << FIRSTS_AT | seconds << SECONDS_AT
}

/// Finishes what was under way in a ring whose head is not known, where descriptors have addresses of a second buffer if it
/// `splits`. Returns where the receiver stands. `None`: the words are none that it can have left.
pub fn finish<S: Step>(
    (kept, at): (&Kept, At),
    view: &View<'_>,
    ring: &Ring,
    splits: bool,
) -> Option<u32> {
    let word = kept.get(at.ring);
    let (first, n) = (u32::from(word as u16), u32::from((word >> 16) as u16));
    if ring.len != 0 && first >= ring.len {
        return None;
    }
    let ring = Ring {
        head: first,
        ..*ring
    };
    let is_marked = second(view, &ring, first).is_none_or(|word| word == RX_MARK);
    let store = |index: u32, inside: u64, word: u64| {
        S::step();
        let at = ring.address(index).wrapping_add(inside);
        // One that is out of reach was out of reach.
        let _ = view.write_release(at, &word.to_le_bytes());
    };
    if word & OPEN == 0 {
        if is_marked && ring.len != 0 {
            // It died before anything was under way.
            store(first, 8, if splits { kept.get(at.marked) } else { 0 });
        }
        return Some(first);
    }
    if n == 0 || n as usize > AT_ONCE || n >= ring.len {
        return None;
    }
    let kind = |shift: u32| word >> shift & KIND;
    if is_marked {
        for i in (1..n).chain([0]) {
            let index = ring.behind(i);
            let of = |kind: u64| match kind {
                EACH => i as usize,
                LAST => usize::from(i + 1 == n),
                _ => 0,
            };
            if kind(FIRSTS_AT) != STAY {
                store(index, 0, kept.get(at.said + of(kind(FIRSTS_AT))));
            }
            let second = at.said + AT_ONCE + of(kind(SECONDS_AT));
            store(index, 8, kept.get(second));
        }
    }
    let next = ring.behind(n);
    stands::<S>(kept, at.ring, next);
    Some(next)
}

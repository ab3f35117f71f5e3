//! The short way for frames whose headers differ: sorted by header, and each header's frames offered as a run.
//!
//! Frames with the same header stay in order, and so do those of one destination: a second header for a destination ends what is
//! sorted. What a receiver has no room for, where frames behind it have gone elsewhere, is offered once more as a batch and
//! then lost with a count, as in the general stages ([`crate::forward`]); what is behind all that has gone stays with the
//! sender. Whatever is not for the direct path ends it too.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use frame::{Batch, HEAD, Head, MAX_BATCH, Mix, Run, same_header};
use wire::Offload;

use crate::config::Nanos;
use crate::counters::{add, add_alone};
use crate::direct::{self, Known};
use crate::patience::Patience;
use crate::port::Port;
use crate::state::SwitchState;

/// Headers that are told apart. More end what is sorted.
const MOST: usize = 16;
/// Frames that are worth sorting. Fewer go as a batch.
const FEWEST: usize = 8;
/// No header.
const NONE: u8 = u8::MAX;

/// Frames with the same header.
struct Group {
    to: Arc<Port>,
    head: Head,
    frames: usize,
    /// Where its frames begin in the sorted lists.
    start: usize,
    /// How many of them were taken.
    taken: usize,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("to", &self.to.name)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

/// What sorting needs, kept by the thread so that nothing is allocated.
struct Sorter {
    groups: Vec<Group>,
    /// By the hash of a header, its group.
    hashed: [u8; MOST],
    /// The group of each frame.
    group: [u8; MAX_BATCH],
    /// The frames by group: which, where, how long, and how they begin.
    index: [u8; MAX_BATCH],
    at: [u64; MAX_BATCH],
    lens: [u16; MAX_BATCH],
    heads: [Head; MAX_BATCH],
    /// Frames that found no room, and which of them are offered.
    left: Batch<'static>,
    picks: Vec<u16>,
}

impl Default for Sorter {
    fn default() -> Self {
        Sorter {
            groups: Vec::new(),
            hashed: [NONE; MOST],
            group: [NONE; MAX_BATCH],
            index: [0; MAX_BATCH],
            at: [0; MAX_BATCH],
            lens: [0; MAX_BATCH],
            heads: [[0; 2]; MAX_BATCH],
            left: Batch::default(),
            picks: Vec::new(),
        }
    }
}

thread_local! {
    static SORTER: Cell<Option<Box<Sorter>>> = const { Cell::new(None) };
}

/// Delivers frames of a mix. Returns how many were dealt with, from the front on; `None` when it is none for this way.
pub(crate) fn deliver(
    state: &SwitchState,
    from: &Port,
    (known, patience): (&mut Known, &mut Patience),
    mix: &Mix<'_>,
    now: Nanos,
) -> Option<usize> {
    let mut sorter = SORTER.take().unwrap_or_default();
    let gone = sorter.deliver((state, from, now), known, mix);
    if gone > 0 {
        let alone = sorter.groups.len() == 1;
        if let Some(first) = sorter.groups.first() {
            patience.serves(first.to.id, alone, now);
        }
        let (frames, bytes) = (gone as u64, mix.bytes(gone) as u64);
        add_alone(&from.counters.rx_frames, frames);
        add_alone(&from.counters.rx_bytes, bytes);
        add_alone(&from.counters.rx_unicast, frames);
    }
    sorter.groups.clear();
    SORTER.set(Some(sorter));
    (gone > 0).then_some(gone)
}

impl Sorter {
    fn deliver(
        &mut self,
        (state, from, now): (&SwitchState, &Port, Nanos),
        known: &mut Known,
        mix: &Mix<'_>,
    ) -> usize {
        let sorted = self.classify((state, from, now), known, mix);
        if sorted < FEWEST.min(mix.count()) {
            return 0;
        }
        self.sort(mix, sorted);
        let (gone, all) = self.offer(state, mix, now);
        if !all && gone > 0 {
            self.leave(state, mix, gone, now);
        }
        gone
    }

    /// Finds the group of each frame. Returns how many frames have one, from the front on.
    fn classify(
        &mut self,
        of: (&SwitchState, &Port, Nanos),
        known: &mut Known,
        mix: &Mix<'_>,
    ) -> usize {
        let (_, _, heads) = mix.frames();
        self.hashed = [NONE; MOST];
        let mut frames = [0; MOST];
        let (mut last, mut at) = ([0; 2], NONE);
        let mut n = 0;
        for (head, to) in heads.iter().zip(&mut self.group) {
            if at == NONE || !same_header(last, *head) {
                last = *head;
                let hash = hash(*head);
                at = self.hashed[hash];
                let is = |at: u8, groups: &[Group]| {
                    let group = groups.get(usize::from(at));
                    group.is_some_and(|group| same_header(group.head, *head))
                };
                if !is(at, &self.groups) {
                    let mut known_as = 0..self.groups.len() as u8;
                    let found = known_as.find(|at| is(*at, &self.groups));
                    let Some(found) = found.or_else(|| begin(&mut self.groups, of, known, *head))
                    else {
                        break;
                    };
                    at = found;
                    self.hashed[hash] = at;
                }
            }
            frames[usize::from(at) % MOST] += 1;
            *to = at;
            n += 1;
        }
        for (group, frames) in self.groups.iter_mut().zip(frames) {
            group.frames = frames;
        }
        n
    }

    /// Lists the first `n` frames by group, in order within each.
    fn sort(&mut self, mix: &Mix<'_>, n: usize) {
        let (at, lens, heads) = mix.frames();
        let mut next = [0; MOST];
        let mut start = 0;
        for (group, next) in self.groups.iter_mut().zip(&mut next) {
            (group.start, *next) = (start, start);
            start += group.frames;
        }
        let frames = at.iter().zip(lens).zip(heads).zip(&self.group[..n]);
        for (i, (((at, len), head), group)) in (0..=u8::MAX).zip(frames) {
            let next = &mut next[usize::from(*group) % MOST];
            let to = *next % MAX_BATCH;
            *next += 1;
            self.index[to] = i;
            self.at[to] = *at;
            self.lens[to] = *len;
            self.heads[to] = *head;
        }
    }

    /// Offers each group as a run. Returns one more than the index of the last frame that was taken, and whether all were.
    fn offer(&mut self, state: &SwitchState, mix: &Mix<'_>, now: Nanos) -> (usize, bool) {
        let (mut gone, mut all) = (0, true);
        for group in &mut self.groups {
            let of = group.start..group.start + group.frames;
            let (at, lens) = (&self.at[of.clone()], &self.lens[of.clone()]);
            let run = Run::of_lengths(mix.from(), (at, lens), &self.heads[of.clone()]);
            let taken = run.and_then(|run| {
                let taken = group.to.sink.deliver_run(&run)?.min(run.count());
                Some((taken, run.bytes(taken)))
            });
            let (taken, bytes) = taken.unwrap_or_default();
            group.taken = taken;
            all &= taken == group.frames;
            if taken > 0 {
                group.to.note_progress(taken, now, state.stall_bound());
                add(&group.to.counters.tx_frames, taken as u64);
                add(&group.to.counters.tx_bytes, bytes as u64);
                gone = gone.max(usize::from(self.index[of][taken - 1]) + 1);
            }
        }
        (gone, all)
    }

    /// Frames before `gone` that were not taken: once more as a batch, which may find room elsewhere; the others are lost.
    fn leave(&mut self, state: &SwitchState, mix: &Mix<'_>, gone: usize, now: Nanos) {
        for group in &self.groups {
            let of = group.start + group.taken..group.start + group.frames;
            let stuck = |i: &&u8| usize::from(**i) < gone;
            let n = self.index[of.clone()].iter().take_while(stuck).count();
            if n == 0 {
                continue;
            }
            let places = of.start..of.start + n;
            let mut batch = std::mem::take(&mut self.left).recycle();
            for i in places {
                let len = usize::from(self.lens[i]);
                let Some(from) = mix.from().get_of(self.at[i], len) else {
                    continue;
                };
                // What was judged is what arrives.
                let mut head = [0; HEAD];
                let own = from.copy_head(&mut head);
                for (to, word) in head.as_chunks_mut().0.iter_mut().zip(self.heads[i]) {
                    *to = word.to_le_bytes();
                }
                batch.push_bytes(&head[..own]);
                batch.push_slice(from.sub(own, len - own));
                batch.end(Offload::NONE);
            }
            self.picks.clear();
            self.picks.extend(0..batch.len() as u16);
            let to = &group.to;
            let taken = to.sink.deliver(&batch, &self.picks).min(self.picks.len());
            to.note_progress(taken, now, state.stall_bound());
            let (sent, lost) = self.picks.split_at(taken);
            let bytes = sent.iter().filter_map(|i| batch.get((*i).into()));
            let bytes: usize = bytes.map(|frame| frame.len()).sum();
            add(&to.counters.tx_frames, taken as u64);
            add(&to.counters.tx_bytes, bytes as u64);
            if !lost.is_empty() {
                add(&to.counters.drop_no_room, lost.len() as u64);
                to.sink.give_up(&batch, lost);
            }
            self.left = batch.recycle();
        }
    }
}

/// A group for frames that begin so.
#[inline(never)]
fn begin(
    groups: &mut Vec<Group>,
    (state, from, now): (&SwitchState, &Port, Nanos),
    known: &mut Known,
    head: Head,
) -> Option<u8> {
    if groups.len() == MOST {
        return None;
    }
    let to = direct::way_of_run(state, from, known, head, now)?;
    // Its frames would overtake those of the other header.
    if groups.iter().any(|group| group.to.id == to.id) {
        return None;
    }
    groups.push(Group {
        to,
        head,
        frames: 0,
        start: 0,
        taken: 0,
    });
    Some(groups.len() as u8 - 1)
}

/// Where a header is looked for first.
#[inline]
fn hash(head: Head) -> usize {
    let mixed = (head[0] ^ head[1] << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 60) as usize % MOST
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use frame::{Batch, Sink};
    use proptest::prelude::*;
    use wire::{MacAddr, Offload};

    use crate::testing::{How, Kind, Lab, One, PORTS, Step, kind};

    /// Frames of a port to stations of others, few of which are anything else; all are long enough for a mix.
    fn frames(from: usize) -> impl Strategy<Value = Vec<One>> {
        let dst = prop_oneof![20 => 0..PORTS as u64, 1 => Just(3), 1 => Just(9)];
        let second = prop_oneof![15 => Just(0), 1 => Just(4)];
        let one = (dst, second, 60..200usize, 0..60u8);
        let one = one.prop_map(move |(dst, second, len, noted)| One {
            // Hairpins are no way.
            dst: if dst == from as u64 {
                (dst + 1) % PORTS as u64
            } else {
                dst
            },
            // A second station there, where that is allowed.
            src: from as u64 + if from == 1 { 0 } else { second },
            len,
            noted,
        });
        proptest::collection::vec(one, 1..40)
    }

    fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
        let room = (0..PORTS, 0..most);
        let step = (0..PORTS).prop_flat_map(move |from| {
            let rest = (room.clone(), 0..4_000_000u64, frames(from));
            rest.prop_map(move |(room, passed, frames)| Step {
                from,
                room,
                passed,
                how: How::Mixes,
                frames,
            })
        });
        proptest::collection::vec(step, 1..30)
    }

    /// Steps through a switch with mixes, and through one without.
    fn compare(
        steps: &[Step],
        kind: Kind,
        declines: bool,
        room: usize,
    ) -> Result<(), TestCaseError> {
        let labs = [true, false].map(|direct| Lab::of(direct, declines, kind));
        for lab in &labs {
            for sink in &lab.sinks {
                sink.left.store(room, Relaxed);
            }
            // All are known, so that most frames have a way.
            for (from, port) in lab.ports.iter().enumerate() {
                port.deliver(&hello(from as u64), &[0]);
            }
        }
        for step in steps {
            prop_assert_eq!(labs[0].step(step), labs[1].step(step), "{:?}", step);
        }
        let [a, b] = &labs;
        prop_assert_eq!(a.switch.ports(), b.switch.ports());
        prop_assert_eq!(a.switch.macs(), b.switch.macs());
        for (a, b) in a.sinks.iter().zip(&b.sinks) {
            prop_assert_eq!(&*a.got.lock(), &*b.got.lock());
            prop_assert_eq!(a.given_up.load(Relaxed), b.given_up.load(Relaxed));
        }
        Ok(())
    }

    fn hello(from: u64) -> Batch<'static> {
        let mut batch = Batch::new();
        batch.push_bytes(&[0xff; 6]);
        batch.push_bytes(MacAddr::from_u64(0x0200_0000_0000 | from).as_bytes());
        batch.push_bytes(&[0; 50]);
        batch.end(Offload::NONE);
        batch
    }

    proptest! {
        #[test]
        fn sorted_frames_arrive_as_others_do(steps in steps(60), kind in kind()) {
            compare(&steps, kind, false, 0)?;
        }

        #[test]
        fn those_who_take_no_runs_get_theirs_too(steps in steps(2), kind in kind()) {
            compare(&steps, kind, true, 1 << 20)?;
        }
    }
}

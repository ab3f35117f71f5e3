//! The short way for frames whose headers differ: sorted by header, and each header's frames offered as a run.
//!
//! Frames with the same header stay in order, and so do those of one destination: a second header for a destination ends what is
//! sorted. What a receiver has no room for, where frames behind it have gone elsewhere, is offered once more as a batch and
//! then lost with a count, as in the general stages ([`crate::forward`]); what is behind all that has gone stays with the
//! sender. Whatever is not for the direct path ends it too.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use frame::{Batch, HEAD, Mix, Run, header_of, same_header};
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

/// How a frame begins: its first 16 bytes.
type Head = [u64; 2];

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

/// What sorting needs, kept from mix to mix so that nothing is allocated.
#[derive(Debug)]
pub(crate) struct Sorter {
    groups: Vec<Group>,
    /// By the hash of a header, its group.
    hashed: [u8; MOST],
    /// The group of each frame.
    group: Vec<u8>,
    /// The frames by group: which, where, how long, and how they begin.
    index: Vec<u16>,
    at: Vec<u64>,
    lens: Vec<u16>,
    heads: Vec<Head>,
    picks: Vec<u16>,
}

impl Default for Sorter {
    fn default() -> Self {
        Sorter {
            groups: Vec::new(),
            hashed: [NONE; MOST],
            group: Vec::new(),
            index: Vec::new(),
            at: Vec::new(),
            lens: Vec::new(),
            heads: Vec::new(),
            picks: Vec::new(),
        }
    }
}

thread_local! {
    /// Slices are bound to a thread, so the storage of a batch is too.
    static LEFT: Cell<Batch<'static>> = Cell::default();
}

/// Delivers frames of a mix. Returns how many were dealt with, from the front on; `None` when it is none for this way.
pub(crate) fn deliver(
    state: &SwitchState,
    from: &Port,
    (known, patience): (&mut Known, &mut Patience),
    sorter: &mut Sorter,
    mix: &Mix<'_>,
    now: Nanos,
) -> Option<usize> {
    let sorted = sorter.classify(state, from, known, mix, now);
    if sorted < FEWEST.min(mix.count()) {
        sorter.groups.clear();
        return None;
    }
    sorter.sort(mix, sorted);
    let alone = sorter.groups.len() == 1;
    let gone = sorter.offer(state, mix, now);
    if gone == 0 {
        sorter.groups.clear();
        return None;
    }
    for group in sorter.groups.iter().take(1) {
        patience.serves(group.to.id, alone, now);
    }
    sorter.leave(state, mix, gone, now);
    let (frames, bytes) = (gone as u64, mix.bytes(gone) as u64);
    add_alone(&from.counters.rx_frames, frames);
    add_alone(&from.counters.rx_bytes, bytes);
    add_alone(&from.counters.rx_unicast, frames);
    sorter.groups.clear();
    Some(gone)
}

impl Sorter {
    /// Finds the group of each frame. Returns how many frames have one, from the front on.
    fn classify(
        &mut self,
        state: &SwitchState,
        from: &Port,
        known: &mut Known,
        mix: &Mix<'_>,
        now: Nanos,
    ) -> usize {
        let (_, _, heads) = mix.frames();
        self.groups.clear();
        self.hashed = [NONE; MOST];
        self.group.clear();
        let mut last = NONE;
        for head in heads {
            let is = |groups: &[Group], at: u8| {
                groups
                    .get(usize::from(at))
                    .is_some_and(|group| same_header(group.head, *head))
            };
            if !is(&self.groups, last) {
                let hash = hash(*head);
                last = self.hashed[hash];
                if !is(&self.groups, last) {
                    let found = (0..self.groups.len() as u8).find(|at| is(&self.groups, *at));
                    let Some(at) = found.or_else(|| self.begin(state, from, known, *head, now))
                    else {
                        break;
                    };
                    last = at;
                    self.hashed[hash] = at;
                }
            }
            self.groups[usize::from(last)].frames += 1;
            self.group.push(last);
        }
        self.group.len()
    }

    /// A group for frames that begin so.
    #[inline(never)]
    fn begin(
        &mut self,
        state: &SwitchState,
        from: &Port,
        known: &mut Known,
        head: Head,
        now: Nanos,
    ) -> Option<u8> {
        if self.groups.len() == MOST {
            return None;
        }
        let to = direct::way_of_run(state, from, known, &header_of(head), now)?;
        // Its frames would overtake those of the other header.
        if self.groups.iter().any(|group| group.to.id == to.id) {
            return None;
        }
        self.groups.push(Group {
            to,
            head,
            frames: 0,
            start: 0,
            taken: 0,
        });
        Some(self.groups.len() as u8 - 1)
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
        self.index.resize(n, 0);
        self.at.resize(n, 0);
        self.lens.resize(n, 0);
        self.heads.resize(n, [0; 2]);
        for (i, group) in self.group.iter().enumerate() {
            let next = &mut next[usize::from(*group) % MOST];
            let to = *next;
            *next += 1;
            self.index[to] = i as u16;
            self.at[to] = at[i];
            self.lens[to] = lens[i];
            self.heads[to] = heads[i];
        }
    }

    /// Offers each group as a run. Returns one more than the index of the last frame that was taken.
    fn offer(&mut self, state: &SwitchState, mix: &Mix<'_>, now: Nanos) -> usize {
        let mut gone = 0;
        for group in &mut self.groups {
            let of = group.start..group.start + group.frames;
            let places = (&self.at[of.clone()], &self.lens[of.clone()]);
            let run = Run::of_lengths(mix.from(), places, &self.heads[of.clone()]);
            let Some(run) = run else {
                continue;
            };
            let taken = group.to.sink.deliver_run(&run).unwrap_or(0);
            group.taken = taken.min(run.count());
            if group.taken == 0 {
                continue;
            }
            group
                .to
                .note_progress(group.taken, now, state.stall_bound());
            let counters = &group.to.counters;
            add(&counters.tx_frames, group.taken as u64);
            add(&counters.tx_bytes, run.bytes(group.taken) as u64);
            let last = self.index[of][group.taken - 1];
            gone = gone.max(usize::from(last) + 1);
        }
        gone
    }

    /// Frames before `gone` that were not taken: once more as a batch, which may find room elsewhere; the others are lost.
    fn leave(&mut self, state: &SwitchState, mix: &Mix<'_>, gone: usize, now: Nanos) {
        for group in &self.groups {
            let of = group.start + group.taken..group.start + group.frames;
            let stuck = |i: &&u16| usize::from(**i) < gone;
            let n = self.index[of.clone()].iter().take_while(stuck).count();
            if n == 0 {
                continue;
            }
            let places = of.start..of.start + n;
            let mut batch = LEFT.take().recycle();
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
            LEFT.set(batch.recycle());
        }
    }
}

/// Where a header is looked for first.
#[inline]
fn hash(head: Head) -> usize {
    let mixed = (head[0] ^ head[1] << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 60) as usize % MOST
}

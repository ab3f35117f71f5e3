//! Which task is next.
//!
//! What NICs of one worker share is its time, so that is what they are given equal parts of,
//! whatever they do with it: many small frames, few large ones, register accesses. Each NIC's past
//! turns are added up, and the NIC that has had least goes first (start-time fair queueing, with time
//! in place of bytes). A NIC that had little to do for a while comes with a small lead and so
//! before all that are busy: it waits for the turn under way and not for a round of turns. The lead
//! is bounded, so that no NIC saves up time and then has the worker for itself.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering as Atomic;

use frame::Lines;
use model::Nanos;

use super::task::{Member, OTHERS};

/// The most that one who comes anew is ahead of those who are busy: some turns of a small flow,
/// about one of a flood.
pub(super) const LEAD: Nanos = 20_000;

struct Entry {
    /// What it has had so far, and when it came among equals.
    key: Reverse<(Nanos, u64)>,
    /// When it came.
    since: Nanos,
    member: Member,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

/// The active tasks of a worker, each once.
#[derive(Default)]
pub(super) struct Turns {
    heap: BinaryHeap<Entry>,
    /// What those have had who are served now.
    at: Nanos,
    came: u64,
    /// No one has waited for longer than since then.
    awake_since: Nanos,
}

impl Turns {
    /// How many want a turn.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// With what a task is called that has a turn while others want one.
    pub fn others(&self) -> u32 {
        if self.is_empty() { 0 } else { OTHERS }
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The worker slept until now: those who are here have woken it.
    pub fn awoke(&mut self, now: Nanos) {
        self.awake_since = now;
    }

    /// A task wants a turn, for the first time or again, since `now`.
    pub fn push(&mut self, member: Member, now: Nanos) {
        let spent = &member.0.spent.0;
        let had = spent
            .load(Atomic::Relaxed)
            .max(self.at.saturating_sub(LEAD));
        spent.store(had, Atomic::Relaxed);
        self.came += 1;
        self.heap.push(Entry {
            key: Reverse((had, self.came)),
            since: now,
            member,
        });
    }

    /// Whose turn it is, and since when it wants one. What the turn of the next one touches is fetched meanwhile, and of those who may
    /// come behind it that which says what they touch.
    pub fn next(&mut self) -> Option<(Member, Nanos)> {
        let Entry { key, since, member } = self.heap.pop()?;
        self.at = self.at.max(key.0.0);
        let mut waiting = self.heap.iter().map(|entry| &*entry.member.0);
        if let Some(next) = waiting.next() {
            next.prefetch();
            // The second is one of two.
            waiting.take(2).for_each(|task| Lines::of(task).prefetch());
        }
        Some((member, since.max(self.awake_since)))
    }
}

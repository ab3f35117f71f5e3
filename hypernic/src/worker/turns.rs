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

use model::Nanos;

use super::task::Member;

/// The most that one who comes anew is ahead of those who are busy: some turns of a small flow,
/// about one of a flood.
pub(super) const LEAD: Nanos = 20_000;

struct Entry {
    /// What it has had so far, and when it came among equals.
    key: Reverse<(Nanos, u64)>,
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
}

impl Turns {
    /// How many want a turn.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// A task wants a turn, for the first time or again.
    pub fn push(&mut self, member: Member) {
        let spent = &member.0.spent.0;
        let had = spent
            .load(Atomic::Relaxed)
            .max(self.at.saturating_sub(LEAD));
        spent.store(had, Atomic::Relaxed);
        self.came += 1;
        self.heap.push(Entry {
            key: Reverse((had, self.came)),
            member,
        });
    }

    /// Whose turn it is.
    pub fn next(&mut self) -> Option<Member> {
        let Entry { key, member } = self.heap.pop()?;
        self.at = self.at.max(key.0.0);
        Some(member)
    }
}

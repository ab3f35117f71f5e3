//! What a worker's time goes to: turns with something to do, and looks for some.

use model::Nanos;

use super::task::{Member, Turn, WorkerHandle};
use super::waits::add;
use crate::timeline::{self, Step};

/// Of one worker.
pub(super) struct Account {
    /// Until then it is known.
    told: Nanos,
}

impl Account {
    pub fn new(now: Nanos) -> Self {
        Self { told: now }
    }

    /// A turn that was wanted since then and took so long has ended now.
    pub fn turn(
        &mut self,
        worker: &WorkerHandle,
        member: &Member,
        turn: &Turn,
        (since, took, now): (Nanos, Nanos, Nanos),
    ) {
        let all = now.saturating_sub(std::mem::replace(&mut self.told, now));
        let work = if turn.served { took } else { 0 };
        add(&worker.counters.work, work);
        add(&worker.counters.looking, all.saturating_sub(work));
        add(&member.0.turns, 1);
        add(&member.0.work, work);
        let waited = now.saturating_sub(since);
        worker.waits.answered(turn.answered, waited);
    }

    /// The worker falls asleep.
    pub fn sleeps(&mut self, worker: &WorkerHandle, now: Nanos) {
        let awake = now.saturating_sub(std::mem::replace(&mut self.told, now));
        add(&worker.counters.looking, awake);
    }

    /// It slept until now.
    pub fn awoke(&mut self, now: Nanos) {
        self.told = now;
        timeline::mark_at(now, Step::Woken);
    }
}

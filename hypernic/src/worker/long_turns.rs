//! Tasks whose turns wait get a worker of their own.
//!
//! No code of a turn waits for a peer, but a copy may: for a page that the peer's own process punches out of its memory
//! meanwhile. The kernel holds up the thread then, and with it all that it serves. So a task whose turns do that moves to a
//! thread that serves few others or none, and comes back when it has not waited for a minute.

use std::sync::atomic::{AtomicU64, Ordering};

use model::Nanos;

/// Most such workers. If there are more such tasks, they share.
pub(super) const APART: usize = 8;
/// Turns are far shorter. One that was longer has waited, or its thread was not running.
pub(super) const LONG: Nanos = 4_000_000;
/// How long it is looked at more closely after such a turn.
const WATCHED: Nanos = 1_000_000_000;
/// How long a task stays apart after the last.
const STAYS: Nanos = 60_000_000_000;

/// What is known about a task's long turns. Only the thread that holds the task writes it.
#[derive(Debug, Default)]
pub(super) struct LongTurns {
    /// When the last one ended, if there was one.
    last: AtomicU64,
}

impl LongTurns {
    fn since(&self, now: Nanos) -> Option<Nanos> {
        let last = self.last.load(Ordering::Relaxed);
        (last != 0).then(|| now.saturating_sub(last))
    }

    /// For a turn that begins: how long its thread was running or ready so far, if that is to be known.
    #[inline]
    pub(super) fn before(&self, now: Nanos) -> Option<Nanos> {
        self.since(now).filter(|since| *since < WATCHED)?;
        time_awake()
    }

    /// A turn took so long. `true`: as in one not long before, its thread waited for most of it.
    #[inline]
    pub(super) fn after(&self, (took, now): (Nanos, Nanos), awake: Option<Nanos>) -> bool {
        if took < LONG {
            return false;
        }
        self.last.store(now.max(1), Ordering::Relaxed);
        // The kernel brings what a running thread has had up to date when it yields; from before the turn it says too
        // little at most, so that the thread seems to have waited less than it has.
        std::thread::yield_now();
        let awake = awake.and_then(|before| Some(time_awake()?.saturating_sub(before)));
        awake.is_some_and(|awake| took.saturating_sub(awake) >= LONG)
    }

    /// Whether a task that is apart may come back.
    pub(super) fn are_past(&self, now: Nanos) -> bool {
        self.since(now).is_none_or(|since| since > STAYS)
    }
}

/// How long this thread has run, or would have if there had been a processor for it. `None`: the kernel does not say.
#[cold]
fn time_awake() -> Option<Nanos> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut times = times.split(' ').map(str::parse::<Nanos>);
    let (ran, ready) = (times.next()?.ok()?, times.next()?.ok()?);
    Some(ran + ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waiting_in_a_second_long_turn_counts() {
        let turns = LongTurns::default();
        assert_eq!(turns.before(5), None);
        assert!(!turns.after((LONG, 5 * LONG), None));
        let nap = || std::thread::sleep(std::time::Duration::from_nanos(LONG));
        // A thread that was ready all the while has not waited.
        let before = turns.before(6 * LONG).expect("it was long");
        assert!(!turns.after((LONG, 7 * LONG), before.checked_sub(LONG)));
        let before = turns.before(8 * LONG);
        nap();
        assert!(!turns.after((LONG - 1, 8 * LONG), before));
        // As long as it was, but for what else the test did.
        assert!(turns.after((2 * LONG, 9 * LONG), before));
        assert!(!turns.are_past(9 * LONG + STAYS) && turns.are_past(10 * LONG + STAYS));
        assert_eq!(turns.before(9 * LONG + WATCHED), None);
    }
}

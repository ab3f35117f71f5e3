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

    /// For a turn that begins: how often its thread has slept so far, if that is to be known.
    #[inline]
    pub(super) fn before(&self, now: Nanos) -> Option<u64> {
        self.since(now).filter(|since| *since < WATCHED)?;
        times_slept()
    }

    /// A turn took so long. `true`: in it the thread has slept, as after one not long before.
    #[inline]
    pub(super) fn after(&self, (took, now): (Nanos, Nanos), slept: Option<u64>) -> bool {
        if took < LONG {
            return false;
        }
        self.last.store(now.max(1), Ordering::Relaxed);
        slept.is_some_and(|before| times_slept().is_some_and(|times| times > before))
    }

    /// Whether a task that is apart may come back.
    pub(super) fn are_past(&self, now: Nanos) -> bool {
        self.since(now).is_none_or(|since| since > STAYS)
    }
}

/// How often this thread gave up its processor to wait for something.
#[cold]
fn times_slept() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let mut lines = status.lines();
    let times = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    times.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sleep_in_a_second_long_turn_counts() {
        let turns = LongTurns::default();
        assert_eq!(turns.before(5), None);
        assert!(!turns.after((LONG, 5 * LONG), None));
        // Running for long is no waiting.
        let before = turns.before(6 * LONG);
        assert!(before.is_some());
        assert!(!turns.after((LONG, 7 * LONG), before.map(|n| n + 1_000_000)));
        let before = turns.before(8 * LONG);
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(!turns.after((LONG - 1, 8 * LONG), before));
        assert!(turns.after((LONG, 9 * LONG), before));
        assert!(!turns.are_past(9 * LONG + STAYS) && turns.are_past(10 * LONG + STAYS));
        assert_eq!(turns.before(9 * LONG + WATCHED), None);
    }
}

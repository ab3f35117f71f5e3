//! Tasks whose turns wait get a worker of their own.
//!
//! No code of a turn waits for a peer, but a copy may: for a page that the peer's own process punches out of its memory
//! meanwhile. The kernel holds up the thread then, and with it all that it serves. So a task whose turns do that moves to a
//! thread that serves few others or none, and comes back when it has not waited for a minute.

use std::sync::atomic::{AtomicU64, Ordering};

use model::Nanos;

use super::had::{Had, had};

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
    /// Turns since then.
    turns: AtomicU64,
}

impl LongTurns {
    fn since(&self, now: Nanos) -> Option<Nanos> {
        let last = self.last.load(Ordering::Relaxed);
        (last != 0).then(|| now.saturating_sub(last))
    }

    /// For a turn that begins: what its thread has had so far, if that is to be known.
    ///
    /// To ask costs more than most turns, and the host of a virtual machine may take a processor away for long at any time. So
    /// the first turn after a long one is looked at, the second, the fourth and so on: a task that waits in each of them is found
    /// at once, one that waits in a few soon, and one that does not wait is served as fast as ever.
    #[inline]
    pub(super) fn before(&self, now: Nanos) -> Option<Had> {
        self.since(now).filter(|since| *since < WATCHED)?;
        let turn = self.turns.load(Ordering::Relaxed) + 1;
        self.turns.store(turn, Ordering::Relaxed);
        turn.is_power_of_two().then(had).flatten()
    }

    /// A turn took so long, and another thread had the processor for so long of it. `true`: as in one not long before, its thread
    /// waited for most of it.
    ///
    /// A turn that was only interrupted is no reason to look closely: that costs several microseconds a turn.
    #[inline]
    pub(super) fn after(
        &self,
        took: Nanos,
        delayed: Nanos,
        (now, before): (Nanos, Option<Had>),
    ) -> bool {
        if took.saturating_sub(delayed) < LONG {
            return false;
        }
        self.last.store(now.max(1), Ordering::Relaxed);
        self.turns.store(0, Ordering::Relaxed);
        // The kernel brings what a running thread has had up to date when it yields; from before the turn it says too
        // little at most, so that the thread seems to have waited less than it has.
        std::thread::yield_now();
        let both = before.and_then(|before| Some((before, had()?)));
        both.is_some_and(|(before, after)| {
            // A processor that the host takes away looks like waiting, but for that.
            let slept = after.slept > before.slept;
            slept && took.saturating_sub(after.awake.saturating_sub(before.awake)) >= LONG
        })
    }

    /// Whether a task that is apart may come back.
    pub(super) fn are_past(&self, now: Nanos) -> bool {
        self.since(now).is_none_or(|since| since > STAYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_turns_after_a_long_one_few_are_looked_at() {
        let turns = LongTurns::default();
        let looked = || {
            let all = 1..=1000;
            all.filter(|_| turns.before(LONG).is_some())
                .collect::<Vec<u64>>()
        };
        for _ in 0..2 {
            assert!(!turns.after(LONG, 0, (LONG, None)));
            assert_eq!(looked(), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        }
    }

    #[test]
    fn only_waiting_in_a_second_long_turn_counts() {
        let turns = LongTurns::default();
        assert!(turns.before(5).is_none());
        assert!(!turns.after(3 * LONG, 2 * LONG + 1, (4 * LONG, None)));
        assert!(turns.before(4 * LONG).is_none());
        assert!(!turns.after(LONG, 0, (5 * LONG, None)));
        let nap = || std::thread::sleep(std::time::Duration::from_nanos(LONG));
        // A thread that was ready all the while has not waited, and one that did not sleep has not either.
        let before = turns.before(6 * LONG).expect("it was long");
        let earlier = Had {
            awake: before.awake.saturating_sub(LONG),
            ..before
        };
        assert!(!turns.after(LONG, 0, (7 * LONG, Some(earlier))));
        nap();
        let awake = Had {
            slept: u64::MAX,
            ..before
        };
        assert!(!turns.after(100 * LONG, 0, (7 * LONG, Some(awake))));
        let before = turns.before(8 * LONG);
        nap();
        assert!(!turns.after(LONG - 1, 0, (8 * LONG, before)));
        assert!(turns.after(1000 * LONG, 0, (9 * LONG, before)));
        assert!(!turns.are_past(9 * LONG + STAYS) && turns.are_past(10 * LONG + STAYS));
        assert!(turns.before(9 * LONG + WATCHED).is_none());
    }
}

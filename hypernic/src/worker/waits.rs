//! How long messages wait for their answers.
//!
//! A register access that is answered late holds up a virtual CPU. Times are those between two readings of the clock
//! that turns make anyway: from when the worker saw that there is something to do until the turn has ended.

use std::sync::atomic::{AtomicU64, Ordering};

use model::Nanos;

/// Bounds of the counters, and their names.
const BOUNDS: [(Nanos, &str); 10] = [
    (10_000, "replies_in_10us"),
    (30_000, "replies_in_30us"),
    (100_000, "replies_in_100us"),
    (300_000, "replies_in_300us"),
    (1_000_000, "replies_in_1ms"),
    (3_000_000, "replies_in_3ms"),
    (10_000_000, "replies_in_10ms"),
    (30_000_000, "replies_in_30ms"),
    (100_000_000, "replies_in_100ms"),
    (1_000_000_000, "replies_in_1s"),
];
const LATER: &str = "replies_later";
const SUM: &str = "replies_wait_ns";

/// The bounds in seconds, with the names of their counters, each of which counts what the one before does not; then
/// the name of what is later than all bounds, and that of all waits together.
pub(crate) fn histogram() -> (Vec<(f64, &'static str)>, &'static str, &'static str) {
    let seconds = |(bound, name): (Nanos, &'static str)| (bound as f64 / 1e9, name);
    (BOUNDS.map(seconds).into(), LATER, SUM)
}

/// Of one worker, which alone writes them.
#[derive(Default)]
pub(super) struct Waits {
    in_time: [AtomicU64; BOUNDS.len()],
    later: AtomicU64,
    sum: AtomicU64,
}

/// Adds to what one thread alone writes.
pub(super) fn add(to: &AtomicU64, n: u64) {
    to.store(
        to.load(Ordering::Relaxed).wrapping_add(n),
        Ordering::Relaxed,
    );
}

impl Waits {
    /// So many messages had their answers after so long.
    pub fn answered(&self, messages: usize, after: Nanos) {
        if messages == 0 {
            return;
        }
        let messages = messages as u64;
        let at = BOUNDS.iter().position(|(bound, _)| after <= *bound);
        let counter = at.map_or(&self.later, |at| &self.in_time[at]);
        add(counter, messages);
        add(&self.sum, messages.saturating_mul(after));
    }

    pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = BOUNDS.iter().map(|(_, name)| *name);
        let all = names.zip(&self.in_time);
        let rest = [(LATER, &self.later), (SUM, &self.sum)];
        all.chain(rest)
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_counted_once_at_the_least_bound_that_it_keeps() {
        let waits = Waits::default();
        waits.answered(0, 5);
        waits.answered(2, 10_000);
        waits.answered(1, 10_001);
        waits.answered(3, 2_000_000_000);
        let values: Vec<_> = waits.values().filter(|(_, n)| *n > 0).collect();
        let sum = 20_000 + 10_001 + 6_000_000_000;
        assert_eq!(
            values,
            [
                ("replies_in_10us", 2),
                ("replies_in_30us", 1),
                (LATER, 3),
                (SUM, sum)
            ]
        );
    }
}

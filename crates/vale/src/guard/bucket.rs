//! A token bucket, charged for a whole batch at once.

use crate::Nanos;

const SECOND: i128 = 1_000_000_000;

/// So much a second, and so much at once after a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// Units a second; at least 1.
    pub per_second: u64,
    /// Units that may come at once; at least 1.
    pub burst: u64,
}

/// What is left of a [`Limit`].
///
/// It counts in units times nanoseconds, so that nothing is ever rounded: over any time the rate
/// is exact. A frame passes while anything is left and may leave a debt, so one that is larger
/// than the burst is late rather than lost.
#[derive(Debug)]
pub(crate) struct Bucket {
    limit: Limit,
    left: i128,
    seen: Nanos,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(limit: Limit, now: Nanos) -> Bucket {
        Bucket {
            limit,
            left: i128::from(limit.burst) * SECOND,
            seen: now,
        }
    }

    /// Adds what has come since the last call.
    pub(crate) fn refill(&mut self, now: Nanos) {
        let gone = now.saturating_sub(self.seen);
        self.seen = self.seen.max(now);
        let full = i128::from(self.limit.burst) * SECOND;
        let come = i128::from(gone) * i128::from(self.limit.per_second);
        self.left = self.left.saturating_add(come).min(full);
    }

    /// Whether `units` are left in it.
    pub(crate) fn covers(&self, units: u64) -> bool {
        self.left >= i128::from(units) * SECOND
    }

    /// Whether another frame may pass.
    pub(crate) fn is_open(&self) -> bool {
        self.left > 0
    }

    /// Takes `units` out of it.
    pub(crate) fn charge(&mut self, units: u64) {
        self.left -= i128::from(units) * SECOND;
    }

    /// Gives back units that were charged for nothing.
    pub(crate) fn give_back(&mut self, units: u64) {
        let full = i128::from(self.limit.burst) * SECOND;
        self.left = (self.left + i128::from(units) * SECOND).min(full);
    }

    /// When a quarter of the burst will be there, so that whoever waits is woken for a batch and
    /// not for each frame.
    pub(crate) fn worthwhile_at(&self) -> Nanos {
        let goal = i128::from(self.limit.burst) * SECOND / 4;
        let missing = (goal - self.left).max(1);
        let rate = i128::from(self.limit.per_second);
        let wait = (missing + rate - 1) / rate;
        self.seen
            .saturating_add(wait.try_into().unwrap_or(Nanos::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_debt_is_paid_before_the_next() {
        let limit = Limit {
            per_second: 1000,
            burst: 8,
        };
        let mut bucket = Bucket::new(limit, 0);
        assert!(bucket.covers(8) && !bucket.covers(9));
        // Larger than the burst: it goes, and the next waits until it is paid for.
        assert!(bucket.is_open());
        bucket.charge(20);
        assert!(!bucket.is_open());
        assert_eq!(bucket.worthwhile_at(), 14_000_000);
        bucket.refill(12_000_000);
        assert!(!bucket.is_open());
        bucket.refill(12_000_001);
        assert!(bucket.is_open());
        bucket.refill(14_000_000);
        assert!(bucket.covers(2));
        // A silence buys one burst and no more; a clock that jumps back buys nothing.
        bucket.refill(u64::MAX);
        assert!(bucket.covers(8) && !bucket.covers(9));
        bucket.charge(8);
        bucket.refill(0);
        assert!(!bucket.is_open());
    }

    proptest! {
        #[test]
        fn over_any_time_the_rate_is_exact(
            per_second in 1..u64::MAX / 2,
            burst in 1..1u64 << 40,
            steps in proptest::collection::vec((0..3_000_000_000u64, 1..100_000u64), 1..60)
        ) {
            let mut bucket = Bucket::new(Limit { per_second, burst }, 0);
            let (mut now, mut passed, mut largest) = (0u64, 0i128, 0i128);
            for (gap, units) in steps {
                now += gap;
                bucket.refill(now);
                if bucket.is_open() {
                    bucket.charge(units);
                    passed += i128::from(units);
                    largest = largest.max(units.into());
                } else {
                    // It says when to come again, and then it is open.
                    let at = bucket.worthwhile_at();
                    prop_assert!(at > now);
                    now = at;
                    bucket.refill(now);
                    prop_assert!(bucket.is_open());
                }
                let most = i128::from(burst) * SECOND + i128::from(now) * i128::from(per_second);
                prop_assert!(passed * SECOND <= most + largest * SECOND);
            }
        }
    }
}

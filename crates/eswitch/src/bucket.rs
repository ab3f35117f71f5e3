//! A token bucket: the one behind rates, storm limits and mailboxes.

use crate::time::Nanos;

const SECOND: i128 = 1_000_000_000;

/// So much a second, and so much at once after a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Units a second; at least 1.
    pub per_second: u64,
    /// Units that may come at once; at least 1.
    pub burst: u64,
}

impl Limit {
    /// So much a second, and at once what comes in `burst_ms` milliseconds, but at least `least`.
    pub fn new(per_second: u64, burst_ms: u64, least: u64) -> Limit {
        let per_second = per_second.max(1);
        let burst = u128::from(per_second) * u128::from(burst_ms) / 1000;
        Limit {
            per_second,
            burst: u64::try_from(burst).unwrap_or(u64::MAX).max(least),
        }
    }
}

/// What is left of a [`Limit`].
///
/// It counts in units times nanoseconds, so that nothing is ever rounded: over any time the rate
/// is exact. A frame passes while anything is left and may leave a debt, so one that is larger
/// than the burst is late rather than lost.
#[derive(Clone, Debug)]
pub struct Bucket {
    limit: Limit,
    left: i128,
    seen: Nanos,
}

impl Bucket {
    /// A full one.
    pub fn new(limit: Limit, now: Nanos) -> Bucket {
        Bucket {
            limit,
            left: i128::from(limit.burst) * SECOND,
            seen: now,
        }
    }

    /// Adds what has come since the last call.
    #[inline]
    pub fn refill(&mut self, now: Nanos) {
        let gone = now.saturating_sub(self.seen);
        self.seen = self.seen.max(now);
        let full = i128::from(self.limit.burst) * SECOND;
        let come = i128::from(gone) * i128::from(self.limit.per_second);
        self.left = self.left.saturating_add(come).min(full);
    }

    /// Takes `units` if that many are there now; never leaves a debt.
    pub fn take(&mut self, units: u64, now: Nanos) -> bool {
        self.refill(now);
        let covered = self.covers(units);
        if covered {
            self.charge(units);
        }
        covered
    }

    /// Whether `units` are left in it.
    #[inline]
    pub fn covers(&self, units: u64) -> bool {
        self.left >= i128::from(units) * SECOND
    }

    /// Whether another frame may pass.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.left > 0
    }

    /// Takes `units` out of it.
    #[inline]
    pub fn charge(&mut self, units: u64) {
        self.left -= i128::from(units) * SECOND;
    }

    /// Gives back units that were charged for nothing.
    pub fn give_back(&mut self, units: u64) {
        let full = i128::from(self.limit.burst) * SECOND;
        self.left = (self.left + i128::from(units) * SECOND).min(full);
    }

    /// When there will be a whole unit, as of the last call.
    pub fn next_at(&self) -> Nanos {
        self.reached_at((SECOND - self.left).max(0))
    }

    /// When a quarter of the burst will be there, so that a sender that waits is woken for a batch and
    /// not for each frame.
    pub fn worthwhile_at(&self) -> Nanos {
        let goal = i128::from(self.limit.burst) * SECOND / 4;
        self.reached_at((goal - self.left).max(1))
    }

    /// When so much more will have come.
    fn reached_at(&self, missing: i128) -> Nanos {
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

    fn small() -> Bucket {
        let limit = Limit {
            per_second: 10,
            burst: 3,
        };
        Bucket::new(limit, 0)
    }

    #[test]
    fn a_burst_and_then_the_rate_exactly() {
        let mut bucket = small();
        assert_eq!((0..9).filter(|_| bucket.take(1, 0)).count(), 3);
        let next = bucket.next_at();
        assert_eq!(next, 100_000_000);
        assert!(!bucket.take(1, next - 1) && bucket.take(1, next) && !bucket.take(1, next));
        // A clock that stands still, or a long silence, gives no more than the burst.
        assert_eq!((0..9).filter(|_| bucket.take(1, Nanos::MAX)).count(), 3);
    }

    #[test]
    fn all_or_nothing() {
        let mut bucket = small();
        assert!(!bucket.take(4, 0) && !bucket.take(u64::MAX, 0));
        assert!(bucket.take(2, 0) && !bucket.take(2, 0) && bucket.take(1, 0));
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

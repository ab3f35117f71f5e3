//! So many at once, and so many a second after that.

use crate::Nanos;

const SECOND: u128 = 1_000_000_000;

/// A token bucket. It counts in tokens times nanoseconds, so that nothing is rounded.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_second: u32,
    burst: u32,
    left: u128,
    seen: Nanos,
}

impl Bucket {
    /// A full one. Both at least 1.
    pub(crate) fn new(per_second: u32, burst: u32, now: Nanos) -> Bucket {
        let (per_second, burst) = (per_second.max(1), burst.max(1));
        Bucket {
            per_second,
            burst,
            left: u128::from(burst) * SECOND,
            seen: now,
        }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        self.take_all(1, now)
    }

    /// Takes so many, if there are so many.
    pub(crate) fn take_all(&mut self, count: u64, now: Nanos) -> bool {
        let gone = now.saturating_sub(self.seen);
        self.seen = self.seen.max(now);
        let come = u128::from(gone) * u128::from(self.per_second);
        self.left = (self.left + come).min(u128::from(self.burst) * SECOND);
        let rest = self.left.checked_sub(u128::from(count) * SECOND);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    /// When there will be one.
    pub(crate) fn next(&self) -> Nanos {
        let missing = SECOND.saturating_sub(self.left);
        let wait = missing.div_ceil(u128::from(self.per_second));
        self.seen
            .saturating_add(wait.try_into().unwrap_or(Nanos::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate_exactly() {
        let mut bucket = Bucket::new(10, 3, 0);
        assert_eq!((0..9).filter(|_| bucket.take(0)).count(), 3);
        let next = bucket.next();
        assert_eq!(next, 100_000_000);
        assert!(!bucket.take(next - 1) && bucket.take(next) && !bucket.take(next));
        // A clock that stands still, or a long silence, gives no more than the burst.
        assert_eq!((0..9).filter(|_| bucket.take(Nanos::MAX)).count(), 3);
    }

    #[test]
    fn all_or_nothing() {
        let mut bucket = Bucket::new(10, 3, 0);
        assert!(!bucket.take_all(4, 0) && !bucket.take_all(u64::MAX, 0));
        assert!(bucket.take_all(2, 0) && !bucket.take_all(2, 0) && bucket.take(0));
    }
}

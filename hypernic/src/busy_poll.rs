//! How long to stay awake before going to sleep.

use std::time::Duration;

/// The shortest time worth staying awake for.
const LEAST: Duration = Duration::from_micros(10);

/// Grows while sleeps turn out shorter than staying awake would have been, shrinks when they are
/// long. An idle worker is at zero and costs nothing.
#[derive(Debug, Default)]
pub(crate) struct BusyPollBackoff {
    window: Duration,
}

impl BusyPollBackoff {
    /// How long to stay awake now. `most` is the longest time ever spent awake at once; zero turns
    /// it off.
    pub(crate) fn window(&self, most: Duration) -> Duration {
        self.window.min(most)
    }

    /// Nothing came within the window, then a sleep of `length`.
    pub(crate) fn slept(&mut self, length: Duration, most: Duration) {
        self.window = if length <= most {
            (self.window * 2).max(LEAST).min(most)
        } else if self.window / 2 < LEAST {
            Duration::ZERO
        } else {
            self.window / 2
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn short_sleeps_lengthen_it_and_long_ones_end_it() {
        let most = 50 * US;
        let mut backoff = BusyPollBackoff::default();
        assert_eq!(backoff.window(most), Duration::ZERO);
        for expected in [10, 20, 40, 50, 50] {
            backoff.slept(5 * US, most);
            assert_eq!(backoff.window(most), expected * US);
        }
        for expected in [25_000, 12_500, 0, 0] {
            backoff.slept(1000 * US, most);
            assert_eq!(backoff.window(most), Duration::from_nanos(expected));
        }
    }

    #[test]
    fn zero_turns_it_off() {
        let mut backoff = BusyPollBackoff::default();
        backoff.slept(Duration::ZERO, Duration::ZERO);
        assert_eq!(backoff.window(Duration::ZERO), Duration::ZERO);
        backoff.slept(5 * US, 50 * US);
        assert_eq!(backoff.window(Duration::ZERO), Duration::ZERO);
    }
}

//! How long to stay awake before going to sleep.

use std::time::Duration;

/// The shortest time worth staying awake for.
const LEAST: Duration = Duration::from_micros(10);

/// Grows while sleeps turn out shorter than staying awake would have been, shrinks when they are
/// long. An idle NIC is at zero and costs nothing.
#[derive(Debug)]
pub(crate) struct Patience {
    most: Duration,
    window: Duration,
    /// Sleeps saved so far.
    pub(crate) saved: u64,
}

impl Patience {
    /// `most` is the longest time ever spent awake at once; zero turns it off.
    pub(crate) fn new(most: Duration) -> Self {
        Self {
            most,
            window: Duration::ZERO,
            saved: 0,
        }
    }

    /// How long to stay awake now.
    pub(crate) fn window(&self) -> Duration {
        self.window
    }

    /// There was something to do within the window.
    pub(crate) fn paid(&mut self) {
        self.saved += 1;
    }

    /// Nothing came within the window, then a sleep of `length`.
    pub(crate) fn slept(&mut self, length: Duration) {
        self.window = if length <= self.most {
            (self.window * 2).max(LEAST).min(self.most)
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
        let mut patience = Patience::new(50 * US);
        assert_eq!(patience.window(), Duration::ZERO);
        for expected in [10, 20, 40, 50, 50] {
            patience.slept(5 * US);
            assert_eq!(patience.window(), expected * US);
        }
        for expected in [25_000, 12_500, 0, 0] {
            patience.slept(1000 * US);
            assert_eq!(patience.window(), Duration::from_nanos(expected));
        }
    }

    #[test]
    fn zero_turns_it_off() {
        let mut patience = Patience::new(Duration::ZERO);
        patience.slept(Duration::ZERO);
        assert_eq!(patience.window(), Duration::ZERO);
    }
}

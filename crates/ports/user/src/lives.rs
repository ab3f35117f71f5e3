//! How often a network's process is started anew.

use std::time::{Duration, Instant};

/// A life that was shorter did not help.
const LIFE: Duration = Duration::from_secs(60);
/// So many short lives in a row, and there is no next.
const MOST: u32 = 6;
/// The first pause; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Lives {
    began: Instant,
    /// In a row.
    short: u32,
}

/// What comes after a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next one, so long from now.
    In(Duration),
    /// None: so many were of no use.
    GiveUp(u32),
}

impl Lives {
    /// The first begins.
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            short: 0,
        }
    }

    /// The next has begun.
    pub fn begin(&mut self, now: Instant) {
        self.began = now;
    }

    /// One has ended, or could not be started.
    pub fn next(&mut self, now: Instant) -> Next {
        if now.saturating_duration_since(self.began) >= LIFE {
            self.short = 0;
        }
        self.short += 1;
        // It counts from now on: who cannot be started has no life.
        self.began = now;
        match self.short {
            MOST.. => Next::GiveUp(self.short),
            short => Next::In(PAUSE * (1 << (short - 1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lives_are_few_and_long_ones_as_many_as_there_are() {
        let start = Instant::now();
        let mut lives = Lives::new(start);
        let pauses: Vec<_> = (0..6).map(|_| lives.next(start)).collect();
        let millis = [100, 200, 400, 800, 1600].map(|ms| Next::In(Duration::from_millis(ms)));
        assert_eq!(pauses[..5], millis);
        assert_eq!(pauses[5], Next::GiveUp(6));
        let mut lives = Lives::new(start);
        for minute in 1..100 {
            let now = start + LIFE * minute;
            assert_eq!(lives.next(now), Next::In(PAUSE));
            lives.begin(now);
        }
    }
}

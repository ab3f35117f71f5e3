//! Whether trying pays.

/// Whether a sender tries runs: not for a while, where none was found or taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habit {
    wait: u8,
    skip: u8,
}

/// Most batches in a row without a try.
const MOST_SKIPPED: u8 = 31;

impl Habit {
    /// Whether [`Habit::tries`] would say so, and change nothing.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.skip == 0
    }

    /// Whether to try now.
    pub fn tries(&mut self) -> bool {
        let skips = self.skip > 0;
        self.skip = self.skip.saturating_sub(1);
        !skips
    }

    /// No run was found, or the sink took none.
    pub fn failed(&mut self) {
        self.wait = (2 * self.wait + 1).min(MOST_SKIPPED);
        self.skip = self.wait;
    }

    /// One was sent.
    #[inline]
    pub fn worked(&mut self) {
        self.wait = 0;
    }
}

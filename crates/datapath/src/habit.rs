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

    /// The sink had no room, which is why it took no run: once it has, trying pays again.
    #[inline]
    pub fn was_full(&mut self) {
        *self = Habit::default();
    }

    /// One was sent.
    #[inline]
    pub fn worked(&mut self) {
        self.wait = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches until the next try.
    fn skipped(habit: &mut Habit) -> u32 {
        (0..).take_while(|_| !habit.tries()).count() as u32
    }

    #[test]
    fn what_fails_again_and_again_is_tried_ever_more_rarely() {
        let mut habit = Habit::default();
        let mut fail = || {
            habit.failed();
            skipped(&mut habit)
        };
        assert_eq!([fail(), fail(), fail()], [1, 3, 7]);
        assert_eq!([fail(), fail(), fail()], [15, 31, 31]);
        habit.worked();
        habit.failed();
        assert_eq!(skipped(&mut habit), 1);
        // A full sink says nothing about runs.
        habit.failed();
        habit.was_full();
        assert!(habit.is_open());
        habit.failed();
        assert_eq!(skipped(&mut habit), 1);
    }
}

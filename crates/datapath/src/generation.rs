//! Whether what was worked out from a device's set-up still holds.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the changes of a set-up: what follows from it is worked out once per generation, and one comparison says
/// whether it still holds.
///
/// A change is counted after it was made, and before what it forbids is waited for: who works something out under the
/// lock that is waited for, by the generation that it reads there, sees the change or is waited for.
#[derive(Debug)]
pub struct Generation(AtomicU32);

impl Default for Generation {
    fn default() -> Self {
        // 0 is of a plan that was never made.
        Generation(AtomicU32::new(1))
    }
}

impl Generation {
    /// The number of the set-up as it is. Ask before looking at the set-up.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// The set-up has changed.
    #[inline]
    pub fn changed(&self) {
        if self.0.fetch_add(1, Ordering::AcqRel) == u32::MAX {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_and_no_generation_is_that_of_a_plan_never_made() {
        let generation = Generation(AtomicU32::new(u32::MAX - 1));
        for _ in 0..3 {
            let before = generation.get();
            generation.changed();
            assert!(generation.get() != before && generation.get() != 0);
        }
    }
}

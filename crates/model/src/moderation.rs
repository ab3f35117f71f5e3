//! What the operator chooses of the time of interrupts.

use std::num::NonZeroU32;

/// When interrupts are raised. Nothing but their timing depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moderation {
    /// As the driver's registers say, to the letter.
    #[default]
    Guest,
    /// Not more often than pays for the guest, as measured by how long it takes to acknowledge
    /// one; sooner where buffers could run out; and at once where traffic is sparse or a peer waits
    /// for an answer.
    Adaptive,
    /// At most so many a second, whatever the registers say: from one to the next at least the part
    /// of a second that is each one's. The first after a pause comes at once.
    Fixed(NonZeroU32),
}

impl Moderation {
    /// Nanoseconds from one interrupt to the next, where that is fixed.
    pub fn gap(self) -> Option<u64> {
        match self {
            Moderation::Fixed(rate) => Some(1_000_000_000 / u64::from(rate.get())),
            Moderation::Guest | Moderation::Adaptive => None,
        }
    }
}

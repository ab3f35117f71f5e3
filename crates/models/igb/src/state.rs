//! A whole physical function as plain data: saved, checked and loaded.
//!
//! [`model::Control::save`] and [`model::Control::load`] carry a [`State`] in the container of the
//! crate `snapshot`. Each part of the live function is taken apart beside it, field by field and
//! without `..`, so that a new field cannot be forgotten without the compiler saying so.
//!
//! What is in it: everything the guest can find out, now or later. What is not: what the operator
//! configured, what PCI configuration says (its owner saves that), counters for people, and who waits
//! for room.
//!
//! *Time* is relative to the moment of saving: nanoseconds, negative for the past.
//!
//! *Consistency*: both take the locks of all queues, the transmit sides first, so a state lies between
//! two batches. A packet whose descriptors are not complete is still in the guest's ring, before the
//! head; of one that was sent in part, the number of frames that left is known.

mod irq;
mod ptp;
#[cfg(test)]
mod tests;
pub(crate) mod v1;
pub mod vf;

pub(crate) use intel::saved::{PAUSE, absolute, check, field, relative};
pub use snapshot::{Kind, StateError};
pub use v1::{
    Clock, Context, Count, Flow, Interrupts, KIND, Nvm, Phase, Phy, Queue, QueueCounts, Stamp, V1,
    Words,
};

/// The state as this program saves it.
pub type State = V1;

/// The version that is saved. Older ones are loaded, newer ones refused.
pub const VERSION: u32 = 1;

/// PCI device id of what is saved.
pub(crate) const DEVICE: u16 = 0x10c9;

/// Reads a state of any known version without loading it.
///
/// # Errors
/// When it is damaged, of something else, or from the future. The fields are not checked.
pub fn read(blob: &[u8]) -> Result<State, StateError> {
    intel::saved::decode(blob)
}

/// Encodes a state as [`model::Control::save`] does.
pub fn write(state: &State) -> Vec<u8> {
    snapshot::seal(state)
}

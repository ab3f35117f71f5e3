//! The whole NIC as plain data: saved, checked and loaded.
//!
//! [`model::Control::save`] and [`model::Control::load`] carry a [`State`] in the container of the
//! crate `snapshot`. The types here are apart from the live ones; live types are taken apart field
//! by field on the way, so that a new field cannot be forgotten without the compiler saying so.
//!
//! What is in it: everything the guest can find out, now or later. What is not: what the operator
//! configured (moderation mode, length of auto-negotiation, true FCS), counters for people, and who
//! waits for room: these belong to the process. Frames that wait with their senders are theirs.
//!
//! *Time* is relative to the moment of saving: nanoseconds, negative for the past. Another host's
//! clock may say what it likes.
//!
//! *Consistency*: both take the locks of the transmitter, the receiver and the interrupt logic, in
//! that order, so a state lies between two batches. A packet whose descriptors are not complete is
//! still in the guest's ring, before the head; of one that was sent in part, the number of frames
//! that left is known.

pub(crate) mod v1;

pub use snapshot::{Kind, StateError};
pub use v1::{
    Adaptive, Context, Count, Delay, Eeprom, Interrupts, KIND, Page, Phase, Phy, Receiver, Target,
    Transmitter, V1, Words,
};

/// The state as this program saves it.
pub type State = V1;

/// The version that is saved. Older ones are loaded, newer ones refused.
pub const VERSION: u32 = 1;

/// Reads a state of any known version without loading it.
///
/// # Errors
/// When it is damaged, of something else, or from the future. The fields are not checked.
pub fn read(blob: &[u8]) -> Result<State, StateError> {
    intel::saved::decode(blob)
}

/// Bytes of a [`Page`].
pub(crate) const PAGE: usize = 1024;

/// Encodes a state as [`model::Control::save`] does.
pub fn write(state: &State) -> Vec<u8> {
    snapshot::seal(state)
}

//! A whole virtual function as plain data: saved, checked and loaded, as [`crate::state`] does it for
//! the physical one. Each part of the live function is taken apart field by field and without `..`.
//!
//! What is in it: everything the guest can find out, now or later. That is its registers, its rings
//! and how far they are, interrupts that are pending, masked or held back, counters, and the mailbox:
//! words, flags, and what neither side has been told of yet.
//!
//! What is *the PF's*, and given anew by the PF of whoever loads it: whether it may send and
//! receive, its link, longest frame, tag and least gap between interrupts. A state crosses hands that
//! nobody rules (a VMM's, a file's), so what it says of [grants](Granted) is a claim: in force is what
//! the [`VfChannel`](crate::VfChannel) of the one that loads grants, from the first moment on, and the PF is
//! told [what was claimed](crate::Event::Loaded). What a PF remembers of a VF beside (its addresses,
//! groups, VLANs, messages that wait, what it is blamed for) is in no state of the VF. A PF that
//! goes on ruling the same VF may leave it at that, and nobody will notice that it was saved; one that
//! knows nothing of it, as the software PF, has its driver start anew, as after a reset of the port.
//!
//! What is not in it either: what PCI configuration says (bus mastering, the way of interrupts; its
//! owner saves that), counters for people, who waits for room. Which messages were sent and not
//! answered is not kept: what stands when it is loaded is told again, since a message may have been lost
//! on the way.
//!
//! *Time* and *consistency* are those of [`crate::state`].

mod irq;
mod mailbox;
mod v1;

pub use snapshot::{Kind, StateError};
pub use v1::{Context, Granted, Interrupts, KIND, Mailbox, Queue, V1, Words};

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

/// Encodes a state as [`model::Control::save`] does.
pub fn write(state: &State) -> Vec<u8> {
    snapshot::seal(state)
}

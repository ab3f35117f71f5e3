//! A whole virtual function as plain data: saved, checked and loaded, as [`crate::state`] does it for
//! the physical one. Each part of the live function is taken apart field by field and without `..`.
//!
//! What is in it: everything the guest can find out, now or later. That is its registers, its rings
//! and how far they are, interrupts that are pending, masked or held back, counters, and the mailbox:
//! words, flags, and notifications that neither side has received yet.
//!
//! What is *the PF's*, and granted anew by the PF of the host that loads the state: whether the VF
//! may send and receive, its link, longest frame, tag and least gap between interrupts. A state
//! passes through untrusted places (a VMM, a file), so what it says of [grants](Granted) is a claim.
//! In force, from the first moment on, is what the [`VfChannel`](crate::VfChannel) of the loading host
//! grants; the PF receives [what was claimed](crate::Event::Loaded). No state of a VF contains
//! what a PF remembers of it (its addresses, groups, VLANs, messages that wait, its record of
//! misbehaviour). A PF that keeps controlling the same VF need do nothing: the guest does not notice that
//! the VF was saved. A PF that knows nothing of the VF, as the software PF, makes the VF's driver start
//! anew, as after a reset of the port.
//!
//! Not in it either: what PCI configuration says (bus mastering, the way of interrupts; its owner
//! saves that), counters for people, the senders that wait for room. Nor which messages were sent and not
//! acknowledged: the guest is notified again of causes that are pending at loading, since a message may
//! have been lost on the way.
//!
//! *Time* and *consistency* are those of [`crate::state`].

mod irq;
mod mailbox;
mod v1;

use crate::sriov::mailbox::Mailbox as Live;

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

/// A mailbox as plain data.
pub fn mailbox_saved(live: &Live) -> Mailbox {
    live.saved()
}

/// And back.
///
/// # Errors
/// It is none that there can be.
pub fn mailbox_loaded(saved: &Mailbox) -> Result<Live, StateError> {
    Live::load(saved)
}

/// Encodes a state as [`model::Control::save`] does.
pub fn write(state: &State) -> Vec<u8> {
    snapshot::seal(state)
}

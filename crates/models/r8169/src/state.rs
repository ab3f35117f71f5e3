//! The whole NIC as plain data: saved, checked and loaded.
//!
//! The types here are apart from the live ones. What is in it: everything the guest can find out, now or later. What is
//! not: what the operator configured, counters for people, and who waits for room.
//!
//! *Time* is relative to the moment of saving: nanoseconds, negative for the past.
//!
//! *Consistency*: both take the locks of the transmitter, the receiver and the interrupt logic, in that order, so a state
//! lies between two batches.

pub mod v1;

use snapshot::State as _;
pub use snapshot::{Kind, StateError};
pub use v1::{Adaptive, Eeprom, Held, Interrupts, KIND, Ocp, Phase, Phy, Power, V1, Way};

/// The state as this program saves it.
pub type State = V1;

/// The version that is saved. Older ones are loaded, newer ones refused.
pub const VERSION: u32 = 1;

/// Reads a state of any known version without loading it.
pub(crate) fn read(blob: &[u8]) -> Result<V1, StateError> {
    let saved = snapshot::open(V1::KIND, blob)?;
    if saved.version != V1::VERSION {
        return Err(StateError::Version {
            kind: V1::KIND,
            found: saved.version,
            newest: V1::VERSION,
        });
    }
    saved.decode()
}

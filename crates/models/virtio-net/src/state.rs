//! The whole device as plain data: saved, checked and loaded.
//!
//! In it is everything that the guest can find out, now or later. Not in it: what the operator configured, counters,
//! senders that wait for room. It lies between two batches: the locks of all queues are taken.

pub mod v1;

use snapshot::{State as _, StateError};
pub use v1::V1;

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

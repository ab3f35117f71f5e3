//! How far a device has come that moves.

use crate::codec::feature::MigrationState;

/// Where a device is on its way.
#[derive(Default)]
pub(super) struct Migration {
    pub state: MigrationState,
    /// The state: as it was saved, or as far as it has come.
    pub data: Vec<u8>,
    /// Bytes of it that were read.
    pub read: usize,
    /// Its owner has stopped it, and not its client.
    pub held: bool,
}

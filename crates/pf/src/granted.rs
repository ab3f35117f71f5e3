//! What a VF's driver has asked for and was granted, as plain data: it goes on with it when its PF is another process.

use serde::{Deserialize, Serialize};

/// What was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// It has completed a reset, and may send.
    pub clear_to_send: bool,
    /// Its address.
    pub mac: [u8; 6],
    /// Further addresses.
    pub further: Vec<[u8; 6]>,
    /// Hashes of the groups it has joined.
    pub hashes: Vec<u16>,
    /// It is in all groups.
    pub all_groups: bool,
    /// VLANs it has joined.
    pub vlans: Vec<u16>,
    /// Its longest frame, in bytes.
    pub max_frame: u16,
    /// A message that waits for its time.
    pub waiting: Option<Vec<u32>>,
}

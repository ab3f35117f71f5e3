//! What the driver wants to receive, as it has said.

use serde::{Deserialize, Serialize};

/// Addresses kept of each kind; with more, all of that kind are received.
pub const TABLE: usize = 64;

/// A table of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The addresses.
    pub list: Vec<[u8; 6]>,
    /// There were more.
    pub overflow: bool,
}

/// What is received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    /// The own address.
    pub mac: [u8; 6],
    /// Everything.
    pub promisc: bool,
    /// All groups.
    pub allmulti: bool,
    /// All single stations.
    pub alluni: bool,
    /// No group.
    pub nomulti: bool,
    /// No single station.
    pub nouni: bool,
    /// No broadcast.
    pub nobcast: bool,
    /// Single stations.
    pub unicast: Table,
    /// Groups.
    pub multicast: Table,
    /// A bit for each VLAN that is let in.
    pub vlans: Vec<u64>,
}

impl Station {
    /// As after a reset: everything, until the driver says otherwise.
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            promisc: true,
            allmulti: false,
            alluni: false,
            nomulti: false,
            nouni: false,
            nobcast: false,
            unicast: Table::default(),
            multicast: Table::default(),
            vlans: vec![0; 4096 / 64],
        }
    }

    /// Whether the VLAN is let in.
    pub fn has_vlan(&self, vid: u16) -> bool {
        let word = self.vlans.get(usize::from(vid) / 64);
        word.is_some_and(|word| word >> (vid % 64) & 1 != 0)
    }

    /// Lets a VLAN in, or shuts it out. `false`: there is no such VLAN.
    pub fn set_vlan(&mut self, vid: u16, on: bool) -> bool {
        let Some(word) = self.vlans.get_mut(usize::from(vid) / 64) else {
            return false;
        };
        *word = *word & !(1 << (vid % 64)) | u64::from(on) << (vid % 64);
        true
    }
}

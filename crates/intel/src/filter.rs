//! Which frames the address and VLAN filters let in (8254x manual §3.2.1, §13.5; 82576 datasheet §7.1.2).

use regs::{File, Id};
use wire::tci;

use crate::bits::{rah, rctl};

/// Bits of an address that index a table.
const HASH: u32 = 0xfff;
const BROADCAST: [u8; 6] = [0xff; 6];

/// Where a chip has its address and VLAN filters.
#[derive(Debug)]
pub struct Filters {
    /// What is filtered at all.
    pub rctl: Id,
    /// The type that makes a VLAN tag.
    pub vet: Id,
    /// Receive addresses: RAL and RAH, one array or several.
    pub addresses: &'static [(Id, Id)],
    /// Bits of RAH that are compared, among them AV, the valid bit.
    pub compared: u32,
    /// The multicast table.
    pub mta: Id,
    /// The VLAN table.
    pub vfta: Id,
}

/// The station's address, in the first of the receive addresses.
pub fn station(file: &File, ral: Id, rah: Id) -> [u8; 6] {
    let [a, b, c, d] = file.get_at(ral, 0).to_le_bytes();
    let [e, f, ..] = file.get_at(rah, 0).to_le_bytes();
    [a, b, c, d, e, f]
}

impl Filters {
    /// Makes `mac` the station's address, as the EEPROM does after a reset.
    pub fn set_station(&self, file: &File, mac: [u8; 6]) {
        let [a, b, c, d, e, f] = mac;
        if let Some((ral, rah)) = self.addresses.first() {
            file.set_at(*ral, 0, u32::from_le_bytes([a, b, c, d]));
            file.set_at(*rah, 0, u32::from_le_bytes([e, f, 0, 0]) | rah::AV);
        }
    }

    /// Whether a frame for `dst` passes the address filters: promiscuity, then the receive addresses
    /// and, for a group, the multicast table.
    #[inline]
    pub fn address(&self, file: &File, rctl: u32, dst: [u8; 6]) -> bool {
        let multicast = dst[0] & 1 == 1;
        if dst == BROADCAST && rctl & rctl::BAM != 0 {
            return true;
        }
        if multicast && rctl & rctl::MPE != 0 || !multicast && rctl & rctl::UPE != 0 {
            return true;
        }
        self.exact(file, dst) || (multicast && self.hashed(file, rctl, dst))
    }

    /// Whether a frame for `dst` that has passed owes it to the multicast table alone, so that software
    /// has to look at it (PIF; 8254x manual §3.2.3.1).
    #[inline]
    pub fn inexact(&self, file: &File, rctl: u32, dst: [u8; 6]) -> bool {
        let promiscuous = rctl & rctl::MPE != 0 || dst == BROADCAST && rctl & rctl::BAM != 0;
        dst[0] & 1 == 1 && !promiscuous && !self.exact(file, dst)
    }

    /// Whether `dst` is one of the receive addresses.
    #[inline]
    pub fn exact(&self, file: &File, dst: [u8; 6]) -> bool {
        let low = u32::from_le_bytes([dst[0], dst[1], dst[2], dst[3]]);
        let high = u32::from_le_bytes([dst[4], dst[5], 0, 0]) | rah::AV;
        self.addresses.iter().any(|(ral, rah)| {
            let count = file.table().register(*ral).count;
            let high_of = |i| file.get_at(*rah, i) & self.compared;
            (0..count).any(|i| file.get_at(*ral, i) == low && high_of(i) == high)
        })
    }

    /// Whether the multicast table lets the group `dst` in.
    #[inline]
    pub fn hashed(&self, file: &File, rctl: u32, dst: [u8; 6]) -> bool {
        hashed(file, self.mta, rctl, dst)
    }

    /// Whether a frame with this tag passes the VLAN filter.
    #[inline]
    pub fn vlan(&self, file: &File, rctl: u32, tci: u16) -> bool {
        if rctl & rctl::VFE == 0 {
            return true;
        }
        let cfi = tci & tci::CFI != 0;
        if rctl & rctl::CFIEN != 0 && cfi != (rctl & rctl::CFI != 0) {
            return false;
        }
        let id = u32::from(tci & tci::VLAN_ID);
        file.get_at(self.vfta, id / 32) >> (id % 32) & 1 == 1
    }
}

/// A table of 4096 bits; RCTL.MO chooses the 12 bits of the address that index it.
#[inline]
pub fn hashed(file: &File, table: Id, rctl: u32, dst: [u8; 6]) -> bool {
    let shift = [4, 3, 2, 0][(rctl >> rctl::MO_SHIFT & 3) as usize];
    let upper = u32::from(dst[5]) << 8 | u32::from(dst[4]);
    let index = upper >> shift & HASH;
    file.get_at(table, index / 32) >> (index % 32) & 1 == 1
}

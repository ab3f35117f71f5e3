//! Which frames the address and VLAN filters let in (8254x manual §3.2.1, §13.5; 82576 datasheet §7.1.2).

use regs::{File, Id};

/// Bits of RCTL that filter (8254x manual §13.4.22, 82576 datasheet §8.10.1).
pub mod rctl {
    /// All that is for one station.
    pub const UPE: u32 = 1 << 3;
    /// All that is for a group.
    pub const MPE: u32 = 1 << 4;
    /// Which 12 bits of a group's address index the multicast table.
    pub const MO_SHIFT: u32 = 12;
    /// Broadcasts.
    pub const BAM: u32 = 1 << 15;
    /// Tags are filtered by VFTA.
    pub const VFE: u32 = 1 << 18;
    /// And by their CFI bit,
    pub const CFIEN: u32 = 1 << 19;
    /// which is to be this.
    pub const CFI: u32 = 1 << 20;
}

const BROADCAST: [u8; 6] = [0xff; 6];

/// Whether a frame for `dst` passes: promiscuity, then `exact` and, for a group, `hashed`.
#[inline]
pub fn address(
    rctl: u32,
    dst: [u8; 6],
    exact: impl FnOnce() -> bool,
    hashed: impl FnOnce() -> bool,
) -> bool {
    let multicast = dst[0] & 1 == 1;
    if dst == BROADCAST && rctl & rctl::BAM != 0 {
        return true;
    }
    if multicast && rctl & rctl::MPE != 0 || !multicast && rctl & rctl::UPE != 0 {
        return true;
    }
    exact() || (multicast && hashed())
}

/// Whether a frame for `dst` that has passed owes it to the multicast table alone, so that software
/// has to look at it (PIF).
#[inline]
pub fn inexact(rctl: u32, dst: [u8; 6], exact: impl FnOnce() -> bool) -> bool {
    let promiscuous = rctl & rctl::MPE != 0 || dst == BROADCAST && rctl & rctl::BAM != 0;
    dst[0] & 1 == 1 && !promiscuous && !exact()
}

/// A table of 4096 bits; RCTL.MO chooses the 12 bits of the address that index it.
#[inline]
pub fn hashed(file: &File, table: Id, rctl: u32, dst: [u8; 6]) -> bool {
    let shift = [4, 3, 2, 0][(rctl >> rctl::MO_SHIFT & 3) as usize];
    let upper = u32::from(dst[5]) << 8 | u32::from(dst[4]);
    let index = upper >> shift & 0xfff;
    file.get_at(table, index / 32) >> (index % 32) & 1 == 1
}

/// Whether a frame with this tag passes the VLAN filter, whose table is `vfta`.
#[inline]
pub fn vlan(file: &File, vfta: Id, rctl: u32, tci: u16) -> bool {
    if rctl & rctl::VFE == 0 {
        return true;
    }
    let cfi = tci & 0x1000 != 0;
    if rctl & rctl::CFIEN != 0 && cfi != (rctl & rctl::CFI != 0) {
        return false;
    }
    let id = u32::from(tci & 0xfff);
    file.get_at(vfta, id / 32) >> (id % 32) & 1 == 1
}

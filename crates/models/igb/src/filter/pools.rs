//! Pools of a PF (§7.10.3): which of them get a frame that came in or that another one has sent.
//!
//! If there are VFs, the switch between the functions has already decided that the PF gets the frame. If the
//! PF then has one pool only, no pool is looked for.

use regs::File;
use wire::tci;

use crate::filter::address as filter;
use crate::filter::address::FILTERS;
use crate::regs as r;
use crate::regs::bits::{rctl, vmolr, vt_ctl};
use crate::regs::pools;
use crate::regs::pools::POOLS;

/// To all stations.
const BROADCAST: [u8; 6] = [0xff; 6];

/// All pools.
pub(crate) const ALL: u32 = (1 << POOLS) - 1;

/// The pools that get a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    /// Pools, bit by bit.
    pools: u32,
    /// Pools that have its destination as a station address, whatever its VLAN is.
    exact: u32,
}

/// Pools that get a frame by address and VLAN.
fn by_filters(file: &File, dst: [u8; 6], tag: Option<u16>) -> Found {
    let (rctl, vt_ctl) = (file.get(r::RCTL), file.get(r::VT_CTL));
    if tag.is_some_and(|tci| !FILTERS.vlan(file, rctl, tci)) {
        return Found::default();
    }
    let with = |bits: u32| {
        let wants = |pool: &u32| file.get_at(r::VMOLR, *pool) & bits != 0;
        (0..POOLS)
            .filter(wants)
            .fold(0, |all, pool| all | 1 << pool)
    };
    let default = pools::default(file).map_or(0, |pool| 1 << pool);
    let exact = pools::addresses(file).filter(|(mac, _)| *mac == dst);
    let exact = exact.fold(0, |all, (_, pools)| all | pools);
    let for_many = dst[0] & 1 == 1;
    let mut found = 0;
    if dst == BROADCAST {
        found |= with(vmolr::BAM);
    } else if for_many {
        found |= with(vmolr::MPME);
    }
    let (table, by_table) = match for_many {
        true => (r::MTA, vmolr::ROMPE),
        false => (r::UTA, vmolr::ROPE),
    };
    if filter::hashed(file, table, rctl, dst) {
        found |= with(by_table);
    }
    if vt_ctl & vt_ctl::IGNORE_MAC != 0 {
        found = ALL;
    }
    found = match vt_ctl & vt_ctl::REPLICATE != 0 {
        true => exact | found,
        // Without replication a group frame is for the default pool, and one that several pools match for the
        // first of them.
        false if exact != 0 => exact & exact.wrapping_neg(),
        false => found & default,
    };
    if rctl & rctl::VFE != 0 {
        found &= match tag {
            Some(tag) => pools::of_vlan(file, tag & tci::VLAN_ID),
            None => with(vmolr::AUPE),
        };
    }
    Found {
        pools: found,
        exact,
    }
}

/// Pools that get a frame from the wire, bit by bit.
pub(crate) fn of_frame(file: &File, dst: [u8; 6], tag: Option<u16>) -> u32 {
    let known = tag.is_none_or(|tci| FILTERS.vlan(file, file.get(r::RCTL), tci));
    let found = match by_filters(file, dst, tag).pools {
        // The default pool, whatever its VLANs are.
        0 if known && dst[0] & 1 == 0 => pools::default(file).map_or(0, |pool| 1 << pool),
        found => found,
    };
    found & file.get(r::VFRE)
}

/// Where a frame goes that pool `from` has sent: to which of the pools from `first` on, and whether to the
/// wire too.
pub(crate) fn from_inside(
    file: &File,
    (first, from): (u32, u32),
    dst: [u8; 6],
    tag: Option<u16>,
) -> (u32, bool) {
    let own = ALL >> first << first;
    let found = by_filters(file, dst, tag);
    let mut to = found.pools & own & file.get(r::VFRE);
    if !pools::gets_own(file, from) {
        to &= !(1 << from);
    }
    // A frame for a station of these pools only does not leave; the switch knows those of VFs.
    let stays = dst[0] & 1 == 0 && found.exact & own != 0 && found.exact & !own == 0;
    (to, !stays)
}

//! What the registers of a PF say of each pool (datasheet §7.10.3, §8.14): who gets which frames, and
//! who may send what.

use std::ops::Range;

use eswitch::{
    AddressFilter, Fabric, FunctionPolicy, HashSet12, Mirror, Owner, Pool, Rate, StormWindow,
    StormWindows, VlanSet,
};
use model::Nanos;
use regs::File;
use wire::{MacAddr, VLAN_TAG, tci};

use crate::regs as r;
use crate::regs::bits::{
    ctrl_ext, dtxswc, mrqc, rah, rctl, rttbcnrc, sccrl, tctl, vlvf, vmolr, vmrctl, vmvir, vt_ctl,
    xdctl,
};
use crate::regs::settings::{Settings, Strips, VfSettings};

/// Pools of the chip. VF n has pool n; what is left is the PF's.
pub(crate) const POOLS: u32 = 8;

/// Longest frame without VMOLR.LPE, FCS included, tag not.
const STANDARD: u16 = 1518;
const LONGEST: u16 = 9728;

/// Whether there are pools at all (MRQC).
pub(crate) fn are_on(file: &File) -> bool {
    matches!(
        file.get(r::MRQC) & mrqc::MODE,
        mrqc::POOLS | mrqc::POOLS_RSS
    )
}

/// Whether more than one of the pools of a PF, the first of which is `first`, has a receive queue.
pub(crate) fn are_several(file: &File, first: u32) -> bool {
    let on = |queue| file.get_at(r::RXDCTL, queue) & xdctl::ENABLE != 0;
    let own = (first..POOLS).filter(|pool| on(*pool) || on(*pool + POOLS));
    own.take(2).count() > 1
}

/// Whether what a pool sends may be for another one (DTXSWC.Loopback_en).
pub(crate) fn reach_others(file: &File) -> bool {
    file.get(r::DTXSWC) & dtxswc::LOOPBACK != 0
}

/// Whether a pool gets what it has sent itself.
pub(crate) fn gets_own(file: &File, pool: u32) -> bool {
    file.get(r::DTXSWC) >> (dtxswc::LOCAL_LOOPBACK_SHIFT + pool) & 1 != 0
}

/// What is taken out of frames that are replicated: whatever pool gets them, the same.
pub(crate) fn replicas(file: &File) -> Option<Strips> {
    let rplolr = file.get(r::RPLOLR);
    let replicates = file.get(r::VT_CTL) & vt_ctl::REPLICATE != 0;
    replicates.then_some(Strips {
        crc: rplolr & vmolr::STRCRC != 0,
        vlan: rplolr & vmolr::STRVLAN != 0,
    })
}

/// Whether the frames of a PF's pool are spread over its two queues.
pub(crate) fn spreads(file: &File, pool: u32) -> bool {
    file.get(r::MRQC) & mrqc::MODE == mrqc::POOLS_RSS
        && file.get_at(r::VMOLR, pool) & vmolr::RSSE != 0
}

/// The pool of the PF, whose first is `first`, that a frame it got was for.
pub(crate) fn own_pool(file: &File, first: u32, dst: [u8; 6]) -> u32 {
    let found = addresses(file).filter(|(mac, _)| *mac == dst);
    let found = found.map(|(_, pools)| pools >> first << first);
    let pools = found.fold(0, |all, pools| all | pools);
    if pools != 0 {
        return pools.trailing_zeros();
    }
    default(file).filter(|pool| *pool >= first).unwrap_or(first)
}

/// Longest frames of a pool, FCS included, as far as the port lets them in: one without a tag and one
/// with.
pub(crate) fn lengths(file: &File, pool: u32) -> (usize, usize) {
    let vmolr = file.get_at(r::VMOLR, pool);
    let (plain, tagged) = if vmolr & vmolr::LPE != 0 {
        let most = usize::from(((vmolr & vmolr::RLPML) as u16).min(LONGEST));
        (most, most)
    } else {
        (usize::from(STANDARD), with_tag(STANDARD))
    };
    let port = Settings::of_port(file);
    (plain.min(port.max_len), tagged.min(port.max_tagged))
}

/// Longest frame of a pool without a tag, FCS included.
pub(crate) fn max_frame(file: &File, pool: u32) -> u16 {
    let (plain, _) = lengths(file, pool);
    u16::try_from(plain).unwrap_or(LONGEST)
}

/// How long a frame with a tag may be where one without may be `plain`: a tag is beside the standard
/// length alone.
pub(crate) fn with_tag(plain: u16) -> usize {
    let tag = if plain == STANDARD { VLAN_TAG } else { 0 };
    usize::from(plain) + tag
}

/// The tag that a VF's frames get, whatever its driver says (VMVIR): the TCI.
pub(crate) fn tag(file: &File, vf: u32) -> Option<u16> {
    let vmvir = file.get_at(r::VMVIR, vf);
    (vmvir >> vmvir::ACTION_SHIFT == vmvir::ALWAYS).then_some(vmvir as u16)
}

/// Whether a pool's frames may get the tags that its driver asks for (VMVIR).
pub(crate) fn may_tag(file: &File, pool: u32) -> bool {
    file.get_at(r::VMVIR, pool) >> vmvir::ACTION_SHIFT != vmvir::NEVER
}

/// Most bits a second that a VF sends over a link of `mbps`. The chip limits queues, and drivers the
/// VF's first one alone; a VF that uses its other one shall not get round that, so what limits one
/// limits both, and two limits add up.
fn rate(file: &File, vf: u32, mbps: u32) -> Option<u64> {
    let of = |queue| {
        let value = file.get_at(r::RTTBCNRC, queue);
        let factor = u64::from(value & rttbcnrc::FACTOR);
        let bits = u64::from(mbps) * 1_000_000;
        (value & rttbcnrc::ON != 0)
            .then(|| (bits << rttbcnrc::POINT).checked_div(factor))
            .flatten()
    };
    let limits = [vf, vf + POOLS].map(of);
    limits.into_iter().flatten().reduce(u64::saturating_add)
}

/// What holds for all pools, the first `vfs` of which are VFs'. Nothing without pools.
pub(crate) fn fabric(file: &File, vfs: u32) -> Fabric<Owner> {
    if !are_on(file) {
        return Fabric::default();
    }
    let local = vlans(file).filter(|entry| entry.1 & vlvf::LOCAL != 0);
    let filters = file.get(r::RCTL) & rctl::VFE != 0;
    Fabric {
        known: filters.then(|| VlanSet::of_table(&words(file, r::VFTA))),
        local: vlan_set(local.map(|(id, ..)| id)),
        mirrors: (0..file.table().register(r::VMRCTL).count)
            .filter_map(|rule| mirror(file, rule, vfs))
            .collect(),
    }
}

/// A table of 4096 bits.
fn words(file: &File, id: regs::Id) -> [u32; 128] {
    std::array::from_fn(|word| file.get_at(id, word as u32))
}

/// What has a tag of one of these VLANs: to the chip 0 is one as others are.
fn vlan_set(ids: impl Iterator<Item = u16>) -> VlanSet {
    ids.fold(VlanSet::none(), VlanSet::with_tag)
}

fn mirror(file: &File, rule: u32, vfs: u32) -> Option<Mirror<Owner>> {
    let control = file.get_at(r::VMRCTL, rule);
    let has = |bit| control & bit != 0;
    if !has(vmrctl::ANY) {
        return None;
    }
    let owner = |pool: u32| match pool < vfs {
        true => Owner::Vf(pool),
        false => Owner::Pf,
    };
    let only = |bit: u32, bits: u32| if has(bit) { bits } else { 0 };
    let pools = only(vmrctl::POOLS, file.get_at(r::VMRVM, rule));
    let mut of: Vec<_> = (0..POOLS)
        .filter(|pool| pools >> pool & 1 != 0)
        .map(owner)
        .collect();
    of.dedup();
    let entries = only(vmrctl::VLANS, file.get_at(r::VMRVLAN, rule));
    let chosen = vlans(file).filter(|(_, _, at)| entries >> at & 1 != 0);
    Some(Mirror {
        to: owner(control >> vmrctl::TO_SHIFT & (POOLS - 1)),
        of,
        incoming: has(vmrctl::UPLINK),
        outgoing: has(vmrctl::DOWNLINK),
        vlans: vlan_set(chosen.map(|(id, ..)| id)),
    })
}

/// What may flood in from the wire, on a link of `mbps` (SCCRL).
pub(crate) fn storm(file: &File, mbps: u32) -> StormWindows {
    let control = file.get(r::SCCRL);
    let window = |shift: u32, id| {
        let has = |bit: u32| control >> shift & bit != 0;
        let window = StormWindow {
            blocks: (file.get(id) & sccrl::BLOCKS).into(),
            current: has(sccrl::CURRENT),
            previous: has(sccrl::PREVIOUS),
        };
        Some(window).filter(|window| window.current || window.previous)
    };
    let (broadcast, multicast) = (
        window(sccrl::BROADCAST_SHIFT, r::BSCTRH),
        window(sccrl::MULTICAST_SHIFT, r::MSCTRH),
    );
    if broadcast.is_none() && multicast.is_none() {
        return StormWindows::default();
    }
    let units = (control >> sccrl::INTERVAL_SHIFT & sccrl::INTERVAL).max(1);
    StormWindows {
        interval: Nanos::from(units) * sccrl::UNIT * Nanos::from(1000 / mbps.max(1)),
        broadcast,
        multicast,
    }
}

/// Entries of VLVF that are on: the VLAN's id, all of the entry, and its place. Tags of VLAN 0 are tags
/// as others are; whether frames without one come is AUPE's.
fn vlans(file: &File) -> impl Iterator<Item = (u16, u32, u32)> {
    let entries =
        (0..file.table().register(r::VLVF).count).map(|at| (file.get_at(r::VLVF, at), at));
    let on = entries.filter(|(entry, _)| entry & vlvf::ON != 0);
    on.map(|(entry, at)| ((entry & vlvf::ID) as u16, entry, at))
}

/// Pools of a VLAN, bit by bit.
pub(crate) fn of_vlan(file: &File, id: u16) -> u32 {
    let entries = vlans(file).filter(|entry| entry.0 == id);
    entries.fold(0, |all, (_, entry, _)| {
        all | entry >> vlvf::POOLS_SHIFT & vlvf::POOLS
    })
}

/// How a VF's queues are to work, on a link of `mbps`.
pub(crate) fn vf_settings(file: &File, vf: u32, pool: &Pool, mbps: u32) -> VfSettings {
    let vmolr = file.get_at(r::VMOLR, vf);
    let drop = file.get(r::QDE);
    let port = Settings::of_port(file);
    let bit = |queue: u32| (drop >> queue & 1) as u16;
    VfSettings {
        receives: pool.receives,
        sends: pool.sends,
        strip_vlan: vmolr & vmolr::STRVLAN != 0,
        strip_crc: vmolr & vmolr::STRCRC != 0,
        replicas: replicas(file),
        insert_vlan: may_tag(file, vf),
        drop: bit(vf) | bit(vf + POOLS) << 1,
        mbps,
        rxcsum: port.rxcsum,
        rfctl: port.rfctl,
        buffer: port.buffer,
        pad: port.pad,
    }
}

/// The pool of a VF, on a link of `mbps`: silent until the PF is ready for it.
pub(crate) fn of_vf(file: &File, vf: u32, mbps: u32) -> FunctionPolicy {
    let ready = file.get(r::CTRL_EXT) & ctrl_ext::PFRSTD != 0;
    if !are_on(file) || !ready {
        return FunctionPolicy::default();
    }
    let pool = of(file, vf..vf + 1);
    let tag = tag(file, vf).filter(|_| pool.sends || pool.receives);
    FunctionPolicy {
        rate: rate(file, vf, mbps)
            .filter(|_| pool.sends)
            .map(Rate::of_bits),
        pool: Pool {
            only_vlan: tag.map(|tag| tag & tci::VLAN_ID),
            ..pool
        },
        ..FunctionPolicy::default()
    }
}

/// The pools of the PF, the first behind those of its VFs, as one. Without pools all that the wire
/// brings, for its own filters to look at.
pub(crate) fn of_pf(file: &File, vfs: u32) -> Pool {
    if are_on(file) {
        let pool = of(file, vfs..POOLS);
        // Several look for themselves which of them gets what another one sends.
        let own = pool.own && !are_several(file, vfs);
        return Pool { own, ..pool };
    }
    Pool {
        enabled: true,
        receives: true,
        sends: true,
        broadcast: true,
        groups: AddressFilter::All,
        stations: AddressFilter::All,
        filters_vlans: false,
        vlans: VlanSet::none(),
        check_mac: false,
        check_vlan: false,
        outward: true,
        ..Pool::default()
    }
}

/// The pool of frames for no station.
pub(crate) fn default(file: &File) -> Option<u32> {
    let vt_ctl = file.get(r::VT_CTL);
    (vt_ctl & vt_ctl::NO_DEFAULT == 0).then_some(vt_ctl >> vt_ctl::DEFAULT_SHIFT & vt_ctl::DEFAULT)
}

/// Valid entries of the address filter, each with its pools.
pub(crate) fn addresses(file: &File) -> impl Iterator<Item = ([u8; 6], u32)> {
    let entries = r::ADDRESSES.iter().flat_map(move |(ral, rah)| {
        let count = file.table().register(*ral).count;
        (0..count).map(move |i| (file.get_at(*ral, i), file.get_at(*rah, i)))
    });
    let valid = entries.filter(|(_, high)| high & (rah::AV | rah::ASEL) == rah::AV);
    valid.map(|(low, high)| {
        let ([a, b, c, d], [e, f, ..]) = (low.to_le_bytes(), high.to_le_bytes());
        ([a, b, c, d, e, f], high >> rah::POOLS_SHIFT & rah::POOLS)
    })
}

fn of(file: &File, pools: Range<u32>) -> Pool {
    let first = pools.start;
    let mask = (1u32 << pools.end) - (1 << first);
    let (rctl, vt_ctl, switch) = (file.get(r::RCTL), file.get(r::VT_CTL), file.get(r::DTXSWC));
    let receives = file.get(r::VFRE) & mask != 0 && rctl & rctl::EN != 0;
    let sends = file.get(r::VFTE) & mask != 0 && file.get(r::TCTL) & tctl::EN != 0;
    let vmolr = pools.fold(0, |all, pool| all | file.get_at(r::VMOLR, pool));
    let default = default(file).is_some_and(|pool| mask >> pool & 1 != 0);
    // Without replication a frame for many is for the default pool, one for several for the first.
    let replicates = vt_ctl & vt_ctl::REPLICATE != 0;
    let many = replicates || default;
    let chosen = |pools: u32| match replicates {
        true => pools,
        false => pools & pools.wrapping_neg(),
    };
    let ignores = vt_ctl & vt_ctl::IGNORE_MAC != 0;
    let offset = (rctl >> rctl::MO_SHIFT & rctl::MO) as u8;
    let hashes = |id| AddressFilter::Hashes(HashSet12::of_table(&words(file, id), offset));
    let macs = addresses(file)
        .filter(|(_, pools)| chosen(*pools) & mask != 0)
        .map(|(mac, _)| MacAddr(mac))
        .collect::<Vec<_>>();
    let untagged = vmolr & vmolr::AUPE != 0;
    let filters_vlans = rctl & rctl::VFE != 0;
    let own_vlans = {
        let ours = vlans(file).filter(|entry| entry.1 >> vlvf::POOLS_SHIFT & mask != 0);
        let set = vlan_set(ours.map(|(id, ..)| id));
        if untagged { set.with_bare() } else { set }
    };
    if !receives && !sends {
        // Its stations are still its own: what is for them is for no other pool.
        return Pool {
            enabled: !macs.is_empty(),
            macs,
            filters_vlans,
            vlans: own_vlans,
            ..Pool::default()
        };
    }
    Pool {
        enabled: true,
        receives,
        sends,
        macs,
        broadcast: many && (ignores || vmolr & vmolr::BAM != 0),
        groups: if !many {
            AddressFilter::None
        } else if ignores || vmolr & vmolr::MPME != 0 {
            AddressFilter::All
        } else if vmolr & vmolr::ROMPE != 0 {
            hashes(r::MTA)
        } else {
            AddressFilter::None
        },
        stations: if !many {
            AddressFilter::None
        } else if ignores {
            AddressFilter::All
        } else if vmolr & vmolr::ROPE != 0 {
            hashes(r::UTA)
        } else {
            AddressFilter::None
        },
        filters_vlans,
        vlans: own_vlans,
        check_mac: switch >> (dtxswc::CHECK_MAC_SHIFT + first) & 1 != 0,
        check_vlan: switch >> (dtxswc::CHECK_VLAN_SHIFT + first) & 1 != 0,
        only_vlan: None,
        outward: switch & dtxswc::LOOPBACK == 0,
        default,
        own: switch >> dtxswc::LOCAL_LOOPBACK_SHIFT & mask != 0,
    }
}

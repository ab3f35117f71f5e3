//! The look-up of an on-chip switch: not where an address was seen, but who has been given it.
//!
//! As the 82576 forwards between its functions (datasheet §7.10.3.3 to §7.10.3.8): each function is
//! a *pool* with station addresses (RAL, RAH), VLANs (VLVF) and groups (VMOLR, MTA, UTA) that
//! whoever rules the port has granted; everything else is out on the wire, behind an uplink. Nothing
//! is learned, so nothing a guest sends changes where others' frames go.
//!
//! A table is never changed: a new one takes its place, and a batch sees one or the other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use wire::MacAddr;

use crate::guard::VlanSet;
use crate::port::Port;
use crate::switch::slot;
use crate::table::{Key, PortId, Seed};

/// A set of hashes of 12 bits, as the chip's tables of 4096 bits hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashSet12 {
    words: Box<[u64; 64]>,
    /// How far the address is shifted for its hash.
    shift: u8,
}

impl HashSet12 {
    /// Of these hashes; more than 12 bits of one are not looked at.
    pub fn of(hashes: impl IntoIterator<Item = u16>) -> HashSet12 {
        let mut words = Box::new([0; 64]);
        for hash in hashes {
            words[usize::from(hash & 0xfff) / 64] |= 1u64 << (hash % 64);
        }
        HashSet12 { words, shift: 4 }
    }

    /// Of a table as the chip has it, 32 hashes in a word; `offset` (RCTL.MO, 0 to 3) chooses the bits
    /// of the address.
    pub fn of_table(table: &[u32; 128], offset: u8) -> HashSet12 {
        let pairs = table.as_chunks::<2>().0;
        let word = |n: usize| u64::from(pairs[n][0]) | u64::from(pairs[n][1]) << 32;
        HashSet12 {
            words: Box::new(std::array::from_fn(word)),
            shift: [4, 3, 2, 0][usize::from(offset & 3)],
        }
    }

    /// The hash that Linux's drivers and the chip after its reset use: bits 47 to 36 of the address
    /// (RCTL.MO = 0).
    pub fn hash(mac: MacAddr) -> u16 {
        Self::shifted(mac, 4)
    }

    fn shifted(mac: MacAddr, shift: u8) -> u16 {
        let [.., e, f] = mac.0;
        u16::from_be_bytes([f, e]) >> shift & 0xfff
    }

    fn has(&self, mac: MacAddr) -> bool {
        let hash = Self::shifted(mac, self.shift);
        self.words[usize::from(hash) / 64] >> (hash % 64) & 1 != 0
    }
}

/// Which of many addresses a pool gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// None.
    #[default]
    None,
    /// Those with one of these hashes.
    Hashes(HashSet12),
    /// All.
    All,
}

impl Wanted {
    fn has(&self, mac: MacAddr) -> bool {
        match self {
            Wanted::None => false,
            Wanted::Hashes(set) => set.has(mac),
            Wanted::All => true,
        }
    }
}

/// What a port of an on-chip switch gets, and what it may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// It is there: it sends and receives.
    pub enabled: bool,
    /// It receives nothing all the same (VFRE); what is for its stations ends here.
    pub deaf: bool,
    /// It sends nothing all the same (VFTE).
    pub mute: bool,
    /// Its stations (RAL, RAH.POOLSEL).
    pub macs: Vec<MacAddr>,
    /// It gets frames for everybody (VMOLR.BAM).
    pub broadcast: bool,
    /// The groups it gets (VMOLR.ROMPE with the MTA, VMOLR.MPME).
    pub groups: Wanted,
    /// The stations it gets besides its own, which are on the wire all the same (VMOLR.ROPE with
    /// the UTA).
    pub stations: Wanted,
    /// The VLANs it gets, and whether frames without one (VLVF, VMOLR.AUPE). `None`: all.
    pub vlans: Option<VlanSet>,
    /// It sends from its own stations only (DTXSWC, MAC anti-spoof).
    pub check_mac: bool,
    /// It sends into its own VLANs only (DTXSWC, VLAN anti-spoof).
    pub check_vlan: bool,
    /// All it sends has a tag of this VLAN (VMVIR).
    pub only_vlan: Option<u16>,
    /// What it sends goes to the wire alone, also what is for another pool (DTXSWC, loopback off).
    pub outward: bool,
    /// It gets what comes from the wire for nobody (VT_CTL.DEF_PL).
    pub default: bool,
    /// It gets what it has sent itself and is for it (DTXSWC.LLE).
    pub own: bool,
}

impl Default for Pool {
    /// Of nobody: it neither sends nor receives.
    fn default() -> Pool {
        Pool {
            enabled: false,
            deaf: false,
            mute: false,
            macs: Vec::new(),
            broadcast: false,
            groups: Wanted::None,
            stations: Wanted::None,
            vlans: Some(VlanSet::none()),
            check_mac: true,
            check_vlan: true,
            only_vlan: None,
            outward: false,
            default: false,
            own: false,
        }
    }
}

/// What holds for an on-chip switch as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// VLANs of which anybody inside gets anything (VFTA); what has no tag is of none. Where a chip's
    /// registers say so, what is for a station inside stays there, though that is in no VLAN of it.
    /// `None`: all, and each VLAN has its own stations.
    pub known: Option<VlanSet>,
    /// VLANs that never go out on the wire (VLVF.LVLAN).
    pub local: VlanSet,
    /// Who gets copies.
    pub mirrors: Vec<Mirror>,
}

impl Default for Fabric {
    /// All VLANs go everywhere, and nobody gets copies.
    fn default() -> Fabric {
        Fabric {
            known: None,
            local: VlanSet::none(),
            mirrors: Vec::new(),
        }
    }
}

/// A port that gets copies of frames that are others' (VMRCTL): of all that one of these holds for,
/// whatever the VLANs of its pool are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The port's name.
    pub to: String,
    /// Frames that one of these ports gets.
    pub of: Vec<String>,
    /// Frames that come from the wire, also those for nobody.
    pub incoming: bool,
    /// Frames that go out on the wire.
    pub outgoing: bool,
    /// Frames of these VLANs.
    pub vlans: VlanSet,
}

/// The same with ports instead of names.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    pub to: PortId,
    pub of: Vec<PortId>,
    pub incoming: bool,
    pub outgoing: bool,
    pub vlans: VlanSet,
}

impl Pool {
    fn in_vlan(&self, vlan: u16) -> bool {
        self.vlans.as_ref().is_none_or(|set| set.contains(vlan))
    }
}

/// Why a pool may not send a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foul {
    /// It is off.
    Disabled,
    /// From another's address.
    Source,
    /// Of another's VLAN.
    Vlan,
}

/// Where a frame for one station goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To this port.
    Port(PortId),
    /// To its own sender.
    Back,
    /// To all pools that want it.
    Several,
    /// To the wire.
    Wire,
    /// To nobody.
    Nobody,
}

/// Whose an address is: nearly always one's; several's, where VLANs tell them apart.
#[derive(Debug)]
struct Owners {
    first: usize,
    others: Vec<usize>,
}

impl Owners {
    fn iter(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// All pools of a switch.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// Ascending.
    all: Vec<(PortId, Arc<Pool>)>,
    /// Whose an address is, by places in `all`.
    stations: HashMap<Key, Owners, Seed>,
    default: Option<PortId>,
    /// Somebody wants stations that are not its own.
    has_wanted: bool,
    /// Somebody sends to the wire alone.
    has_outward: bool,
    /// Somebody has stations and receives nothing.
    has_deaf: bool,
    /// VLANs that come inside, if not all do.
    known: Option<VlanSet>,
    /// VLANs that stay inside, if there are some.
    local: Option<VlanSet>,
    copies: Vec<Copies>,
}

fn key(mac: MacAddr) -> Key {
    Key::new(mac, 0)
}

impl Pools {
    /// The same, but for one pool; `None` takes it out.
    pub(crate) fn with(&self, port: PortId, pool: Option<Pool>) -> Pools {
        let mut all = self.all.clone();
        let place = all.binary_search_by_key(&port, |(id, _)| *id);
        match (place, pool) {
            (Ok(at), Some(pool)) => all[at].1 = Arc::new(pool),
            (Ok(at), None) => drop(all.remove(at)),
            (Err(at), Some(pool)) => all.insert(at, (port, Arc::new(pool))),
            (Err(_), None) => {}
        }
        let mut pools = Pools {
            known: self.known.clone(),
            local: self.local.clone(),
            copies: self.copies.clone(),
            ..Pools::default()
        };
        for (at, (id, pool)) in all.iter().enumerate().filter(|(_, (_, pool))| pool.enabled) {
            for mac in &pool.macs {
                match pools.stations.entry(key(*mac)) {
                    Entry::Vacant(place) => {
                        let others = Vec::new();
                        place.insert(Owners { first: at, others });
                    }
                    Entry::Occupied(mut owners) => {
                        if owners.get().iter().all(|other| other != at) {
                            owners.get_mut().others.push(at);
                        }
                    }
                }
            }
            if pool.default {
                pools.default = Some(*id);
            }
            pools.has_wanted |= pool.stations != Wanted::None;
            pools.has_outward |= pool.outward;
            pools.has_deaf |= pool.deaf;
        }
        pools.all = all;
        pools
    }

    /// The same, but for what holds for all.
    pub(crate) fn wired(&self, fabric: &Fabric, copies: Vec<Copies>) -> Pools {
        Pools {
            known: fabric.known.clone(),
            local: Some(fabric.local.clone()).filter(|set| *set != VlanSet::none()),
            copies,
            ..self.with(PortId::MAX, None)
        }
    }

    /// The pool of a port. Ports without one lead to the wire.
    pub(crate) fn of(&self, port: PortId) -> Option<&Pool> {
        let at = self.all.binary_search_by_key(&port, |(id, _)| *id).ok()?;
        Some(&self.all[at].1)
    }

    /// What stands against a frame from a port with this pool. On the wire all addresses and VLANs
    /// are.
    pub(crate) fn foul(pool: Option<&Pool>, src: MacAddr, vlan: u16) -> Option<Foul> {
        let pool = pool?;
        if !pool.enabled || pool.mute {
            Some(Foul::Disabled)
        } else if pool.check_mac && !pool.macs.contains(&src) {
            Some(Foul::Source)
        } else if pool.check_vlan && !pool.in_vlan(vlan)
            || pool
                .only_vlan
                .is_some_and(|only| vlan == 0 || only != vlan & 0xfff)
        {
            Some(Foul::Vlan)
        } else {
            None
        }
    }

    /// Where a frame for a station goes.
    pub(crate) fn way(&self, from: &Port, dst: MacAddr, vlan: u16) -> Way {
        if self
            .copies
            .iter()
            .any(|to| self.copied(to, from, dst, vlan))
        {
            return Way::Several;
        }
        match self.plain_way(from, dst, vlan) {
            Way::Wire if self.is_local(vlan) => Way::Nobody,
            Way::Back if self.of(from.id).is_some_and(|pool| pool.own && !pool.deaf) => {
                Way::Port(from.id)
            }
            way => way,
        }
    }

    fn plain_way(&self, from: &Port, dst: MacAddr, vlan: u16) -> Way {
        if self.is_outward(from) {
            return Way::Wire;
        }
        if !self.is_known(vlan) {
            return if from.uplink { Way::Nobody } else { Way::Wire };
        }
        let owners = self.stations.get(&key(dst));
        let mut own = owners
            .into_iter()
            .flat_map(Owners::iter)
            .map(|at| &self.all[at])
            .filter(|(_, pool)| pool.in_vlan(vlan));
        match (own.next(), own.next()) {
            (Some((id, _)), None) if !self.has_wanted => {
                return if *id == from.id {
                    Way::Back
                } else if self.has_deaf && self.of(*id).is_some_and(|pool| pool.deaf) {
                    Way::Nobody
                } else {
                    Way::Port(*id)
                };
            }
            (None, _) if !self.has_wanted => {}
            (Some(_), _) => return Way::Several,
            (None, _) => {
                let wants = |(_, pool): &(PortId, Arc<Pool>)| {
                    pool.enabled && pool.stations.has(dst) && pool.in_vlan(vlan)
                };
                if self.all.iter().any(wants) {
                    return Way::Several;
                }
            }
        }
        if !from.uplink {
            return match owners {
                Some(_) if self.known.is_some() => Way::Nobody,
                _ => Way::Wire,
            };
        }
        // Whatever the VLANs of the default pool are.
        match self.default {
            Some(id) if self.of(id).is_some_and(|pool| !pool.deaf) => Way::Port(id),
            _ => Way::Nobody,
        }
    }

    /// Whether `to` is one of those who get a frame that several may get.
    pub(crate) fn gets(&self, from: &Port, to: &Port, dst: MacAddr, vlan: u16) -> bool {
        let Some(pool) = self.of(to.id) else {
            return to.uplink && self.leaves(from, dst, vlan);
        };
        if self.takes(from, to.id, pool, dst, vlan) {
            return true;
        }
        let mut copies = self.copies.iter().filter(|copies| copies.to == to.id);
        copies.any(|copies| self.copied(copies, from, dst, vlan))
    }

    /// Whether the sender may be among those who get it.
    pub(crate) fn may_return(&self, from: &Port) -> bool {
        self.of(from.id).is_some_and(|pool| pool.own)
    }

    /// Whether a frame goes out on the wire: everything that is not for our own stations alone.
    fn leaves(&self, from: &Port, dst: MacAddr, vlan: u16) -> bool {
        let inside = !self.is_outward(from)
            && !dst.is_multicast()
            && match &self.known {
                Some(_) => self.is_known(vlan) && self.stations.contains_key(&key(dst)),
                None => self.is_ours(dst, vlan),
            };
        !from.uplink && !inside && !self.is_local(vlan)
    }

    /// Whether a pool gets a frame for its own sake.
    fn takes(&self, from: &Port, id: PortId, pool: &Pool, dst: MacAddr, vlan: u16) -> bool {
        if !pool.enabled || pool.deaf || self.is_outward(from) || !self.is_known(vlan) {
            return false;
        }
        if id == from.id && !pool.own {
            return false;
        }
        let wanted = if dst.is_broadcast() {
            pool.broadcast
        } else if dst.is_multicast() {
            pool.groups.has(dst) || pool.macs.contains(&dst)
        } else {
            pool.stations.has(dst) || pool.macs.contains(&dst)
        };
        if wanted && pool.in_vlan(vlan) {
            return true;
        }
        // The rest is the default pool's; where nobody gets copies that is a way of its own.
        let rest = from.uplink && self.default == Some(id) && !self.copies.is_empty();
        rest && !dst.is_multicast() && !self.is_somebodys(dst, vlan)
    }

    /// Whether somebody gets a copy of a frame, who has to be there and to receive.
    fn copied(&self, to: &Copies, from: &Port, dst: MacAddr, vlan: u16) -> bool {
        let hears = |pool: &Pool| pool.enabled && !pool.deaf;
        if to.to == from.id || !self.of(to.to).is_some_and(hears) {
            return false;
        }
        let gets = |id: &PortId| {
            let pool = self.of(*id);
            pool.is_some_and(|pool| self.takes(from, *id, pool, dst, vlan))
        };
        if from.uplink && !self.is_known(vlan) {
            return false;
        }
        to.incoming && from.uplink
            || vlan != 0 && to.vlans.contains(vlan)
            || to.outgoing && self.leaves(from, dst, vlan)
            || to.of.iter().any(gets)
    }

    /// Whether the VLAN of a frame comes in at all.
    fn is_known(&self, vlan: u16) -> bool {
        vlan == 0 || self.known.as_ref().is_none_or(|set| set.contains(vlan))
    }

    fn is_local(&self, vlan: u16) -> bool {
        vlan != 0 && self.local.as_ref().is_some_and(|set| set.contains(vlan))
    }

    fn is_somebodys(&self, dst: MacAddr, vlan: u16) -> bool {
        let wants = |(_, pool): &(PortId, Arc<Pool>)| {
            pool.enabled && pool.stations.has(dst) && pool.in_vlan(vlan)
        };
        self.is_ours(dst, vlan) || self.has_wanted && self.all.iter().any(wants)
    }

    fn is_outward(&self, from: &Port) -> bool {
        self.has_outward && self.of(from.id).is_some_and(|pool| pool.outward)
    }

    fn is_ours(&self, dst: MacAddr, vlan: u16) -> bool {
        let owners = self.stations.get(&key(dst));
        owners.is_some_and(|owners| {
            let mut pools = owners.iter().map(|at| &self.all[at].1);
            pools.any(|pool| pool.in_vlan(vlan))
        })
    }
}

/// The only port that leads to the wire.
pub(crate) fn only_uplink(ports: &[Arc<Port>]) -> Option<usize> {
    let mut uplinks = ports.iter().enumerate().filter(|(_, port)| port.uplink);
    match (uplinks.next(), uplinks.next()) {
        (Some((at, _)), None) => Some(at),
        _ => None,
    }
}

/// The one port at which a frame for a station ends, if it is one.
pub(crate) fn only_port(
    pools: &Pools,
    ports: &[Arc<Port>],
    from: &Port,
    dst: MacAddr,
    vlan: u16,
) -> Option<usize> {
    match pools.way(from, dst, vlan) {
        Way::Port(id) => slot(ports, id),
        Way::Wire => only_uplink(ports),
        Way::Back | Way::Several | Way::Nobody => None,
    }
}

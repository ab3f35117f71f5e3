//! The look-up of an on-chip switch: not where an address was seen, but which pool was given it.
//!
//! As the 82576 forwards between its functions (datasheet §7.10.3.3 to §7.10.3.8): each function is
//! a *pool* with station addresses (RAL, RAH), VLANs (VLVF) and groups (VMOLR, MTA, UTA) that its PF
//! has granted; everything else is out on the wire, behind an uplink. Nothing
//! is learned, so nothing a guest sends changes where others' frames go.
//!
//! A table is never changed: a new one takes its place, and a batch sees one or the other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use eswitch::{AddressFilter, Fabric, Mirror, Pool, VlanSet};
use wire::MacAddr;

use crate::port::{Port, slot};
use crate::table::{Key, PortId, Seed};

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
    /// To no port.
    Nobody,
}

/// The pools that own an address: nearly always one; several, where VLANs tell them apart.
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
    /// The owners of each address, by places in `all`.
    stations: HashMap<Key, Owners, Seed>,
    default: Option<PortId>,
    /// A pool takes unicast frames for addresses that are not its own.
    has_wanted: bool,
    /// A pool sends to the wire only.
    has_outward: bool,
    /// A pool has addresses and receives nothing.
    has_deaf: bool,
    /// VLANs that come inside, if not all do.
    known: Option<VlanSet>,
    /// VLANs that stay inside, if there are some.
    local: Option<VlanSet>,
    mirrors: Vec<Mirror<PortId>>,
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
            mirrors: self.mirrors.clone(),
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
            pools.has_wanted |= pool.stations != AddressFilter::None;
            pools.has_outward |= pool.outward;
            pools.has_deaf |= !pool.receives;
        }
        pools.all = all;
        pools
    }

    /// The same, but for what holds for all.
    pub(crate) fn wired(&self, fabric: Fabric<PortId>) -> Pools {
        Pools {
            known: fabric.known,
            local: Some(fabric.local).filter(|set| *set != VlanSet::none()),
            mirrors: fabric.mirrors,
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
        if !pool.enabled || !pool.sends {
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
            .mirrors
            .iter()
            .any(|to| self.copied(to, from, dst, vlan))
        {
            return Way::Several;
        }
        match self.plain_way(from, dst, vlan) {
            Way::Wire if self.is_local(vlan) => Way::Nobody,
            Way::Back
                if self
                    .of(from.id)
                    .is_some_and(|pool| pool.own && pool.receives) =>
            {
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
                } else if self.has_deaf && self.of(*id).is_some_and(|pool| !pool.receives) {
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
            Some(id) if self.of(id).is_some_and(|pool| pool.receives) => Way::Port(id),
            _ => Way::Nobody,
        }
    }

    /// Whether `to` gets a frame that several ports may get.
    pub(crate) fn gets(&self, from: &Port, to: &Port, dst: MacAddr, vlan: u16) -> bool {
        let Some(pool) = self.of(to.id) else {
            return to.uplink && self.leaves(from, dst, vlan);
        };
        if self.takes(from, to.id, pool, dst, vlan) {
            return true;
        }
        let mut mirrors = self.mirrors.iter().filter(|mirror| mirror.to == to.id);
        mirrors.any(|mirror| self.copied(mirror, from, dst, vlan))
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
        if !pool.enabled || !pool.receives || self.is_outward(from) || !self.is_known(vlan) {
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
        // The rest is the default pool's; without mirrors `plain_way` handles that.
        let rest = from.uplink && self.default == Some(id) && !self.mirrors.is_empty();
        rest && !dst.is_multicast() && !self.is_somebodys(dst, vlan)
    }

    /// Whether a mirror's destination gets a copy of a frame; it must be there and receive.
    fn copied(&self, to: &Mirror<PortId>, from: &Port, dst: MacAddr, vlan: u16) -> bool {
        let hears = |pool: &Pool| pool.enabled && pool.receives;
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

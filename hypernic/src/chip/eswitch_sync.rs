//! Eswitch sync: what the registers of a PF say, carried out at the on-chip switch.

use std::collections::BTreeMap;

use ::wire::MacAddr;
use eswitch::{
    AddressFilter, Fabric, FunctionPolicy, HashSet12, Mirror, Pool, Rate, Storm, StormWindow,
    StormWindows, VlanSet,
};
use igb::{Enforcer, Owner};
use parking_lot::Mutex;
use vale::Switch;

use super::WIRE;
use super::function_port::FunctionPort;

/// Carries out at the switch what registers say of functions.
pub(super) struct EswitchSync {
    switch: Switch,
    known: Mutex<Known>,
}

/// What the registers say, and the ports that it holds for.
#[derive(Default)]
struct Known {
    functions: BTreeMap<Owner, (FunctionPort, FunctionPolicy)>,
    fabric: igb::Fabric,
}

impl EswitchSync {
    pub(super) fn new(switch: Switch) -> EswitchSync {
        EswitchSync {
            switch,
            known: Mutex::default(),
        }
    }

    /// A function has its port at the switch, or has none any more.
    pub(super) fn joined(&self, owner: Owner, port: Option<&str>) {
        let mut known = self.known.lock();
        let (function, policy) = known.functions.entry(owner).or_default();
        *function = FunctionPort::new(port);
        function.enforce(&self.switch, policy);
        // Mirrors copy from port to port, and this is another.
        if !known.fabric.mirrors.is_empty() {
            self.set_fabric(&known);
        }
    }

    /// Tells the switch what holds for all functions, by the ports that there are.
    fn set_fabric(&self, known: &Known) {
        let port = |owner: &Owner| Some(known.functions.get(owner)?.0.port()?.to_owned());
        self.switch.set_fabric(&fabric(&known.fabric).resolve(port));
    }
}

impl Enforcer for EswitchSync {
    fn enforce(&self, owner: Owner, pool: &igb::Pool) {
        let mut known = self.known.lock();
        let (function, policy) = known.functions.entry(owner).or_default();
        *policy = translated(pool);
        function.enforce(&self.switch, policy);
    }

    fn enforce_all(&self, fabric: &igb::Fabric) {
        let mut known = self.known.lock();
        let before = std::mem::replace(&mut known.fabric, fabric.clone());
        if before.storm != fabric.storm {
            self.switch.set_windows(WIRE, windows(&fabric.storm));
        }
        self.set_fabric(&known);
    }
}
// --- until igb produces these types
fn fabric(of: &igb::Fabric) -> Fabric<Owner> {
    Fabric {
        known: of.known.as_deref().map(VlanSet::of_table),
        local: vlan_set(&of.local),
        mirrors: of
            .mirrors
            .iter()
            .map(|mirror| Mirror {
                to: mirror.to,
                of: mirror.of.clone(),
                incoming: mirror.incoming,
                outgoing: mirror.outgoing,
                vlans: vlan_set(&mirror.vlans),
            })
            .collect(),
    }
}

fn vlan_set(ids: &[u16]) -> VlanSet {
    let none = VlanSet::none();
    ids.iter().fold(none, |set, id| set.with_tag(*id))
}

fn windows(storm: &igb::Storm) -> StormWindows {
    let window = |window: igb::Window| StormWindow {
        blocks: window.blocks.into(),
        current: window.current,
        previous: window.previous,
    };
    StormWindows {
        interval: storm.interval,
        broadcast: storm.broadcast.map(window),
        multicast: storm.multicast.map(window),
    }
}

/// What registers say, in the words of the switch.
fn translated(pool: &igb::Pool) -> FunctionPolicy {
    let wanted = |wanted: &igb::Wanted| match wanted {
        igb::Wanted::None => AddressFilter::None,
        igb::Wanted::All => AddressFilter::All,
        igb::Wanted::Hashes { offset, table } => {
            AddressFilter::Hashes(HashSet12::of_table(table, *offset))
        }
    };
    let vlans = pool.vlans.as_ref().map(|ids| match pool.untagged {
        true => vlan_set(ids).with_bare(),
        false => vlan_set(ids),
    });
    let rate = pool.rate.map(Rate::of_bits);
    let pool = Pool {
        // One that does neither has its stations all the same.
        enabled: pool.receives || pool.sends || !pool.macs.is_empty(),
        receives: pool.receives,
        sends: pool.sends,
        macs: pool.macs.iter().map(|mac| MacAddr(*mac)).collect(),
        broadcast: pool.broadcast,
        groups: wanted(&pool.groups),
        stations: wanted(&pool.stations),
        vlans,
        check_mac: pool.check_mac,
        check_vlan: pool.check_vlan,
        only_vlan: pool.tag,
        outward: pool.outward,
        default: pool.default,
        own: pool.own,
    };
    FunctionPolicy {
        pool,
        rate,
        storm: Storm::default(),
    }
}

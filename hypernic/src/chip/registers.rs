//! The VFs of a chip whose PF is a guest's: what its registers say, carried out at the on-chip switch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ::wire::MacAddr;
use frame::{Batch, Caps, Sink, Wake};
use igb::{Enforcer, Hub, Owner, VfChannel};
use parking_lot::Mutex;
use vale::{
    DEFAULT_BURST_MS, Fabric, HashSet12, Mirror, Pool, Rate, Storm, Switch, SwitchPort, VlanSet,
    Wanted, Window, Windows,
};

use super::WIRE;

type SetLink = Box<dyn Fn(bool) + Send + Sync>;

/// The hubs of a chip, and what stands between them and the switch.
pub struct Registers {
    hub: Arc<Hub>,
    eswitch_sync: Arc<EswitchSync>,
    /// The PF's cable, while there is a PF, and whether it is in.
    cable: Mutex<(Option<SetLink>, bool)>,
}

/// Carries out at the switch what registers say of functions.
struct EswitchSync {
    switch: Switch,
    known: Mutex<Known>,
}

/// What the registers say.
#[derive(Default)]
struct Known {
    functions: BTreeMap<Owner, FunctionPort>,
    fabric: igb::Fabric,
}

/// A function at the switch.
#[derive(Default)]
struct FunctionPort {
    port: Option<String>,
    pool: Pool,
    rate: Option<u64>,
}

impl FunctionPort {
    fn set_rate(&self, switch: &Switch) {
        let rate = self.rate.map(|bits| Rate {
            bits: Some(bits),
            packets: None,
            burst_ms: DEFAULT_BURST_MS,
        });
        if let Some(port) = &self.port {
            switch.set_bounds(port, rate, Storm::default());
        }
    }
}

impl Enforcer for EswitchSync {
    fn enforce(&self, owner: Owner, pool: &igb::Pool) {
        let mut known = self.known.lock();
        let function = known.functions.entry(owner).or_default();
        function.pool = translated(pool);
        if let Some(port) = &function.port {
            self.switch.set_pool(port, function.pool.clone());
        }
        // A new one is full: who changes something else gets no burst by it.
        if std::mem::replace(&mut function.rate, pool.rate) != pool.rate {
            function.set_rate(&self.switch);
        }
    }

    fn enforce_all(&self, fabric: &igb::Fabric) {
        let mut known = self.known.lock();
        let before = std::mem::replace(&mut known.fabric, fabric.clone());
        if before.storm != fabric.storm {
            self.switch.set_windows(WIRE, windows(&fabric.storm));
        }
        self.weave(&known);
    }
}

impl EswitchSync {
    fn joined(&self, owner: Owner, port: Option<&str>) {
        let mut known = self.known.lock();
        let function = known.functions.entry(owner).or_default();
        function.port = port.map(str::to_owned);
        if let Some(port) = &function.port {
            self.switch.set_pool(port, function.pool.clone());
        }
        if function.rate.is_some() {
            function.set_rate(&self.switch);
        }
        // Copies go from port to port, and this is another.
        if !known.fabric.mirrors.is_empty() {
            self.weave(&known);
        }
    }

    /// Has what holds for all of them hold for the ports that there are.
    fn weave(&self, known: &Known) {
        let port = |owner: &Owner| known.functions.get(owner)?.port.clone();
        let mirror = |mirror: &igb::Mirror| {
            Some(Mirror {
                to: port(&mirror.to)?,
                of: mirror.of.iter().filter_map(port).collect(),
                incoming: mirror.incoming,
                outgoing: mirror.outgoing,
                vlans: vlan_set(&mirror.vlans),
            })
        };
        let of_table = |table: &[u32; 128]| {
            let ids = (0..4096u16).filter(|id| table[usize::from(id / 32)] >> (id % 32) & 1 == 1);
            ids.fold(VlanSet::none(), VlanSet::with_tag)
        };
        self.switch.set_fabric(&Fabric {
            known: known.fabric.known.as_deref().map(of_table),
            local: vlan_set(&known.fabric.local),
            mirrors: known.fabric.mirrors.iter().filter_map(mirror).collect(),
        });
    }
}

fn vlan_set(ids: &[u16]) -> VlanSet {
    let none = VlanSet::none();
    ids.iter().fold(none, |set, id| set.with_tag(*id))
}

fn windows(storm: &igb::Storm) -> Windows {
    let window = |window: igb::Window| Window {
        blocks: window.blocks.into(),
        current: window.current,
        previous: window.previous,
    };
    Windows {
        interval: storm.interval,
        broadcast: storm.broadcast.map(window),
        multicast: storm.multicast.map(window),
    }
}

impl Registers {
    /// For `vfs` VFs.
    #[must_use]
    pub fn new(vfs: u32, switch: Switch) -> Arc<Registers> {
        let eswitch_sync = Arc::new(EswitchSync {
            switch,
            known: Mutex::default(),
        });
        Arc::new(Registers {
            hub: Hub::new(vfs, Arc::clone(&eswitch_sync) as Arc<dyn Enforcer>),
            eswitch_sync,
            cable: Mutex::new((None, true)),
        })
    }

    /// What the PF is made with.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The channel of a VF.
    pub(super) fn channel(&self, vf: u32) -> Option<Arc<VfChannel>> {
        self.hub.channel(vf).cloned()
    }

    /// A function has its port at the switch. Returns where what it sends goes.
    pub fn joined(&self, owner: Owner, port: Arc<SwitchPort>) -> Arc<dyn Sink> {
        self.eswitch_sync.joined(owner, Some(port.name()));
        match owner {
            Owner::Pf => port,
            Owner::Vf(vf) => Arc::new(Watched {
                seen: AtomicU64::new(port.fouls()),
                port,
                hub: Arc::downgrade(&self.hub),
                vf,
            }),
        }
    }

    /// A function is taken away.
    pub(super) fn remove(&self, owner: Owner) {
        self.eswitch_sync.joined(owner, None);
        match owner {
            Owner::Pf => {
                self.cable.lock().0 = None;
                self.hub.set_bell(None);
                self.hub.vacate();
            }
            Owner::Vf(vf) => {
                if let Some(channel) = self.hub.channel(vf) {
                    channel.set_bell(None);
                }
            }
        }
    }

    /// The PF runs: this is its cable, and this has it look at what its VFs did.
    pub(super) fn started(&self, bell: Arc<dyn Wake>, cable: SetLink) {
        let mut known = self.cable.lock();
        cable(known.1);
        known.0 = Some(cable);
        drop(known);
        self.hub.set_bell(Some(bell));
    }

    /// The cable goes in or out.
    pub(super) fn link(&self, up: bool) {
        let mut known = self.cable.lock();
        known.1 = up;
        if let Some(cable) = &known.0 {
            cable(up);
        }
    }
}

/// What registers say, in the words of the switch.
fn translated(pool: &igb::Pool) -> Pool {
    let wanted = |wanted: &igb::Wanted| match wanted {
        igb::Wanted::None => Wanted::None,
        igb::Wanted::All => Wanted::All,
        igb::Wanted::Hashes { offset, table } => {
            Wanted::Hashes(HashSet12::of_table(table, *offset))
        }
    };
    let vlans = pool.vlans.as_ref().map(|ids| match pool.untagged {
        true => vlan_set(ids).with_bare(),
        false => vlan_set(ids),
    });
    Pool {
        // One that does neither has its stations all the same.
        enabled: pool.receives || pool.sends || !pool.macs.is_empty(),
        deaf: !pool.receives,
        mute: !pool.sends,
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
    }
}

/// The way of a VF into the switch; tells the PF of what is refused there.
struct Watched {
    port: Arc<SwitchPort>,
    hub: Weak<Hub>,
    vf: u32,
    seen: AtomicU64,
}

impl Sink for Watched {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let dealt = self.port.deliver(batch, picks);
        let fouls = self.port.fouls();
        let seen = self.seen.swap(fouls, Ordering::Relaxed);
        if fouls != seen
            && let Some(hub) = self.hub.upgrade()
        {
            hub.spoofed(self.vf, fouls.saturating_sub(seen));
        }
        dealt
    }

    fn caps(&self) -> Caps {
        self.port.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.port.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.port.give_up(batch, picks);
    }
}

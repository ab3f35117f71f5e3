//! The switch: its ports, its table, its time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use frame::{Sink, Wake};
use parking_lot::RwLock;
use thiserror::Error;
use wire::MacAddr;

use crate::forward::ONE_DOMAIN;
use crate::guard::{Rate, Storm, VlanSet, Windows};
use crate::pools::{Copies, Fabric, Pool, Pools};
use crate::port::{Port, SwitchPort};
use crate::table::{Key, PortId, Table};

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Nanos + Send + Sync>;

/// What a switch is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Most addresses in the table.
    pub max_macs: usize,
    /// Addresses every port may have whatever the others do.
    pub guaranteed_macs: usize,
    /// Most ports; fewer if `max_macs` cannot guarantee each its addresses.
    pub max_ports: usize,
    /// How long an address is known after it was last seen (IEEE 802.1Q table 8-6: 300 s).
    pub ageing: Duration,
    /// Whether frames without room may be left with their sender rather than dropped.
    pub backpressure: bool,
    /// How long a port that takes nothing may hold up senders.
    pub stall_bound: Duration,
}

impl Default for SwitchConfig {
    /// 16384 addresses, 4 guaranteed to each of at most 1024 ports, 300 s, back-pressure for at
    /// most 20 ms.
    fn default() -> Self {
        SwitchConfig {
            max_macs: 16384,
            guaranteed_macs: 4,
            max_ports: 1024,
            ageing: Duration::from_secs(300),
            backpressure: true,
            stall_bound: Duration::from_millis(20),
        }
    }
}

/// What a port is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Most addresses learned on it.
    pub max_macs: usize,
    /// Whether its frames may be left with it while their destination is full. Right for one
    /// guest's NIC, whose own traffic waits. Wrong for what brings frames for many guests, such as
    /// an uplink: one slow guest would hold up the others' frames too.
    pub waits: bool,
    /// The addresses that frames may come from here, and from no other port. None: whatever
    /// address is seen is learned, which a driver that changes its address (bonding) needs.
    pub only: Vec<MacAddr>,
    /// It leads out, to many, rather than to one guest.
    pub uplink: bool,
    /// It has to do with uplinks only: all its frames go there, also those for a neighbour, and it
    /// hears of nobody else. So a switch outside sees, and may refuse, whatever goes between guests.
    pub private: bool,
    /// The VLANs it is a member of; frames of others neither enter nor leave here. `None`: all.
    pub vlans: Option<VlanSet>,
    /// Most that may enter here. What is more waits with its sender, if that waits.
    pub rate_in: Option<Rate>,
    /// Most that may leave here. For what is more the port is full.
    pub rate_out: Option<Rate>,
    /// Most flooded frames that may enter here.
    pub storm: Storm,
}

impl Default for PortConfig {
    /// 1024 addresses, waits, no guards.
    fn default() -> Self {
        PortConfig {
            max_macs: 1024,
            waits: true,
            only: Vec::new(),
            uplink: false,
            private: false,
            vlans: None,
            rate_in: None,
            rate_out: None,
            storm: Storm::default(),
        }
    }
}

/// Why a port cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// There is one of that name.
    #[error("the switch already has a port named {0}; choose another name or detach that port")]
    NameTaken(String),
    /// There are as many as there may be.
    #[error("the switch has {0} ports and may have no more; raise max_ports (and max_macs)")]
    TooManyPorts(usize),
}

/// One port, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Its name.
    pub name: String,
    /// Addresses known on it.
    pub macs: usize,
    /// Its counters, always in the same order.
    pub counters: Vec<(&'static str, u64)>,
}

/// One known address, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacInfo {
    /// The address.
    pub mac: MacAddr,
    /// Its VLAN; 0 while the switch is one domain.
    pub vlan: u16,
    /// The port it was seen on.
    pub port: String,
    /// Since when it has not been seen.
    pub age: Duration,
}

/// A learning switch. Clones are the same switch.
#[derive(Clone)]
pub struct Switch {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    /// In the order of their ids. Replaced as a whole, so that senders hold no lock.
    ports: RwLock<Arc<Vec<Arc<Port>>>>,
    /// Changed by [`Shared::change_table`] only.
    pub(crate) table: RwLock<Table>,
    /// How often that was: what was looked up before says nothing afterwards.
    table_changes: AtomicU64,
    clock: Clock,
    max_ports: usize,
    next_id: AtomicU32,
    backpressure: bool,
    stall_bound: Nanos,
    /// It is an on-chip switch, and asks its pools.
    is_chip: bool,
    /// Batches between two stations take the direct path. Always, but in tests that compare.
    pub(crate) direct: bool,
    alarm: RwLock<Option<Arc<dyn Wake>>>,
    has_alarm: AtomicBool,
    /// When somebody will call `tick`.
    armed: AtomicU64,
    /// There is a port that not every other may reach.
    has_private: AtomicBool,
    /// There is a port that is not a member of every VLAN.
    has_vlans: AtomicBool,
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos().try_into().unwrap_or(Nanos::MAX)
}

impl Switch {
    /// A switch without ports.
    pub fn new(config: SwitchConfig, clock: Clock) -> Switch {
        Self::with_lookup(config, clock, false)
    }

    /// The switch between the functions of a chip, without ports. Nothing is learned: ports that are
    /// no uplinks get what their [`Pool`] says, which is nothing until [`Switch::set_pool`] is
    /// called. Of the configuration, what is about learning means nothing.
    pub fn on_chip(config: SwitchConfig, clock: Clock) -> Switch {
        Self::with_lookup(config, clock, true)
    }

    fn with_lookup(config: SwitchConfig, clock: Clock, is_chip: bool) -> Switch {
        let reach = config
            .max_macs
            .checked_div(config.guaranteed_macs)
            .unwrap_or(usize::MAX);
        let max_ports = config.max_ports.min(reach);
        let common = config.max_macs - max_ports * config.guaranteed_macs;
        let mut table = Table::new(nanos(config.ageing), config.guaranteed_macs, common);
        table.pools = is_chip.then(Arc::default);
        let shared = Shared {
            ports: RwLock::default(),
            table: RwLock::new(table),
            table_changes: AtomicU64::new(0),
            clock,
            max_ports,
            next_id: AtomicU32::new(0),
            backpressure: config.backpressure,
            stall_bound: nanos(config.stall_bound),
            is_chip,
            direct: true,
            alarm: RwLock::new(None),
            has_alarm: AtomicBool::new(false),
            armed: AtomicU64::new(Nanos::MAX),
            has_private: AtomicBool::new(false),
            has_vlans: AtomicBool::new(false),
        };
        Switch {
            shared: Arc::new(shared),
        }
    }

    /// Chooses the path before the first port is attached.
    #[cfg(test)]
    pub(crate) fn set_direct(&mut self, on: bool) {
        Arc::get_mut(&mut self.shared).expect("no port yet").direct = on;
    }

    /// Adds a port. `to` takes what leaves the switch there; what enters is delivered into the port
    /// returned. Switches may be joined by their ports, but never into a ring.
    pub fn attach(
        &self,
        name: &str,
        to: Arc<dyn Sink>,
        config: PortConfig,
    ) -> Result<Arc<SwitchPort>, AttachError> {
        let shared = &self.shared;
        let mut ports = shared.ports.write();
        if ports.iter().any(|port| port.name == name) {
            return Err(AttachError::NameTaken(name.to_owned()));
        }
        if ports.len() >= shared.max_ports {
            return Err(AttachError::TooManyPorts(ports.len()));
        }
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let port = Arc::new(Port::new(id, name.to_owned(), to, &config, shared.now()));
        shared.change_table(|table| {
            table.add_port(id, config.max_macs);
            for only in &config.only {
                table.fix(Key::new(*only, ONE_DOMAIN), id);
            }
            if let Some(pools) = &mut table.pools
                && !config.uplink
            {
                *pools = Arc::new(pools.with(id, Some(Pool::default())));
            }
        });
        let mut list = Vec::clone(&ports);
        list.push(port.clone());
        shared.note_guards(&list);
        *ports = Arc::new(list);
        Ok(Arc::new(SwitchPort::new(shared.clone(), port)))
    }

    /// Removes a port and forgets its addresses; `false` when there is none of that name. What is
    /// delivered into it from now on is dropped and counted; a delivery out of it that is already
    /// under way ends by itself.
    pub fn detach(&self, name: &str) -> bool {
        let shared = &self.shared;
        let (gone, rest) = {
            let mut ports = shared.ports.write();
            let Some(at) = ports.iter().position(|port| port.name == name) else {
                return false;
            };
            let mut list = Vec::clone(&ports);
            let gone = list.remove(at);
            gone.close();
            shared.change_table(|table| table.remove_port(gone.id));
            shared.note_guards(&list);
            *ports = Arc::new(list);
            (gone, ports.clone())
        };
        // Whoever waited for room there must look again, and the gone port's own sender too.
        gone.wake_waiting();
        rest.iter().for_each(|port| port.wake_waiting());
        true
    }

    /// Says what a port of an on-chip switch gets and may send, from the next batch on. `false` when
    /// there is none of that name, it is an uplink, or the switch learns.
    pub fn set_pool(&self, name: &str, pool: Pool) -> bool {
        let shared = &self.shared;
        let ports = shared.ports();
        let port = ports.iter().find(|port| port.name == name && !port.uplink);
        port.is_some_and(|port| {
            shared.change_table(|table| {
                let Some(pools) = table.pools.as_mut().filter(|_| port.is_alive()) else {
                    return false;
                };
                *pools = Arc::new(pools.with(port.id, Some(pool)));
                true
            })
        })
    }

    /// Says what holds for an on-chip switch as a whole, from the next batch on. Ports that it names
    /// and that are not there get nothing and give nothing; say it again when they are. `false` when
    /// the switch learns.
    pub fn set_fabric(&self, fabric: &Fabric) -> bool {
        let shared = &self.shared;
        let ports = shared.ports();
        let id = |name: &String| {
            let port = ports.iter().find(|port| port.name == *name);
            port.map(|port| port.id)
        };
        let copies = fabric.mirrors.iter().filter_map(|mirror| {
            Some(Copies {
                to: id(&mirror.to)?,
                of: mirror.of.iter().filter_map(id).collect(),
                incoming: mirror.incoming,
                outgoing: mirror.outgoing,
                vlans: mirror.vlans.clone(),
            })
        });
        let copies = copies.collect();
        shared.change_table(|table| {
            let pools = table.pools.as_mut();
            pools.is_some_and(|pools| {
                *pools = Arc::new(pools.wired(fabric, copies));
                true
            })
        })
    }

    /// Limits floods that enter at a port by windows of time, from the next batch on. `false` when
    /// there is none of that name.
    pub fn set_windows(&self, name: &str, windows: Windows) -> bool {
        let ports = self.shared.ports();
        let port = ports.iter().find(|port| port.name == name);
        port.is_some_and(|port| {
            port.bounds.set_windows(windows, self.now());
            true
        })
    }

    /// Bounds what may enter at a port, from the next batch on. `false` when there is none of that
    /// name.
    pub fn set_bounds(&self, name: &str, rate_in: Option<Rate>, storm: Storm) -> bool {
        let ports = self.shared.ports();
        let port = ports.iter().find(|port| port.name == name);
        let Some(port) = port else { return false };
        port.bounds.set(rate_in, storm, self.now());
        // Who waits for the old rate may have a better one.
        port.wake_waiting();
        true
    }

    /// The ports, in the order they were attached.
    pub fn ports(&self) -> Vec<PortInfo> {
        let ports = self.shared.ports();
        let table = self.shared.table.read();
        let mut macs = vec![0; ports.len()];
        for (_, id, _) in table.iter(self.shared.now()) {
            if let Some(at) = slot(&ports, id) {
                macs[at] += 1;
            }
        }
        let info = |(port, macs): (&Arc<Port>, usize)| {
            let mut counters = Vec::new();
            port.counters.visit(&mut |name, n| counters.push((name, n)));
            PortInfo {
                name: port.name.clone(),
                macs,
                counters,
            }
        };
        ports.iter().zip(macs).map(info).collect()
    }

    /// The known addresses, in their numerical order.
    pub fn macs(&self) -> Vec<MacInfo> {
        let ports = self.shared.ports();
        let table = self.shared.table.read();
        let mut macs: Vec<MacInfo> = table
            .iter(self.shared.now())
            .filter_map(|(key, id, age)| {
                Some(MacInfo {
                    mac: key.mac(),
                    vlan: key.vlan(),
                    port: ports[slot(&ports, id)?].name.clone(),
                    age: Duration::from_nanos(age),
                })
            })
            .collect();
        macs.sort_by_key(|info| (info.vlan, info.mac));
        macs
    }

    /// Names whoever will call [`Switch::tick`]: it is woken when there is something to wait for
    /// and the last `tick` returned `None`. From now on frames may be left with their senders.
    pub fn set_alarm(&self, alarm: Arc<dyn Wake>) {
        *self.shared.alarm.write() = Some(alarm);
        self.shared.has_alarm.store(true, Ordering::Release);
    }

    /// Nobody calls [`Switch::tick`] any more. Who waits is woken; nobody is held up from now on.
    pub fn clear_alarm(&self) {
        self.shared.has_alarm.store(false, Ordering::Release);
        *self.shared.alarm.write() = None;
        for port in self.shared.ports().iter() {
            port.wake_waiting();
        }
    }

    /// Wakes the senders that have waited for room as long as they may. Returns when to call again,
    /// or `None` to wait for the alarm.
    pub fn tick(&self) -> Option<Nanos> {
        // First, so that whoever begins to wait meanwhile sounds the alarm again.
        self.shared.armed.store(Nanos::MAX, Ordering::SeqCst);
        let now = self.shared.now();
        let ports = self.shared.ports();
        let next = ports.iter().filter_map(|p| p.wake_due(now)).min();
        if let Some(next) = next {
            self.shared.armed.fetch_min(next, Ordering::SeqCst);
        }
        next
    }

    /// Now, by the switch's clock.
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.shared.ports();
        let names = ports.iter().map(|port| &port.name);
        f.debug_list().entries(names).finish()
    }
}

impl Shared {
    pub(crate) fn ports(&self) -> Arc<Vec<Arc<Port>>> {
        self.ports.read().clone()
    }

    /// Changes the table, and has everybody look anew.
    pub(crate) fn change_table<R>(&self, change: impl FnOnce(&mut Table) -> R) -> R {
        let mut table = self.table.write();
        let result = change(&mut table);
        // Under the lock: whoever has seen the count from before and reads the old table, or the new
        // one, will see that it has changed.
        self.table_changes.fetch_add(1, Ordering::Release);
        result
    }

    /// Whether it asks its pools rather than what it has learned.
    pub(crate) fn is_chip(&self) -> bool {
        self.is_chip
    }

    /// The pools of an on-chip switch as they are now.
    pub(crate) fn pools(&self) -> Option<Arc<Pools>> {
        if !self.is_chip {
            return None;
        }
        self.table.read().pools.clone()
    }

    /// The number of changes so far. Ask before the table is read.
    pub(crate) fn table_changes(&self) -> u64 {
        self.table_changes.load(Ordering::Acquire)
    }

    pub(crate) fn now(&self) -> Nanos {
        (self.clock)()
    }

    pub(crate) fn may_hold_up(&self) -> bool {
        self.backpressure && self.has_alarm.load(Ordering::Acquire)
    }

    pub(crate) fn stall_bound(&self) -> Nanos {
        self.stall_bound
    }

    /// There is a new deadline.
    pub(crate) fn sound_alarm(&self, deadline: Nanos) {
        if self.armed.fetch_min(deadline, Ordering::SeqCst) > deadline
            && let Some(alarm) = self.alarm.read().clone()
        {
            alarm.wake();
        }
    }

    fn note_guards(&self, ports: &[Arc<Port>]) {
        let private = ports.iter().any(|port| port.private);
        let vlans = ports.iter().any(|port| port.vlans.is_some());
        self.has_private.store(private, Ordering::Release);
        self.has_vlans.store(vlans, Ordering::Release);
    }

    pub(crate) fn has_private(&self) -> bool {
        self.has_private.load(Ordering::Acquire)
    }

    /// Some frames may not go to some ports.
    pub(crate) fn is_guarded(&self) -> bool {
        self.has_private() || self.has_vlans()
    }

    pub(crate) fn has_vlans(&self) -> bool {
        self.has_vlans.load(Ordering::Acquire)
    }
}

/// Where the port with this id is in the list.
pub(crate) fn slot(ports: &[Arc<Port>], id: PortId) -> Option<usize> {
    ports.binary_search_by_key(&id, |port| port.id).ok()
}

//! The switch, as its owner holds it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use eswitch::{Fabric, Pool, Rate, Storm, StormWindows};
use frame::{Batch, Sink, Wake};
use parking_lot::RwLock;

use crate::config::{AttachError, Clock, MacInfo, Nanos, PortConfig, PortInfo, SwitchConfig};
use crate::forward::trace;
use crate::port::{Port, slot};
use crate::state::{Lookup, SwitchState};
use crate::switch_port::SwitchPort;
use crate::table::{Key, Table, fixed_keys};
use crate::witness::{Witness, Witnesses};

/// A learning switch. Clones are the same switch.
#[derive(Clone)]
pub struct Switch {
    state: Arc<SwitchState>,
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
        let lookup = Lookup {
            table: Table::new(nanos(config.ageing), config.guaranteed_macs, common),
            pools: is_chip.then(Arc::default),
        };
        let state = SwitchState {
            ports: RwLock::default(),
            lookup: RwLock::new(lookup),
            lookup_changes: AtomicU64::new(0),
            clock,
            max_ports,
            next_id: AtomicU32::new(0),
            backpressure: config.backpressure,
            stall_bound: nanos(config.stall_bound),
            link_local: AtomicBool::new(config.link_local),
            is_chip,
            direct: true,
            timer: RwLock::new(None),
            has_timer: AtomicBool::new(false),
            armed: AtomicU64::new(Nanos::MAX),
            has_private: AtomicBool::new(false),
            has_vlans: AtomicBool::new(false),
            has_guards: AtomicBool::new(false),
            witnesses: Witnesses::default(),
        };
        Switch {
            state: Arc::new(state),
        }
    }

    /// Chooses the path before the first port is attached.
    #[cfg(test)]
    pub(crate) fn set_direct(&mut self, on: bool) {
        Arc::get_mut(&mut self.state).expect("no port yet").direct = on;
    }

    /// Adds a port. `to` takes what leaves the switch there; what enters is delivered into the port
    /// returned. Switches may be joined by their ports, but never into a ring. A full mesh of them is
    /// none, if all its ports are [`PortConfig::mesh`].
    pub fn attach(
        &self,
        name: &str,
        to: Arc<dyn Sink>,
        config: PortConfig,
    ) -> Result<Arc<SwitchPort>, AttachError> {
        let state = &self.state;
        let mut ports = state.ports.write();
        if ports.iter().any(|port| port.name == name) {
            return Err(AttachError::NameTaken(name.to_owned()));
        }
        if ports.len() >= state.max_ports {
            return Err(AttachError::TooManyPorts(ports.len()));
        }
        let id = state.next_id.fetch_add(1, Ordering::Relaxed);
        let port = Arc::new(Port::new(id, name.to_owned(), to, &config, state.now()));
        state.change_lookup(|lookup| {
            lookup.table.add_port(id, config.max_macs);
            for key in fixed_keys(&config) {
                lookup.table.fix(key, id);
            }
            if let Some(pools) = &mut lookup.pools
                && !config.uplink
            {
                *pools = Arc::new(pools.with(id, Some(Pool::default())));
            }
        });
        let mut list = Vec::clone(&ports);
        list.push(port.clone());
        state.note_guards(&list);
        *ports = Arc::new(list);
        Ok(Arc::new(SwitchPort::new(state.clone(), port)))
    }

    /// Removes a port and forgets its addresses; `false` when there is none of that name. What is
    /// delivered into it from now on is dropped and counted; a delivery out of it that is already
    /// under way ends by itself.
    pub fn detach(&self, name: &str) -> bool {
        let state = &self.state;
        let (gone, rest) = {
            let mut ports = state.ports.write();
            let Some(at) = ports.iter().position(|port| port.name == name) else {
                return false;
            };
            let mut list = Vec::clone(&ports);
            let gone = list.remove(at);
            gone.close();
            state.change_lookup(|lookup| lookup.remove_port(gone.id));
            state.note_guards(&list);
            *ports = Arc::new(list);
            (gone, ports.clone())
        };
        // The senders that waited for room there must look again, and the gone port's own sender too.
        gone.wake_waiting();
        rest.iter().for_each(|port| port.wake_waiting());
        true
    }

    /// Forgets every address of a port that stays, those too that are fixed to it; [`Switch::set_port`] fixes them again.
    /// `false` when there is none of that name.
    pub fn forget(&self, name: &str) -> bool {
        let state = &self.state;
        let ports = state.ports.read();
        let Some(port) = ports.iter().find(|port| port.name == name) else {
            return false;
        };
        state.change_lookup(|lookup| lookup.table.forget_port(port.id));
        true
    }

    /// Changes what a port may do, from the next batch on: all of its configuration, but whether it is an uplink and whether
    /// it is of a mesh. Limits that stay the same go on as they are. `false` when there is none of that name.
    ///
    /// An address that is fixed no more stays known as if it were seen now, if the port may still send from it. What was
    /// learned at the port is forgotten once it has addresses that are its only ones.
    pub fn set_port(&self, name: &str, config: &PortConfig) -> bool {
        let state = &self.state;
        let now = self.now();
        let rest = {
            let mut ports = state.ports.write();
            let Some(at) = ports.iter().position(|port| port.name == name) else {
                return false;
            };
            let port = ports[at].with(config, now);
            let fixed = fixed_keys(config);
            let is_free = config.only.is_empty();
            let mut list = Vec::clone(&ports);
            let id = port.id;
            list[at] = port;
            state.note_guards(&list);
            *ports = Arc::new(list);
            // Behind the list, so that who looks anew finds the new port there.
            state.change_lookup(|lookup| {
                let table = &mut lookup.table;
                table.set_port(id, config.max_macs, (&fixed, is_free), now);
            });
            ports.clone()
        };
        // Who waits for the old limits may have better ones.
        rest.iter().for_each(|port| port.wake_waiting());
        true
    }

    /// Changes how long an address is known after it was last seen.
    pub fn set_ageing(&self, ageing: Duration) {
        let ageing = nanos(ageing);
        self.state
            .change_lookup(|lookup| lookup.table.set_ageing(ageing));
    }

    /// Changes what becomes of frames for groups that no bridge forwards.
    pub fn set_link_local(&self, pass: bool) {
        self.state.link_local.store(pass, Ordering::Relaxed);
    }

    /// Says what a port of an on-chip switch gets and may send, from the next batch on. `false` when
    /// there is none of that name, it is an uplink, or the switch learns.
    pub fn set_pool(&self, name: &str, pool: Pool) -> bool {
        let state = &self.state;
        let ports = state.ports();
        let port = ports.iter().find(|port| port.name == name && !port.uplink);
        port.is_some_and(|port| {
            state.change_lookup(|lookup| {
                let Some(pools) = lookup.pools.as_mut().filter(|_| port.is_alive()) else {
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
    pub fn set_fabric(&self, fabric: &Fabric<String>) -> bool {
        let state = &self.state;
        let ports = state.ports();
        let id = |name: &String| {
            let port = ports.iter().find(|port| port.name == *name);
            port.map(|port| port.id)
        };
        let fabric = fabric.resolve(id);
        state.change_lookup(|lookup| {
            let pools = lookup.pools.as_mut();
            pools.is_some_and(|pools| {
                *pools = Arc::new(pools.wired(fabric));
                true
            })
        })
    }

    /// Limits floods that enter at a port by windows of time, from the next batch on. `false` when
    /// there is none of that name.
    pub fn set_windows(&self, name: &str, windows: StormWindows) -> bool {
        let ports = self.state.ports();
        let port = ports.iter().find(|port| port.name == name);
        port.is_some_and(|port| {
            port.bounds.set_windows(windows, self.now());
            true
        })
    }

    /// Bounds what may enter at a port, from the next batch on. `false` when there is none of that
    /// name.
    pub fn set_bounds(&self, name: &str, rate_in: Option<Rate>, storm: Storm) -> bool {
        let ports = self.state.ports();
        let port = ports.iter().find(|port| port.name == name);
        let Some(port) = port else { return false };
        port.bounds.set(rate_in, storm, self.now());
        // Who waits for the old rate may have a better one.
        port.wake_waiting();
        true
    }

    /// The ports, in the order they were attached.
    pub fn ports(&self) -> Vec<PortInfo> {
        let ports = self.state.ports();
        let lookup = self.state.lookup.read();
        let mut macs = vec![0; ports.len()];
        for (_, id, _) in lookup.table.iter(self.state.now()) {
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

    /// What would become of the first frame of a batch that came in by a port, without effect: nothing is learned, no
    /// frame goes anywhere and no counter is touched. `tell` is told each decision, and the counter that goes with it.
    /// Returns the ports that would get the frame; `None`: there is no such port.
    pub fn trace(
        &self,
        from: &str,
        batch: &Batch<'_>,
        tell: &mut dyn FnMut(String, Option<&'static str>),
    ) -> Option<Vec<String>> {
        let ports = self.state.ports();
        let from = ports.iter().find(|port| port.name == from)?;
        Some(trace::trace(&self.state, from, batch, tell))
    }

    /// Shows lost frames to a witness from now on. While there is a witness, all frames take the longer way.
    pub fn add_witness(&self, witness: Arc<dyn Witness>) {
        self.state.witnesses.add(witness);
    }

    /// Shows a witness no more frames.
    pub fn remove_witness(&self, witness: &Arc<dyn Witness>) {
        self.state.witnesses.remove(witness);
    }

    /// The known addresses, in their numerical order.
    pub fn macs(&self) -> Vec<MacInfo> {
        let ports = self.state.ports();
        let lookup = self.state.lookup.read();
        let mut macs: Vec<MacInfo> = lookup
            .table
            .iter(self.state.now())
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

    /// Takes over what another switch knew in [`Switch::macs`], for ports of the same names: nothing that is known here already, and
    /// nothing of a port that is not here. Returns how many addresses that were.
    pub fn remember(&self, known: impl IntoIterator<Item = MacInfo>) -> usize {
        let ports = self.state.ports();
        let now = self.now();
        let id = |name: &str| {
            let port = ports.iter().find(|port| port.name == name);
            port.map(|port| port.id)
        };
        self.state.change_lookup(|lookup| {
            let taken = known.into_iter().filter(|info| {
                let seen = now.saturating_sub(nanos(info.age));
                let key = Key::new(info.mac, info.vlan);
                id(&info.port).is_some_and(|port| lookup.table.remember(key, port, seen))
            });
            taken.count()
        })
    }

    /// Names the timer of senders that wait, which calls [`Switch::tick`]: it is woken when there is
    /// an earlier deadline than the last `tick` returned. From now on frames may be left with their senders.
    pub fn set_timer(&self, timer: Arc<dyn Wake>) {
        *self.state.timer.write() = Some(timer);
        self.state.has_timer.store(true, Ordering::Release);
    }

    /// No timer calls [`Switch::tick`] any more. Senders that wait are woken; none is held up from now on.
    pub fn clear_timer(&self) {
        self.state.has_timer.store(false, Ordering::Release);
        *self.state.timer.write() = None;
        for port in self.state.ports().iter() {
            port.wake_waiting();
        }
    }

    /// Wakes the senders that have waited for room as long as they may. Returns when to call again,
    /// or `None` to wait for the timer to be armed.
    pub fn tick(&self) -> Option<Nanos> {
        // First, so that a sender that begins to wait meanwhile arms the timer again.
        self.state.armed.store(Nanos::MAX, Ordering::SeqCst);
        let now = self.state.now();
        let ports = self.state.ports();
        let next = ports.iter().filter_map(|p| p.wake_due(now)).min();
        if let Some(next) = next {
            self.state.armed.fetch_min(next, Ordering::SeqCst);
        }
        next
    }

    /// Now, by the switch's clock.
    pub fn now(&self) -> Nanos {
        self.state.now()
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.state.ports();
        let names = ports.iter().map(|port| &port.name);
        f.debug_list().entries(names).finish()
    }
}

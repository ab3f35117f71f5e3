//! Where frames go: by what was learned, or by the pools of a chip.

use std::sync::Arc;

use frame::{Mix, Run};

use super::{Classified, Refusal, Route, Scratch};
use crate::config::Nanos;
use crate::counters::add;
use crate::direct;
use crate::guard::storm::Flood;
use crate::mix;
use crate::pools::{self, Foul, Pools, Way};
use crate::port::{Port, slot};
use crate::state::SwitchState;
use crate::table::{Key, Learn};

impl Scratch {
    /// Takes frames of a run to the one station that they are for, as [`frame::Sink::deliver_run`].
    #[inline(always)]
    pub(crate) fn run(&mut self, state: &SwitchState, from: &Port, run: &Run<'_>) -> Option<usize> {
        if !state.is_direct() {
            return None;
        }
        let now = state.now();
        self.patience.resume(now, state.stall_bound());
        let known = (&mut self.known, &mut self.patience);
        direct::deliver_run(state, from, known, run, now)
    }

    /// The same of a mix, as [`frame::Sink::deliver_mix`].
    pub(crate) fn mix(&mut self, state: &SwitchState, from: &Port, mix: &Mix<'_>) -> Option<usize> {
        if !state.is_direct() {
            return None;
        }
        let now = state.now();
        self.patience.resume(now, state.stall_bound());
        let known = (&mut self.known, &mut self.patience);
        mix::deliver(state, from, known, mix, now)
    }

    /// Tells frames of private ports that a switch outside has sent back: their sources are still
    /// where they were.
    pub(super) fn reflect(&mut self, state: &SwitchState, ports: &[Arc<Port>], now: Nanos) {
        let lookup = state.lookup.read();
        let table = &lookup.table;
        for classified in self
            .frames
            .iter_mut()
            .filter(|classified| classified.station)
        {
            let owner = table.lookup(classified.src, now);
            let at = owner.and_then(|id| slot(ports, id));
            if let Some(at) = at.filter(|at| ports[*at].private) {
                classified.origin = Some(at as u32);
                classified.station = false;
            }
        }
    }

    /// Learns sources and looks up destinations, in the order of the frames. Most batches hold
    /// nothing new and need only the read lock.
    pub(super) fn look_up(
        &mut self,
        state: &SwitchState,
        from: &Port,
        ports: &[Arc<Port>],
        now: Nanos,
    ) {
        let mut last = (from.id, slot(ports, from.id));
        let mut resolve = |classified: &mut Classified, found: Option<u32>| {
            if classified.route == Route::Everywhere(Flood::Unknown)
                && let Some(id) = found
            {
                if id != last.0 {
                    last = (id, slot(ports, id));
                }
                classified.route = match last.1 {
                    _ if id == from.id => Route::Nowhere(Refusal::Hairpin),
                    Some(at) => Route::Port(at as u32),
                    None => Route::Nowhere(Refusal::PortGone),
                };
            }
        };
        let mut rest = self.frames.iter_mut();
        let mut first_new = None;
        {
            let lookup = state.lookup.read();
            let table = &lookup.table;
            // Neighbours in a batch are most often of one flow: look up what differs.
            let (mut src, mut dst) = (None, (Key::default(), None));
            for classified in rest.by_ref() {
                if classified.station && table.is_foreign(classified.src, from.id) {
                    classified.route = Route::Nowhere(Refusal::Spoofed);
                    classified.station = false;
                    continue;
                }
                if classified.station && src != Some(classified.src) {
                    if !table.touch(classified.src, from.id, now) {
                        first_new = Some(classified);
                        break;
                    }
                    src = Some(classified.src);
                }
                if classified.dst != dst.0 {
                    dst = (classified.dst, table.lookup(classified.dst, now));
                }
                resolve(classified, dst.1);
            }
        }
        let Some(first) = first_new else {
            return;
        };
        let (mut learned, mut moved) = (0, 0);
        state.change_lookup(|lookup| {
            let table = &mut lookup.table;
            for classified in std::iter::once(first).chain(rest) {
                if classified.station {
                    classified.learn = table.learn(classified.src, from.id, now);
                    learned += u64::from(classified.learn == Learn::New);
                    moved += u64::from(classified.learn == Learn::Moved);
                    if classified.learn == Learn::Foreign {
                        classified.route = Route::Nowhere(Refusal::Spoofed);
                    }
                }
                resolve(classified, table.lookup(classified.dst, now));
            }
        });
        // Unlike the rest these are true at once, whether or not the frame is dealt with.
        add(&from.counters.learned, learned);
        add(&from.counters.moved, moved);
    }

    /// The same for an on-chip switch: what pools may send, and who gets it.
    pub(super) fn look_up_pools(&mut self, pools: &Pools, from: &Port, ports: &[Arc<Port>]) {
        let wire = pools::only_uplink(ports);
        let own = pools.of(from.id);
        // Neighbours in a batch are most often of one flow, and of one sender.
        let mut last_src = None;
        let mut last_port = (from.id, slot(ports, from.id));
        for classified in &mut self.frames {
            if matches!(classified.route, Route::Nowhere(_)) {
                continue;
            }
            let foul = match last_src {
                Some((src, vlan, foul)) if (src, vlan) == (classified.src, classified.vlan) => foul,
                _ => Pools::foul(own, classified.src.mac(), classified.vlan),
            };
            last_src = Some((classified.src, classified.vlan, foul));
            if let Some(foul) = foul {
                classified.route = Route::Nowhere(match foul {
                    Foul::Disabled => Refusal::PoolOff,
                    Foul::Source => Refusal::Spoofed,
                    Foul::Vlan => Refusal::Vlan,
                });
                continue;
            }
            if classified.route == Route::Everywhere(Flood::Unknown) {
                classified.route = match pools.way(from, classified.dst.mac(), classified.vlan) {
                    Way::Port(id) => {
                        if last_port.0 != id {
                            last_port = (id, slot(ports, id));
                        }
                        match last_port.1 {
                            Some(at) => Route::Port(at as u32),
                            None => Route::Nowhere(Refusal::PortGone),
                        }
                    }
                    Way::Back => Route::Nowhere(Refusal::Hairpin),
                    Way::Several => Route::Several,
                    Way::Wire => wire.map_or(Route::Uplinks, |at| Route::Port(at as u32)),
                    Way::Nobody => Route::Nowhere(Refusal::NoPool),
                };
            }
        }
    }
}

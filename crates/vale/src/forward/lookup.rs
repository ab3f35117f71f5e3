//! Where frames go: by what was learned, or by the pools of a chip.

use std::sync::Arc;

use super::{Flood, Judged, Refusal, Route, Scratch};
use crate::Nanos;
use crate::counters::add;
use crate::pools::{self, Foul, Pools, Way};
use crate::port::Port;
use crate::switch::{Shared, slot};
use crate::table::{Key, Learn};

impl Scratch {
    /// Tells frames of private ports that a switch outside has sent back: their sources are still
    /// where they were.
    pub(super) fn reflect(&mut self, shared: &Shared, ports: &[Arc<Port>], now: Nanos) {
        let table = shared.table.read();
        for judged in self.frames.iter_mut().filter(|judged| judged.station) {
            let owner = table.lookup(judged.src, now);
            let at = owner.and_then(|id| slot(ports, id));
            if let Some(at) = at.filter(|at| ports[*at].private) {
                judged.origin = Some(at as u32);
                judged.station = false;
            }
        }
    }

    /// Learns sources and looks up destinations, in the order of the frames. Most batches hold
    /// nothing new and need only the read lock.
    pub(super) fn look_up(
        &mut self,
        shared: &Shared,
        from: &Port,
        ports: &[Arc<Port>],
        now: Nanos,
    ) {
        let mut last = (from.id, slot(ports, from.id));
        let mut resolve = |judged: &mut Judged, found: Option<u32>| {
            if judged.route == Route::Everywhere(Flood::Unknown)
                && let Some(id) = found
            {
                if id != last.0 {
                    last = (id, slot(ports, id));
                }
                judged.route = match last.1 {
                    _ if id == from.id => Route::Nowhere(Refusal::Hairpin),
                    Some(at) => Route::Port(at as u32),
                    None => Route::Nowhere(Refusal::PortGone),
                };
            }
        };
        let mut rest = self.frames.iter_mut();
        let mut first_new = None;
        {
            let table = shared.table.read();
            // Neighbours in a batch are most often of one flow: look up what differs.
            let (mut src, mut dst) = (None, (Key::default(), None));
            for judged in rest.by_ref() {
                if judged.station && table.is_foreign(judged.src, from.id) {
                    judged.route = Route::Nowhere(Refusal::Spoofed);
                    judged.station = false;
                    continue;
                }
                if judged.station && src != Some(judged.src) {
                    if !table.touch(judged.src, from.id, now) {
                        first_new = Some(judged);
                        break;
                    }
                    src = Some(judged.src);
                }
                if judged.dst != dst.0 {
                    dst = (judged.dst, table.lookup(judged.dst, now));
                }
                resolve(judged, dst.1);
            }
        }
        let Some(first) = first_new else {
            return;
        };
        let (mut learned, mut moved) = (0, 0);
        shared.change_table(|table| {
            for judged in std::iter::once(first).chain(rest) {
                if judged.station {
                    judged.learn = table.learn(judged.src, from.id, now);
                    learned += u64::from(judged.learn == Learn::New);
                    moved += u64::from(judged.learn == Learn::Moved);
                    if judged.learn == Learn::Foreign {
                        judged.route = Route::Nowhere(Refusal::Spoofed);
                    }
                }
                resolve(judged, table.lookup(judged.dst, now));
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
        for judged in &mut self.frames {
            if matches!(judged.route, Route::Nowhere(_)) {
                continue;
            }
            let foul = match last_src {
                Some((src, vlan, foul)) if (src, vlan) == (judged.src, judged.vlan) => foul,
                _ => Pools::foul(own, judged.src.mac(), judged.vlan),
            };
            last_src = Some((judged.src, judged.vlan, foul));
            if let Some(foul) = foul {
                judged.route = Route::Nowhere(match foul {
                    Foul::Disabled => Refusal::PoolOff,
                    Foul::Source => Refusal::Spoofed,
                    Foul::Vlan => Refusal::Vlan,
                });
                continue;
            }
            if judged.route == Route::Everywhere(Flood::Unknown) {
                judged.route = match pools.way(from, judged.dst.mac(), judged.vlan) {
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

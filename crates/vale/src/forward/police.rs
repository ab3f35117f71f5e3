//! What guards have against frames.

use std::sync::Arc;

use super::{Classified, Refusal, Route, Scratch};
use crate::config::Nanos;
use crate::guard::Bound;
use crate::pools::Pools;
use crate::port::Port;

impl Scratch {
    /// What the guards of a port have against frames from it.
    pub(super) fn police(
        &mut self,
        bound: Option<&Bound>,
        from: &Port,
        ports: &[Arc<Port>],
        now: Nanos,
    ) {
        let storm = bound.and_then(|bound| bound.storm.as_ref());
        if let Some(storm) = storm {
            storm.refill(now);
        }
        let windows = bound.and_then(|bound| bound.windows.as_ref());
        if let Some(windows) = windows {
            windows.roll(now);
        }
        for classified in &mut self.frames {
            classified.route = match permitted(classified.route, from, ports, classified.vlan) {
                Route::Everywhere(kind)
                    if storm.is_some_and(|s| !s.admit(kind, classified.segments)) =>
                {
                    Route::Nowhere(Refusal::Storm)
                }
                Route::Everywhere(kind)
                    if windows.is_some_and(|w| !w.admit(kind, classified.len)) =>
                {
                    Route::Nowhere(Refusal::Storm)
                }
                route => route,
            };
        }
    }
}

impl Classified {
    /// Whether a port other than its own gets a copy of a frame that several may get.
    pub(super) fn reaches(&self, from: &Port, to: &Port, pools: Option<&Pools>) -> bool {
        let reached = match (self.route, pools) {
            (Route::Uplinks, _) => to.uplink,
            (_, Some(pools)) => pools.gets(from, to, self.dst.mac(), self.vlan),
            _ => from.may_reach(to),
        };
        reached && to.is_member(self.vlan) && !from.is_split_from(to)
    }
}

/// What VLANs, privacy and the mesh leave of a route.
pub(super) fn permitted(route: Route, from: &Port, ports: &[Arc<Port>], vlan: u16) -> Route {
    match route {
        Route::Nowhere(_) => route,
        _ if !from.is_member(vlan) => Route::Nowhere(Refusal::Vlan),
        Route::Port(at) => {
            let to = &ports[at as usize];
            if from.private && !to.uplink {
                Route::Uplinks
            } else if !from.may_reach(to) {
                Route::Nowhere(Refusal::Private)
            } else if from.is_split_from(to) {
                Route::Nowhere(Refusal::Mesh)
            } else if !to.is_member(vlan) {
                Route::Nowhere(Refusal::Vlan)
            } else {
                route
            }
        }
        _ => route,
    }
}

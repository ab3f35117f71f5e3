//! What a switch would do with a frame, without doing it.

use std::sync::Arc;

use frame::Batch;

use super::police::permitted;
use super::{Classified, Refusal, Route, Scratch};
use crate::guard::storm::Flood;
use crate::pools::Pools;
use crate::port::{Port, slot};
use crate::state::SwitchState;

/// Is told each decision, and the counter of the port it came in by that goes with it.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(String, Option<&'static str>);

impl Refusal {
    /// Its counter, and what it says.
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Refusal::Runt => ("drop_runt", "is too short for an Ethernet header"),
            Refusal::BadNotes => ("drop_bad_notes", "has offload notes that cannot be true"),
            Refusal::SourceIsGroup => ("drop_source_is_group", "comes from a group address"),
            Refusal::Spoofed => (
                "drop_spoofed",
                "comes from an address that is another port's",
            ),
            Refusal::Reserved => ("drop_reserved", "is for an address that no bridge forwards"),
            Refusal::Hairpin => (
                "drop_hairpin",
                "is for an address on the port it comes from",
            ),
            Refusal::PortGone => (
                "drop_port_gone",
                "is for an address on a port that has gone",
            ),
            Refusal::Vlan => (
                "drop_vlan",
                "is of a VLAN that one of the ports is no member of",
            ),
            Refusal::Private => (
                "drop_private",
                "is for a private port, which only an uplink reaches",
            ),
            Refusal::Mesh => (
                "drop_mesh",
                "comes from the mesh and is for a station in the mesh",
            ),
            Refusal::Storm => ("drop_storm", "is beyond the storm limits"),
            Refusal::NoPool => ("drop_no_pool", "is for no pool"),
            Refusal::PoolOff => ("drop_pool_off", "comes from a pool that is off"),
        }
    }
}

impl Scratch {
    /// Shows the frames that were refused to the witnesses.
    pub(super) fn show_refused(
        &self,
        state: &SwitchState,
        from: &Port,
        batch: &Batch<'_>,
        picks: &[u16],
    ) {
        if !state.witnesses.any() {
            return;
        }
        for (classified, pick) in self.frames.iter().zip(picks) {
            if let Route::Nowhere(refusal) = classified.route {
                let (counter, _) = refusal.told();
                state.witnesses.show(&from.name, batch, &[*pick], counter);
            }
        }
    }
}

/// Follows the first frame of a batch from `from`. Returns the ports that would get it.
pub(crate) fn trace(
    state: &SwitchState,
    from: &Port,
    batch: &Batch<'_>,
    tell: Tell<'_>,
) -> Vec<String> {
    let mut scratch = Scratch {
        pools: state.pools(),
        ..Scratch::default()
    };
    scratch.classify(state, from, batch, &[0]);
    if let Some(pools) = scratch.pools.clone() {
        return through_pools(state, scratch, &pools, from, tell);
    }
    let Some(mut frame) = scratch.frames.first().copied() else {
        return Vec::new();
    };
    let (now, ports) = (state.now(), state.ports());
    {
        // A look: nothing is learned, and nothing looks younger than it is.
        let lookup = state.lookup.read();
        let table = &lookup.table;
        let name = |id| slot(&ports, id).map_or("a port that has gone", |at| &ports[at].name);
        if frame.station {
            let src = frame.src.mac();
            match table.lookup(frame.src, now) {
                _ if table.is_foreign(frame.src, from.id) => {
                    frame.route = Route::Nowhere(Refusal::Spoofed);
                }
                Some(id) if id == from.id => tell(format!("{src} is known here"), None),
                Some(id) => {
                    let moved = format!("{src} would move here from {}", name(id));
                    tell(moved, Some("moved"));
                }
                None => tell(format!("{src} would be learned here"), Some("learned")),
            }
        }
        if frame.route == Route::Everywhere(Flood::Unknown) {
            let dst = frame.dst.mac();
            match table.lookup(frame.dst, now) {
                None => tell(format!("{dst} is not known"), None),
                Some(id) if id == from.id => frame.route = Route::Nowhere(Refusal::Hairpin),
                Some(id) => match slot(&ports, id) {
                    Some(at) => {
                        tell(format!("{dst} is known on {}", ports[at].name), None);
                        frame.route = Route::Port(at as u32);
                    }
                    None => frame.route = Route::Nowhere(Refusal::PortGone),
                },
            }
        }
    }
    frame.route = permitted(frame.route, from, &ports, frame.vlan);
    tell_limits(from, frame.route, tell);
    goes(from, &ports, &frame, tell)
}

/// The same at a chip's own switch, which asks its pools.
fn through_pools(
    state: &SwitchState,
    mut scratch: Scratch,
    pools: &Pools,
    from: &Port,
    tell: Tell<'_>,
) -> Vec<String> {
    let ports = state.ports();
    scratch.look_up_pools(pools, from, &ports);
    let Some(mut frame) = scratch.frames.first().copied() else {
        return Vec::new();
    };
    frame.route = permitted(frame.route, from, &ports, frame.vlan);
    tell_limits(from, frame.route, tell);
    let counter = match frame.route {
        Route::Nowhere(_) | Route::Port(_) => {
            return goes(from, &ports, &frame, tell);
        }
        Route::Uplinks => "rx_to_uplink",
        Route::Several => "rx_unicast",
        Route::Everywhere(Flood::Unknown) => "rx_unknown_unicast",
        Route::Everywhere(Flood::Multicast) => "rx_multicast",
        Route::Everywhere(Flood::Broadcast) => "rx_broadcast",
    };
    let returns = pools.may_return(from);
    let gets =
        |to: &&Arc<Port>| (to.id != from.id || returns) && frame.reaches(from, to, Some(pools));
    let reached: Vec<String> = ports
        .iter()
        .filter(gets)
        .map(|to| to.name.clone())
        .collect();
    let what = format!("goes to {} ports, by their pools", reached.len());
    tell(what, Some(counter));
    reached
}

/// What bounds frames that come in by a port.
fn tell_limits(from: &Port, route: Route, tell: Tell<'_>) {
    let bound = from.bounds.get();
    if let Some(bound) = bound.filter(|_| !matches!(route, Route::Nowhere(_))) {
        if bound.rate.is_some() {
            tell(
                "what comes from here has a rate; beyond it, it waits or is lost".into(),
                None,
            );
        }
        if bound.floods() && matches!(route, Route::Everywhere(_)) {
            tell("floods from here have a limit".into(), Some("drop_storm"));
        }
    }
}

fn goes(from: &Port, ports: &[Arc<Port>], frame: &Classified, tell: Tell<'_>) -> Vec<String> {
    let all = || -> Vec<String> {
        let others = ports.iter().filter(|to| to.id != from.id);
        let reached = others.filter(|to| frame.reaches(from, to, None));
        reached.map(|to| to.name.clone()).collect()
    };
    match frame.route {
        Route::Nowhere(refusal) => {
            let (counter, what) = refusal.told();
            tell(format!("dropped: it {what}"), Some(counter));
            Vec::new()
        }
        Route::Port(at) => {
            let to = &ports[at as usize];
            tell(format!("goes to {}", to.name), Some("rx_unicast"));
            if to.is_rate_spent() {
                let spent = format!("{} has spent its rate: it waits, or is lost", to.name);
                tell(spent, Some("drop_rate_out"));
            }
            vec![to.name.clone()]
        }
        Route::Uplinks => {
            tell(
                "goes to uplinks: this port is private".into(),
                Some("rx_to_uplink"),
            );
            all()
        }
        Route::Everywhere(kind) => {
            let counter = match kind {
                Flood::Unknown => "rx_unknown_unicast",
                Flood::Multicast => "rx_multicast",
                Flood::Broadcast => "rx_broadcast",
            };
            let reached = all();
            tell(
                format!("is flooded to {} ports", reached.len()),
                Some(counter),
            );
            reached
        }
        // Only chips have it, and do not come here with it.
        Route::Several => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eswitch::Rate;
    use frame::{Batch, Caps, Sink, Wake};
    use parking_lot::Mutex;
    use wire::{MacAddr, Offload};

    use crate::{PortConfig, Switch, SwitchConfig, Witness};

    /// Takes everything.
    struct TakesAll;

    impl Sink for TakesAll {
        fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
            picks.len()
        }
        fn deliver_or_leave(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
            picks.len()
        }
        fn caps(&self) -> Caps {
            Caps::ALL
        }
        fn want_room(&self, _: &Arc<dyn Wake>) {}
    }

    /// Has no room.
    struct Full;

    impl Sink for Full {
        fn deliver(&self, _: &Batch<'_>, _: &[u16]) -> usize {
            0
        }
        fn deliver_or_leave(&self, _: &Batch<'_>, _: &[u16]) -> usize {
            0
        }
        fn caps(&self) -> Caps {
            Caps::ALL
        }
        fn want_room(&self, _: &Arc<dyn Wake>) {}
    }

    fn mac(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    fn batch(dst: u8, src: u8) -> Batch<'static> {
        let mut batch = Batch::new();
        batch.push_bytes(&[&mac(dst).0[..], &mac(src).0, &[0x88, 0xb5], &[0; 46]].concat());
        batch.end(Offload::NONE);
        batch
    }

    fn traced(switch: &Switch, from: &str, frame: &Batch<'_>) -> (Vec<String>, Vec<&'static str>) {
        let mut counters = Vec::new();
        let reached = switch.trace(from, frame, &mut |_, counter| counters.extend(counter));
        (reached.expect("a port"), counters)
    }

    /// Notes what it is shown.
    #[derive(Default)]
    struct Notes(Mutex<Vec<(String, &'static str, Vec<u8>)>>);

    impl Witness for Notes {
        fn lost(&self, port: &str, batch: &Batch<'_>, picks: &[u16], counter: &'static str) {
            for frame in picks.iter().filter_map(|pick| batch.get((*pick).into())) {
                self.0
                    .lock()
                    .push((port.to_owned(), counter, frame.to_vec()));
            }
        }
    }

    #[test]
    fn each_lost_frame_is_shown_once_with_its_counter() {
        let switch = Switch::new(SwitchConfig::default(), Arc::new(|| 0));
        let attach = |name: &str, sink: Arc<dyn Sink>| {
            let port = switch.attach(name, sink, PortConfig::default());
            port.expect("a port")
        };
        let (a, b) = (attach("a", Arc::new(TakesAll)), attach("b", Arc::new(Full)));
        let notes = Arc::new(Notes::default());
        let witness: Arc<dyn Witness> = notes.clone();
        switch.add_witness(witness.clone());
        b.deliver(&batch(1, 2), &[0]);
        let mut both = batch(2, 1);
        both.push_bytes(
            &[
                &[1, 0x80, 0xc2, 0, 0, 3][..],
                &mac(1).0,
                &[0x88, 0xb5],
                &[0; 46],
            ]
            .concat(),
        );
        both.end(Offload::NONE);
        a.deliver(&both, &[0, 1]);
        let shown: Vec<_> = notes.0.lock().drain(..).collect();
        let frame = |at: usize| both.get(at).expect("a frame").to_vec();
        let mut shown: Vec<_> = shown
            .iter()
            .map(|(port, why, frame)| (port.as_str(), *why, frame))
            .collect();
        shown.sort();
        let wanted = [
            ("a", "drop_reserved", &frame(1)),
            ("b", "drop_no_room", &frame(0)),
        ];
        assert_eq!(shown, wanted);
        switch.remove_witness(&witness);
        a.deliver(&both, &[0, 1]);
        assert!(notes.0.lock().is_empty());
        let counted = |port: usize, counter: &str| {
            let info = switch.ports();
            let found = info[port]
                .counters
                .iter()
                .find(|(name, _)| *name == counter);
            found.map(|(_, n)| *n)
        };
        assert_eq!(
            (counted(0, "drop_reserved"), counted(1, "drop_no_room")),
            (Some(2), Some(2))
        );
    }

    #[test]
    fn frames_beyond_the_rate_of_a_port_are_shown() {
        let switch = Switch::new(SwitchConfig::default(), Arc::new(|| 0));
        let attach = |name: &str, rate_out| {
            let config = PortConfig {
                rate_out,
                ..PortConfig::default()
            };
            let port = switch.attach(name, Arc::new(TakesAll), config);
            port.expect("a port")
        };
        let two = Rate {
            bits: None,
            packets: Some(1000),
            burst_ms: 2,
        };
        let (a, b) = (attach("a", None), attach("b", Some(two)));
        b.deliver(&batch(1, 2), &[0]);
        let notes = Arc::new(Notes::default());
        switch.add_witness(notes.clone());
        let (one, flood) = (batch(2, 1), batch(9, 1));
        // Two are in time; the third has b's address, and the fourth is flooded.
        for frame in [&one, &flood, &one, &flood] {
            a.deliver(frame, &[0]);
        }
        let shown = std::mem::take(&mut *notes.0.lock());
        let lost = |frame: &Batch<'_>| {
            let bytes = frame.get(0).expect("a frame").to_vec();
            ("b".to_owned(), "drop_rate_out", bytes)
        };
        assert_eq!(shown, [lost(&one), lost(&flood)]);
    }

    #[test]
    fn a_trace_says_what_the_switch_then_does_and_does_nothing() {
        let switch = Switch::new(SwitchConfig::default(), Arc::new(|| 0));
        let attach = |name: &str| switch.attach(name, Arc::new(TakesAll), PortConfig::default());
        let ports = ["a", "b", "c"].map(|name| attach(name).expect("a port"));
        let guarded = PortConfig {
            only: vec![mac(9)],
            ..PortConfig::default()
        };
        switch
            .attach("locked", Arc::new(TakesAll), guarded)
            .expect("a port");
        let before = (switch.ports(), switch.macs());
        let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let there = traced(&switch, "a", &batch(2, 1));
        assert_eq!(
            there,
            (
                strings(&["b", "c", "locked"]),
                vec!["learned", "rx_unknown_unicast"]
            )
        );
        let there = traced(&switch, "locked", &batch(2, 1));
        assert_eq!(there, (Vec::new(), vec!["drop_spoofed"]));
        assert_eq!((switch.ports(), switch.macs()), before, "it has an effect");
        assert!(
            switch
                .trace("nobody", &batch(2, 1), &mut |_, _| {})
                .is_none()
        );
        // Then it does as was said.
        ports[1].deliver(&batch(1, 2), &[0]);
        assert_eq!(
            traced(&switch, "a", &batch(2, 1)),
            (strings(&["b"]), vec!["learned", "rx_unicast"])
        );
        assert_eq!(
            traced(&switch, "c", &batch(1, 2)).1,
            ["moved", "rx_unknown_unicast"]
        );
        assert_eq!(
            traced(&switch, "b", &batch(2, 3)).1,
            ["learned", "drop_hairpin"]
        );
        ports[0].deliver(&batch(2, 1), &[0]);
        let info = switch.ports();
        let counted = |counter: &str| {
            info[0]
                .counters
                .iter()
                .find(|(name, _)| *name == counter)
                .map(|c| c.1)
        };
        assert_eq!(
            (counted("learned"), counted("rx_unicast")),
            (Some(1), Some(1))
        );
    }
}

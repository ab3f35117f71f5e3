//! Ports that lead to the other switches of a full mesh, and stations that are fixed to a port.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eswitch::{AddressFilter, Pool, VlanSet};
use frame::{Batch, Caps, Mix, Run, Sink, Wake};
use hypernic_vale::{PortConfig, Switch, SwitchConfig, SwitchPort, Witness};
use model_testkit::{in_groups, in_mixes};
use parking_lot::Mutex;
use wire::{MacAddr, Offload};

use crate::common::*;

const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];

fn join(switch: &Switch, name: &str, config: PortConfig) -> (Arc<SwitchPort>, Arc<Recorder>) {
    let sink = Recorder::new(usize::MAX);
    let port = switch.attach(name, sink.clone(), config);
    (port.expect("a free name"), sink)
}

fn in_mesh() -> PortConfig {
    PortConfig {
        mesh: true,
        waits: false,
        ..PortConfig::default()
    }
}

fn with(fixed: &[u8]) -> PortConfig {
    PortConfig {
        fixed: fixed.iter().map(|n| MacAddr(mac(*n))).collect(),
        ..PortConfig::default()
    }
}

/// The numbers it got since it was asked last.
fn got(sink: &Recorder) -> Vec<u64> {
    sink.got.lock().drain(..).map(|f| number(&f)).collect()
}

/// Three switches, each with a station and a way to each of the others.
struct Triangle {
    switches: Vec<Switch>,
    stations: Vec<(Arc<SwitchPort>, Arc<Recorder>)>,
    /// Into which port goes what leaves by which port.
    links: Vec<(Arc<SwitchPort>, Arc<Recorder>)>,
}

impl Triangle {
    fn new() -> Triangle {
        let switches = [0, 1, 2].map(|_| switch(SwitchConfig::default()).0);
        let stations = switches.iter();
        let stations = stations.map(|switch| join(switch, "station", PortConfig::default()));
        let stations = stations.collect();
        let mut links = Vec::new();
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            let (into_a, out_of_a) = join(&switches[a], &format!("to-{b}"), in_mesh());
            let (into_b, out_of_b) = join(&switches[b], &format!("to-{a}"), in_mesh());
            links.extend([(into_b, out_of_a), (into_a, out_of_b)]);
        }
        Triangle {
            switches: switches.into(),
            stations,
            links,
        }
    }

    /// Sends a frame from a station, and brings on what is on its way. Returns how often each station got it, and how often it
    /// went from switch to switch.
    fn send(&self, from: usize, dst: [u8; 6]) -> (Vec<usize>, usize) {
        send(&self.stations[from].0, 0, &[(dst, mac(from as u8))]);
        let mut hops = 0;
        for _ in 0..5 {
            for (into, out) in &self.links {
                for frame in std::mem::take(&mut *out.got.lock()) {
                    hops += 1;
                    let mut batch = Batch::new();
                    batch.push_bytes(&frame);
                    batch.end(Offload::NONE);
                    into.deliver(&batch, &[0]);
                }
            }
        }
        let received = self.stations.iter().map(|(_, sink)| got(sink).len());
        (received.collect(), hops)
    }
}

#[test]
fn three_switches_that_are_all_joined_make_no_loop_and_no_duplicate() {
    let mesh = Triangle::new();
    for from in 0..3 {
        for dst in [BROADCAST, GROUP, mac(99)] {
            let mut each = vec![1; 3];
            each[from] = 0;
            assert_eq!(mesh.send(from, dst), (each, 2), "from {from} to {dst:?}");
        }
    }
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            let mut there = vec![0; 3];
            there[to] = 1;
            assert_eq!(mesh.send(from, mac(to as u8)), (there, 1), "{from} to {to}");
        }
    }
    for switch in &mesh.switches {
        let ports = switch.ports();
        let mut counters = ports.iter().flat_map(|port| &port.counters);
        assert!(counters.all(|(name, n)| !name.starts_with("drop") || *n == 0));
    }
}

/// Takes everything, and counts apart what came the short ways.
#[derive(Default)]
struct Ways {
    long: AtomicUsize,
    short: AtomicUsize,
}

impl Ways {
    fn take(&self) -> (usize, usize) {
        let [long, short] = [&self.long, &self.short].map(|n| n.swap(0, Ordering::SeqCst));
        (long, short)
    }
}

impl Sink for Ways {
    fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
        self.long.fetch_add(picks.len(), Ordering::SeqCst);
        picks.len()
    }
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.short.fetch_add(run.count(), Ordering::SeqCst);
        Some(run.count())
    }
    fn caps(&self) -> Caps {
        Caps::ALL
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// Counts what it is shown, by counter.
#[derive(Default)]
struct Seen(Mutex<Vec<(String, &'static str)>>);

impl Witness for Seen {
    fn lost(&self, port: &str, _: &Batch<'_>, picks: &[u16], counter: &'static str) {
        let each = picks.iter().map(|_| (port.to_owned(), counter));
        self.0.lock().extend(each);
    }
}

/// Offers ten frames as a batch, as runs and as a mix, to as many ports as there are destinations.
fn send_all_ways(port: &SwitchPort, src: u8, to: &[u8]) {
    let mut batch = Batch::new();
    for n in 0..10 {
        push(&mut batch, mac(to[n % to.len()]), mac(src), n as u64);
    }
    let deliver = |picks: &[u16]| port.deliver(&batch, picks);
    let run = |run: &Run<'_>| port.deliver_run(run);
    let mix = |mix: &Mix<'_>| port.deliver_mix(mix);
    let mut picks = Vec::new();
    let dealt = [
        deliver(batch.all_picks(&mut picks)),
        in_groups(&batch, deliver, Some(&run)),
        in_mixes(&batch, deliver, Some(&mix)),
    ];
    assert_eq!(dealt, [10; 3]);
}

#[test]
fn what_is_in_the_mesh_is_not_reached_from_the_mesh_in_any_way() {
    let (switch, _) = switch(SwitchConfig::default());
    let attach = |name: &str, config| {
        let sink = Arc::new(Ways::default());
        let port = switch.attach(name, sink.clone(), config);
        (port.expect("a free name"), sink)
    };
    let (m, to_m) = attach("m", in_mesh());
    let (n, to_n) = attach("n", in_mesh());
    let (nic, to_nic) = attach("nic", PortConfig::default());
    for (src, port) in [(1, &m), (2, &n), (3, &nic)] {
        send(port, 0, &[(BROADCAST, mac(src))]);
    }
    let taken = || [&to_m, &to_n, &to_nic].map(|sink| sink.take());
    // The mesh got the broadcast of the NIC alone, the NIC those of the mesh.
    assert_eq!(taken(), [(1, 0), (1, 0), (2, 0)]);
    let seen = Arc::new(Seen::default());
    let witness: Arc<dyn Witness> = seen.clone();
    for round in 1..=3 {
        // The last time around without the short ways.
        let short = round < 3;
        if !short {
            switch.add_witness(witness.clone());
        }
        send_all_ways(&m, 1, &[2]);
        assert_eq!(taken(), [(0, 0); 3]);
        assert_eq!(count(&switch, "m", "drop_mesh"), 45 * round - 15);
        // The short ways go on for what may pass, also beside what may not.
        let all = if short { (10, 20) } else { (30, 0) };
        send_all_ways(&m, 1, &[3]);
        assert_eq!(taken(), [(0, 0), (0, 0), all]);
        send_all_ways(&nic, 3, &[2]);
        assert_eq!(taken(), [(0, 0), all, (0, 0)]);
        send_all_ways(&m, 1, &[3, 2]);
        let [to_m, to_n, (long, short)] = taken();
        assert_eq!((to_m, to_n, long + short), ((0, 0), (0, 0), 15));
        assert_eq!(count(&switch, "m", "drop_mesh"), 45 * round);
    }
    let shown = seen.0.lock().drain(..).collect::<Vec<_>>();
    assert_eq!(shown, vec![("m".to_owned(), "drop_mesh"); 45]);
    assert_eq!(count(&switch, "m", "rx_unicast"), 3 * (30 + 15));
    assert_eq!(count(&switch, "nic", "drop_mesh"), 0);
}

#[test]
fn a_trace_tells_of_the_mesh_as_it_is() {
    let (switch, _) = switch(SwitchConfig::default());
    let (_, to_m) = join(&switch, "m", in_mesh());
    let (n, to_n) = join(&switch, "n", in_mesh());
    let (_, to_nic) = join(&switch, "nic", PortConfig::default());
    send(&n, 0, &[(mac(9), mac(2))]);
    let trace = |from: &str, dst| {
        let (mut batch, mut counters) = (Batch::new(), Vec::new());
        push(&mut batch, dst, mac(1), 0);
        let told = &mut |_: String, counter: Option<&'static str>| counters.extend(counter);
        let reached = switch.trace(from, &batch, told);
        (reached.expect("a port").join(" "), counters)
    };
    let told = |reached: &str, counter| (reached.to_owned(), vec!["learned", counter]);
    assert_eq!(trace("m", mac(2)), told("", "drop_mesh"));
    assert_eq!(trace("nic", mac(2)), told("n", "rx_unicast"));
    assert_eq!(trace("m", mac(9)), told("nic", "rx_unknown_unicast"));
    assert_eq!(trace("m", GROUP), told("nic", "rx_multicast"));
    assert_eq!(trace("nic", BROADCAST), told("m n", "rx_broadcast"));
    assert_eq!(
        [&to_m, &to_n, &to_nic].map(|sink| got(sink).len()),
        [0, 0, 1]
    );
}

#[test]
fn privacy_holds_beside_the_mesh() {
    let (switch, _) = switch(SwitchConfig::default());
    let uplink = PortConfig {
        uplink: true,
        ..in_mesh()
    };
    let private = PortConfig {
        private: true,
        ..PortConfig::default()
    };
    let both = PortConfig {
        private: true,
        ..in_mesh()
    };
    let wire = PortConfig {
        uplink: true,
        ..PortConfig::default()
    };
    let (up, to_up) = join(&switch, "up", uplink);
    let (m, to_m) = join(&switch, "m", in_mesh());
    let (a, to_a) = join(&switch, "a", private);
    let (both, to_both) = join(&switch, "both", both);
    let (_wire, to_wire) = join(&switch, "wire", wire);
    let taken = || [&to_up, &to_m, &to_a, &to_both, &to_wire].map(|sink| got(sink));
    for (n, port) in [(1, &up), (2, &m), (3, &a), (4, &both)] {
        send(port, 0, &[(mac(9), mac(n))]);
    }
    taken();
    let none = Vec::new;
    // Private: to uplinks alone, also if they are of the mesh.
    send(&a, 0, &[(mac(2), mac(3)), (BROADCAST, mac(3))]);
    assert_eq!(taken(), [vec![0, 1], none(), none(), none(), vec![0, 1]]);
    // From the mesh: to no uplink that is of the mesh, and to what is private only from an uplink.
    send(&up, 2, &[(mac(2), mac(1)), (BROADCAST, mac(1))]);
    assert_eq!(taken(), [none(), none(), vec![3], none(), vec![3]]);
    send(
        &m,
        4,
        &[(mac(1), mac(2)), (mac(3), mac(2)), (GROUP, mac(2))],
    );
    assert_eq!(taken(), [none(), none(), none(), none(), vec![6]]);
    let dropped = |port| ["drop_mesh", "drop_private"].map(|name| count(&switch, port, name));
    assert_eq!((dropped("up"), dropped("m")), ([1, 0], [1, 1]));
    // Private and of the mesh: what goes to uplinks goes to those that are not of the mesh.
    let frames = [mac(1), mac(2), mac(3), BROADCAST].map(|dst| (dst, mac(4)));
    send(&both, 7, &frames);
    assert_eq!(taken(), [none(), none(), none(), none(), vec![8, 9, 10]]);
    assert_eq!(dropped("both"), [1, 0]);
}

#[test]
fn whether_a_port_is_of_the_mesh_stays_and_goes_with_it() {
    let (switch, _) = switch(SwitchConfig::default());
    let (m, to_m) = join(&switch, "m", in_mesh());
    let (n, to_n) = join(&switch, "n", in_mesh());
    let (nic, to_nic) = join(&switch, "nic", PortConfig::default());
    for (src, port) in [(1, &m), (2, &n), (3, &nic)] {
        send(port, 0, &[(mac(9), mac(src))]);
    }
    assert!(switch.set_port("m", &PortConfig::default()));
    assert!(switch.set_port("nic", &in_mesh()));
    for sink in [&to_m, &to_n, &to_nic] {
        got(sink);
    }
    send(&m, 0, &[(mac(2), mac(1))]);
    send(&m, 1, &[(BROADCAST, mac(1))]);
    send(&m, 2, &[(mac(3), mac(1))]);
    assert_eq!((got(&to_n), got(&to_nic)), (vec![], vec![1, 2]));
    assert_eq!(count(&switch, "m", "drop_mesh"), 1);
    // Another port of that name is another port.
    assert!(switch.detach("n"));
    let (n, to_n) = join(&switch, "n", PortConfig::default());
    send(&n, 3, &[(mac(1), mac(2))]);
    send(&m, 4, &[(mac(2), mac(1))]);
    assert_eq!((got(&to_m), got(&to_n)), (vec![3], vec![4]));
}

#[test]
fn the_functions_of_a_chip_are_split_as_well() {
    let switch = Switch::on_chip(SwitchConfig::default(), Hand::default().clock());
    let (m, to_m) = join(&switch, "m", in_mesh());
    let (_n, to_n) = join(&switch, "n", in_mesh());
    let (_pool, to_pool) = join(&switch, "pool", PortConfig::default());
    for (n, name) in [(1, "m"), (2, "n"), (3, "pool")] {
        let pool = Pool {
            enabled: true,
            receives: true,
            sends: true,
            macs: vec![MacAddr(mac(n))],
            broadcast: true,
            groups: AddressFilter::All,
            vlans: VlanSet::none().with_untagged(),
            ..Pool::default()
        };
        assert!(switch.set_pool(name, pool));
    }
    let dsts = [mac(2), mac(3), BROADCAST, GROUP];
    for round in 1..=2 {
        for (number, dst) in dsts.into_iter().enumerate() {
            send(&m, number as u64, &[(dst, mac(1))]);
        }
        let taken = [&to_m, &to_n, &to_pool].map(|sink| got(sink));
        assert_eq!(taken, [vec![], vec![], vec![1, 2, 3]]);
        assert_eq!(count(&switch, "m", "drop_mesh"), round);
        // The second time without the short ways.
        switch.add_witness(Arc::new(Seen::default()));
    }
    let trace = |dst| {
        let (mut batch, mut counters) = (Batch::new(), Vec::new());
        push(&mut batch, dst, mac(1), 0);
        let told = &mut |_: String, counter: Option<&'static str>| counters.extend(counter);
        (switch.trace("m", &batch, told), counters)
    };
    assert_eq!(trace(mac(2)), (Some(vec![]), vec!["drop_mesh"]));
    let flooded = (Some(vec!["pool".to_owned()]), vec!["rx_broadcast"]);
    assert_eq!(trace(BROADCAST), flooded);
}

#[test]
fn a_fixed_station_is_at_its_port_and_nowhere_else() {
    let (switch, hand) = switch(SwitchConfig::default());
    let (thief, _) = join(&switch, "thief", in_mesh());
    // Where it was seen before counts no more.
    send(&thief, 0, &[(mac(9), mac(1))]);
    let (a, to_a) = join(&switch, "a", with(&[1, 2]));
    let (b, to_b) = join(&switch, "b", PortConfig::default());
    // It is known though it never sent, and for ever.
    hand.advance(10_000_000 * MS);
    send(&b, 1, &[(mac(1), mac(5)), (mac(2), mac(5))]);
    assert_eq!(got(&to_a), [1, 2]);
    // Nobody else has the address, in the short way or not, alone or behind a new one.
    send(&thief, 3, &[(mac(5), mac(1))]);
    send(&thief, 4, &[(mac(5), mac(6)), (mac(5), mac(2))]);
    let seen = Arc::new(Seen::default());
    let witness: Arc<dyn Witness> = seen.clone();
    switch.add_witness(witness.clone());
    send(&thief, 6, &[(mac(5), mac(1))]);
    switch.remove_witness(&witness);
    assert_eq!(got(&to_b), [4]);
    assert_eq!(
        *seen.0.lock(),
        [("thief".to_owned(), "drop_spoofed")],
        "as for those of `only`"
    );
    assert_eq!(count(&switch, "thief", "drop_spoofed"), 3);
    assert_eq!((thief.fouls(), count(&switch, "thief", "moved")), (3, 0));
    // Its own port may have others, and need not be silent about this one.
    let all = [(mac(5), mac(1)), (mac(5), mac(7)), (mac(5), mac(2))];
    send(&a, 7, &all);
    assert_eq!(got(&to_b), [7, 8, 9]);
    assert_eq!(count(&switch, "a", "drop_spoofed"), 0);
    send(&b, 10, &[(mac(7), mac(5)), (mac(1), mac(5))]);
    assert_eq!(got(&to_a), [10, 11]);
    let mut batch = Batch::new();
    push(&mut batch, mac(5), mac(1), 0);
    let mut counters = Vec::new();
    switch.trace("thief", &batch, &mut |_, counter| counters.extend(counter));
    assert_eq!(counters, ["drop_spoofed"]);
}

#[test]
fn fixed_stations_change_with_the_port_and_are_released() {
    let (switch, hand) = switch(SwitchConfig::default());
    let (a, to_a) = join(&switch, "a", with(&[1]));
    let (b, to_b) = join(&switch, "b", PortConfig::default());
    let (c, to_c) = join(&switch, "c", PortConfig::default());
    send(&b, 0, &[(mac(9), mac(2))]);
    send(&a, 0, &[(mac(2), mac(7))]);
    send(&c, 0, &[(mac(2), mac(3))]);
    got(&to_a);
    // The way of the last batch is no more that of the next.
    assert!(switch.set_port("a", &with(&[3])));
    send(&c, 1, &[(mac(2), mac(3))]);
    assert_eq!(count(&switch, "c", "drop_spoofed"), 1);
    // What was learned stays, as does what is fixed no more; that may move.
    send(
        &b,
        2,
        &[(mac(7), mac(2)), (mac(1), mac(2)), (mac(3), mac(2))],
    );
    assert_eq!(got(&to_a), [2, 3, 4]);
    got(&to_c);
    send(&c, 5, &[(mac(2), mac(1))]);
    send(&b, 6, &[(mac(1), mac(2))]);
    assert_eq!((got(&to_a), got(&to_c)), (vec![], vec![6]));
    // With `only`, that rules what may be sent.
    let both = PortConfig {
        only: vec![MacAddr(mac(4))],
        ..with(&[3])
    };
    assert!(switch.set_port("a", &both));
    got(&to_b);
    let all = [3, 4, 7].map(|n| (mac(2), mac(n)));
    send(&a, 7, &all);
    assert_eq!(got(&to_b), [8]);
    assert_eq!(count(&switch, "a", "drop_spoofed"), 2);
    send(&c, 10, &[(mac(2), mac(3)), (mac(2), mac(4))]);
    assert_eq!(count(&switch, "c", "drop_spoofed"), 3);
    // What is fixed is no place that was taken, and ages once it is released.
    let few = PortConfig {
        max_macs: 0,
        ..with(&[3, 4])
    };
    assert!(switch.set_port("a", &few));
    let on_a = || {
        let macs = switch.macs().into_iter().filter(|info| info.port == "a");
        macs.map(|info| info.mac.0[5]).collect::<Vec<_>>()
    };
    assert_eq!(on_a(), [3, 4]);
    assert!(switch.set_port("a", &PortConfig::default()));
    assert_eq!(on_a(), [3, 4]);
    hand.advance(300_000 * MS);
    assert!(on_a().is_empty());
    // So does what goes with its port.
    assert!(switch.set_port("a", &with(&[3])));
    assert!(switch.detach("a"));
    send(&c, 12, &[(mac(2), mac(3))]);
    assert_eq!(count(&switch, "c", "drop_spoofed"), 3);
}

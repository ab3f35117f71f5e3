//! Who gets what: learning, ageing, flooding, and a model to compare with.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use frame::{Batch, Sink};
use hypernic_vale::{AttachError, PortConfig, SwitchConfig, SwitchPort};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Csum, MacAddr, Offload};

const MANY: usize = usize::MAX;

#[test]
fn unknown_is_flooded_and_known_is_not() {
    let (switch, _) = switch(SwitchConfig::default());
    let (a, to_a) = attach(&switch, "a", MANY);
    let (b, to_b) = attach(&switch, "b", MANY);
    let (_c, to_c) = attach(&switch, "c", MANY);
    assert_eq!(send(&a, 0, &[(mac(2), mac(1))]), 1);
    assert_eq!(send(&b, 1, &[(mac(1), mac(2)), (BROADCAST, mac(2))]), 2);
    assert_eq!(send(&a, 3, &[(mac(2), mac(1)), (mac(1), mac(9))]), 2);
    assert_eq!(to_a.numbers(), [1, 2]);
    assert_eq!(to_b.numbers(), [0, 3]);
    assert_eq!(to_c.numbers(), [0, 2]);
    for (counter, want) in [
        ("rx_frames", 3),
        ("rx_bytes", 180),
        ("rx_unicast", 1),
        ("rx_unknown_unicast", 1),
        ("drop_hairpin", 1),
        ("tx_frames", 2),
        ("tx_flooded", 1),
        ("learned", 2),
    ] {
        assert_eq!(count(&switch, "a", counter), want, "{counter}");
    }
    assert_eq!(count(&switch, "b", "rx_broadcast"), 1);
    let macs: Vec<_> = switch.macs().into_iter().map(|m| (m.mac, m.port)).collect();
    let want = [(1, "a"), (2, "b"), (9, "a")];
    assert_eq!(macs, want.map(|(n, p)| (MacAddr(mac(n)), p.to_owned())));
}

#[test]
fn what_no_bridge_forwards_goes_nowhere_and_teaches_nothing() {
    let (switch, _) = switch(SwitchConfig::default());
    let (a, _) = attach(&switch, "a", MANY);
    let (_b, to_b) = attach(&switch, "b", MANY);
    let reserved = [1, 0x80, 0xc2, 0, 0, 0];
    let group = [3, 0, 0, 0, 0, 1];
    let frames = [(reserved, mac(1)), (BROADCAST, group), (mac(2), BROADCAST)];
    assert_eq!(send(&a, 0, &frames), 3);
    let mut batch = Batch::new();
    batch.push_bytes(&[0xff; 13]);
    batch.end(Offload::NONE);
    batch.push_bytes(&[0xff; 6]);
    batch.push_bytes(&[2; 54]);
    batch.end(Offload {
        csum: Some(Csum {
            start: 59,
            offset: 0,
        }),
        ..Offload::NONE
    });
    assert_eq!(a.deliver(&batch, &[0, 1, 77]), 3);
    assert_eq!(to_b.numbers(), []);
    assert_eq!(switch.macs(), []);
    assert_eq!(count(&switch, "a", "drop_reserved"), 1);
    assert_eq!(count(&switch, "a", "drop_source_is_group"), 2);
    assert_eq!(count(&switch, "a", "drop_runt"), 2);
    assert_eq!(count(&switch, "a", "drop_bad_notes"), 1);
    // Zero is no station, yet what it sends is passed on.
    assert_eq!(send(&a, 9, &[(BROADCAST, [0; 6])]), 1);
    assert_eq!(to_b.numbers(), [9]);
    assert_eq!(switch.macs(), []);
}

#[test]
fn an_address_moves_at_once_and_ages() {
    let (switch, hand) = switch(SwitchConfig::default());
    let (a, to_a) = attach(&switch, "a", MANY);
    let (b, to_b) = attach(&switch, "b", MANY);
    let (c, _) = attach(&switch, "c", MANY);
    send(&a, 0, &[(BROADCAST, mac(1))]);
    send(&b, 1, &[(BROADCAST, mac(1))]);
    send(&c, 2, &[(mac(1), mac(3))]);
    assert_eq!((to_a.numbers(), to_b.numbers()), (vec![1], vec![0, 2]));
    assert_eq!(count(&switch, "b", "moved"), 1);
    hand.advance(300_000 * MS - 1);
    send(&c, 3, &[(mac(1), mac(3))]);
    assert_eq!(to_a.numbers(), [1]);
    hand.advance(1);
    send(&c, 4, &[(mac(1), mac(3))]);
    assert_eq!(to_a.numbers(), [1, 4]);
    let macs = switch.macs();
    assert_eq!(macs.len(), 1);
    assert_eq!(macs[0].age, Duration::from_nanos(1));
}

#[test]
fn a_flood_of_addresses_is_bounded_and_harms_nobody_else() {
    let config = SwitchConfig {
        max_macs: 100,
        guaranteed_macs: 2,
        max_ports: 10,
        ..SwitchConfig::default()
    };
    let (switch, _) = switch(config);
    let (a, _) = attach(&switch, "a", MANY);
    let (b, to_b) = attach(&switch, "b", MANY);
    for round in 0..100u8 {
        let frames: Vec<_> = (0..200u8)
            .map(|n| (BROADCAST, [2, 1, 0, 0, round, n]))
            .collect();
        assert_eq!(send(&a, 0, &frames), 200);
    }
    assert_eq!(switch.macs().len(), 82);
    assert_eq!(count(&switch, "a", "table_full"), 20_000 - 82);
    send(&b, 0, &[(BROADCAST, mac(7))]);
    let seen = to_b.numbers().len();
    send(&a, 5, &[(mac(7), mac(1))]);
    assert_eq!(to_b.numbers().len(), seen + 1);
    assert_eq!(count(&switch, "a", "rx_unicast"), 1);

    let few = PortConfig {
        max_macs: 1,
        ..PortConfig::default()
    };
    let c = switch.attach("c", Recorder::new(0), few).expect("free");
    send(&c, 0, &[(BROADCAST, mac(8)), (BROADCAST, mac(9))]);
    let ports = switch.ports();
    assert_eq!(ports.iter().map(|p| p.macs).collect::<Vec<_>>(), [82, 1, 1]);
}

#[test]
fn more_than_a_batch_is_taken_in_parts() {
    let (switch, _) = switch(SwitchConfig::default());
    switch.set_timer(Arc::new(CountedWake::default()));
    let (a, _) = attach(&switch, "a", MANY);
    let (b, to_b) = attach(&switch, "b", 301);
    send(&b, 0, &[(BROADCAST, mac(2))]);
    assert_eq!(send(&a, 0, &[(mac(2), mac(1)); 600]), 301);
    assert_eq!(to_b.numbers(), (0..301).collect::<Vec<_>>());
}

#[test]
fn ports_come_and_go() {
    let config = SwitchConfig {
        max_ports: 2,
        ..SwitchConfig::default()
    };
    let (switch, _) = switch(config);
    let (a, to_a) = attach(&switch, "a", MANY);
    let (b, _) = attach(&switch, "b", MANY);
    let none = || PortConfig::default();
    let taken = switch.attach("a", Recorder::new(0), none()).map(|_| ());
    assert_eq!(taken, Err(AttachError::NameTaken("a".into())));
    let full = switch.attach("c", Recorder::new(0), none()).map(|_| ());
    assert_eq!(full, Err(AttachError::TooManyPorts(2)));
    send(&a, 0, &[(BROADCAST, mac(1))]);
    assert!(switch.detach("a") && !switch.detach("a"));
    assert!(!a.is_attached());
    assert_eq!(switch.macs(), []);
    assert_eq!(send(&a, 1, &[(BROADCAST, mac(1))]), 1);
    send(&b, 2, &[(mac(1), mac(2))]);
    assert_eq!(to_a.numbers(), []);
    assert_eq!(Arc::strong_count(&to_a), 2, "held by its old port alone");
    drop(a);
    assert_eq!(Arc::strong_count(&to_a), 1);
    attach(&switch, "a", MANY);
    let names: Vec<_> = switch.ports().into_iter().map(|p| p.name).collect();
    assert_eq!(names, ["b", "a"]);
}

#[derive(Clone, Debug)]
enum Step {
    Send(u8, Vec<(u8, u8)>),
    Attach(u8),
    Detach(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Station 0 stands for everybody as a destination.
    let frames = vec((0..6u8, 1..6u8), 0..20);
    prop_oneof![
        6 => (0..4u8, frames).prop_map(|(port, frames)| Step::Send(port, frames)),
        1 => (0..4u8).prop_map(Step::Attach),
        1 => (0..4u8).prop_map(Step::Detach),
        1 => (1..8u64).prop_map(|n| Step::Wait(n * 10 * MS)),
    ]
}

/// The simplest switch there is.
#[derive(Default)]
struct Naive {
    now: u64,
    ports: BTreeMap<u8, Vec<u64>>,
    seen: HashMap<u8, (u8, u64)>,
}

impl Naive {
    fn send(&mut self, from: u8, dst: u8, src: u8, number: u64) {
        self.seen.insert(src, (from, self.now));
        let known = self.seen.get(&dst).copied();
        let known = known.filter(|(_, at)| dst != 0 && self.now - at < 50 * MS);
        for (port, got) in &mut self.ports {
            let wanted = known.is_none_or(|(at, _)| at == *port);
            if *port != from && wanted {
                got.push(number);
            }
        }
    }
}

proptest! {
    #[test]
    fn every_port_gets_what_the_model_says(steps in vec(step(), 1..60)) {
        let config = SwitchConfig {
            ageing: Duration::from_millis(50),
            ..SwitchConfig::default()
        };
        let (switch, hand) = switch(config);
        let mut naive = Naive::default();
        let mut real: BTreeMap<u8, (Arc<SwitchPort>, Arc<Recorder>)> = BTreeMap::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Attach(port) => {
                    real.entry(port).or_insert_with(|| attach(&switch, &port.to_string(), MANY));
                    naive.ports.entry(port).or_default();
                }
                Step::Detach(port) => {
                    let there = real.remove(&port).is_some();
                    prop_assert_eq!(switch.detach(&port.to_string()), there);
                    naive.ports.remove(&port);
                    naive.seen.retain(|_, (at, _)| *at != port);
                }
                Step::Wait(time) => {
                    hand.advance(time);
                    naive.now += time;
                }
                Step::Send(from, frames) => {
                    let Some((port, _)) = real.get(&from) else {
                        continue;
                    };
                    let to = |n| if n == 0 { BROADCAST } else { mac(n) };
                    let wire: Vec<_> = frames.iter().map(|f| (to(f.0), mac(f.1))).collect();
                    prop_assert_eq!(send(port, next, &wire), frames.len());
                    for (dst, src) in frames {
                        naive.send(from, dst, src, next);
                        next += 1;
                    }
                }
            }
            for (port, want) in &naive.ports {
                prop_assert_eq!(&real[port].1.numbers(), want);
            }
        }
    }
}

#[test]
fn a_locked_port_sends_from_its_address_only_and_nobody_else_does() {
    let (switch, _) = switch(SwitchConfig::default());
    let locked = PortConfig {
        only: vec![MacAddr::from(mac(1))],
        ..PortConfig::default()
    };
    let to_a = Recorder::new(MANY);
    let a = switch.attach("a", to_a.clone(), locked).expect("free");
    let (b, to_b) = attach(&switch, "b", MANY);
    let (c, to_c) = attach(&switch, "c", MANY);
    // Known before it has said a word.
    assert_eq!(send(&b, 0, &[(mac(1), mac(2))]), 1);
    assert_eq!((to_a.numbers(), to_c.numbers()), (vec![0], vec![]));
    // In its name, alone and among others, in a batch that learns and in one that does not.
    assert_eq!(
        send(
            &c,
            1,
            &[(mac(2), mac(1)), (mac(2), mac(3)), (mac(2), mac(1))]
        ),
        3
    );
    assert_eq!(send(&c, 4, &[(mac(2), mac(1)), (mac(2), mac(3))]), 2);
    assert_eq!(to_b.numbers(), [2, 5]);
    assert_eq!(count(&switch, "c", "drop_spoofed"), 3);
    // From it, in the name of others.
    assert_eq!(send(&a, 6, &[(mac(2), mac(9)), (mac(2), mac(1))]), 2);
    assert_eq!(to_b.numbers(), [2, 5, 7]);
    assert_eq!(count(&switch, "a", "drop_spoofed"), 1);
    assert_eq!(send(&b, 8, &[(mac(1), mac(2))]), 1);
    assert_eq!(to_a.numbers(), [0, 8]);
}

/// LACP, LLDP and STP cross the switch where it is told so, as other groups do; pause frames never.
#[test]
fn link_local_groups_flood_by_option_but_for_pause_frames() {
    let group = |last| [0x01, 0x80, 0xc2, 0, 0, last];
    let us = [0x52, 0x54, 0, 0, 0, 1];
    for link_local in [false, true] {
        let config = SwitchConfig {
            link_local,
            ..SwitchConfig::default()
        };
        let (switch, _hand) = switch(config);
        let (a, _) = attach(&switch, "a", 100);
        let (_b, to_b) = attach(&switch, "b", 100);
        let frames = [0x0, 0x1, 0x2, 0xe].map(|last| (group(last), us));
        assert_eq!(send(&a, 0, &frames), 4);
        let (passed, dropped): (&[u64], u64) = match link_local {
            true => (&[0, 2, 3], 1),
            false => (&[], 4),
        };
        assert_eq!(to_b.numbers(), passed);
        assert_eq!(count(&switch, "a", "drop_reserved"), dropped);
    }
}

//! Guards: rates, storms, VLANs, private ports.

use std::sync::Arc;

use crate::common::*;
use eswitch::{Rate, Storm};
use frame::{Batch, Sink, Wake};
use hypernic_vale::{PortConfig, Switch, SwitchConfig, SwitchPort};
use proptest::prelude::*;
use wire::{MacAddr, Offload};

const MANY: usize = usize::MAX;

fn join(switch: &Switch, name: &str, config: PortConfig) -> (Arc<SwitchPort>, Arc<Recorder>) {
    let sink = Recorder::new(MANY);
    let port = switch.attach(name, sink.clone(), config);
    (port.expect("a free name"), sink)
}

fn plain() -> PortConfig {
    PortConfig::default()
}

/// A switch with a timer.
fn kept() -> (Switch, Hand, Arc<CountedWake>) {
    let (switch, hand) = switch(SwitchConfig::default());
    let alarm = Arc::new(CountedWake::default());
    switch.set_timer(alarm.clone());
    (switch, hand, alarm)
}

fn frames_a_second(packets: u64, burst_ms: u64) -> Option<Rate> {
    Some(Rate {
        bits: None,
        packets: Some(packets),
        burst_ms,
    })
}

#[test]
fn who_sends_more_than_its_rate_waits_exactly_as_long_as_that_takes() {
    let (switch, hand, alarm) = kept();
    let config = PortConfig {
        rate_in: frames_a_second(1000, 100),
        ..plain()
    };
    let (a, _) = join(&switch, "a", config);
    let (b, to_b) = join(&switch, "b", plain());
    send(&b, 0, &[(mac(9), mac(2))]);
    let frames = [(mac(2), mac(1)); 256];
    // The burst, then what the time brings.
    assert_eq!(send(&a, 0, &frames), 100);
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    a.want_room(&waker);
    assert_eq!((alarm.rung(), bell.rung()), (1, 0));
    // A quarter of the burst is worth waking for.
    assert_eq!(switch.tick(), Some(25 * MS));
    hand.advance(25 * MS - 1);
    assert_eq!((switch.tick(), bell.rung()), (Some(25 * MS), 0));
    hand.advance(1);
    assert_eq!((switch.tick(), bell.rung()), (None, 1));
    assert_eq!(send(&a, 100, &frames[..156]), 25);
    assert_eq!(to_b.numbers(), (0..125).collect::<Vec<_>>());
    assert_eq!(count(&switch, "a", "paced"), 2);
    assert_eq!(count(&switch, "a", "rx_frames"), 125);
    assert_eq!(count(&switch, "a", "drop_rate_in"), 0);
}

#[test]
fn what_cannot_wait_is_dropped_and_counted() {
    let (switch, ..) = kept();
    let config = PortConfig {
        rate_in: frames_a_second(1000, 10),
        waits: false,
        ..plain()
    };
    let (a, _) = join(&switch, "a", config);
    let (_, to_b) = join(&switch, "b", plain());
    assert_eq!(send(&a, 0, &[(mac(2), mac(1)); 30]), 30);
    assert_eq!(to_b.numbers().len(), 10);
    assert_eq!(count(&switch, "a", "drop_rate_in"), 20);
    assert_eq!(count(&switch, "a", "rx_frames"), 30);
    assert_eq!(count(&switch, "a", "rx_bytes"), 30 * 60);
}

#[test]
fn what_a_full_destination_leaves_is_not_charged() {
    let (switch, ..) = kept();
    let config = PortConfig {
        rate_in: frames_a_second(1000, 20),
        storm: Storm {
            broadcast: Some(3),
            ..Storm::default()
        },
        ..plain()
    };
    let (a, _) = join(&switch, "a", config);
    let (b, to_b) = join(&switch, "b", plain());
    let (_, to_c) = join(&switch, "c", plain());
    send(&b, 0, &[(mac(9), mac(2))]);
    *to_b.room.lock() = 4;
    let to = (mac(2), mac(1));
    assert_eq!(send(&a, 0, &[to; 10]), 4);
    // The broadcast goes to c, so the one before it cannot wait for b; the one behind can.
    assert_eq!(send(&a, 4, &[to, (BROADCAST, mac(1)), to]), 2);
    to_b.make_room(MANY - 10);
    // 6 of 20 and 1 of 3 are charged.
    assert_eq!(send(&a, 6, &[to; 10]), 10);
    let rest = [(BROADCAST, mac(1)); 10];
    assert_eq!(send(&a, 16, &rest), 4, "the rate is used up");
    assert_eq!(count(&switch, "a", "drop_storm"), 2);
    assert_eq!(to_c.numbers()[1..], [5, 16, 17]);
}

#[test]
fn a_port_over_its_rate_is_full_to_its_senders_until_time_makes_room() {
    let (switch, hand, _) = kept();
    let config = PortConfig {
        rate_out: frames_a_second(1000, 20),
        ..plain()
    };
    let (b, to_b) = join(&switch, "b", config);
    let (a, _) = join(&switch, "a", plain());
    let (_, to_c) = join(&switch, "c", plain());
    send(&b, 0, &[(mac(9), mac(2))]);
    let frames = [(mac(2), mac(1)); 50];
    assert_eq!(send(&a, 0, &frames), 20);
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    a.want_room(&waker);
    assert_eq!(switch.tick(), Some(5 * MS));
    hand.advance(5 * MS);
    switch.tick();
    assert_eq!(bell.rung(), 1);
    assert_eq!(send(&a, 20, &frames[20..]), 5);
    // A flooded frame goes to the others.
    let flood = [(BROADCAST, mac(1)); 3];
    assert_eq!(send(&a, 25, &flood), 3);
    assert_eq!(to_c.numbers()[1..], [25, 26, 27]);
    assert_eq!(count(&switch, "b", "drop_rate_out"), 3);
    assert_eq!(to_b.numbers(), (0..25).collect::<Vec<_>>());
    assert!(to_b.given_up.lock().is_empty(), "its NIC missed nothing");
}

#[test]
fn a_storm_is_calmed_and_leaves_unicast_alone() {
    let (switch, hand, _) = kept();
    let config = PortConfig {
        storm: Storm {
            broadcast: Some(5),
            multicast: Some(3),
            unknown: Some(2),
        },
        ..plain()
    };
    let (a, _) = join(&switch, "a", config);
    let (b, to_b) = join(&switch, "b", plain());
    send(&b, 0, &[(mac(9), mac(2))]);
    let kinds = [BROADCAST, [1, 0, 0x5e, 0, 0, 1], mac(99), mac(2)];
    for kind in kinds {
        assert_eq!(send(&a, 0, &[(kind, mac(1)); 20]), 20);
    }
    assert_eq!(to_b.numbers().len(), 5 + 3 + 2 + 20);
    assert_eq!(count(&switch, "a", "drop_storm"), 15 + 17 + 18);
    hand.advance(1000 * MS);
    assert_eq!(send(&a, 0, &[(BROADCAST, mac(1)); 20]), 20);
    assert_eq!(to_b.numbers().len(), 30 + 5);
}

/// A frame with a tag in it, or beside it.
fn send_tagged(port: &SwitchPort, dst: [u8; 6], src: [u8; 6], vlan: u16, beside: bool) {
    let mut batch = Batch::new();
    let mut bytes = [dst, src].concat();
    if vlan > 0 && !beside {
        bytes.extend([0x81, 0x00]);
        bytes.extend(vlan.to_be_bytes());
    }
    bytes.extend([0x88, 0xb5]);
    bytes.extend(u64::from(vlan).to_be_bytes());
    bytes.resize(64, 0);
    batch.push_bytes(&bytes);
    batch.end(Offload {
        vlan: (vlan > 0 && beside).then_some(vlan),
        ..Offload::NONE
    });
    assert_eq!(port.deliver(&batch, &[0]), 1);
}

#[test]
fn frames_stay_in_their_vlans() {
    let (switch, ..) = kept();
    let member = |text: &str| PortConfig {
        vlans: Some(text.parse().expect("VLANs")),
        ..plain()
    };
    let (a, _) = join(&switch, "a", member("untagged,10"));
    let (b, to_b) = join(&switch, "b", member("10,20"));
    let (_, to_trunk) = join(&switch, "trunk", plain());
    send_tagged(&b, mac(9), mac(2), 10, false);
    let got = |sink: &Recorder| sink.got.lock().drain(..).count();
    assert_eq!(got(&to_trunk), 1);
    for beside in [false, true] {
        for (vlan, at_b, at_trunk) in [(0, 0, 0), (10, 1, 0), (20, 0, 0)] {
            send_tagged(&a, mac(2), mac(1), vlan, beside);
            assert_eq!((got(&to_b), got(&to_trunk)), (at_b, at_trunk), "{vlan}");
        }
        for (vlan, at_b, at_trunk) in [(0, 0, 1), (10, 1, 1), (20, 0, 0), (0xe00a, 1, 1)] {
            send_tagged(&a, BROADCAST, mac(1), vlan, beside);
            assert_eq!((got(&to_b), got(&to_trunk)), (at_b, at_trunk), "{vlan}");
        }
    }
    assert_eq!(count(&switch, "a", "drop_vlan"), 6);
}

fn vepa() -> [(Arc<SwitchPort>, Arc<Recorder>); 4] {
    let (switch, ..) = kept();
    let private = PortConfig {
        private: true,
        ..plain()
    };
    let uplink = PortConfig {
        uplink: true,
        waits: false,
        ..plain()
    };
    let ports = [
        join(&switch, "a", private.clone()),
        join(&switch, "b", private),
        join(&switch, "public", plain()),
        join(&switch, "up", uplink),
    ];
    for (n, (port, _)) in ports.iter().enumerate() {
        send(port, 0, &[(mac(99), mac(n as u8 + 1))]);
    }
    for (_, sink) in &ports {
        sink.got.lock().clear();
    }
    ports
}

#[test]
fn a_private_port_has_to_do_with_uplinks_only() {
    let [(a, to_a), (b, to_b), (public, to_public), (up, to_up)] = vepa();
    // To a neighbour, to everybody, to a public one, to the uplink: all go out, and only there.
    for (n, dst) in [mac(2), BROADCAST, mac(3), mac(4)].into_iter().enumerate() {
        send(&a, n as u64, &[(dst, mac(1))]);
    }
    assert_eq!(to_up.numbers(), [0, 1, 2, 3]);
    assert!(to_b.numbers().is_empty() && to_public.numbers().is_empty());
    // A public port reaches the uplink and other public ones, not a private one.
    send(
        &public,
        10,
        &[(mac(1), mac(3)), (BROADCAST, mac(3)), (mac(4), mac(3))],
    );
    assert_eq!(to_up.numbers()[4..], [11, 12]);
    assert!(to_a.numbers().is_empty());
    // The uplink reaches everybody.
    send(&up, 20, &[(mac(1), mac(4)), (BROADCAST, mac(4))]);
    assert_eq!(to_a.numbers(), [20, 21]);
    assert_eq!(to_b.numbers(), [21]);
    assert_eq!(to_public.numbers(), [21]);
    drop(b);
}

#[test]
fn what_a_switch_outside_sends_back_finds_its_way_and_moves_nobody() {
    let [(a, to_a), (_, to_b), _, (up, to_up)] = vepa();
    send(&a, 0, &[(mac(2), mac(1)), (BROADCAST, mac(1))]);
    assert_eq!(to_up.numbers(), [0, 1]);
    // Hairpinned outside: with its own source, in by the uplink.
    send(&up, 0, &[(mac(2), mac(1)), (BROADCAST, mac(1))]);
    assert_eq!(to_b.numbers(), [0, 1]);
    assert!(to_a.numbers().is_empty(), "nobody hears its own frames");
    // And the sender is still where it was.
    send(&up, 5, &[(mac(1), mac(4))]);
    assert_eq!(to_a.numbers(), [5]);
}

#[test]
fn a_port_may_have_several_addresses_and_no_others() {
    let (switch, ..) = kept();
    let config = PortConfig {
        only: vec![MacAddr::from(mac(1)), MacAddr::from(mac(2))],
        ..plain()
    };
    let (a, _) = join(&switch, "a", config);
    let (_, to_b) = join(&switch, "b", plain());
    let sources = [1, 2, 3].map(|n| (BROADCAST, mac(n)));
    assert_eq!(send(&a, 0, &sources), 3);
    assert_eq!(to_b.numbers(), [0, 1]);
    assert_eq!(count(&switch, "a", "drop_spoofed"), 1);
}

proptest! {
    /// Over any time, however the batches fall and however little room there is.
    #[test]
    fn the_rate_is_kept_and_nothing_is_lost_by_waiting(
        packets in 100..100_000u64,
        burst_ms in 1..50u64,
        steps in proptest::collection::vec((0..20 * MS, 1..200usize, 0..300usize), 1..60)
    ) {
        let (switch, hand, _) = kept();
        let config = PortConfig { rate_in: frames_a_second(packets, burst_ms), ..plain() };
        let (a, _) = join(&switch, "a", config);
        let (b, to_b) = join(&switch, "b", plain());
        send(&b, 0, &[(mac(9), mac(2))]);
        let (mut now, mut sent) = (0, 0);
        for (gap, n, room) in steps {
            now += gap;
            hand.advance(gap);
            *to_b.room.lock() = room;
            sent += send(&a, sent, &vec![(mac(2), mac(1)); n]) as u64;
            let burst = (packets * burst_ms / 1000).max(1);
            let most = u128::from(burst) + u128::from(now) * u128::from(packets) / 1_000_000_000;
            // The last may leave a debt of one.
            prop_assert!(u128::from(sent) <= most + 1);
        }
        prop_assert_eq!(
            to_b.numbers().len() as u64 + count(&switch, "b", "drop_no_room"),
            sent
        );
        prop_assert_eq!(count(&switch, "a", "drop_rate_in"), 0);
    }
}

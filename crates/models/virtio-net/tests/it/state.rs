//! Saved and loaded.

use hypernic_virtio_net::regs::{common as c, ctrl, feature, net_status, page, status};
use hypernic_virtio_net::state::V1;
use hypernic_virtio_net::state::v1::Spread;
use hypernic_virtio_net::{CTRL, Config, RX, TX};
use model_testkit::Wire;
use proptest::prelude::*;

use crate::driver::{BUFFERS, Driver, MAC, OFFLOADS, OTHER, PLAIN, USUAL, desc, frame};

const FEATURES: u64 = USUAL
    | OFFLOADS
    | feature::EVENT_IDX
    | feature::CTRL_VQ
    | feature::CTRL_RX
    | feature::CTRL_VLAN
    | feature::GUEST_ANNOUNCE;

/// A device that has done something of everything.
fn used() -> Driver {
    used_with(FEATURES)
}

fn used_with(features: u64) -> Driver {
    let mut d = Driver::new(features);
    for _ in 0..70 {
        d.send(PLAIN, &frame(OTHER, 60));
    }
    assert_eq!(d.command(ctrl::RX, 0, &[0]), ctrl::OK);
    assert_eq!(d.command(ctrl::VLAN, 0, &[7, 0]), ctrl::OK);
    for i in 0..3 {
        d.receive_at(BUFFERS + 0x1000 * i, 2048);
    }
    assert_eq!(d.m.offer(&[&frame(MAC, 100)]), 1);
    d.used(RX);
    d.used(TX);
    d
}

/// Another device with the same guest.
fn moved(from: Driver, blob: &[u8]) -> Driver {
    let nic = hypernic_virtio_net::new(Config::new(OTHER));
    let memory = from.m.env.memory.clone();
    let m = model_testkit::Machine::of(nic, memory, Wire::default(), 5_000_000_000);
    let mut d = Driver { m, ..from };
    d.m.nic.control.load(&d.m.env, blob).expect("its own state");
    d.m.work();
    d
}

#[test]
fn a_state_of_version_1_is_loaded_by_every_later_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden");
    for (rings, features) in [("split", FEATURES), ("packed", FEATURES | feature::PACKED)] {
        let before = used_with(features);
        let blob = model_testkit::golden(format!("{folder}/{rings}-v1.bin"), &before.m.save());
        let mut d = moved(before, &blob);
        assert!(!d.needs_reset());
        assert_eq!(d.m.save().len(), blob.len());
    }
}

#[test]
fn a_device_goes_on_elsewhere_where_it_was() {
    goes_on(used());
    goes_on(used_with(FEATURES | feature::PACKED));
}

fn goes_on(before: Driver) {
    before.m.wire.take();
    let blob = before.m.save();
    let mut d = moved(before, &blob);
    // Each queue's driver is called once: the call before may have been lost; and the device wants to be announced.
    let mut vectors = d.m.vectors();
    vectors.sort_unstable();
    assert_eq!(vectors, [0, 1, 2, 3]);
    assert_eq!(
        d.r16(page::DEVICE + 6),
        net_status::LINK_UP | net_status::ANNOUNCE
    );
    assert_eq!(d.command(ctrl::ANNOUNCE, ctrl::ANNOUNCE_ACK, &[]), ctrl::OK);
    assert_eq!(d.r16(page::DEVICE + 6), net_status::LINK_UP);
    assert_eq!(d.read::<6>(page::DEVICE), MAC);
    d.send(PLAIN, &frame(OTHER, 61));
    assert_eq!(d.m.wire.take().len(), 1);
    assert_eq!(d.m.offer(&[&frame(MAC, 100), &frame(OTHER, 100)]), 2);
    assert_eq!(d.used(RX), [(1, 112)]);
    assert_eq!(d.used(TX).len(), 1);
    assert_eq!(d.counter("rx_filtered"), 1);
    d.w16(c::QUEUE_SELECT, CTRL as u16);
    assert_eq!(d.r16(c::QUEUE_ENABLE), 1);
}

#[test]
fn a_packed_ring_goes_on_in_another_device() {
    let mut d = Driver::new(USUAL | feature::PACKED);
    let send = |d: &mut Driver, slot: u16, len: usize| {
        let at = BUFFERS + 0x1000 * u64::from(slot);
        d.m.poke(at, &[&PLAIN[..], &frame(OTHER, len)].concat());
        // Available in the first round: id, then AVAIL without USED.
        d.desc_at(desc(TX), slot, (at, 12 + len as u32, 40 + slot), 1 << 7);
        d.kick(TX);
        assert_eq!(d.m.wire.take(), [frame(OTHER, len)]);
        // Used: the same id, AVAIL and USED.
        let shown = d.m.peek(desc(TX) + 16 * u64::from(slot) + 12, 4);
        assert_eq!(shown, [40 + slot as u8, 0, 0x80, 0x80]);
    };
    send(&mut d, 0, 60);
    send(&mut d, 1, 61);
    let blob = d.m.save();
    let mut d = moved(d, &blob);
    send(&mut d, 2, 62);
    assert!(!d.needs_reset());
    let saved = snapshot::open(hypernic_virtio_net::state::v1::KIND, &blob).expect("a state");
    let mut state: V1 = saved.decode().expect("decodes");
    assert_eq!(
        (state.queues[TX].next, state.queues[TX].used),
        (0x8002, 0x8002)
    );
    // A place that the ring does not have.
    state.queues[TX].next = 64;
    let refused = d.m.nic.control.load(&d.m.env, &snapshot::seal(&state));
    assert!(refused.expect_err("64").to_string().contains("desc"));
}

#[test]
fn what_is_saved_loads_and_saves_the_same() {
    let before = used();
    let blob = before.m.save();
    let read = |blob: &[u8]| -> V1 {
        let saved = snapshot::open(hypernic_virtio_net::state::v1::KIND, blob).expect("a state");
        saved.decode().expect("decodes")
    };
    let mut d = moved(before, &blob);
    assert_eq!(d.command(ctrl::ANNOUNCE, 0, &[]), ctrl::OK);
    let (was, mut is) = (read(&blob), read(&d.m.save()));
    for queue in &mut is.queues[..2] {
        // The call that may have been lost.
        queue.tally[1] -= 1;
    }
    assert_eq!(was.station, is.station);
    assert_eq!(was.queues[..2], is.queues[..2]);
    assert_eq!(
        (was.features, was.offloads, was.status, &was.rss, &was.stats),
        (is.features, is.offloads, is.status, &is.rss, &is.stats)
    );
}

#[test]
fn a_queue_whose_size_the_driver_left_as_it_was_goes_on_too() {
    for packed in [0, feature::PACKED] {
        let mut d = Driver::cold(Config::new(MAC), Wire::default());
        assert!(d.negotiate(FEATURES | packed));
        d.w16(c::QUEUE_SELECT, CTRL as u16);
        for (register, address) in [
            (c::QUEUE_DESC, desc(CTRL)),
            (c::QUEUE_DRIVER, desc(CTRL) + 0x8000),
            (c::QUEUE_DEVICE, desc(CTRL) + 0xa000),
        ] {
            d.w32(register, address as u32);
        }
        d.w16(c::QUEUE_ENABLE, 1);
        let blob = d.m.save();
        let mut d = moved(d, &blob);
        assert_eq!((d.r16(c::QUEUE_SIZE), d.r16(c::QUEUE_ENABLE)), (64, 1));
    }
}

#[test]
fn impossible_states_are_refused_and_change_nothing() {
    let mut d = used();
    let blob = d.m.save();
    let state: V1 = snapshot::open(hypernic_virtio_net::state::v1::KIND, &blob)
        .expect("a state")
        .decode()
        .expect("decodes");
    type Change = fn(&mut V1);
    let changes: [(&str, Change); 20] = [
        ("features", |s| s.features |= 1 << 10),
        ("offloads", |s| s.offloads |= 1),
        ("status", |s| s.status |= 0x10),
        ("status", |s| s.status = status::DRIVER_OK),
        ("pairs", |s| s.pairs = 2),
        ("isr", |s| s.isr = 4),
        ("config_vector", |s| s.config_vector = 4),
        ("queues", |s| s.queues.truncate(2)),
        ("size", |s| s.queues[0].size = 0),
        ("size", |s| s.queues[2].size = 128),
        ("vector", |s| s.queues[1].vector = 9),
        ("desc", |s| s.queues[1].desc |= 1),
        ("followed", |s| s.queues[1].enabled = false),
        ("vlans", |s| s.station.vlans.push(0)),
        ("list", |s| s.station.unicast.list = vec![MAC; 65]),
        ("rss", |s| s.rss.key = vec![0; 41]),
        ("rss", |s| s.rss.spread = Some(Spread::default())),
        ("stats", |s| s.stats.clear()),
        ("stats", |s| s.stats[0].0.valid = u64::MAX),
        ("stats", |s| s.stats[0].1.whole_bytes = 1 << 63),
    ];
    for (field, change) in changes {
        let mut bad = state.clone();
        change(&mut bad);
        let refused = d.m.nic.control.load(&d.m.env, &snapshot::seal(&bad));
        let refused = refused.expect_err(field).to_string();
        assert!(refused.contains(field), "{field}: {refused}");
        assert_eq!(d.m.save(), blob, "{field}");
    }
    assert!(d.m.nic.control.load(&d.m.env, b"nonsense").is_err());
    let newer = snapshot::wrap(hypernic_virtio_net::state::v1::KIND, 2, &[]);
    let refused = d.m.nic.control.load(&d.m.env, &newer);
    assert!(
        refused
            .expect_err("newer")
            .to_string()
            .contains("version 2")
    );
}

#[test]
fn a_packed_ring_is_checked_by_what_the_state_says_was_agreed_upon() {
    let packed = Driver::with(FEATURES | feature::PACKED, 3, Wire::default());
    let blob = packed.m.save();
    let mut state: V1 = snapshot::open(hypernic_virtio_net::state::v1::KIND, &blob)
        .expect("a state")
        .decode()
        .expect("decodes");
    let mut d = moved(packed, &blob);
    d.send(PLAIN, &frame(OTHER, 61));
    assert_eq!(d.m.wire.take().len(), 1);
    // Behind the last of three.
    state.queues[TX].next = 0x8003;
    let refused = d.m.nic.control.load(&d.m.env, &snapshot::seal(&state));
    assert!(refused.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]
    #[test]
    fn no_state_panics(
        features: u64, status: u8, next: u16, used: u16, told: u16, size: u16, place: u64, isr in 0u8..5,
    ) {
        let mut d = self::used();
        let mut state: V1 = snapshot::open(hypernic_virtio_net::state::v1::KIND, &d.m.save())
            .expect("a state").decode().expect("decodes");
        state.features = features & Config::new(MAC).features();
        state.offloads = 0;
        state.status = status;
        state.isr = isr;
        for queue in &mut state.queues {
            (queue.next, queue.used, queue.told, queue.desc) = (next, used, told, place & !15);
            if size.is_power_of_two() { queue.size = size.min(64); }
        }
        let _ = d.m.nic.control.load(&d.m.env, &snapshot::seal(&state));
        d.m.work();
        for queue in [RX, TX, CTRL] {
            d.kick(queue);
        }
        d.m.offer(&[&frame(MAC, 100)]);
        d.start(FEATURES, 64);
        d.send(PLAIN, &frame(OTHER, 60));
        prop_assert!(!d.m.wire.take().is_empty());
    }
}

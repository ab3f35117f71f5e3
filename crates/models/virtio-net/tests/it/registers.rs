//! The PCI transport: what the driver finds and sets.

use hypernic_virtio_net::regs::{common as c, feature, page, status};
use hypernic_virtio_net::{CTRL, Config, RX, TX};
use model_testkit::Wire;

use crate::driver::{Driver, MAC, PLAIN, USUAL, desc, frame};

#[test]
fn the_bus_scan_finds_a_modern_function_with_its_structures() {
    let nic = hypernic_virtio_net::new(Config::new(MAC));
    let space = nic.identity.config().build().expect("possible");
    assert_eq!(space.read_u32(0), 0x1041_1af4);
    assert_eq!(space.read_u32(8), 0x0200_0001);
    let mut kinds = Vec::new();
    let mut at = u64::from(space.read_u16(0x34) as u8);
    while at != 0 {
        let [id, next] = space.read_u16(at).to_le_bytes();
        if id == 9 {
            let kind = (space.read_u16(at + 2) >> 8) as u8;
            let bar = space.read_u16(at + 4) as u8;
            kinds.push((kind, bar, space.read_u32(at + 8), space.read_u32(at + 12)));
            if kind == 2 {
                assert_eq!(space.read_u32(at + 16), 4, "multiplier");
            }
        }
        at = next.into();
    }
    assert_eq!(
        kinds,
        [
            (1, 0, 0, 0x40),
            (2, 0, 0x3000, 0x1000),
            (3, 0, 0x1000, 0x1000),
            (4, 0, 0x2000, 0x1000),
            (5, 0, 0, 0),
        ]
    );
}

#[test]
fn features_are_offered_in_words_and_refused_where_they_do_not_fit() {
    let mut d = Driver::cold(Config::new(MAC), Wire::default());
    let mut offered = [0; 3];
    for (word, value) in offered.iter_mut().enumerate() {
        d.w32(c::DEVICE_FEATURE_SELECT, word as u32);
        *value = d.r32(c::DEVICE_FEATURE);
    }
    let all = u64::from(offered[0]) | u64::from(offered[1]) << 32;
    assert_eq!(all, Config::new(MAC).features());
    assert_eq!(offered[2], 0);
    assert!(d.negotiate(all));
    assert!(d.negotiate(feature::VERSION_1));
    for (features, why) in [
        (0, "no VERSION_1"),
        (feature::VERSION_1 | 1 << 10, "UFO is not offered"),
        (feature::VERSION_1 | feature::MQ, "one pair has no MQ"),
        (feature::VERSION_1 | feature::MTU, "no MTU was configured"),
        (feature::VERSION_1 | feature::HOST_TSO4, "TSO without CSUM"),
        (
            feature::VERSION_1 | feature::GUEST_TSO6,
            "the same, received",
        ),
        (
            feature::VERSION_1 | feature::CSUM | feature::HOST_ECN,
            "ECN without TSO",
        ),
        (feature::VERSION_1 | feature::CTRL_RX, "no queue for it"),
    ] {
        let before = d.counter("features_refused");
        assert!(!d.negotiate(features), "{why}");
        assert_eq!(d.counter("features_refused"), before + 1, "{why}");
    }
    // Without features there is no driver.
    d.w8(c::STATUS, 7);
    assert_eq!(d.r8(c::STATUS), 3);
    assert_eq!(d.counter("bad_register_access"), 1);
}

#[test]
fn the_configuration_has_address_status_speed_and_a_number() {
    let config = Config {
        mtu: Some(9000),
        ..Config::new(MAC)
    };
    let mut d = Driver::cold(config, Wire::default());
    d.start(USUAL | feature::MTU, 64);
    assert_eq!(d.read::<6>(page::DEVICE), MAC);
    assert_eq!(d.r16(page::DEVICE + 6), 1);
    assert_eq!(d.r16(page::DEVICE + 8), 1);
    assert_eq!(d.r16(page::DEVICE + 10), 9000);
    assert_eq!(d.r32(page::DEVICE + 12), 10_000);
    assert_eq!(d.r8(page::DEVICE + 16), 1);
    assert_eq!(d.read::<8>(page::DEVICE + 20), [0; 8]);
    let number = d.r8(c::GENERATION);
    d.m.vectors();
    d.m.nic.control.set_link(&d.m.env, false);
    assert_eq!(d.r16(page::DEVICE + 6), 0);
    assert_ne!(d.r8(c::GENERATION), number);
    assert_eq!(d.m.vectors(), [0]);
    assert_eq!(d.r8(page::ISR), 2);
    assert_eq!(d.r8(page::ISR), 0);
    // It does not change.
    d.m.nic.control.set_link(&d.m.env, false);
    assert_eq!(d.m.vectors(), []);
}

#[test]
fn fields_are_accessed_whole_and_anything_else_is_counted() {
    let mut d = Driver::cold(Config::new(MAC), Wire::default());
    assert_eq!(d.r16(c::NUM_QUEUES), 3);
    let mut bad = 0;
    for (offset, bytes) in [
        (c::STATUS, &[1, 0][..]),
        (c::QUEUE_SIZE, &[1]),
        (c::DEVICE_FEATURE_SELECT, &[1, 0]),
        (c::QUEUE_DESC, &[0; 8]),
        (c::QUEUE_DESC + 2, &[0; 2]),
        (0x40, &[0; 4]),
        (page::LEN - 1, &[0]),
        (page::ISR, &[1]),
        (page::DEVICE, &[1]),
        (c::NUM_QUEUES, &[1, 0]),
    ] {
        d.write(offset, bytes);
        bad += 1;
        assert_eq!(d.counter("bad_register_access"), bad, "{offset:#x}");
    }
    assert_eq!(d.r8(c::STATUS), 0);
    assert_eq!(d.r32(c::QUEUE_SIZE), 0);
    assert_eq!(d.counter("bad_register_access"), bad + 1);
    // Beyond everything.
    d.write(u64::MAX, &[0; 8]);
    assert_eq!(d.read::<8>(u64::MAX - 7), [0; 8]);
    d.m.nic.control.write(&d.m.env, 5, 0, &[0; 4]);
}

#[test]
fn a_queue_is_set_up_once_and_only_where_a_ring_can_be() {
    let mut d = Driver::new(USUAL);
    d.w16(c::QUEUE_SELECT, TX as u16);
    assert_eq!(d.r16(c::QUEUE_ENABLE), 1);
    assert_eq!(d.r16(c::QUEUE_NOTIFY_OFF), 1);
    assert_eq!(u64::from(d.r32(c::QUEUE_DESC)), desc(TX));
    let bad = d.counter("bad_register_access");
    d.w16(c::QUEUE_ENABLE, 0);
    d.w16(c::QUEUE_SIZE, 128);
    d.w32(c::QUEUE_DESC, 0);
    assert_eq!(d.counter("bad_register_access"), bad + 3);
    assert_eq!(d.r16(c::QUEUE_SIZE), 64);
    // A queue that there is not.
    d.w16(c::QUEUE_SELECT, 3);
    assert_eq!(d.r16(c::QUEUE_SIZE), 0);
    assert_eq!(d.r16(c::QUEUE_VECTOR), 0xffff);
    // Impossible places.
    for (desc, driver, device) in [
        (8, 0x8000, 0x9000),
        (0, 0x8001, 0x9000),
        (0, 0x8000, 0x9002),
        (u64::MAX - 15, 0x8000, 0x9000),
        (0, u64::MAX - 1, 0x9000),
        (0, 0x8000, u64::MAX - 3),
    ] {
        d.negotiate(USUAL);
        d.w16(c::QUEUE_SELECT, TX as u16);
        for (register, address) in [
            (c::QUEUE_DESC, desc),
            (c::QUEUE_DRIVER, driver),
            (c::QUEUE_DEVICE, device),
        ] {
            d.w32(register, address as u32);
            d.w32(register + 4, (address >> 32) as u32);
        }
        let refused = d.counter("queue_refused");
        d.w16(c::QUEUE_ENABLE, 1);
        assert_eq!(
            d.r16(c::QUEUE_ENABLE),
            0,
            "{desc:#x} {driver:#x} {device:#x}"
        );
        assert_eq!(d.counter("queue_refused"), refused + 1);
    }
    // Sizes.
    for size in [0, 3, 2048] {
        d.w16(c::QUEUE_SIZE, size);
        assert_eq!(d.r16(c::QUEUE_SIZE), 1024);
    }
}

#[test]
fn a_vector_that_there_is_not_reads_back_as_none() {
    let mut d = Driver::cold(Config::new(MAC), Wire::default());
    for (vector, shown) in [(3, 3), (4, 0xffff), (0xffff, 0xffff)] {
        d.w16(c::CONFIG_VECTOR, vector);
        assert_eq!(d.r16(c::CONFIG_VECTOR), shown);
        d.w16(c::QUEUE_VECTOR, vector);
        assert_eq!(d.r16(c::QUEUE_VECTOR), shown);
    }
}

#[test]
fn a_reset_lets_go_of_everything() {
    let mut d = Driver::new(USUAL);
    d.receive_at(crate::driver::BUFFERS, 2048);
    d.w8(c::STATUS, 0);
    assert_eq!(d.r8(c::STATUS), 0);
    assert_eq!(d.m.offer(&[&frame(MAC, 100)]), 1);
    assert_eq!(d.counter("rx_disabled"), 1);
    assert!(d.used(RX).is_empty());
    for queue in [RX, TX, CTRL] {
        d.w16(c::QUEUE_SELECT, queue as u16);
        assert_eq!(d.r16(c::QUEUE_ENABLE), 0);
        assert_eq!(d.r16(c::QUEUE_VECTOR), 0xffff);
    }
    assert_eq!(d.r32(c::QUEUE_DESC), 0);
    d.start(USUAL, 64);
    d.send(PLAIN, &frame(MAC, 100));
    assert_eq!(d.m.wire.take().len(), 1);
}

#[test]
fn a_queue_is_reset_by_itself_if_that_was_agreed_upon() {
    let mut d = Driver::new(USUAL);
    d.w16(c::QUEUE_SELECT, TX as u16);
    let bad = d.counter("bad_register_access");
    d.w16(c::QUEUE_RESET, 1);
    assert_eq!(d.counter("bad_register_access"), bad + 1);
    let mut d = Driver::new(USUAL | feature::RING_RESET);
    d.send(PLAIN, &frame(MAC, 100));
    d.w16(c::QUEUE_SELECT, TX as u16);
    d.w16(c::QUEUE_RESET, 1);
    assert_eq!(d.r16(c::QUEUE_RESET), 0);
    assert_eq!(d.r16(c::QUEUE_ENABLE), 0);
    assert_eq!(d.r16(c::QUEUE_SIZE), 1024);
    assert_eq!(d.counter("queue_resets"), 1);
    d.kick(TX);
    d.enable(TX, 16);
    d.send(PLAIN, &frame(MAC, 60));
    d.send(PLAIN, &frame(MAC, 61));
    assert_eq!(d.m.wire.take().len(), 3);
    assert_eq!(d.used(TX).len(), 2);
    assert_eq!(d.r8(c::STATUS) & status::NEEDS_RESET, 0);
}

#[test]
fn a_notification_says_by_its_address_which_queue_it_is() {
    let mut d = Driver::new(USUAL | feature::NOTIFICATION_DATA);
    let at = crate::driver::BUFFERS;
    d.m.poke(at, &[0; 200]);
    d.give(TX, &[(at, 112, false)]);
    d.w32(page::NOTIFY + 4, 1 | 1 << 16);
    assert_eq!(d.m.wire.take().len(), 1);
    for (offset, bytes) in [
        (page::NOTIFY + 12, &[3, 0][..]),
        (page::NOTIFY + 2, &[0, 0]),
        (page::NOTIFY, &[0]),
        (page::NOTIFY + 0xffc, &[0; 4]),
    ] {
        let bad = d.counter("bad_notify");
        d.write(offset, bytes);
        assert_eq!(d.counter("bad_notify"), bad + 1, "{offset:#x}");
    }
}

#[test]
fn status_bits_that_there_are_not_stay_clear() {
    let mut d = Driver::cold(Config::new(MAC), Wire::default());
    let refused = d.counter("bad_register_access");
    d.w8(c::STATUS, 0x31);
    assert_eq!(d.r8(c::STATUS), 1);
    assert_eq!(d.counter("bad_register_access"), refused + 1);
    d.w8(c::STATUS, 0x81);
    assert_eq!(d.r8(c::STATUS), 0x81);
    let blob = d.m.save();
    d.m.nic
        .control
        .load(&d.m.env, &blob)
        .expect("its own state");
}

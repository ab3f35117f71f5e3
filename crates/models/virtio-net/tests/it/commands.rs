//! The control queue.

use hypernic_virtio_net::CTRL;
use hypernic_virtio_net::regs::{ctrl, feature, page};

use crate::driver::{BUFFERS, Driver, MAC, OFFLOADS, OTHER, USUAL, frame};

const CTRLS: u64 = USUAL
    | OFFLOADS
    | feature::CTRL_VQ
    | feature::CTRL_RX
    | feature::CTRL_RX_EXTRA
    | feature::CTRL_VLAN
    | feature::CTRL_MAC_ADDR
    | feature::CTRL_GUEST_OFFLOADS
    | feature::GUEST_ANNOUNCE;
const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 7];
const ALL: [u8; 6] = [0xff; 6];

/// Whether a frame to `dst` is received.
fn takes(d: &mut Driver, frame: &[u8]) -> bool {
    d.receive_at(BUFFERS, 2048);
    assert_eq!(d.m.offer(&[frame]), 1);
    !d.used(hypernic_virtio_net::RX).is_empty()
}

fn table(macs: &[[u8; 6]]) -> Vec<u8> {
    let mut bytes = (macs.len() as u32).to_le_bytes().to_vec();
    bytes.extend(macs.as_flattened());
    bytes
}

#[test]
fn modes_and_tables_say_what_is_received() {
    let mut d = Driver::with(CTRLS, 1024, model_testkit::Wire::default());
    let to = |d: &mut Driver| [MAC, OTHER, GROUP, ALL].map(|dst| takes(d, &frame(dst, 60)));
    let mode = |d: &mut Driver, number, on| {
        assert_eq!(d.command(ctrl::RX, number, &[on]), ctrl::OK);
    };
    assert_eq!(
        to(&mut d),
        [true; 4],
        "everything, until it is told otherwise"
    );
    mode(&mut d, 0, 0);
    assert_eq!(to(&mut d), [true, false, false, true]);
    mode(&mut d, 1, 1);
    assert_eq!(to(&mut d), [true, false, true, true]);
    mode(&mut d, 2, 1);
    mode(&mut d, 3, 1);
    assert_eq!(to(&mut d), [true, true, false, true]);
    mode(&mut d, 4, 1);
    mode(&mut d, 5, 1);
    assert_eq!(to(&mut d), [false; 4]);
    for number in 0..6 {
        mode(&mut d, number, 0);
    }
    let tables = [table(&[OTHER]), table(&[GROUP])].concat();
    let set = ctrl::MAC_TABLE_SET;
    assert_eq!(d.command(ctrl::MAC, set, &tables), ctrl::OK);
    assert_eq!(to(&mut d), [true; 4]);
    // More than are kept: all of that kind.
    let many: Vec<_> = (0..100).map(|n| [0x33, 0x33, 0, 0, 1, n]).collect();
    let tables = [table(&[]), table(&many)].concat();
    assert_eq!(d.command(ctrl::MAC, set, &tables), ctrl::OK);
    assert_eq!(to(&mut d), [true, false, true, true]);
    assert_eq!(d.command(ctrl::MAC, ctrl::MAC_ADDR_SET, &OTHER), ctrl::OK);
    assert_eq!(to(&mut d), [false, true, true, true]);
    assert_eq!(d.read::<6>(page::DEVICE), OTHER);
    assert!(d.counter("rx_filtered") > 0);
}

#[test]
fn vlans_are_shut_out_until_they_are_let_in() {
    let mut d = Driver::new(CTRLS);
    let mut tagged = frame(MAC, 64);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0x20, 5]);
    assert_eq!(d.command(ctrl::RX, 0, &[0]), ctrl::OK);
    assert!(takes(&mut d, &frame(MAC, 64)));
    assert!(!takes(&mut d, &tagged));
    assert_eq!(d.command(ctrl::VLAN, ctrl::VLAN_ADD, &[5, 0]), ctrl::OK);
    assert!(takes(&mut d, &tagged));
    assert_eq!(d.command(ctrl::VLAN, ctrl::VLAN_DEL, &[5, 0]), ctrl::OK);
    assert!(!takes(&mut d, &tagged));
    assert_eq!(d.command(ctrl::VLAN, ctrl::VLAN_ADD, &[0, 0x10]), ctrl::ERR);
}

#[test]
fn receive_offloads_are_switched_while_it_runs() {
    let mut d = Driver::new(CTRLS);
    let set = |d: &mut Driver, bits: u64| d.command(ctrl::GUEST_OFFLOADS, 0, &bits.to_le_bytes());
    assert!(d.m.nic.receive.caps().tso4);
    assert_eq!(set(&mut d, feature::GUEST_CSUM), ctrl::OK);
    assert!(!d.m.nic.receive.caps().tso4);
    assert_eq!(
        set(&mut d, feature::GUEST_TSO4),
        ctrl::ERR,
        "without checksums"
    );
    assert_eq!(set(&mut d, feature::GUEST_CSUM | 1 << 10), ctrl::ERR);
    assert_eq!(set(&mut d, OFFLOADS & feature::GUEST_OFFLOADS), ctrl::OK);
    assert!(d.m.nic.receive.caps().tso6);
}

#[test]
fn what_is_not_agreed_upon_unknown_or_of_a_wrong_length_is_refused_and_changes_nothing() {
    let mut d = Driver::new(CTRLS);
    let blob = d.m.save();
    let table = [table(&[OTHER]), vec![2, 0, 0, 0, 1, 2, 3, 4, 5, 6]].concat();
    let mut refused = 0;
    for (class, number, payload) in [
        (ctrl::RX, 0, &[][..]),
        (ctrl::RX, 0, &[1, 0]),
        (ctrl::RX, 6, &[1]),
        (ctrl::MAC, ctrl::MAC_TABLE_SET, &table),
        (ctrl::MAC, ctrl::MAC_TABLE_SET, &[0xff; 8]),
        (ctrl::MAC, ctrl::MAC_TABLE_SET, &[0; 9]),
        (ctrl::MAC, ctrl::MAC_ADDR_SET, &[1; 5]),
        (ctrl::MAC, 2, &[0; 6]),
        (ctrl::VLAN, 0, &[1]),
        (ctrl::ANNOUNCE, 0, &[0]),
        (ctrl::GUEST_OFFLOADS, 0, &[0; 7]),
        // Multiqueue, coalescing, statistics.
        (4, 0, &[1, 0]),
        (6, 0, &[0; 8]),
        (8, 0, &[]),
        (0xff, 0xff, &[0; 300]),
    ] {
        refused += 1;
        assert_eq!(
            d.command(class, number, payload),
            ctrl::ERR,
            "{class} {number}"
        );
        assert_eq!(d.counter("ctrl_refused"), refused);
    }
    assert_eq!(d.command(ctrl::MAC, 0, &vec![0; 17 << 10]), ctrl::ERR);
    // One byte, split payloads, no payload.
    let at = BUFFERS;
    d.give(CTRL, &[(at, 1, false), (at + 8, 1, true)]);
    d.kick(CTRL);
    assert_eq!(d.m.peek(at + 8, 1), [ctrl::ERR]);
    let same = |blob: &[u8]| {
        let state = snapshot::open(hypernic_virtio_net::state::v1::KIND, blob).expect("a state");
        let state: hypernic_virtio_net::state::V1 = state.decode().expect("decodes");
        (state.station, state.offloads)
    };
    assert_eq!(same(&d.m.save()), same(&blob));
    let mut d = Driver::new(USUAL | feature::CTRL_VQ);
    for (class, number, payload) in [
        (ctrl::RX, 0, &[0][..]),
        (ctrl::RX, 2, &[0]),
        (ctrl::MAC, ctrl::MAC_TABLE_SET, &[0; 8]),
        (ctrl::MAC, ctrl::MAC_ADDR_SET, &MAC),
        (ctrl::VLAN, 0, &[1, 0]),
        (ctrl::ANNOUNCE, 0, &[]),
        (ctrl::GUEST_OFFLOADS, 0, &[0; 8]),
    ] {
        assert_eq!(
            d.command(class, number, payload),
            ctrl::ERR,
            "{class} {number}"
        );
    }
}

#[test]
fn a_command_may_be_cut_anywhere_and_its_answer_is_the_first_byte_to_be_written() {
    let mut d = Driver::new(CTRLS);
    let bytes = [ctrl::MAC, ctrl::MAC_ADDR_SET, 2, 3, 4, 5, 6, 7];
    d.m.poke(BUFFERS, &bytes);
    let parts: Vec<_> = (0..8).map(|i| (BUFFERS + i, 1, false)).collect();
    let mut parts = [
        parts,
        vec![(BUFFERS + 100, 0, true), (BUFFERS + 101, 8, true)],
    ]
    .concat();
    parts.insert(3, (BUFFERS, 0, false));
    d.m.poke(BUFFERS + 100, &[0xee; 4]);
    d.give(CTRL, &parts);
    d.kick(CTRL);
    assert_eq!(d.m.peek(BUFFERS + 100, 3), [0xee, ctrl::OK, 0xee]);
    assert_eq!(d.used(CTRL), [(0, 1)]);
    assert_eq!(d.read::<6>(page::DEVICE), bytes[2..]);
    assert_eq!(d.m.vectors(), [CTRL as u16 + 1]);
}

#[test]
fn commands_wait_for_the_driver_to_be_ready() {
    let mut d = Driver::cold(
        hypernic_virtio_net::Config::new(MAC),
        model_testkit::Wire::default(),
    );
    assert!(d.negotiate(CTRLS));
    d.enable(CTRL, 64);
    let at = BUFFERS;
    d.m.poke(at, &[ctrl::RX, 0, 0]);
    d.give(CTRL, &[(at, 3, false), (at + 8, 1, true)]);
    d.kick(CTRL);
    assert!(d.used(CTRL).is_empty());
    d.w8(0x14, 15);
    assert_eq!(d.used(CTRL).len(), 1);
}

//! When the driver is called, and when it need not call.

use hypernic_virtio_net::regs::{common as c, feature, page};
use hypernic_virtio_net::{RX, TX};
use model::PciState;

use crate::driver::{BUFFERS, Driver, MAC, OTHER, PLAIN, USUAL, avail, frame, used};

/// Where the driver says from which entry on it wants to be called, and the device from which on it does.
const USED_EVENT: u64 = 4 + 2 * 64;
const AVAIL_EVENT: u64 = 4 + 8 * 64;

#[test]
fn without_event_indices_a_flag_says_whether_the_driver_is_called() {
    let mut d = Driver::new(USUAL);
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.vectors(), [2]);
    d.m.poke(avail(TX), &[1, 0]);
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.vectors(), []);
    d.m.poke(avail(TX), &[0, 0]);
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.vectors(), [2]);
    // Idle, it wants to be called; receiving with buffers to spare it does not.
    assert_eq!(d.peek16(used(TX)), 0);
    d.receive_at(BUFFERS, 100);
    d.m.offer(&[&frame(MAC, 60)]);
    assert_eq!(d.peek16(used(RX)), 1);
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 0);
    assert_eq!(d.peek16(used(RX)), 0);
}

#[test]
fn with_event_indices_the_driver_is_called_when_its_entry_is_passed() {
    let mut d = Driver::new(USUAL | feature::EVENT_IDX);
    let mut sent: u16 = 0;
    // The index wraps on the way.
    for round in 0..70_000u32 / 4 {
        let want = sent.wrapping_add(2);
        d.m.poke(avail(TX) + USED_EVENT, &want.to_le_bytes());
        for i in 0..4u16 {
            d.give(TX, &[(BUFFERS, 72, false)]);
            d.kick(TX);
            let called = !d.m.vectors().is_empty();
            assert_eq!(called, i == 2, "round {round}, packet {i}");
            d.used(TX);
        }
        sent = sent.wrapping_add(4);
        assert_eq!(d.peek16(used(TX) + AVAIL_EVENT), sent);
    }
    // Several at once: one call if the entry is among them, none if not.
    d.m.wire.take();
    let entry = sent.wrapping_add(30);
    d.m.poke(avail(TX) + USED_EVENT, &entry.to_le_bytes());
    for (packets, called) in [(20, 0), (20, 1), (20, 0)] {
        for _ in 0..packets {
            d.give(TX, &[(BUFFERS, 72, false)]);
        }
        d.kick(TX);
        assert_eq!(d.m.vectors().len(), called);
        d.used(TX);
    }
    // The flag means nothing.
    let next = d.queues[TX].avail;
    d.m.poke(avail(TX), &[1, 0]);
    d.m.poke(avail(TX) + USED_EVENT, &next.to_le_bytes());
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.vectors(), [2]);
}

#[test]
fn a_burst_received_is_one_call() {
    let mut d = Driver::new(USUAL);
    for _ in 0..20 {
        d.receive_at(BUFFERS, 100);
    }
    let one = frame(MAC, 60);
    assert_eq!(d.m.offer(&[&one[..]; 20]), 20);
    assert_eq!(d.m.vectors(), [1]);
    assert_eq!(d.counter("queue_calls"), 1);
}

#[test]
fn a_queue_without_a_vector_calls_nobody() {
    let mut d = Driver::new(USUAL);
    d.w16(c::QUEUE_SELECT, TX as u16);
    d.w16(c::QUEUE_VECTOR, 0xffff);
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.vectors(), []);
    assert_eq!(d.used(TX).len(), 1);
}

#[test]
fn without_messages_the_line_follows_the_status_which_reading_clears() {
    let mut d = Driver::new(USUAL);
    let master = PciState {
        bus_master: true,
        ..PciState::default()
    };
    d.m.set_pci(master);
    d.send(PLAIN, &frame(OTHER, 60));
    assert!(d.m.line());
    assert_eq!(d.m.vectors(), []);
    assert_eq!(d.r8(page::ISR), 1);
    assert!(!d.m.line());
    d.send(PLAIN, &frame(OTHER, 60));
    d.m.nic.control.set_link(&d.m.env, false);
    assert_eq!(d.r8(page::ISR), 3);
    d.m.nic.control.set_link(&d.m.env, true);
    assert!(d.m.line());
    // Messages silence it, a reset clears it.
    d.m.set_pci(PciState {
        msix: true,
        ..master
    });
    assert!(!d.m.line());
    d.m.set_pci(master);
    assert!(d.m.line());
    d.w8(c::STATUS, 0);
    assert!(!d.m.line());
    assert_eq!(d.r8(page::ISR), 0);
}

#[test]
fn without_bus_mastering_nothing_is_touched() {
    let mut d = Driver::new(USUAL);
    d.receive_at(BUFFERS, 100);
    d.m.set_pci(PciState::default());
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    assert_eq!(d.counter("rx_disabled"), 1);
    assert!(d.used(TX).is_empty() && d.used(RX).is_empty());
    d.m.set_pci(PciState {
        bus_master: true,
        ..PciState::default()
    });
    assert_eq!(d.used(TX).len(), 1);
}

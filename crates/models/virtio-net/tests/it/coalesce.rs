//! NOTF_COAL: fewer interrupts, by number and by time.

use hypernic_virtio_net::regs::{common as c, ctrl, feature};
use hypernic_virtio_net::{CTRL, Config, RX, TX};
use model_testkit::Wire;

use crate::driver::{BUFFERS, Driver, MAC, OTHER, PLAIN, USUAL, avail, frame};

const COAL: u64 = USUAL | feature::CTRL_VQ | feature::NOTF_COAL | feature::VQ_NOTF_COAL;
const RX_VECTOR: u16 = RX as u16 + 1;
const TX_VECTOR: u16 = TX as u16 + 1;

fn numbers(packets: u32, usecs: u32) -> [u8; 8] {
    (u64::from(packets) | u64::from(usecs) << 32).to_le_bytes()
}

fn of_queue(queue: u16, packets: u32, usecs: u32) -> Vec<u8> {
    [&queue.to_le_bytes()[..], &[0; 2], &numbers(packets, usecs)].concat()
}

fn driver(features: u64) -> Driver {
    let mut d = Driver::new(features);
    for i in 0..32 {
        d.receive_at(BUFFERS + 0x10_0000 + 0x1000 * i, 2048);
    }
    d
}

/// Receives so many frames, one by one; the vectors that came.
fn receive(d: &mut Driver, frames: usize) -> Vec<u16> {
    d.m.vectors();
    for _ in 0..frames {
        assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    }
    d.m.vectors()
}

#[test]
fn a_driver_is_called_after_so_many_packets_or_so_long_after_the_first() {
    let mut d = driver(COAL);
    assert_eq!(receive(&mut d, 2), [RX_VECTOR; 2], "nothing was asked for");
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_RX_SET, &numbers(4, 50)),
        ctrl::OK
    );
    assert_eq!(receive(&mut d, 3), []);
    assert_eq!(d.used(RX).len(), 5, "they are seen all the same");
    assert_eq!(receive(&mut d, 1), [RX_VECTOR]);
    // Sparse packets wait so long and no longer.
    assert_eq!(receive(&mut d, 1), []);
    d.m.sleep(49_000);
    assert_eq!(d.m.vectors(), []);
    d.m.sleep(1_000);
    assert_eq!(d.m.vectors(), [RX_VECTOR]);
    d.m.sleep(1_000_000);
    assert_eq!(d.m.vectors(), []);
    // Either number 0: each packet.
    for off in [numbers(0, 50), numbers(4, 0)] {
        assert_eq!(
            d.command(ctrl::NOTF_COAL, ctrl::COAL_RX_SET, &off),
            ctrl::OK
        );
        assert_eq!(receive(&mut d, 2), [RX_VECTOR; 2]);
    }
}

#[test]
fn new_numbers_hold_at_once_and_lose_no_call() {
    let mut d = driver(COAL);
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_RX_SET, &numbers(10, 1000)),
        ctrl::OK
    );
    assert_eq!(receive(&mut d, 3), []);
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_RX_SET, &numbers(10, 2000)),
        ctrl::OK
    );
    d.m.vectors();
    d.m.sleep(1);
    assert_eq!(d.m.vectors(), [RX_VECTOR]);
}

#[test]
fn the_ring_still_says_whether_the_driver_wants_to_be_called() {
    let mut d = driver(COAL | feature::EVENT_IDX);
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_RX_SET, &numbers(4, 50)),
        ctrl::OK
    );
    // The event lies in what was postponed: the decision looks at all of it.
    d.m.poke(avail(RX) + 4 + 2 * 64, &1u16.to_le_bytes());
    assert_eq!(receive(&mut d, 4), [RX_VECTOR]);
    // It lies ahead.
    d.m.poke(avail(RX) + 4 + 2 * 64, &20u16.to_le_bytes());
    assert_eq!(receive(&mut d, 8), []);
    d.m.sleep(100_000);
    assert_eq!(d.m.vectors(), []);
}

#[test]
fn transmit_queues_have_numbers_of_their_own() {
    let mut d = driver(COAL);
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_TX_SET, &numbers(3, 50)),
        ctrl::OK
    );
    d.m.vectors();
    d.send(PLAIN, &frame(OTHER, 60));
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!((d.m.vectors(), d.used(TX).len()), (vec![], 2));
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.vectors(), [TX_VECTOR]);
    d.send(PLAIN, &frame(OTHER, 60));
    d.m.sleep(50_000);
    assert_eq!(d.m.vectors(), [TX_VECTOR]);
    assert_eq!(receive(&mut d, 1), [RX_VECTOR]);
}

#[test]
fn each_queue_can_be_asked_and_shown_by_itself() {
    let mut d = driver(COAL);
    let set = of_queue(RX as u16, 2, 10);
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_VQ_SET, &set),
        ctrl::OK
    );
    assert_eq!(receive(&mut d, 2), [RX_VECTOR]);
    let (at, answer) = (BUFFERS + 0x20_0000, BUFFERS + 0x21_0000);
    d.m.poke(at, &[ctrl::NOTF_COAL, ctrl::COAL_VQ_GET, 0, 0, 0, 0]);
    d.m.poke(answer, &[0xee; 16]);
    // The answer lies in two parts, the first of which has room for a piece of it.
    d.give(
        CTRL,
        &[(at, 6, false), (answer, 4, true), (answer + 8, 8, true)],
    );
    d.kick(CTRL);
    assert_eq!(d.used(CTRL)[0].1, 9);
    assert_eq!(d.m.peek(answer, 4), [ctrl::OK, 2, 0, 0]);
    assert_eq!(d.m.peek(answer + 8, 6), [0, 10, 0, 0, 0, 0xee]);
    // No room for it.
    d.give(CTRL, &[(at, 6, false), (answer, 8, true)]);
    d.kick(CTRL);
    assert_eq!(d.m.peek(answer, 1), [ctrl::ERR]);
}

#[test]
fn what_cannot_be_asked_is_refused_and_changes_nothing() {
    let mut d = driver(USUAL | feature::CTRL_VQ | feature::NOTF_COAL | feature::RING_RESET);
    for (number, payload) in [
        (ctrl::COAL_RX_SET, vec![0; 7]),
        (ctrl::COAL_RX_SET, vec![0; 9]),
        (ctrl::COAL_VQ_SET, of_queue(0, 1, 1)),
        (ctrl::COAL_VQ_GET, vec![0; 4]),
        (9, vec![0; 8]),
    ] {
        assert_eq!(
            d.command(ctrl::NOTF_COAL, number, &payload),
            ctrl::ERR,
            "{number}"
        );
    }
    let mut d = driver(COAL | feature::RING_RESET);
    for payload in [
        of_queue(CTRL as u16, 1, 1),
        of_queue(3, 1, 1),
        vec![0; 4],
        vec![],
    ] {
        assert_eq!(
            d.command(ctrl::NOTF_COAL, ctrl::COAL_VQ_SET, &payload),
            ctrl::ERR
        );
    }
    // A queue that is not enabled; enabled again it has what all of its kind have.
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_RX_SET, &numbers(2, 10)),
        ctrl::OK
    );
    d.w16(c::QUEUE_SELECT, RX as u16);
    d.w16(c::QUEUE_RESET, 1);
    let set = of_queue(RX as u16, 5, 5);
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_VQ_SET, &set),
        ctrl::ERR
    );
    d.enable(RX, 64);
    for i in 0..8 {
        d.receive_at(BUFFERS + 0x10_0000 + 0x1000 * i, 2048);
    }
    assert_eq!(receive(&mut d, 1), []);
    assert_eq!(receive(&mut d, 1), [RX_VECTOR]);
}

#[test]
fn a_reset_forgets_it_and_a_state_keeps_it() {
    let mut d = driver(COAL);
    assert_eq!(
        d.command(ctrl::NOTF_COAL, ctrl::COAL_RX_SET, &numbers(3, 50)),
        ctrl::OK
    );
    assert_eq!(receive(&mut d, 1), []);
    let blob = d.m.save();
    let mut other = Driver::cold(Config::new(MAC), Wire::default());
    other.m.env.memory = d.m.env.memory.clone();
    other.queues = d.queues;
    let loaded = other.m.nic.control.load(&other.m.env, &blob);
    loaded.expect("the same device");
    other.m.work();
    assert!(
        other.m.vectors().contains(&RX_VECTOR),
        "one call, for what may be lost"
    );
    assert_eq!(receive(&mut other, 2), []);
    assert_eq!(receive(&mut other, 1), [RX_VECTOR]);
    d.start(COAL, 64);
    assert_eq!(d.m.armed(), None);
    d.receive_at(BUFFERS, 2048);
    assert_eq!(receive(&mut d, 1), [RX_VECTOR]);
}

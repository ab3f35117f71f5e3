//! Several pairs of queues.

use hypernic_virtio_net::regs::{common as c, ctrl, feature, page};
use hypernic_virtio_net::{Config, RX, TX};
use model_testkit::Wire;

use crate::driver::{BUFFERS, Driver, MAC, OTHER, PLAIN, USUAL, frame};

const MQ: u64 = USUAL | feature::CTRL_VQ | feature::MQ;

fn two() -> Config {
    Config {
        pairs: 2,
        ..Config::new(MAC)
    }
}

fn driver(features: u64) -> Driver {
    let mut d = Driver::cold(two(), Wire::default());
    d.start(features, 16);
    d
}

fn set(d: &mut Driver, pairs: u16) -> u8 {
    d.command(ctrl::MQ, ctrl::VQ_PAIRS_SET, &pairs.to_le_bytes())
}

/// UDP over IPv4 from this port.
fn flow(port: u16) -> Vec<u8> {
    let mut frame = frame(MAC, 60);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[20..22].fill(0);
    frame[23] = 17;
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame
}

fn give(d: &mut Driver, queue: usize, buffers: u64) {
    for i in 0..buffers {
        let at = BUFFERS + 0x10_0000 * (1 + queue as u64 / 2) + 0x1000 * i;
        d.give(queue, &[(at, 2048, true)]);
    }
}

#[test]
fn the_control_queue_is_behind_all_pairs_or_behind_the_only_one_that_was_agreed_upon() {
    let mut d = driver(MQ);
    assert_eq!(d.r16(c::NUM_QUEUES), 5);
    assert_eq!(d.r16(page::DEVICE + 8), 2);
    assert_eq!(set(&mut d, 2), ctrl::OK);
    let mut d = driver(USUAL | feature::CTRL_VQ);
    assert_eq!(d.ctrl, 2);
    assert_eq!(set(&mut d, 1), ctrl::ERR, "not agreed upon");
    d.w16(c::QUEUE_SELECT, 3);
    assert_eq!(d.r16(c::QUEUE_SIZE), 0);
    let bad = d.counter("bad_notify");
    d.kick(3);
    assert_eq!(d.counter("bad_notify"), bad + 1);
}

#[test]
fn so_many_pairs_are_used_as_the_driver_says() {
    let mut d = driver(MQ);
    give(&mut d, RX, 16);
    give(&mut d, 2, 16);
    let frames: Vec<_> = (0..8).map(flow).collect();
    let frames: Vec<_> = frames.iter().map(|f| &f[..]).collect();
    // One, until it says otherwise.
    assert_eq!(d.m.offer(&frames), 8);
    assert_eq!((d.used(RX).len(), d.used(2).len()), (8, 0));
    for pairs in [0, 3, 0xffff] {
        assert_eq!(set(&mut d, pairs), ctrl::ERR);
    }
    assert_eq!(set(&mut d, 2), ctrl::OK);
    d.m.vectors();
    assert_eq!(d.m.offer(&frames), 8);
    let (first, second) = (d.used(RX).len(), d.used(2).len());
    assert!(first > 0 && second > 0 && first + second == 8);
    assert_eq!(d.m.vectors(), [RX as u16 + 1, 3], "one call for each");
    // A flow keeps to its pair.
    assert_eq!(d.m.offer(&[frames[0], frames[0]]), 2);
    let both = (d.used(RX).len(), d.used(2).len());
    assert!(both == (2, 0) || both == (0, 2), "{both:?}");
    assert_eq!(set(&mut d, 1), ctrl::OK);
    assert_eq!(d.m.offer(&frames[..4]), 4);
    assert_eq!((d.used(RX).len(), d.used(2).len()), (4, 0));
}

#[test]
fn all_transmit_queues_in_use_are_served_and_call_by_their_own_vectors() {
    let mut d = driver(MQ);
    // Not in use yet.
    d.send_by(3, PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.wire.take().len(), 0);
    d.m.vectors();
    // What came before is found.
    assert_eq!(set(&mut d, 2), ctrl::OK);
    assert_eq!((d.used(TX).len(), d.used(3).len()), (0, 1));
    assert_eq!(d.m.wire.take().len(), 1);
    assert_eq!(d.m.vectors(), [5, 4]);
    for queue in [TX, 3, TX, 3] {
        d.send_by(queue, PLAIN, &frame(OTHER, 61));
        assert_eq!(d.m.wire.take().len(), 1);
        assert_eq!(d.used(queue).len(), 1);
        assert_eq!(d.m.vectors(), [queue as u16 + 1]);
    }
}

#[test]
fn a_full_sink_holds_up_all_transmit_queues_and_loses_nothing_of_them() {
    let mut d = driver(MQ);
    assert_eq!(set(&mut d, 2), ctrl::OK);
    d.m.wire.set_room(1);
    for i in 0..3 {
        d.send(PLAIN, &frame(OTHER, 60 + i));
        d.send_by(3, PLAIN, &frame(OTHER, 70 + i));
    }
    d.m.wire.unlimit();
    d.m.run();
    assert_eq!(d.m.wire.take().len(), 6);
    assert_eq!((d.used(TX).len(), d.used(3).len()), (3, 3));
}

#[test]
fn a_reset_uses_one_pair_again_and_a_state_keeps_two() {
    let mut d = driver(MQ);
    assert_eq!(set(&mut d, 2), ctrl::OK);
    let blob = d.m.save();
    let mut other = Driver::cold(two(), Wire::default());
    other.m.env.memory = d.m.env.memory.clone();
    other.queues = d.queues;
    other.ctrl = d.ctrl;
    let loaded = other.m.nic.control.load(&other.m.env, &blob);
    loaded.expect("the same device");
    other.send_by(3, PLAIN, &frame(OTHER, 60));
    assert_eq!(other.m.wire.take().len(), 1);
    // A device with one pair cannot become it.
    let mut one = Driver::cold(Config::new(MAC), Wire::default());
    let refused = one.m.nic.control.load(&one.m.env, &blob);
    assert!(
        refused
            .expect_err("two pairs")
            .to_string()
            .contains("features")
    );
    d.start(MQ, 16);
    give(&mut d, RX, 8);
    give(&mut d, 2, 8);
    let frames: Vec<_> = (0..8).map(flow).collect();
    let frames: Vec<_> = frames.iter().map(|f| &f[..]).collect();
    assert_eq!(d.m.offer(&frames), 8);
    assert_eq!((d.used(RX).len(), d.used(2).len()), (8, 0));
}

#[test]
fn a_full_receive_queue_holds_up_none_of_the_others() {
    let mut d = driver(MQ);
    assert_eq!(set(&mut d, 2), ctrl::OK);
    give(&mut d, RX, 16);
    give(&mut d, 2, 16);
    // A flow of each queue.
    let frames: Vec<_> = (0..64).map(flow).collect();
    let of = |d: &mut Driver, queue: usize| {
        frames.iter().find(|frame| {
            assert_eq!(d.m.offer(&[frame]), 1);
            let found = d.used(queue).len() == 1;
            d.used(2 - queue);
            found
        })
    };
    let first = of(&mut d, RX).expect("one of them").clone();
    let second = of(&mut d, 2).expect("one of them").clone();
    let mut d = driver(MQ);
    assert_eq!(set(&mut d, 2), ctrl::OK);
    give(&mut d, RX, 1);
    give(&mut d, 2, 8);
    // The first queue is full after a frame. What is behind the last of the other's waits.
    let (a, b) = (&first[..], &second[..]);
    assert_eq!(d.m.offer(&[a, a, a, b, b, a, b, a, a]), 7);
    assert_eq!((d.used(RX).len(), d.used(2).len()), (1, 3));
    assert_eq!(d.counter("rx_queue_full"), 3);
    // Alone, they wait.
    assert_eq!(d.m.offer(&[a, a]), 0);
    assert_eq!(d.counter("rx_queue_full"), 3);
    // But not for long: senders are woken, and then they are dropped.
    let waker = std::sync::Arc::new(model_testkit::CountedWake::default());
    let wake: std::sync::Arc<dyn frame::Wake> = waker.clone();
    d.m.nic.receive.want_room(&wake);
    d.m.sleep(1_999_000);
    assert_eq!(waker.rung(), 0);
    d.m.sleep(1_000);
    assert_eq!(waker.rung(), 1);
    assert_eq!(d.m.offer(&[a, b, a]), 3);
    assert_eq!((d.used(RX).len(), d.used(2).len()), (0, 1));
    assert_eq!(d.counter("rx_queue_full"), 5);
    // With buffers it begins anew.
    give(&mut d, RX, 1);
    assert_eq!(d.m.offer(&[a, a, a]), 1);
    assert_eq!((d.used(RX).len(), d.counter("rx_queue_full")), (1, 5));
    // What the filter refuses behind those that wait is counted once.
    let to_other = frame(OTHER, 60);
    let unlisted = &to_other[..];
    let mut d = driver(MQ | feature::CTRL_RX);
    assert_eq!(set(&mut d, 2), ctrl::OK);
    assert_eq!(d.command(ctrl::RX, 0, &[0]), ctrl::OK);
    give(&mut d, 2, 8);
    assert_eq!(d.m.offer(&[unlisted, a, unlisted]), 1);
    assert_eq!(d.counter("rx_filtered"), 1);
    assert_eq!(d.m.offer(&[a, unlisted, b]), 3);
    assert_eq!(d.counter("rx_filtered"), 2);
    assert_eq!(d.counter("rx_queue_full"), 1);
}

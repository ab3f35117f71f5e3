//! When a driver is called that says nothing of it: as the operator says.

use std::num::NonZeroU32;

use datapath::Moderation;
use hypernic_virtio_net::regs::{ctrl, feature};
use hypernic_virtio_net::{Config, RX, TX};
use model::Through;
use model_testkit::Wire;
use model_testkit::scripts::moderation::{Hearing, choose_while_frames_come};

use crate::driver::{BUFFERS, Driver, MAC, OTHER, PLAIN, USUAL, avail, frame};

const EVENTS: u64 = USUAL | feature::EVENT_IDX | feature::CTRL_VQ | feature::NOTF_COAL;
const RX_VECTOR: u16 = RX as u16 + 1;
const TX_VECTOR: u16 = TX as u16 + 1;
const SIZE: u64 = 64;
const US: u64 = 1000;

fn driver(moderation: Moderation, features: u64) -> Driver {
    let config = Config {
        moderation,
        ..Config::new(MAC)
    };
    let mut d = Driver::cold(config, Wire::default());
    d.start(features, SIZE as u16);
    for i in 0..SIZE {
        d.receive_at(BUFFERS + 0x10_0000 + 0x1000 * i, 2048);
    }
    d.kick(RX);
    d.m.vectors();
    d
}

/// Receives a frame; whether the driver was called.
fn receive(d: &mut Driver) -> bool {
    d.m.vectors();
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    d.m.vectors() == [RX_VECTOR]
}

/// The driver looks at all that was used, gives the buffers again, and wants to be called for the next.
fn arm(d: &mut Driver, queue: usize) {
    let used = d.used(queue).len();
    if queue == RX {
        for i in 0..used as u64 {
            d.receive_at(BUFFERS + 0x10_0000 + 0x1000 * i, 2048);
        }
    }
    let event = d.queues[queue].used;
    d.m.poke(avail(queue) + 4 + 2 * SIZE, &event.to_le_bytes());
}

/// The driver is called and busy for so long; frames come meanwhile.
fn busy(d: &mut Driver, us: u64) {
    for _ in 0..us / 10 {
        d.m.sleep(10 * US);
        assert!(!receive(d), "it looks by itself");
    }
    arm(d, RX);
}

#[test]
fn as_the_driver_says_is_at_once() {
    let mut d = driver(Moderation::Guest, EVENTS);
    for _ in 0..20 {
        assert!(receive(&mut d));
        arm(&mut d, RX);
    }
}

#[test]
fn what_waits_for_its_time_is_told_once_by_its_vector() {
    let rate = NonZeroU32::new(1_000).expect("a rate");
    let mut d = driver(Moderation::Fixed(rate), EVENTS);
    assert!(receive(&mut d) && d.m.pin.take_delayed().is_empty());
    for _ in 0..3 {
        arm(&mut d, RX);
        for _ in 0..3 {
            assert!(!receive(&mut d));
            d.m.sleep(US);
        }
        assert_eq!(d.m.pin.take_delayed(), [Through::Msix(RX_VECTOR)]);
        d.m.sleep(1000 * US);
        assert_eq!(d.m.vectors(), [RX_VECTOR]);
        assert!(d.m.pin.take_delayed().is_empty());
    }
    // Of the other direction.
    arm(&mut d, TX);
    for n in 0..3 {
        d.send(PLAIN, &frame(OTHER, 60));
        assert_eq!(d.m.vectors() == [TX_VECTOR], n == 0);
        arm(&mut d, TX);
    }
    assert_eq!(d.m.pin.take_delayed(), [Through::Msix(TX_VECTOR)]);
}

#[test]
fn a_driver_that_is_busy_for_long_is_called_less_often_and_loses_no_call() {
    let mut d = driver(Moderation::Adaptive, EVENTS);
    for _ in 0..4 {
        assert!(receive(&mut d));
        busy(&mut d, 100);
        d.m.sleep(10_000 * US);
    }
    // It costs some 100 us: calls in a row, after the first ones, come about six times as far apart.
    let mut calls = Vec::new();
    let begin = d.m.env.clock.now();
    for _ in 0..1000 {
        let mut called = receive(&mut d);
        if !called {
            d.m.sleep(10 * US);
            called = d.m.vectors() == [RX_VECTOR];
        }
        if called {
            calls.push(d.m.env.clock.now() - begin);
            busy(&mut d, 100);
        }
    }
    let gaps: Vec<_> = calls.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps[..2].iter().all(|gap| *gap < 200 * US), "{gaps:?}");
    let later = &gaps[gaps.len() / 2..];
    let mean = later.iter().sum::<u64>() / later.len() as u64;
    assert!((200 * US..800 * US).contains(&mean), "{gaps:?}");
    // The last of a burst is told, without anything that follows.
    receive(&mut d);
    d.m.sleep(2_000 * US);
    let event = u64::from(d.queues[RX].used);
    assert!(!d.used(RX).is_empty() && event > 0);
    assert_eq!(d.m.armed(), None);
}

#[test]
fn sparse_frames_come_at_once_whatever_was_measured() {
    let mut d = driver(Moderation::Adaptive, EVENTS);
    for _ in 0..50 {
        assert!(receive(&mut d));
        busy(&mut d, 100);
        d.m.sleep(10_000 * US);
    }
}

#[test]
fn a_quick_driver_is_called_each_time() {
    let mut d = driver(Moderation::Adaptive, EVENTS);
    for _ in 0..200 {
        assert!(receive(&mut d));
        arm(&mut d, RX);
        d.m.sleep(5 * US);
    }
}

#[test]
fn a_driver_without_events_is_measured_by_its_flag() {
    let mut d = driver(Moderation::Adaptive, USUAL);
    let quiet = |d: &Driver, on: u16| d.m.poke(avail(RX), &on.to_le_bytes());
    for _ in 0..4 {
        assert!(receive(&mut d));
        quiet(&d, 1);
        d.m.sleep(100 * US);
        assert!(!receive(&mut d));
        arm(&mut d, RX);
        quiet(&d, 0);
        d.m.sleep(10_000 * US);
    }
    assert!(
        receive(&mut d) && receive(&mut d),
        "the first ones of a burst"
    );
    receive(&mut d);
    assert!(!receive(&mut d));
    d.m.sleep(2_000 * US);
    assert_eq!(d.m.vectors(), [RX_VECTOR]);
}

#[test]
fn what_was_only_sent_waits_for_company() {
    let mut d = driver(Moderation::Adaptive, EVENTS);
    arm(&mut d, TX);
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.vectors(), [TX_VECTOR], "nothing is known yet");
    // Busy for 50 us.
    d.m.sleep(50 * US);
    d.send(PLAIN, &frame(OTHER, 60));
    arm(&mut d, TX);
    d.m.sleep(10_000 * US);
    d.m.vectors();
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.m.vectors(), []);
    d.m.sleep(599 * US);
    assert_eq!(d.m.vectors(), []);
    d.m.sleep(2 * US);
    assert_eq!(d.m.vectors(), [TX_VECTOR]);
    // But not when the ring runs out.
    arm(&mut d, TX);
    d.m.sleep(10_000 * US);
    d.m.vectors();
    for _ in 0..SIZE / 2 {
        d.send(PLAIN, &frame(OTHER, 60));
    }
    assert_eq!(d.m.vectors(), []);
    for _ in 0..SIZE / 4 {
        d.send(PLAIN, &frame(OTHER, 60));
    }
    assert_eq!(d.m.vectors(), [TX_VECTOR]);
}

#[test]
fn numbers_of_the_driver_come_first() {
    let mut d = driver(Moderation::Adaptive, EVENTS);
    let numbers = (4u64 | 50 << 32).to_le_bytes();
    let set = ctrl::COAL_RX_SET;
    assert_eq!(d.command(ctrl::NOTF_COAL, set, &numbers), ctrl::OK);
    arm(&mut d, RX);
    let called: Vec<_> = (0..4).map(|_| receive(&mut d)).collect();
    assert_eq!(called, [false, false, false, true]);
}

#[test]
fn a_fixed_rate_is_kept_whatever_the_driver_says() {
    let rate = NonZeroU32::new(1000).expect("a rate");
    let mut d = driver(Moderation::Fixed(rate), EVENTS);
    let numbers = (1u64 | 1 << 32).to_le_bytes();
    let set = ctrl::COAL_RX_SET;
    assert_eq!(d.command(ctrl::NOTF_COAL, set, &numbers), ctrl::OK);
    arm(&mut d, RX);
    assert!(receive(&mut d));
    arm(&mut d, RX);
    let mut calls = 0;
    for _ in 0..1000 {
        let called = receive(&mut d);
        d.m.sleep(10 * US);
        if called || d.m.vectors() == [RX_VECTOR] {
            calls += 1;
            arm(&mut d, RX);
        } else if d.queues[RX]
            .avail
            .wrapping_sub(d.peek16(crate::driver::used(RX) + 2))
            < 8
        {
            let event = d.queues[RX].used;
            arm(&mut d, RX);
            d.m.poke(avail(RX) + 4 + 2 * SIZE, &event.to_le_bytes());
        }
    }
    assert!((9..=10).contains(&calls), "{calls} in 10 ms");
}

#[test]
fn the_operator_may_choose_anew_while_frames_come_and_each_is_told() {
    for features in [EVENTS, USUAL] {
        let mut d = driver(Moderation::Guest, features);
        choose_while_frames_come(
            &mut d,
            &Hearing {
                machine: |d| &mut d.m,
                comes: |d| assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1),
                told: |d| d.m.vectors() == [RX_VECTOR],
                answers: |d| arm(d, RX),
                longest: 0,
            },
        );
    }
}

//! What a device knows that goes on after its process died, beside its rings.

use frame::Batch;
use wire::Offload;

use super::*;
use crate::regs::{ctrl, net_status};

const CTRL: u64 = 2;
const ANSWER: u64 = RAM + 0x7_f000;
const COMMAND: u64 = RAM + 0x7_e000;
const FEATURES: u64 = feature::VERSION_1
    | feature::MAC
    | feature::STATUS
    | feature::CTRL_VQ
    | feature::CTRL_RX
    | feature::CTRL_MAC_ADDR
    | feature::MRG_RXBUF;

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, n]
}

fn station(life: &mut Life) -> [u8; 6] {
    let mut mac = [0; 6];
    life.read(page::DEVICE, &mut mac);
    mac
}

/// One turn of a worker: what was noted is done, and what has changed by itself is saved behind it.
fn turn(life: &mut Life) {
    notify(life, CTRL);
    let nowhere = datapath::kept::Nowhere::default();
    for _ in 0..8 {
        let progress = life.nic.transmit.run(&life.env, &nowhere, 16);
        death::step();
        life.answered();
        death::step();
        if progress == Progress::Idle {
            break;
        }
    }
}

/// A driver that has an answer is not to find that its command was never done.
#[test]
fn commands_are_done_once_they_are_answered_wherever_the_process_dies() {
    for packed in [false, true] {
        let how = How { packed, ..SPLIT };
        let features = FEATURES | if packed { feature::PACKED } else { 0 };
        for steps in 0.. {
            let (mut life, mut rings) = life(receiver, features, &[(2, 16, how)]);
            let ring = &mut rings[0];
            let (mut left, mut died) = (steps, false);
            for n in 1..6 {
                life.put_bytes(COMMAND, &[ctrl::MAC, 1]);
                life.put_bytes(COMMAND + 2, &mac(n));
                life.put_bytes(ANSWER, &[0xee]);
                let parts = [
                    (COMMAND, 2, false),
                    (COMMAND + 2, 6, false),
                    (ANSWER, 1, true),
                ];
                ring.give(&parts).expect("room");
                let mut lives = 0;
                let used = loop {
                    lives += 1;
                    let lived = death::living(left, || turn(&mut life));
                    left = if died { u64::MAX } else { death::left() };
                    died |= lived.is_none();
                    death::live_on();
                    let used = ring.take();
                    if !used.is_empty() {
                        // What it has told is so, whoever goes on.
                        life.go_on().expect("sound");
                        life.answered();
                        break used;
                    }
                    assert!(lived.is_none() && lives < 3, "it is answered");
                    left = u64::MAX;
                    life.go_on().expect("sound");
                    life.answered();
                };
                assert_eq!(used.len(), 1);
                assert_eq!(life.word(ANSWER) as u8, ctrl::OK, "{n}");
                assert_eq!(station(&mut life), mac(n), "dead at {steps}");
            }
            turn(&mut life);
            assert!(ring.take().is_empty(), "nothing is answered twice");
            if !died && left > 0 {
                assert!(steps > 20, "{steps}");
                break;
            }
        }
    }
}

/// One that is saved for another process, which goes on while this one lives, owes its driver no answer.
#[test]
fn answers_that_wait_are_not_lost_when_another_process_goes_on() {
    for packed in [false, true] {
        let how = How { packed, ..SPLIT };
        let features = FEATURES | if packed { feature::PACKED } else { 0 };
        let (mut life, mut rings) = life(receiver, features, &[(2, 16, how)]);
        let ring = &mut rings[0];
        life.put_bytes(COMMAND, &[ctrl::MAC, 1]);
        life.put_bytes(COMMAND + 2, &mac(7));
        let parts = [
            (COMMAND, 2, false),
            (COMMAND + 2, 6, false),
            (ANSWER, 1, true),
        ];
        ring.give(&parts).expect("room");
        notify(&mut life, CTRL);
        let nowhere = datapath::kept::Nowhere::default();
        life.nic.transmit.run(&life.env, &nowhere, 16);
        assert!(ring.take().is_empty(), "it is not saved");
        life.nic.control.finish(&life.env);
        assert_eq!(ring.take().len(), 1);
        assert_eq!(life.word(ANSWER) as u8, ctrl::OK);
        let saved = life.nic.control.save(&life.env);
        let mut next = receiver();
        next.control.load(&life.env, &saved).expect("sound");
        next.transmit.run(&life.env, &nowhere, 16);
        assert!(ring.take().is_empty(), "nothing is answered twice");
    }
}

fn deliver(life: &Life, frames: u32) -> usize {
    let mut batch = Batch::new();
    let all: Vec<_> = (0..frames).map(|n| numbered(64, n)).collect();
    for bytes in &all {
        batch.push_bytes(bytes);
        batch.end(Offload::NONE);
    }
    let mut room = Vec::new();
    let picks = batch.all_picks(&mut room);
    life.nic.receive.deliver(&life.env, &batch, picks)
}

/// A queue's start, applied again, would take it back behind frames that the guest has seen.
#[test]
fn a_receive_queue_that_is_not_saved_takes_no_frame() {
    for how in [SPLIT, PACKED] {
        let features = Traffic { how, ..ALIKE }.features() | feature::RING_RESET;
        let (mut life, mut rings) = life(receiver, features, &[(0, 16, how)]);
        let mut ring = rings.remove(0);
        for at in 0..16 {
            ring.give(&[(slot(at), 1536, true)]).expect("room");
        }
        deliver(&life, 3);
        assert_eq!(ring.take().len(), 3);
        let put = |life: &mut Life, at: u64, value: u16| {
            life.apply(page::COMMON + at, &value.to_le_bytes());
        };
        put(&mut life, common::QUEUE_SELECT, 0);
        put(&mut life, common::QUEUE_RESET, 1);
        let mut ring = queue(&life, 0, 16, how);
        life.put_bytes(RAM, &[0; 0x6000]);
        for at in 0..4 {
            ring.give(&[(slot(at), 1536, true)]).expect("room");
        }
        put(&mut life, common::QUEUE_SIZE, 16);
        for (at, area) in [
            common::QUEUE_DESC,
            common::QUEUE_DRIVER,
            common::QUEUE_DEVICE,
        ]
        .into_iter()
        .zip(ring.areas())
        {
            life.apply(page::COMMON + at, &(area as u32).to_le_bytes());
        }
        put(&mut life, common::QUEUE_ENABLE, 1);
        deliver(&life, 2);
        assert!(ring.take().is_empty());
        assert!(life.answered(), "it is saved");
        deliver(&life, 2);
        assert_eq!(ring.take().len(), 2);
        // Nor before the accesses are made again that were not answered.
        life.go_on().expect("sound");
        deliver(&life, 1);
        assert!(ring.take().is_empty());
        life.answered();
        deliver(&life, 1);
        assert_eq!(ring.take().len(), 1);
    }
}

#[test]
fn steady_traffic_is_not_saved_and_what_nothing_else_tells_is() {
    let queues = [(0, 16, SPLIT), (1, 16, SPLIT)];
    let (mut life, mut rings) = life(receiver, FEATURES, &queues);
    rings[0].give(&[(slot(0), 1536, true)]).expect("room");
    assert_eq!(deliver(&life, 1), 1);
    for queue in [0, 1] {
        let at = page::NOTIFY + queue * u64::from(page::NOTIFY_STEP);
        life.apply(at, &(queue as u16).to_le_bytes());
        assert!(!life.answered());
    }
    life.nic.control.read(&life.env, 0, page::ISR, &mut [0]);
    assert!(!life.answered());
    life.nic.control.set_link(&life.env, false);
    assert!(life.answered());
    life.go_on().expect("sound");
    life.answered();
    let mut net = [0; 2];
    life.read(page::DEVICE + 6, &mut net);
    assert_eq!(u16::from_le_bytes(net) & net_status::LINK_UP, 0);
    // Whether it was told is not known: it is told.
    let mut isr = [0];
    life.read(page::ISR, &mut isr);
    assert_eq!(isr[0] & 2, 2);
}

/// A ring that its driver broke, broke it for the next process too.
#[test]
fn a_broken_ring_is_saved() {
    let (mut life, mut rings) = life(sender, FEATURES, &[(1, 16, SPLIT)]);
    rings[0].give(&[(slot(0), 100, false)]).expect("room");
    let [_, driver, _] = rings[0].areas();
    life.put_bytes(driver + 2, &999_u16.to_le_bytes());
    notify(&mut life, 1);
    let nowhere = datapath::kept::Nowhere::default();
    life.nic.transmit.run(&life.env, &nowhere, 16);
    assert!(life.answered(), "it is saved behind the work");
    life.go_on().expect("sound");
    life.answered();
    let mut now = [0];
    life.read(page::COMMON + common::STATUS, &mut now);
    assert_eq!(now[0] & status::NEEDS_RESET, status::NEEDS_RESET);
}

/// After a state was loaded a driver that was told not to notify is told otherwise before it is waited for.
#[test]
fn a_driver_that_was_told_to_be_quiet_is_asked_to_speak() {
    for how in [SPLIT, PACKED] {
        let features = Traffic { how, ..ALIKE }.features();
        let (mut life, mut rings) = life(receiver, features, &[(0, 16, how)]);
        let mut ring = rings.remove(0);
        ring.give(&[(slot(0), 1536, true)]).expect("room");
        assert_eq!(deliver(&life, 1), 1);
        let [.., device] = ring.areas();
        let quiet = |life: &Life| {
            let word = life.word(device);
            if how.packed { word >> 16 & 3 } else { word & 1 }
        };
        assert_eq!(quiet(&life), 1);
        life.go_on().expect("sound");
        life.answered();
        assert_eq!(deliver(&life, 1), 0, "there is no buffer");
        assert_eq!(quiet(&life), 0);
    }
}

/// Nobody can keep words twice.
#[test]
fn who_cannot_go_on_says_so() {
    let (mut life, _) = life(receiver, FEATURES, &[(0, 16, SPLIT)]);
    let words = life.kept();
    assert!(!life.nic.control.keep(words.clone()));
    let twice = life.nic.control.recover(&life.env, (&life.blob, 0), words);
    assert!(twice.is_err());
}

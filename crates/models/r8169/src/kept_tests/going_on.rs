//! What a NIC knows that goes on after its process died, beside its rings.

use std::sync::atomic::Ordering::SeqCst;

use frame::{Batch, Sink};
use wire::Offload;

use super::*;

const IMR: u64 = 0x3c;
const ISR: u64 = 0x3e;
const LINK: u16 = 0x20;
const SOFTWARE: u16 = 0x100;
const TIMEOUT: u16 = 0x4000;

fn alive() -> Life {
    let mut life = life(receiver, (false, false));
    (0..RECEIVED).for_each(|at| Receiver::give(&life, &ALIKE, at));
    life.write(0x37, &[8]);
    life
}

fn isr(life: &mut Life) -> u16 {
    let mut bytes = [0; 2];
    life.read(ISR, &mut bytes);
    u16::from_le_bytes(bytes)
}

fn revive(life: &mut Life) {
    life.go_on().expect("sound");
    life.answered();
}

fn deliver(life: &Life, frames: u32) -> usize {
    let mut batch = Batch::new();
    let all: Vec<_> = (0..frames).map(|n| (ALIKE.packet)(n).0).collect();
    for bytes in &all {
        batch.push_bytes(bytes);
        batch.end(Offload::NONE);
    }
    let mut room = Vec::new();
    let picks = batch.all_picks(&mut room);
    To(Arc::clone(&life.nic.receive), life.env.clone()).deliver(&batch, picks)
}

/// IMR is not saved each time it is written: the word has it.
#[test]
fn what_is_unmasked_speaks_when_another_process_goes_on() {
    for (mask, speaks) in [(0u16, false), (LINK, false), (1, true), (0x80, true)] {
        let mut life = alive();
        isr(&mut life);
        life.write(ISR, &[0xff; 2]);
        life.apply(IMR, &mask.to_le_bytes());
        assert!(!life.answered(), "steady traffic is not saved");
        life.env.irq.set_line(false);
        revive(&mut life);
        assert_eq!(life.pin.level(), speaks, "{mask:x}");
        let mut imr = [0; 2];
        life.read(IMR, &mut imr);
        assert_eq!(u16::from_le_bytes(imr), mask);
    }
}

#[test]
fn steady_traffic_is_not_saved_and_what_nothing_else_tells_is() {
    let mut life = alive();
    let saved = |life: &mut Life, at: u64, bytes: &[u8]| {
        life.apply(at, bytes);
        life.answered()
    };
    assert_eq!(deliver(&life, 3), 3);
    isr(&mut life);
    for (at, bytes) in [
        (0x38, &[1 << 6][..]),
        (ISR, &[1, 0]),
        (IMR, &[0xff, 0]),
        (IMR, &[0xff, 0xff, 0x85, 0]),
    ] {
        assert!(!saved(&mut life, at, bytes), "{at:x}");
    }
    // Its cause is in no ring.
    assert!(saved(&mut life, 0x38, &[1]));
    assert_ne!(isr(&mut life) & SOFTWARE, 0);
    revive(&mut life);
    assert_ne!(isr(&mut life) & SOFTWARE, 0, "it was not acknowledged");
    assert!(saved(&mut life, ISR, &SOFTWARE.to_le_bytes()));
    revive(&mut life);
    assert_eq!(isr(&mut life) & SOFTWARE, 0, "it was");
    // Frames that were missed were seen.
    let mut bytes = [0; 4];
    life.nic.control.read(&life.env, BAR_MMIO, 0x4c, &mut bytes);
    assert!(life.answered());
}

/// What the guest was told of the link, and what not.
#[test]
fn a_link_change_is_told_once_more_at_most() {
    let mut life = alive();
    life.write(ISR, &[0xff; 2]);
    life.nic.control.set_link(&life.env, false);
    life.answered();
    revive(&mut life);
    assert_ne!(isr(&mut life) & LINK, 0);
    let mut status = [0];
    life.read(0x6c, &mut status);
    assert_eq!(status[0] & 2, 0, "it is down");
    life.write(ISR, &LINK.to_le_bytes());
    revive(&mut life);
    assert_eq!(isr(&mut life) & LINK, 0);
}

/// A driver's write of the ring's address, applied again, would take it back behind frames that the guest has seen.
#[test]
fn a_receive_ring_that_is_not_saved_takes_no_frame() {
    for (at, bytes) in [
        (0xe4, (RAM as u32).to_le_bytes().to_vec()),
        (0x37, vec![0x10]),
        (0x37, vec![8]),
    ] {
        let mut life = alive();
        life.write(0x37, &[0]);
        assert_eq!(deliver(&life, 1), 1, "it is off, and nobody waits for it");
        life.write(0x37, &[8]);
        assert_eq!(deliver(&life, 2), 2);
        let own = |life: &Life, at| opts(life, at).0 & OWN != 0;
        assert_eq!([0, 1, 2].map(|at| own(&life, at)), [false, false, true]);
        if bytes == [8] {
            life.write(0x37, &[0]);
        }
        life.apply(at, &bytes);
        (0..RECEIVED).for_each(|at| Receiver::give(&life, &ALIKE, at));
        life.apply(0x37, &[8]);
        deliver(&life, 2);
        assert!((0..RECEIVED).all(|at| own(&life, at)), "{at:x}");
        life.answered();
        assert_eq!(deliver(&life, 2), 2);
        let first = if at == 0x37 && bytes == [8] { 2 } else { 0 };
        assert!(!own(&life, first), "{at:x} {bytes:?}");
        // Nor before the accesses are made again that were not answered.
        life.go_on().expect("sound");
        deliver(&life, 2);
        assert!(own(&life, first + 2));
        life.answered();
        deliver(&life, 2);
        assert!(!own(&life, first + 2));
    }
}

/// TCTR goes on, and a match is told that came while nobody served.
#[test]
fn the_timer_goes_on() {
    let tctr = |life: &mut Life| {
        let mut bytes = [0; 4];
        life.read(0x48, &mut bytes);
        u32::from_le_bytes(bytes)
    };
    for (passes, told) in [(7_000, false), (9_000, true)] {
        let mut life = alive();
        life.write(0x58, &1000_u32.to_le_bytes());
        life.write(0x48, &[0; 4]);
        life.time.now.fetch_add(passes, SeqCst);
        revive(&mut life);
        assert_eq!(u64::from(tctr(&mut life)), passes / 8);
        assert_eq!(isr(&mut life) & TIMEOUT != 0, told, "{passes}");
    }
}

/// Statistics that a driver has seen in memory are saved before it can see that they are there.
#[test]
fn statistics_do_not_fall_behind_what_was_seen() {
    const AT: u64 = RAM + 0x8000;
    let frames = |life: &Life| life.word(AT + 8);
    let dump = |life: &mut Life| {
        life.write(0x14, &[0; 4]);
        life.write(0x10, &(AT as u32 | 8).to_le_bytes());
        let nowhere = datapath::kept::Nowhere::default();
        life.nic.transmit.run(&life.env, &nowhere, 1);
        let mut done = [0; 4];
        life.read(0x10, &mut done);
        assert_eq!(done[0] & 8, 0);
        frames(life)
    };
    let mut life = alive();
    deliver(&life, 5);
    assert_eq!(dump(&mut life), 5);
    life.put(AT + 8, 0);
    revive(&mut life);
    assert_eq!(frames(&life), 0);
    assert_eq!(dump(&mut life), 5);
}

/// Nobody can keep words twice.
#[test]
fn who_cannot_go_on_says_so() {
    let mut life = alive();
    let words = life.kept();
    assert!(!life.nic.control.keep(words.clone()));
    let twice = life.nic.control.recover(&life.env, (&life.blob, 0), words);
    assert!(twice.is_err());
}

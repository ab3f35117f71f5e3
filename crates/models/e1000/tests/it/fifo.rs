//! The packet FIFO in front of the receive ring.

use std::sync::Arc;

use crate::common::*;
use frame::{Batch, Wake};
use hypernic_e1000::{Config, FullFifo};
use intel_offsets::e1000::long::{GPRC, MPC, PBA, RDFH, RDFPC, RDFT, RNBC, TORH, TORL, TPR};
use model_testkit::CountedWake;
use proptest::prelude::*;
use wire::Offload;

const BAM: u32 = 0x8000;
const SECRC: u32 = 1 << 26;
const VME: u32 = 1 << 30;
const RXO: u32 = 0x40;

/// Bytes that a frame of 60 takes in the FIFO, and how many of them 48 KiB hold.
const SLOT: usize = 64 + 16;
const HOLDS: usize = 48 * 1024 / SLOT;

fn machine(len: u32, full_fifo: FullFifo) -> Machine {
    let mut config = Config::new(MAC);
    config.full_fifo = full_fifo;
    let mut m = Machine::with(config, Wire::default());
    m.rx_on(len, BAM | SECRC);
    m.r(reg::ICR);
    m
}

fn numbered(i: usize) -> Vec<u8> {
    let mut frame = plain(MAC, 60);
    frame[20..22].copy_from_slice(&(i as u16).to_be_bytes());
    frame
}

/// Gives one descriptor back after the other and reads the numbers of the frames that come.
fn collect(m: &mut Machine, ring: u32, want: usize) -> Vec<u16> {
    let mut got = Vec::new();
    let mut next = 0u32;
    while got.len() < want {
        assert_eq!(m.rx_status(next).1 & 1, 1, "frame {} never came", got.len());
        let at = RX_BUFFERS + u64::from(next) * 0x4000 + 20;
        let number = m.peek(at, 2);
        got.push(u16::from_be_bytes([number[0], number[1]]));
        m.rx_desc(next, RX_BUFFERS + u64::from(next) * 0x4000);
        m.w(reg::RDT, next);
        next = (next + 1) % ring;
    }
    got
}

#[test]
fn frames_wait_in_it_and_come_in_order() {
    let mut m = machine(8, FullFifo::Wait);
    let frames: Vec<_> = (0..300).map(numbered).collect();
    let refs: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    for some in refs.chunks(50) {
        assert_eq!(m.offer(some), some.len());
    }
    assert_eq!(m.r(RDFPC), 293);
    assert_eq!(m.r(RDFT), 293 * SLOT as u32 / 8);
    assert_eq!(m.r(RNBC), 293, "frames that found no descriptor");
    assert_eq!(m.r(GPRC), 7);
    let want: Vec<u16> = (0..300).collect();
    assert_eq!(collect(&mut m, 8, 300), want);
    assert_eq!((m.r(RDFPC), m.r(RDFH)), (0, 293 * SLOT as u32 / 8));
    assert_eq!((m.r(GPRC), m.r(MPC)), (293, 0));
    assert_eq!(m.r(reg::ICR) & RXO, 0);
}

#[test]
fn what_comes_later_does_not_overtake() {
    let mut m = machine(8, FullFifo::Wait);
    for i in 0..20 {
        assert_eq!(m.offer(&[&numbered(i)]), 1);
    }
    // Buffers come, but the receiver is not notified yet.
    let bytes = 5u32.to_le_bytes();
    m.nic.control.write(&m.env, 0, reg::RDT, &bytes);
    assert_eq!(m.offer(&[&numbered(20)]), 1);
    let numbers: Vec<_> = (0..8u64)
        .map(|i| m.peek(RX_BUFFERS + i * 0x4000 + 21, 1)[0])
        .collect();
    assert_eq!(numbers, [8, 9, 10, 11, 12, 5, 6, 7]);
    assert_eq!(m.r(RDFPC), 8);
}

#[test]
fn when_it_is_full_senders_wait_and_are_woken() {
    let mut m = machine(8, FullFifo::Wait);
    let frame = plain(MAC, 60);
    let many: Vec<&[u8]> = vec![&frame; 200];
    let mut taken = 0;
    loop {
        let n = m.offer(&many);
        taken += n;
        if n < many.len() {
            break;
        }
    }
    assert_eq!(taken, 7 + HOLDS);
    assert_eq!(m.offer(&many), 0);
    assert_eq!(m.counter("rx_back_pressure"), 2);
    assert_eq!(m.r(MPC), 0, "nothing is lost while a sender keeps it");
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    m.nic.receive.want_room(&waker);
    m.nic.receive.want_room(&waker);
    m.nic.receive.poll(&m.env);
    assert_eq!(bell.rung(), 0, "still no room");
    // Once it is worth while: when half of it is empty.
    let mut tail = 7;
    while bell.rung() == 0 {
        m.w(reg::RDT, (tail + 7) % 8);
        tail = (tail + 7) % 8;
    }
    let left = m.r(RDFPC) as usize;
    assert!(left <= HOLDS / 2 && left + 7 > HOLDS / 2, "{left}");
    assert!(m.offer(&many) > 0);
    // A receiver that is switched off wakes the senders that wait.
    m.nic.receive.want_room(&waker);
    m.w(reg::RCTL, 0);
    assert_eq!(bell.rung(), 2);
    assert_eq!(m.offer(&many), 200);
    assert_eq!(m.counter("rx_disabled"), 200);
}

#[test]
fn what_is_given_up_is_missed() {
    let mut m = machine(8, FullFifo::Wait);
    let frame = plain(MAC, 100);
    let other = plain(PEER, 100);
    let mut batch = Batch::new();
    for bytes in [&frame, &other, &frame] {
        batch.push_bytes(bytes);
        batch.end(Offload::NONE);
    }
    m.nic.receive.give_up(&m.env, &batch, &[0, 1, 2]);
    assert_eq!(m.r(MPC), 2, "frames for others would not have got in");
    assert_eq!(m.r(RNBC), 2);
    assert_eq!(m.r(TPR), 2);
    assert_eq!((m.r(TORL), m.r(TORH)), (208, 0));
    assert_eq!(m.r(GPRC), 0);
    assert_eq!(m.r(reg::ICR), RXO);
    assert_eq!(m.counter("rx_missed"), 2);
    m.w(reg::RCTL, 0);
    m.nic.receive.give_up(&m.env, &batch, &[0, 1, 2]);
    assert_eq!(
        m.r(MPC),
        0,
        "nothing is missed while receives are not enabled"
    );
}

#[test]
fn alone_it_drops_when_it_is_full() {
    let mut m = machine(8, FullFifo::Drop);
    let frame = plain(MAC, 60);
    let many: Vec<&[u8]> = vec![&frame; 250];
    for _ in 0..4 {
        assert_eq!(m.offer(&many), 250);
    }
    let lost = 1000 - 7 - HOLDS as u32;
    assert_eq!(m.r(MPC), lost);
    assert_eq!(m.r(RNBC), 993);
    assert_eq!(m.r(reg::ICR) & RXO, RXO);
    assert_eq!(m.r(GPRC), 7);
    assert_eq!(m.r(TPR), 7 + lost);
    assert_eq!(m.counter("rx_back_pressure"), 0);
}

#[test]
fn its_size_is_what_pba_says() {
    for kib in [0u32, 8, 40, 64] {
        let mut m = machine(8, FullFifo::Drop);
        m.w(PBA, kib);
        let frame = plain(MAC, 60);
        for _ in 0..1000 {
            m.offer(&[&frame]);
        }
        assert_eq!(m.r(RDFPC) as usize, kib as usize * 1024 / SLOT);
    }
}

#[test]
fn the_pointers_may_be_written_and_are_not_believed() {
    let mut m = machine(8, FullFifo::Wait);
    for i in 0..30 {
        m.offer(&[&numbered(i)]);
        for at in [0x2410, 0x2418, 0x2420, 0x2428, 0x2430] {
            m.w(at, 0x1fff - i as u32);
            assert_eq!(m.r(at), 0x1fff - i as u32);
        }
    }
    assert_eq!(collect(&mut m, 8, 30), (0..30).collect::<Vec<u16>>());
    assert_eq!(m.r(RDFPC), 0);
}

#[test]
fn disabling_keeps_what_is_in_it_and_a_reset_does_not() {
    let mut m = machine(8, FullFifo::Wait);
    for i in 0..20 {
        m.offer(&[&numbered(i)]);
    }
    m.w(reg::RCTL, BAM | SECRC);
    m.w(reg::RDT, 4);
    assert_eq!(m.r(reg::RDH), 7, "nothing moves while EN is 0");
    assert_eq!(m.r(RDFPC), 13);
    m.w(reg::RCTL, 2 | BAM | SECRC);
    assert_eq!(m.r(reg::RDH), 4);
    assert_eq!(m.r(RDFPC), 8);
    // Without a link what has come is still there to be read.
    m.nic.control.set_link(&m.env, false);
    m.w(reg::RDT, 5);
    assert_eq!(m.r(RDFPC), 7);
    m.w(reg::CTRL, 1 << 26);
    assert_eq!(m.r(RDFPC), 0);
    m.nic.control.set_link(&m.env, true);
    m.sleep(20_000_000);
    m.rx_on(8, BAM | SECRC);
    assert_eq!(m.r(reg::RDH), 0, "nothing of the past comes out");
}

#[test]
fn without_bus_mastering_frames_stay_in_it() {
    let mut m = machine(8, FullFifo::Wait);
    for i in 0..10 {
        m.offer(&[&numbered(i)]);
    }
    m.nic.control.pci(&m.env, model::PciState::default());
    m.w(reg::RDT, 2);
    assert_eq!(m.r(RDFPC), 3);
    let on = model::PciState {
        bus_master: true,
        ..model::PciState::default()
    };
    m.nic.control.pci(&m.env, on);
    m.work();
    assert_eq!(m.r(RDFPC), 0);
}

/// What would have been done to a frame on the straight way is done on the way out.
#[test]
fn tags_and_sums_are_those_of_the_straight_way() {
    let beside = Offload {
        vlan: Some(0x2064),
        ..Offload::NONE
    };
    let bare = plain(MAC, 100);
    let mut tagged = bare.clone();
    tagged.splice(12..12, [0x81, 0, 0x20, 0x64]);
    for vme in [0, VME] {
        let mut m = machine(8, FullFifo::Wait);
        let ctrl = m.r(reg::CTRL);
        m.w(reg::CTRL, ctrl | vme);
        for _ in 0..7 {
            m.offer(&[&bare]);
        }
        let waiting = [
            (bare.as_slice(), beside),
            (tagged.as_slice(), Offload::NONE),
            (bare.as_slice(), Offload::NONE),
        ];
        assert_eq!(m.offer_notes(&waiting), 3);
        assert_eq!(m.r(RDFPC), 3);
        m.w(reg::RDT, 3);
        for (at, index) in [7u32, 0, 1].into_iter().enumerate() {
            let (len, status, _, special) = m.rx_status(index);
            let strip = vme != 0 && at < 2;
            let want = if strip || at == 2 { &bare } else { &tagged };
            assert_eq!(usize::from(len), want.len());
            let got = m.peek(RX_BUFFERS + u64::from(index) * 0x4000, want.len());
            assert_eq!(got, *want);
            assert_eq!(status & 8 != 0, strip);
            assert_eq!(special, if strip { 0x2064 } else { 0 });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever the ring, the FIFO, and the order of senders and buffers: no frame that was taken from a
    /// sender is lost, nothing is doubled, and order is kept.
    #[test]
    fn nothing_is_lost_doubled_or_reordered(
        kib in 0u32..20,
        steps in prop::collection::vec((1usize..60, 0u32..8, any::<bool>()), 1..60),
    ) {
        let mut m = machine(8, FullFifo::Wait);
        m.w(PBA, kib);
        let (mut next, mut seen, mut at, mut tail) = (0usize, 0usize, 0u32, 7u32);
        for (frames, give, tell) in steps {
            let many: Vec<_> = (next..next + frames).map(numbered).collect();
            let refs: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
            next += m.offer(&refs);
            for _ in 0..give {
                if m.rx_status(at).1 & 1 == 0 {
                    break;
                }
                let number = m.peek(RX_BUFFERS + u64::from(at) * 0x4000 + 20, 2);
                prop_assert_eq!(usize::from(u16::from_be_bytes([number[0], number[1]])), seen);
                seen += 1;
                m.rx_desc(at, RX_BUFFERS + u64::from(at) * 0x4000);
                tail = (tail + 1) % 8;
                at = (at + 1) % 8;
                if tell {
                    m.w(reg::RDT, tail);
                }
            }
            m.w(reg::RDT, tail);
        }
        let waiting = m.r(RDFPC) as usize;
        let in_ring = ((m.r(reg::RDH) + 8 - at) % 8) as usize;
        prop_assert_eq!(seen + waiting + in_ring, next);
        prop_assert_eq!(m.r(MPC), 0);
    }
}

/// As [`Machine::offer`], by a sender that keeps what is not taken.
fn offer_kept(m: &Machine, frames: &[&[u8]]) -> usize {
    let mut batch = Batch::new();
    for frame in frames {
        batch.push_bytes(frame);
        batch.end(Offload::NONE);
    }
    let mut room = Vec::new();
    let picks = batch.all_picks(&mut room);
    m.nic.receive.deliver_or_leave(&m.env, &batch, picks)
}

#[test]
fn a_sender_that_keeps_its_frames_keeps_those_without_a_descriptor() {
    let mut m = machine(8, FullFifo::Wait);
    let frames: Vec<_> = (0..20).map(numbered).collect();
    let refs: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    assert_eq!(offer_kept(&m, &refs), 7);
    assert_eq!((m.r(RDFPC), m.r(RNBC), m.r(MPC)), (0, 0, 0));
    assert_eq!(m.counter("rx_back_pressure"), 1);
    // It is woken as soon as there is room, and tries again.
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    m.nic.receive.want_room(&waker);
    let mut got = collect(&mut m, 8, 7);
    assert!(bell.rung() > 0);
    assert_eq!(offer_kept(&m, &refs[7..]), 7);
    got.extend((0..7u64).map(|i| {
        let at = RX_BUFFERS + (7 + i) % 8 * 0x4000 + 20;
        let number = m.peek(at, 2);
        u16::from_be_bytes([number[0], number[1]])
    }));
    assert_eq!(got, (0..14).collect::<Vec<u16>>());
}

#[test]
fn what_waits_in_it_goes_before_a_sender_that_keeps_its_frames() {
    let mut m = machine(8, FullFifo::Wait);
    for i in 0..9 {
        assert_eq!(m.offer(&[&numbered(i)]), 1);
    }
    assert_eq!(m.r(RDFPC), 2);
    assert_eq!(offer_kept(&m, &[&numbered(9)]), 0);
    assert_eq!(collect(&mut m, 8, 9), (0..9).collect::<Vec<u16>>());
    assert_eq!(offer_kept(&m, &[&numbered(9)]), 1);
    assert_eq!(m.r(RDFPC), 0);
}

/// Its sender would wait for nothing.
#[test]
fn what_the_ring_never_holds_is_not_kept_waiting() {
    const LPE: u32 = 1 << 5;
    // Eight buffers of 256 bytes.
    let mut m = machine(8, FullFifo::Wait);
    let rctl = m.r(reg::RCTL);
    m.w(reg::RCTL, rctl | LPE | 3 << 16);
    let long = plain(MAC, 4000);
    assert_eq!(offer_kept(&m, &[&long]), m.offer(&[&long]));
}

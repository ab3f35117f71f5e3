//! From frames to buffers.

use frame::Caps;
use hypernic_virtio_net::RX;
use hypernic_virtio_net::regs::{feature, header};
use proptest::prelude::*;
use wire::{Csum, Gso, Offload};

use crate::driver::{BUFFERS, Driver, MAC, OFFLOADS, USUAL, frame, tcp4};

const TSO: Offload = Offload {
    csum: Some(Csum {
        start: 34,
        offset: 16,
    }),
    gso: Gso::Tcp4,
    gso_size: 1000,
    hdr_len: 54,
    ..Offload::NONE
};

fn words(bytes: &[u8]) -> [u16; 5] {
    [2, 4, 6, 8, 10].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[test]
fn a_frame_comes_behind_a_header_of_twelve_bytes() {
    let mut d = Driver::new(feature::VERSION_1);
    d.receive_at(BUFFERS, 2048);
    let sent = frame(MAC, 333);
    assert_eq!(d.m.offer(&[&sent]), 1);
    assert_eq!(d.used(RX), [(0, 345)]);
    let got = d.m.peek(BUFFERS, 345);
    assert_eq!(got[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(got[12..], sent);
    assert_eq!(d.m.vectors(), [RX as u16 + 1]);
    assert_eq!((d.counter("rx_frames"), d.counter("rx_bytes")), (1, 333));
}

#[test]
fn a_long_frame_fills_buffers_that_become_visible_together() {
    let mut d = Driver::new(USUAL);
    let sent = frame(MAC, 1000);
    for i in 0..3 {
        d.receive_at(BUFFERS + 0x1000 * i, 400);
    }
    // Two are not enough for the next, and it takes none.
    assert_eq!(d.m.offer(&[&sent, &frame(MAC, 700)]), 1);
    assert_eq!(d.used(RX), [(0, 400), (1, 400), (2, 212)]);
    assert_eq!(words(&d.m.peek(BUFFERS, 12))[4], 3);
    let got = [
        d.m.peek(BUFFERS + 12, 388),
        d.m.peek(BUFFERS + 0x1000, 400),
        d.m.peek(BUFFERS + 0x2000, 212),
    ];
    assert_eq!(got.concat(), sent);
    assert_eq!(d.counter("rx_back_pressure"), 1);
    d.receive_at(BUFFERS, 400);
    assert_eq!(d.m.offer(&[&frame(MAC, 700)]), 0);
    d.receive_at(BUFFERS, 400);
    assert_eq!(d.m.offer(&[&frame(MAC, 700)]), 1);
    assert_eq!(d.used(RX), [(3, 400), (4, 312)]);
}

#[test]
fn without_merging_a_frame_longer_than_its_buffer_is_dropped() {
    let mut d = Driver::new(feature::VERSION_1);
    d.receive_at(BUFFERS, 100);
    assert_eq!(d.m.offer(&[&frame(MAC, 89), &frame(MAC, 88)]), 2);
    assert_eq!(d.counter("rx_too_long"), 1);
    assert_eq!(d.used(RX), [(0, 100)]);
    // With merging it is dropped when not even a full ring would do.
    let mut d = Driver::with(USUAL, 4, model_testkit::Wire::default());
    for _ in 0..4 {
        d.receive_at(BUFFERS, 100);
    }
    assert_eq!(d.m.offer(&[&frame(MAC, 389), &frame(MAC, 388)]), 2);
    assert_eq!(d.counter("rx_too_long"), 1);
    assert_eq!(d.used(RX).len(), 4);
}

#[test]
fn a_driver_that_takes_them_gets_frames_unfinished_with_their_notes() {
    let mut d = Driver::new(USUAL | OFFLOADS);
    assert_eq!(d.m.nic.receive.caps(), Caps::ALL);
    let sent = tcp4(5000);
    let ecn = Offload { ecn: true, ..TSO };
    let valid = Offload {
        csum_valid: true,
        ..Offload::NONE
    };
    for (notes, flags, gso) in [
        (TSO, 1, header::GSO_TCPV4),
        (ecn, 1, header::GSO_TCPV4 | header::GSO_ECN),
        (valid, header::DATA_VALID, 0),
        (Offload::NONE, 0, 0),
    ] {
        d.receive_at(BUFFERS, 0x8000);
        assert_eq!(d.m.offer_notes(&[(&sent, notes)]), 1);
        let got = d.m.peek(BUFFERS, 12 + sent.len());
        assert_eq!(got[..2], [flags, gso]);
        let [hdr_len, size, start, offset, buffers] = words(&got);
        let csum = notes.csum.map_or((0, 0), |c| (c.start, c.offset));
        assert_eq!((hdr_len, size), (notes.hdr_len, notes.gso_size));
        assert_eq!((start, offset, buffers), (csum.0, csum.1, 1));
        assert_eq!(got[12..], sent);
    }
    assert_eq!(d.counter("rx_gso_frames"), 2);
    // A tag beside the frame is put in, and places move with it.
    let tagged = Offload {
        vlan: Some(0x6005),
        ..TSO
    };
    d.receive_at(BUFFERS, 0x8000);
    assert_eq!(d.m.offer_notes(&[(&sent, tagged)]), 1);
    let got = d.m.peek(BUFFERS, 16 + sent.len());
    assert_eq!(words(&got), [58, 1000, 38, 16, 1]);
    assert_eq!(got[24..28], [0x81, 0, 0x60, 5]);
    assert_eq!([&got[12..24], &got[28..]].concat(), sent);
}

#[test]
fn a_driver_that_does_not_gets_them_finished() {
    let intact = |bytes: &[u8]| {
        let layers = wire::Layers::parse(bytes).expect("headers");
        assert_eq!(layers.l4_intact(bytes), Some(true));
    };
    let sent = tcp4(5000);
    // All or nothing: six buffers for five segments, one of which needs two.
    let mut d = Driver::new(USUAL);
    assert!(!d.m.nic.receive.caps().tso4);
    for i in 0..4 {
        d.receive_at(BUFFERS + 0x1000 * i, 2048);
    }
    assert_eq!(d.m.offer_notes(&[(&sent, TSO)]), 0);
    assert!(d.used(RX).is_empty());
    d.receive_at(BUFFERS + 0x4000, 2048);
    assert_eq!(d.m.offer_notes(&[(&sent, TSO)]), 1);
    assert_eq!(d.used(RX).len(), 5);
    let mut payload = Vec::new();
    for i in 0..5 {
        let got = d.m.peek(BUFFERS + 0x1000 * i, 12 + 1054);
        assert_eq!(got[..2], [0, 0]);
        intact(&got[12..]);
        payload.extend_from_slice(&got[66..]);
    }
    assert_eq!(payload, sent[54..]);
    // A checksum alone, into buffers that cut it in two.
    let short = tcp4(100);
    let notes = Offload {
        csum: TSO.csum,
        ..Offload::NONE
    };
    let cut = 12 + 51;
    d.give(RX, &[(BUFFERS, cut, true), (BUFFERS + 0x1000, 1000, true)]);
    assert_eq!(d.m.offer_notes(&[(&short, notes)]), 1);
    let got = [
        d.m.peek(BUFFERS + 12, 51),
        d.m.peek(BUFFERS + 0x1000, short.len() - 51),
    ];
    intact(&got.concat());
    // CWR is for a driver that has agreed to it only.
    let mut d = Driver::new(USUAL | OFFLOADS & !feature::GUEST_ECN);
    for _ in 0..5 {
        d.receive_at(BUFFERS, 2048);
    }
    let ecn = Offload { ecn: true, ..TSO };
    assert_eq!(d.m.offer_notes(&[(&sent, ecn)]), 1);
    assert_eq!(d.used(RX).len(), 5);
}

#[test]
fn notes_that_contradict_their_frame_cost_the_frame_only() {
    let mut d = Driver::new(USUAL | OFFLOADS);
    d.receive_at(BUFFERS, 2048);
    let bad = Offload { gso_size: 0, ..TSO };
    assert_eq!(d.m.offer_notes(&[(&tcp4(3000), bad)]), 1);
    assert_eq!(d.counter("rx_invalid"), 1);
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    assert_eq!(d.used(RX).len(), 1);
}

#[test]
fn senders_are_woken_when_the_driver_gives_buffers() {
    let mut d = Driver::new(USUAL | feature::EVENT_IDX);
    let waker = std::sync::Arc::new(model_testkit::CountedWake::default());
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 0);
    let wake: std::sync::Arc<dyn frame::Wake> = waker.clone();
    d.m.nic.receive.want_room(&wake);
    // The ring says that it wants to be told of the first buffer.
    assert_eq!(d.peek16(crate::driver::used(RX) + 4 + 8 * 64), 0);
    d.receive_at(BUFFERS, 2048);
    assert_eq!(waker.rung(), 0);
    d.kick(RX);
    assert_eq!(waker.rung(), 1);
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    let batch = frame::Batch::new();
    d.m.nic.receive.give_up(&d.m.env, &batch, &[0, 1]);
    assert_eq!(d.counter("rx_missed"), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]
    /// However the buffers are cut, the bytes in them are the header and the frame.
    #[test]
    fn bytes_are_the_same_however_buffers_are_cut(
        len in 14usize..3000,
        chains in proptest::collection::vec(proptest::collection::vec(0u32..600, 1..4), 1..20),
        tag in any::<Option<u16>>(), noted: bool, finished: bool,
    ) {
        let offloads = if finished { 0 } else { OFFLOADS };
        let mut d = Driver::new(USUAL | offloads);
        let mut at = BUFFERS;
        let mut places = Vec::new();
        for chain in &chains {
            let parts: Vec<_> = chain.iter().map(|len| {
                at += 0x1000;
                (at, *len, true)
            }).collect();
            places.push(parts.clone());
            d.give(RX, &parts);
        }
        let mut sent = frame(MAC, len);
        let noted = noted && len >= 80;
        let csum = noted.then_some(Csum { start: 34, offset: 16 });
        let notes = Offload { vlan: tag, csum, ..Offload::NONE };
        let taken = d.m.offer_notes(&[(&sent, notes)]);
        let room: u32 = chains.iter().flatten().sum();
        let grown = if tag.is_some() { 4 } else { 0 };
        let needed = 12 + grown + len;
        prop_assert_eq!(taken == 1, room as usize >= needed);
        let used = d.used(RX);
        prop_assert_eq!(used.iter().map(|u| u.1 as usize).sum::<usize>(), taken * needed);
        if taken == 0 {
            return Ok(());
        }
        let mut got = Vec::new();
        for ((_, len), parts) in used.iter().zip(&places) {
            let before = got.len();
            for (at, part, _) in parts {
                let n = (*part).min(*len - (got.len() - before) as u32);
                got.extend(d.m.peek(*at, n as usize));
            }
            prop_assert_eq!((got.len() - before) as u32, *len);
        }
        prop_assert_eq!(words(&got)[4] as usize, used.len());
        if noted && finished {
            let sum = wire::Sum::of(&sent[34..]).finish_nonzero();
            sent[50..52].copy_from_slice(&sum.to_be_bytes());
        }
        if let Some(tci) = tag {
            let [a, b] = tci.to_be_bytes();
            sent.splice(12..12, [0x81, 0, a, b]);
        }
        prop_assert_eq!(&got[12..], &sent[..]);
    }
}

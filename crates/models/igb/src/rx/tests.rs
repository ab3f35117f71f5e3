//! What the receive side puts where, and what it says about it.

use std::sync::Arc;

use frame::Batch;
use model::Receive;
use proptest::prelude::*;
use wire::{Crc32c, Csum, Gso, Layers, Offload, Sum};

use crate::core::irq::Way;
use crate::core::stats::Stat;
use crate::regs as r;
use crate::regs::QUEUES;
use crate::regs::bits::{ctrl, icr, rctl, rxcsum, xdctl};
use crate::regs::settings::{Settings, Strips};
use crate::testing::{Guest, MEMORY, header_buffer, packet, packet_buffer};

const LEGACY: u32 = 0;
const WHOLE: u32 = 1 << 25;
const SPLIT: u32 = 2 << 25;
const ALWAYS: u32 = 5 << 25;
const DROP: u32 = 1 << 31;
/// Buffers of 1 KiB and headers of 128 bytes.
const SMALL: u32 = 2 << 8 | 1;
/// A counter, and what makes it count.
type Case = (&'static str, fn(&Guest));

/// RXCSUM as Linux's driver has it.
const ALL_SUMS: u32 = 0x2b00;

fn tcp() -> Vec<u8> {
    packet::v4([10, 0, 0, 1], [10, 0, 0, 2], true, 1000, 2000)
}

/// Status and errors, length, tag of an advanced descriptor.
fn upper(word: u64) -> (u32, usize, u16) {
    (
        word as u32,
        usize::from((word >> 32) as u16),
        (word >> 48) as u16,
    )
}

#[test]
fn legacy_descriptors_hold_length_status_and_errors() {
    let guest = Guest::pf();
    guest.function.file.set(r::RXCSUM, 0x300);
    guest.start_rx(2, 8, LEGACY);
    guest.function.file.set(r::MRQC, 2 << 3);
    let good = tcp();
    let mut bad = good.clone();
    bad[60] ^= 1;
    assert_eq!(guest.receive(&[good.clone(), bad]), 2);
    assert_eq!(guest.read(packet_buffer(2, 0), good.len()), good);
    let (low, high) = guest.rx_desc(2, 0);
    assert_eq!(low, packet_buffer(2, 0), "the address stays");
    assert_eq!(high, good.len() as u64 | 0x63 << 32);
    assert_eq!(guest.rx_desc(2, 1).1, good.len() as u64 | 0x2063 << 32);
    assert_eq!(guest.get(QUEUES.rdh, 2), 2);
}

#[test]
fn advanced_descriptors_hold_hash_types_and_checksums() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::RXCSUM, ALL_SUMS);
    file.set(r::MRQC, 0x0037_0002);
    file.set_at(r::RSSRK, 0, 0x0102_0304);
    for i in 0..32 {
        file.set_at(r::RETA, i, 0x0101_0101);
    }
    guest.start_rx(1, 8, WHOLE);
    let udp = packet::v4([10, 0, 0, 1], [10, 0, 0, 2], false, 1000, 2000);
    guest.receive(&[tcp(), udp.clone()]);
    let (low, high) = guest.rx_desc(1, 0);
    assert_eq!(low as u32, 0x111);
    assert_ne!(low >> 32, 0);
    assert_eq!(upper(high), (0x63, tcp().len(), 0));
    let (low, high) = guest.rx_desc(1, 1);
    assert_eq!(low as u32, 0x212);
    // Padded to the shortest frame there is.
    assert_eq!(upper(high), (0x73, udp.len().max(60), 0));
}

#[test]
fn sctp_is_judged_by_its_crc() {
    let guest = Guest::pf();
    guest.function.file.set(r::RXCSUM, ALL_SUMS);
    guest.start_rx(0, 8, WHOLE);
    let mut good = packet::v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 1, 2, 1200);
    good[23] = 132;
    good[24..26].fill(0);
    let sum = Sum::of(&good[14..34]).finish().to_be_bytes();
    good[24..26].copy_from_slice(&sum);
    good[42..46].fill(0);
    let mut crc = Crc32c::new();
    crc.add(&good[34..]);
    good[42..46].copy_from_slice(&crc.finish().to_le_bytes());
    let mut bad = good.clone();
    bad[900] ^= 4;
    guest.receive(&[good.clone(), bad]);
    let said = |i| (guest.rx_desc(0, i).0 as u16, guest.rx_desc(0, i).1 as u32);
    assert_eq!(said(0), (0x410, 0x63));
    assert_eq!(said(1), (0x410, 0x2000_0063));
    guest
        .function
        .file
        .set(r::RXCSUM, ALL_SUMS & !rxcsum::CRCOFL);
    guest.receive(&[good]);
    assert_eq!(said(2), (0x410, 0x43));
}

#[test]
fn without_a_hash_there_are_identification_and_fragment_checksum() {
    let guest = Guest::pf();
    guest.function.file.set(r::RXCSUM, 0x1300);
    guest.start_rx(0, 8, WHOLE);
    let mut fragment = packet::v4_with([1; 4], [2; 4], false, 5, 6, 100);
    fragment[20] = 0x20;
    fragment[24..26].fill(0);
    let sum = Sum::of(&fragment[14..34]).finish().to_be_bytes();
    fragment[24..26].copy_from_slice(&sum);
    guest.receive(&[tcp(), fragment.clone()]);
    let (low, high) = guest.rx_desc(0, 0);
    assert_eq!((low as u32, low >> 32), (0x110, 0x1234));
    assert_eq!(high as u32, 0x263);
    let (low, high) = guest.rx_desc(0, 1);
    let want = u64::from(Sum::of(&fragment[34..]).finish()) << 16 | 0x1234;
    assert_eq!((low as u32, low >> 32), (0x10, want));
    assert_eq!(high as u32, 0x643);
}

#[test]
fn a_ptp_message_has_its_time_and_says_so() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    // As Linux's driver sets it up for messages in Ethernet: events of version 2, filter 3.
    file.set(r::TSYNCRXCTL, 1 << 4 | 5 << 1);
    file.set_at(r::ETQF, 3, 1 << 26 | 1 << 30 | 0x88f7);
    guest.start_rx(0, 8, WHOLE);
    let mut sync = vec![0; 60];
    sync[..14].copy_from_slice(&[1, 0x1b, 0x19, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0x88, 0xf7]);
    guest.receive(&[tcp(), sync.clone(), sync]);
    let timed = |i| guest.rx_desc(0, i).1 >> 16 & 1;
    assert_eq!(
        [0, 1, 2].map(timed),
        [0, 1, 0],
        "one is kept until it is read"
    );
    assert_eq!(guest.rx_desc(0, 1).0 as u16, 0x8030);
}

/// As DPDK sets one up: port 80 to queue 11, whose vector is 1.
#[test]
fn a_filter_has_its_queue_and_need_not_wait_for_moderation() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set_at(r::FTQF, 2, 6 | 1 << 8 | 1 << 15 | 11 << 16 | 7 << 29);
    file.set_at(r::IMIR, 2, u16::to_be(80).into());
    file.set_at(r::IMIREXT, 2, 1 << 12 | 1 << 19);
    guest.start_rx(0, 8, WHOLE);
    guest.start_rx(11, 16, WHOLE);
    let mut irq = guest.function.irq.lock();
    irq.set_way(&guest.env, Way::Msix);
    irq.set_gpie(&guest.env, 1 << 4);
    irq.set_ivar(0, 0x80);
    irq.set_ivar(3, 0x81 << 16);
    irq.set_eiac(3);
    irq.set_eitr(&guest.env, 0, 196 << 2);
    irq.set_eitr(&guest.env, 1, 196 << 2);
    irq.set_eims(&guest.env, 3);
    drop(irq);
    let raised = || guest.function.irq.lock().raised;
    let web = packet::v4([1; 4], [2; 4], true, 3, 80);
    let other = packet::v4([1; 4], [2; 4], true, 3, 81);
    guest.receive(&[web.clone(), other.clone(), web.clone()]);
    assert_eq!(
        (guest.get(QUEUES.rdh, 11), guest.get(QUEUES.rdh, 0)),
        (2, 1)
    );
    assert_eq!(raised(), 2, "the first of each vector");
    guest.receive(&[web.clone(), other.clone()]);
    assert_eq!(raised(), 2, "moderated");
    file.set_at(r::IMIR, 2, u32::from(u16::to_be(80)) | 1 << 16);
    guest.receive(std::slice::from_ref(&other));
    assert_eq!(raised(), 2);
    guest.receive(std::slice::from_ref(&web));
    assert_eq!(raised(), 3, "at once");
    // By the priority of a tag.
    file.set_at(r::IMIR, 2, u16::to_be(80).into());
    file.set(r::IMIRVP, 8 | 6);
    let mut tagged = web.clone();
    tagged.splice(12..12, [0x81, 0, 0xa0, 5]);
    guest.receive(&[tagged.clone()]);
    assert_eq!(raised(), 3);
    tagged[14] = 0xc0;
    guest.receive(&[tagged]);
    assert_eq!(raised(), 4);
    // An Ethernet type.
    file.set_at(r::ETQF, 0, 1 << 26 | 1 << 29 | 0x88b5);
    let mut typed = other;
    typed[12..14].copy_from_slice(&[0x88, 0xb5]);
    guest.receive(&[typed]);
    assert_eq!(raised(), 5);
}

#[test]
fn headers_go_apart() {
    for (kind, types, taken, sph) in [
        (SPLIT, 1 << 2, 54, true),
        (SPLIT, 1 << 3, 0, false),
        (ALWAYS, 1 << 2, 54, true),
        (ALWAYS, 0, 128, false),
    ] {
        let guest = Guest::pf();
        guest.function.file.set_at(r::PSRTYPE, 0, types);
        guest.start_rx(0, 8, kind | SMALL);
        let frame = packet::v4_with([1; 4], [2; 4], true, 5, 6, 1400);
        guest.receive(std::slice::from_ref(&frame));
        let (low, high) = guest.rx_desc(0, 0);
        let hdr = low as u32 >> 16;
        assert_eq!(
            (hdr >> 15 == 1, hdr >> 5 & 0x3ff),
            (sph, taken as u32),
            "{kind:x}"
        );
        let mut bytes = guest.read(header_buffer(0, 0), taken);
        let (_, len, _) = upper(high);
        assert_eq!(len, 1024);
        bytes.extend(guest.read(packet_buffer(0, 0), len));
        // The second has no header.
        let (low, high) = guest.rx_desc(0, 1);
        assert_eq!(low as u32 >> 16, 0);
        bytes.extend(guest.read(packet_buffer(0, 1), upper(high).1));
        assert_eq!(bytes, frame);
        assert_eq!(guest.get(QUEUES.rdh, 0), 2);
    }
}

#[test]
fn a_short_frame_is_all_header_where_the_buffer_is_always_used() {
    let guest = Guest::pf();
    guest.start_rx(0, 8, ALWAYS | SMALL);
    let frame = tcp();
    guest.receive(std::slice::from_ref(&frame));
    let (low, high) = guest.rx_desc(0, 0);
    assert_eq!(low as u32 >> 21 & 0x3ff, frame.len() as u32);
    assert_eq!(upper(high).1, 0);
    assert_eq!(guest.read(header_buffer(0, 0), frame.len()), frame);
}

#[test]
fn long_frames_take_descriptors_and_only_the_last_ends_them() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::RCTL, file.get(r::RCTL) | rctl::LPE);
    file.set(r::RLPML, 9018);
    guest.start_rx(0, 32, WHOLE | 2);
    let frame = packet::v4_with([1; 4], [2; 4], true, 5, 6, 8900);
    let too_long = packet::v4_with([1; 4], [2; 4], true, 5, 6, 9000);
    assert_eq!(guest.receive(&[frame.clone(), too_long]), 2);
    let mut bytes = Vec::new();
    let last = frame.len().div_ceil(2048) as u32 - 1;
    for i in 0..=last {
        let (status, len, _) = upper(guest.rx_desc(0, i).1);
        assert_eq!(status & 3, if i == last { 3 } else { 1 });
        bytes.extend(guest.read(packet_buffer(0, i), len.min(0x1000)));
    }
    assert_eq!(bytes, frame);
    assert_eq!(guest.counter("rx_oversize"), 1);
    assert_eq!(guest.get(QUEUES.rdh, 0), last + 1);
}

#[test]
fn without_long_packets_a_tag_may_make_a_frame_longer() {
    let guest = Guest::pf();
    guest.start_rx(0, 32, WHOLE | 2);
    let mut frame = packet::v4_with([1; 4], [2; 4], true, 5, 6, 1460);
    assert_eq!(frame.len(), 1514);
    let longer = packet::v4_with([1; 4], [2; 4], true, 5, 6, 1461);
    guest.receive(&[frame.clone(), longer]);
    frame.splice(12..12, [0x81, 0, 0xe0, 5]);
    guest.receive(std::slice::from_ref(&frame));
    assert_eq!(guest.counter("rx_oversize"), 1);
    assert_eq!(guest.get(QUEUES.rdh, 0), 2);
    // The tag is beside it.
    let (status, len, tag) = upper(guest.rx_desc(0, 1).1);
    assert_eq!((status & 8, len, tag), (8, 1514, 0xe005));
    guest.function.file.set(r::CTRL, 0);
    guest.receive(&[frame]);
    let (status, len, tag) = upper(guest.rx_desc(0, 2).1);
    assert_eq!((status & 8, len, tag), (0, 1518, 0));
}

/// RLPML is the length with all that a frame has (§8.10.15).
#[test]
fn long_packets_are_so_long_with_their_tags() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::RCTL, file.get(r::RCTL) | rctl::LPE);
    file.set(r::RLPML, 1518);
    guest.start_rx(0, 32, WHOLE | 2);
    let frame = packet::v4_with([1; 4], [2; 4], true, 5, 6, 1460);
    let mut tagged = frame.clone();
    tagged.splice(12..12, [0x81, 0, 0xe0, 5]);
    guest.receive(&[frame, tagged.clone()]);
    assert_eq!(guest.get(QUEUES.rdh, 0), 1);
    assert_eq!(guest.counter("rx_oversize"), 1);
    guest.function.file.set(r::RLPML, 1522);
    guest.receive(&[tagged]);
    assert_eq!(guest.get(QUEUES.rdh, 0), 2);
}

#[test]
fn the_fcs_is_that_of_the_frame() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::RCTL, file.get(r::RCTL) & !rctl::SECRC);
    guest.start_rx(0, 8, WHOLE);
    let frame = tcp();
    guest.receive(std::slice::from_ref(&frame));
    let mut want = frame.clone();
    want.extend(datapath::fcs_of(&frame));
    assert_eq!(guest.read(packet_buffer(0, 0), want.len()), want);
    assert_eq!(upper(guest.rx_desc(0, 0).1).1, want.len());
}

#[test]
fn what_finds_no_descriptor_waits_or_is_dropped() {
    for (drop, dealt) in [(0, 7), (DROP, 10)] {
        let guest = Guest::pf();
        guest.start_rx(0, 8, WHOLE | drop);
        assert_eq!(guest.receive(&vec![tcp(); 10]), dealt);
        assert_eq!(guest.get(QUEUES.rdh, 0), 7);
        let (dropped, waits) = (
            guest.counter("rx_dropped"),
            guest.counter("rx_back_pressure"),
        );
        assert_eq!((dropped, waits), if drop == 0 { (0, 1) } else { (3, 0) });
        // Buffers given back are used.
        guest.set(QUEUES.rdt, 0, 3);
        assert_eq!(guest.receive(&vec![tcp(); 3]), 3);
        assert_eq!(guest.get(QUEUES.rdh, 0), 2);
    }
}

#[test]
fn few_descriptors_left_are_told_once() {
    let guest = Guest::pf();
    guest.start_rx(0, 64, WHOLE | 1 << 20);
    let told = || {
        let mut irq = guest.function.irq.lock();
        let causes = irq.causes();
        irq.write_icr(&guest.env, icr::ALL);
        causes & icr::RXDMT0 != 0
    };
    guest.receive(&vec![tcp(); 46]);
    assert!(!told(), "17 are left");
    guest.receive(&[tcp()]);
    assert!(told(), "16 are left");
    guest.receive(&[tcp()]);
    assert!(!told());
}

#[test]
fn flows_spread_over_queues_and_stay_in_order() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::MRQC, 0x0037_0002);
    for i in 0..10 {
        file.set_at(r::RSSRK, i, 0x6d5a_56da_u32.rotate_left(i * 5));
    }
    for i in 0..32 {
        file.set_at(r::RETA, i, 0x0302_0100 + 0x0404_0404 * (i % 4));
    }
    for queue in 0..16 {
        guest.start_rx(queue, 128, WHOLE);
    }
    let frames: Vec<_> = (0..250)
        .map(|i| packet::v4([10, 0, 0, 1], [10, 0, 0, 2], true, 1000 + i % 50, i))
        .collect();
    assert_eq!(guest.receive(&frames), 250);
    let mut seen = 0;
    let mut used = 0;
    for queue in 0..16 {
        let head = guest.get(QUEUES.rdh, queue);
        used += u32::from(head > 0);
        let mut last = None;
        for i in 0..head {
            let port = guest.read(packet_buffer(queue, i) + 36, 2);
            let number = u16::from_be_bytes([port[0], port[1]]);
            assert!(last < Some(number), "in order");
            last = Some(number);
            seen += 1;
        }
    }
    assert_eq!(seen, 250);
    assert!(used >= 8, "only {used} queues");
}

#[test]
fn a_big_frame_is_cut_for_a_guest() {
    for rxcsum in [0, ALL_SUMS] {
        a_big_frame_is_cut(rxcsum);
    }
}

fn a_big_frame_is_cut(rxcsum: u32) {
    let guest = Guest::pf();
    guest.function.file.set(r::RXCSUM, rxcsum);
    guest.start_rx(0, 32, WHOLE);
    let mut big = packet::v4_with([10, 0, 0, 1], [10, 0, 0, 2], true, 1, 2, 4000);
    let layers = Layers::parse(&big).expect("headers");
    let seed = layers.pseudo_sum(&big, big.len() - 34).expect("IP").value();
    big[50..52].copy_from_slice(&seed.to_be_bytes());
    let mut batch = Batch::new();
    batch.push_bytes(&big);
    batch.end(Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size: 1460,
        hdr_len: 54,
        ..Offload::NONE
    });
    assert_eq!(guest.receive_batch(&batch), 1);
    assert_eq!(guest.get(QUEUES.rdh, 0), 3);
    let mut whole = Vec::new();
    for i in 0..3 {
        let frame = guest.read(packet_buffer(0, i), upper(guest.rx_desc(0, i).1).1);
        let layers = Layers::parse(&frame).expect("headers");
        // The sum is there in full, whether or not the guest is told of it.
        assert_eq!(layers.l4_intact(&frame), Some(true));
        whole.extend_from_slice(&frame[54..]);
    }
    assert_eq!(whole, big[54..]);
    // With room for two, none of them is taken.
    guest.set(QUEUES.rdt, 0, 5);
    assert_eq!(guest.receive_batch(&batch), 0);
    assert_eq!(guest.get(QUEUES.rdh, 0), 3);
}

#[test]
fn what_is_no_buffer_of_the_shape_is_not_looked_at() {
    // The second word is a header buffer only where headers are split off.
    for kind in [LEGACY, WHOLE] {
        let guest = Guest::pf();
        guest.start_rx(0, 8, kind);
        guest.write(crate::testing::RX_RINGS + 8, &[0xff; 8]);
        guest.receive(&[tcp()]);
        assert_eq!(guest.counter("rx_dma_fault"), 0);
        assert_eq!(guest.counter("rx_frames"), 1);
    }
}

#[test]
fn receiving_allocates_nothing() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::MRQC, 0x0037_0002);
    for i in 0..32 {
        file.set_at(r::RSSRK, i % 10, 0x6d5a_56da_u32.rotate_left(i * 5));
        file.set_at(r::RETA, i, 0x0302_0100);
    }
    for (queue, kind) in [(0, WHOLE), (1, SPLIT), (2, ALWAYS), (3, LEGACY)] {
        guest.start_rx(queue, 128, kind | SMALL);
    }
    let mut batch = Batch::new();
    for i in 0..64 {
        batch.push_bytes(&packet::v4([1; 4], [2; 4], true, i, 80));
        batch.end(Offload::NONE);
    }
    let mut picks = Vec::new();
    let picks = batch.all_picks(&mut picks);
    let round = || {
        let taken = guest.receiver.deliver(&guest.env, &batch, picks);
        assert_eq!(taken, 64);
        for queue in 0..4 {
            let head = guest.get(QUEUES.rdh, queue);
            guest.set(QUEUES.rdt, queue, (head + 127) % 128);
        }
    };
    round();
    let again = || (0..10).for_each(|_| round());
    assert_eq!(allocation_counter::measure(again).count_total, 0);
}

#[test]
fn rings_and_buffers_that_are_none_are_counted() {
    let cases: &[Case] = &[
        ("rx_bad_ring", |g| g.set(QUEUES.rdlen, 0, 0)),
        ("rx_bad_ring", |g| g.set(QUEUES.rdt, 0, 8)),
        ("rx_bad_ring", |g| g.set(QUEUES.rdh, 0, 0xffff)),
        ("rx_bad_type", |g| g.set(QUEUES.srrctl, 0, 3 << 25)),
        ("rx_bad_type", |g| g.set(QUEUES.srrctl, 0, 7 << 25)),
        ("rx_disabled", |g| g.set(QUEUES.rxdctl, 0, 0)),
        ("rx_disabled", |g| g.function.file.set(r::RCTL, 0)),
        ("rx_filtered", |g| g.function.file.set(r::RCTL, rctl::EN)),
        ("rx_dma_fault", |g| g.set(QUEUES.rdbah, 0, 1)),
        ("rx_dma_fault", |g| {
            g.write(crate::testing::RX_RINGS, &(MEMORY - 8).to_le_bytes())
        }),
        ("rx_dma_fault", |g| {
            g.write(crate::testing::RX_RINGS, &[0xff; 8])
        }),
    ];
    for (counter, spoil) in cases {
        let guest = Guest::pf();
        guest.start_rx(0, 8, WHOLE);
        spoil(&guest);
        assert_eq!(guest.receive(&[tcp()]), 1, "{counter}");
        assert_eq!(guest.counter(counter), 1, "{counter}");
        assert_eq!(guest.counter("rx_frames"), 0, "{counter}");
    }
    let guest = Guest::pf();
    guest.start_rx(0, 8, WHOLE);
    assert_eq!(guest.receive(&[vec![2; 13], vec![2; 5], vec![]]), 3);
    assert_eq!(guest.counter("rx_runt"), 3);
}

#[test]
fn a_faulty_buffer_is_reported_and_the_ring_goes_on() {
    let guest = Guest::pf();
    guest.start_rx(0, 8, WHOLE);
    guest.write(crate::testing::RX_RINGS, &[0xff; 8]);
    let frame = tcp();
    guest.receive(&[frame.clone(), frame.clone()]);
    assert_eq!(guest.rx_desc(0, 0).1 as u32, 0x8000_0007);
    assert_eq!(guest.read(packet_buffer(0, 1), frame.len()), frame);
    assert_eq!(guest.get(QUEUES.rdh, 0), 2);
}

#[test]
fn null_buffers_are_passed_over_and_no_frame_walks_for_ever() {
    for (kind, tail) in [
        (LEGACY, 7),
        (WHOLE, 7),
        (SPLIT, 7),
        (ALWAYS, 7),
        (WHOLE | DROP, 3),
    ] {
        let guest = Guest::pf();
        guest.start_rx(0, 8, kind);
        guest.set(QUEUES.rdt, 0, tail);
        for i in 0..8 {
            guest.write(crate::testing::RX_RINGS + i * 16, &[0; 8]);
        }
        let frame = packet::v4_with([1; 4], [2; 4], true, 5, 6, 1000);
        assert_eq!(guest.receive(&[frame]), 1);
        assert_eq!(guest.counter("rx_too_large"), 1);
        assert_eq!(guest.get(QUEUES.rdh, 0), tail);
        let causes = guest.function.irq.lock().causes();
        assert_ne!(causes & icr::RXO, 0);
    }
}

#[test]
fn frames_given_up_are_missed() {
    let guest = Guest::pf();
    crate::rx::give_up(&guest.function, &guest.env, &[0, 1, 2]);
    assert_eq!(guest.function.stats.total(Stat::Mpc), 3);
    let causes = guest.function.irq.lock().causes();
    assert_ne!(causes & icr::RXO, 0);
}

#[test]
fn a_stopped_queue_is_written_no_more() {
    let guest = Arc::new(Guest::pf());
    guest.start_rx(0, 64, WHOLE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                guest.receive(&vec![tcp(); 4]);
                guest.set(QUEUES.rdt, 0, guest.get(QUEUES.rdh, 0).wrapping_sub(1) % 64);
            }
        });
        for _ in 0..50 {
            guest.set(QUEUES.rxdctl, 0, 0);
            // Whatever was under way is over: the driver frees the buffers now.
            guest.write(packet_buffer(0, 0), &[0xee; 32]);
            let head = guest.get(QUEUES.rdh, 0);
            for _ in 0..20 {
                assert_eq!(guest.read(packet_buffer(0, 0), 32), [0xee; 32]);
                std::thread::yield_now();
            }
            assert_eq!(guest.get(QUEUES.rdh, 0), head);
            guest.set(QUEUES.rxdctl, 0, xdctl::ENABLE);
            std::thread::yield_now();
        }
    });
}

/// What is for many loses what RPLOLR says, whatever is taken out of the rest.
#[test]
fn what_is_replicated_is_treated_alike_by_vfs() {
    let mut frames = [tcp(), tcp(), tcp(), tcp()];
    for (frame, dst) in frames.iter_mut().zip([2, 1, 2, 0xff]) {
        frame[0] = dst;
    }
    for frame in &mut frames[2..] {
        frame.splice(12..12, [0x81, 0, 0x20, 5]);
    }
    let lens = frames.each_ref().map(Vec::len);
    let on = Settings {
        rx_on: true,
        tx_on: true,
        ..Settings::VF
    };
    for fast_path in [false, true] {
        for (own, many) in [
            ((true, false), (false, true)),
            ((false, true), (true, false)),
        ] {
            let strips = |(crc, vlan)| Strips { crc, vlan };
            let settings = Settings {
                strip_crc: own.0,
                strip_vlan: own.1,
                replicas: Some(strips(many)),
                ..on
            };
            let guest = Guest::vf_with(settings, fast_path);
            guest.start_rx(0, 8, WHOLE);
            assert_eq!(guest.receive(&frames), 4);
            for (at, len) in (0..).zip(lens) {
                let (crc, vlan) = if at % 2 == 1 { many } else { own };
                let stripped = vlan && at >= 2;
                let kept = len + if crc { 0 } else { 4 } - if stripped { 4 } else { 0 };
                let (status, got, tag) = upper(guest.rx_desc(0, at).1);
                assert_eq!(got, kept, "frame {at} {own:?}");
                assert_eq!((status >> 3 & 1 == 1, tag == 0x2005), (stripped, stripped));
            }
        }
    }
}

#[test]
fn a_vf_takes_what_its_rules_let_in_and_sees_no_other_memory() {
    let on = Settings {
        rx_on: true,
        tx_on: true,
        ..Settings::VF
    };
    let (one, other) = (Guest::vf(on), Guest::vf(on));
    for guest in [&one, &other] {
        guest.start_rx(0, 8, ALWAYS | SMALL);
    }
    // The other's buffers are where the one's are: what is written to one is not seen there.
    let frame = tcp();
    one.receive(std::slice::from_ref(&frame));
    assert_eq!(one.read(header_buffer(0, 0), frame.len()), frame);
    assert_eq!(
        other.read(header_buffer(0, 0), frame.len()),
        vec![0; frame.len()]
    );
    assert_eq!(other.get(QUEUES.rdh, 0), 0);
    let off = Guest::vf(Settings::VF);
    off.start_rx(0, 8, WHOLE);
    off.receive(&[frame]);
    assert_eq!(off.counter("rx_disabled"), 1);
    let long = Guest::vf(Settings {
        max_len: 9000,
        ..on
    });
    long.start_rx(0, 8, WHOLE);
    long.receive(&[packet::v4_with([1; 4], [2; 4], true, 5, 6, 8000)]);
    assert_eq!(long.get(QUEUES.rdh, 0), 4);
}

/// Frames in earnest and otherwise.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let sane = (
        any::<bool>(),
        0..3000usize,
        any::<u16>(),
        0..60usize,
        any::<u8>(),
    )
        .prop_map(|(tcp, len, port, at, noise)| {
            let mut frame = packet::v4_with([1; 4], [2; 4], tcp, port, 80, len);
            if let Some(byte) = frame.get_mut(at).filter(|_| at >= 12) {
                *byte = noise;
            }
            frame
        });
    let wild = proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![3 => sane, 1 => wild]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 60 }))]
    /// Whatever shape the driver chooses: what stands in header and packet buffers of a frame's
    /// descriptors, put together, is the frame.
    #[test]
    fn buffers_put_together_are_the_frame(
        frames in proptest::collection::vec(any_frame(), 1..12),
        kind in prop_oneof![Just(LEGACY), Just(WHOLE), Just(SPLIT), Just(ALWAYS)],
        size in 0..3u32,
        header in 0..8u32,
        types: u32,
        rxcsum: u32,
        keep_tags: bool,
    ) {
        let guest = Guest::pf();
        let file = &guest.function.file;
        let rctl = rctl::EN | rctl::UPE | rctl::MPE | rctl::SECRC
            | rctl::LPE | 3 << rctl::BSIZE_SHIFT;
        file.set(r::RCTL, rctl);
        file.set(r::RLPML, 0x3fff);
        file.set(r::CTRL, if keep_tags { 0 } else { ctrl::VME });
        file.set(r::RXCSUM, rxcsum & 0x3bff);
        file.set_at(r::PSRTYPE, 0, types);
        guest.start_rx(0, 256, kind | header << 8 | size);
        prop_assert_eq!(guest.receive(&frames), frames.len());
        let mut index = 0;
        for frame in frames.iter().filter(|frame| frame.len() >= 14) {
            let mut bytes = Vec::new();
            let mut tag = None;
            loop {
                let (low, high) = guest.rx_desc(0, index);
                let (status, len, special) = if kind == LEGACY {
                    ((high >> 32) as u32 & 0xff, usize::from(high as u16), (high >> 48) as u16)
                } else {
                    let (status, len, tag) = upper(high);
                    if kind != WHOLE {
                        let in_header = (low as u32 >> 21 & 0x3ff) as usize;
                        let room = header as usize * 64;
                        // That a header did not fit (HBO) is said in the last descriptor of a frame.
                        let there = match kind {
                            SPLIT if in_header > room => 0,
                            _ => in_header.min(room),
                        };
                        bytes.extend(guest.read(header_buffer(0, index), there));
                    }
                    (status, len, tag)
                };
                prop_assert_eq!(status & 1, 1, "descriptor {} is done", index);
                bytes.extend(guest.read(packet_buffer(0, index), len));
                index += 1;
                if status & 2 != 0 {
                    if status & 8 != 0 {
                        tag = Some(special);
                    }
                    break;
                }
            }
            if let Some(tag) = tag {
                let [a, b] = tag.to_be_bytes();
                bytes.splice(12..12, [0x81, 0, a, b]);
            }
            let mut want = frame.clone();
            want.resize(want.len().max(60), 0);
            prop_assert_eq!(bytes, want);
        }
        prop_assert_eq!(guest.get(QUEUES.rdh, 0), index);
    }

    /// Whatever registers and descriptors hold: a call ends, and heads stay inside of their rings.
    #[test]
    fn any_ring_comes_to_an_end(
        frames in proptest::collection::vec(any_frame(), 1..20),
        srrctl: u32,
        rings in proptest::collection::vec((any::<u32>(), 0..0x400u32, 0..0x60u32, 0..0x60u32), 16),
        wild in proptest::collection::vec((0..512u64, any::<u64>()), 0..40),
        mrqc: u32,
        reta: u32,
        rctl: u32,
        rxcsum: u32,
    ) {
        let guest = Guest::pf();
        let file = &guest.function.file;
        file.set(r::RCTL, rctl | rctl::EN | rctl::UPE);
        file.set(r::MRQC, mrqc);
        file.set(r::RXCSUM, rxcsum);
        for i in 0..32 {
            file.set_at(r::RETA, i, reta.rotate_left(i));
        }
        for (queue, (base, len, head, tail)) in (0..).zip(&rings) {
            guest.start_rx(queue, 32, srrctl.rotate_left(queue));
            guest.set(QUEUES.rdbal, queue, if base & 1 == 0 { base & 0x1ff_ff80 } else { *base });
            guest.set(QUEUES.rdlen, queue, len & !0x7f);
            guest.set(QUEUES.rdh, queue, *head);
            guest.set(QUEUES.rdt, queue, *tail);
        }
        for (at, word) in wild {
            guest.write(crate::testing::RX_RINGS + at * 16, &word.to_le_bytes());
        }
        for _ in 0..3 {
            prop_assert!(guest.receive(&frames) <= frames.len());
        }
        for (queue, (_, len, head, _)) in (0..).zip(&rings) {
            let now = guest.get(QUEUES.rdh, queue);
            prop_assert!(now == *head || now < (len & !0x7f) / 16);
        }
    }
}

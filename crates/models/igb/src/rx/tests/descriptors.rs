//! What descriptors and buffers hold of a frame.

use frame::Batch;
use wire::{Crc32c, Csum, Gso, Layers, Offload, Sum};

use crate::core::irq::Way;
use crate::regs as r;
use crate::regs::QUEUES;
use crate::regs::bits::{rctl, rxcsum};
use crate::rx::tests::{ALL_SUMS, ALWAYS, LEGACY, SMALL, SPLIT, WHOLE, tcp, upper};
use crate::testing::{Guest, header_buffer, packet, packet_buffer};

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
        // The sum is there in full, whether or not the guest asked for it.
        assert_eq!(layers.l4_intact(&frame), Some(true));
        whole.extend_from_slice(&frame[54..]);
    }
    assert_eq!(whole, big[54..]);
    // With room for two, none of them is taken.
    guest.set(QUEUES.rdt, 0, 5);
    assert_eq!(guest.receive_batch(&batch), 0);
    assert_eq!(guest.get(QUEUES.rdh, 0), 3);
}

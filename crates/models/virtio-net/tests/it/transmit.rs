//! From chains to frames.

use frame::Caps;
use hypernic_virtio_net::regs::{feature, header};
use hypernic_virtio_net::{RX, TX};
use model::Progress;
use model_testkit::Wire;
use wire::{Csum, Gso, Offload};

use crate::driver::{
    BUFFERS, Driver, INDIRECT, NEXT, OFFLOADS, OTHER, PLAIN, USUAL, avail, desc, frame, header,
    tcp4,
};

#[test]
fn a_packet_leaves_as_it_is_however_its_chain_is_cut() {
    let sent = frame(OTHER, 300);
    let cuts: [&[usize]; 5] = [
        &[],
        &[12],
        &[1, 11, 13, 26],
        &[0, 12, 12, 200],
        &[5, 100, 311],
    ];
    for indirect in [false, true] {
        let mut d = Driver::new(USUAL | feature::INDIRECT_DESC);
        for cuts in cuts {
            let all = [&PLAIN[..], &sent].concat();
            let mut parts = Vec::new();
            let mut from = 0;
            for &cut in cuts.iter().chain([&all.len()]) {
                let at = BUFFERS + 0x1000 * parts.len() as u64;
                d.m.poke(at, &all[from..cut]);
                parts.push((at, (cut - from) as u32, false));
                from = cut;
            }
            if indirect {
                let table = BUFFERS + 0x10_0000;
                for (i, part) in parts.iter().enumerate() {
                    let next = if i + 1 < parts.len() { NEXT } else { 0 };
                    d.desc_at(table, i as u16, (part.0, part.1, next), i as u16 + 1);
                }
                let part = (table, 16 * parts.len() as u32, INDIRECT);
                d.desc_at(desc(TX), 7, part, 0);
                d.offer(TX, 7);
            } else {
                d.give(TX, &parts);
            }
            d.kick(TX);
            assert_eq!(
                d.m.wire.take(),
                std::slice::from_ref(&sent),
                "{cuts:?} {indirect}"
            );
            let used = d.used(TX);
            assert_eq!((used.len(), used[0].1), (1, 0));
        }
        assert_eq!(d.counter("tx_frames"), 5);
        assert_eq!(d.counter("tx_bytes"), 1500);
    }
}

#[test]
fn checksum_and_segmentation_are_left_to_a_sink_that_takes_them() {
    let mut d = Driver::with(USUAL | OFFLOADS, 64, Wire::with(Caps::ALL));
    let sent = tcp4(5000);
    d.send(header(header::NEEDS_CSUM, 0, 0, 34, 16), &sent);
    let csum = Some(Csum {
        start: 34,
        offset: 16,
    });
    let wanted = Offload {
        csum,
        ..Offload::NONE
    };
    assert_eq!(d.m.wire.take_notes(), [(sent.clone(), wanted)]);
    let gso = header::GSO_TCPV4 | header::GSO_ECN;
    d.send(header(header::NEEDS_CSUM, gso, 1448, 34, 16), &sent);
    let wanted = Offload {
        csum,
        gso: Gso::Tcp4,
        gso_size: 1448,
        // Measured, whatever the driver says.
        hdr_len: 54,
        ecn: true,
        ..Offload::NONE
    };
    assert_eq!(d.m.wire.take_notes(), [(sent, wanted)]);
    assert_eq!(d.counter("tx_tso_frames"), 1);
}

#[test]
fn checksum_and_segmentation_are_done_for_a_sink_that_does_not() {
    let mut d = Driver::new(USUAL | OFFLOADS);
    let sent = tcp4(5000);
    d.send(
        header(header::NEEDS_CSUM, header::GSO_TCPV4, 1448, 34, 16),
        &sent,
    );
    let frames = d.m.wire.take();
    assert_eq!(
        frames.iter().map(Vec::len).collect::<Vec<_>>(),
        [1502, 1502, 1502, 710]
    );
    let payload: Vec<u8> = frames.iter().flat_map(|f| f[54..].to_vec()).collect();
    assert_eq!(payload, sent[54..]);
    for frame in &frames {
        let layers = wire::Layers::parse(frame).expect("headers");
        assert_eq!(layers.l4_intact(frame), Some(true));
    }
    d.send(header(header::NEEDS_CSUM, 0, 0, 34, 16), &tcp4(100));
    let frames = d.m.wire.take();
    let layers = wire::Layers::parse(&frames[0]).expect("headers");
    assert_eq!(layers.l4_intact(&frames[0]), Some(true));
}

#[test]
fn narrow_segments_are_cut_here_and_each_counts_as_a_frame() {
    let mut d = Driver::with(USUAL | OFFLOADS, 64, Wire::with(Caps::ALL));
    let csum = header::NEEDS_CSUM;
    for (size, frames) in [(256, 1), (255, 40), (100, 100)] {
        d.send(header(csum, header::GSO_TCPV4, size, 34, 16), &tcp4(10_000));
        let sent = d.m.wire.take_notes();
        assert_eq!(sent.len(), frames, "{size}");
        let payload: usize = sent.iter().map(|(frame, _)| frame.len() - 54).sum();
        assert_eq!(payload, 10_000);
        assert!(sent.iter().all(|(_, notes)| notes.csum.is_some()));
    }
    // A turn of 256 frames has room for two of them and a half.
    let sent = [
        &header(csum, header::GSO_TCPV4, 100, 34, 16)[..],
        &tcp4(10_000),
    ]
    .concat();
    d.m.poke(BUFFERS, &sent);
    for _ in 0..6 {
        d.give(TX, &[(BUFFERS, sent.len() as u32, false)]);
    }
    let (nic, env) = (&mut d.m.nic, &d.m.env);
    assert_eq!(nic.transmit.run(env, &d.m.wire, 256), Progress::More);
    assert_eq!(d.m.wire.take().len(), 300);
}

#[test]
fn what_cannot_be_is_dropped_and_counted_by_its_reason() {
    let features = USUAL | feature::CSUM | feature::HOST_TSO4;
    let mut d = Driver::with(features, 64, Wire::with(Caps::ALL));
    let csum = header::NEEDS_CSUM;
    let segment = tcp4(3000);
    let udp = {
        let mut frame = segment.clone();
        frame[23] = 17;
        frame
    };
    let long = vec![0; 0x1_0000 + 65];
    let (tcp, v6) = (header::GSO_TCPV4, header::GSO_TCPV6);
    for (header, frame, counter) in [
        (PLAIN, &segment[..13], "tx_runt"),
        (PLAIN, &long, "tx_too_long"),
        (header(csum, 0, 0, 0xffff, 0xffff), &segment, "tx_bad_csum"),
        (header(csum, 0, 0, 3053, 0), &segment, "tx_bad_csum"),
        // No segment size, no checksum, one that is not TCP's, headers that are no TCP, too many segments, UFO.
        (header(csum, tcp, 0, 34, 16), &segment, "tx_bad_gso"),
        (header(0, tcp, 1000, 34, 16), &segment, "tx_bad_gso"),
        (header(csum, tcp, 1000, 34, 6), &segment, "tx_bad_gso"),
        (header(csum, tcp, 1000, 34, 16), &udp, "tx_bad_gso"),
        (header(csum, tcp, 1, 34, 16), &segment, "tx_bad_gso"),
        (header(csum, 3, 1000, 34, 16), &segment, "tx_bad_gso"),
        (header(csum, v6, 1000, 34, 16), &segment, "tx_not_agreed"),
        (
            header(csum, tcp | header::GSO_ECN, 1000, 34, 16),
            &segment,
            "tx_not_agreed",
        ),
    ] {
        let before = d.counter(counter);
        d.m.wire.look_at_unsent();
        d.send(header, frame);
        assert_eq!(d.counter(counter), before + 1, "{counter} {header:?}");
        // Who looks is shown how it begins.
        let whole = [&header[..], frame].concat();
        let begin = whole[..whole.len().min(256)].to_vec();
        assert_eq!(d.m.wire.take_unsent(), [(counter, begin)]);
        assert!(d.m.wire.take().is_empty());
        assert_eq!(d.used(TX).len(), 1, "given back");
        assert!(!d.needs_reset());
    }
    let mut d = Driver::new(USUAL);
    d.send(header(csum, 0, 0, 34, 16), &segment);
    assert_eq!(d.counter("tx_not_agreed"), 1);
}

#[test]
fn what_finds_no_room_stays_in_the_ring_and_leaves_later_in_order() {
    let mut d = Driver::new(USUAL | OFFLOADS);
    d.m.wire.set_room(3);
    for len in 0..6 {
        let at = BUFFERS + 0x1000 * len;
        d.m.poke(at, &[0; 12]);
        d.m.poke(at + 12, &frame(OTHER, 60 + len as usize));
        d.give(TX, &[(at, 72 + len as u32, false)]);
    }
    d.kick(TX);
    assert_eq!(d.used(TX).len(), 3);
    assert_eq!(d.m.run(), Progress::Blocked);
    d.m.wire.unlimit();
    assert_eq!(d.m.run(), Progress::Idle);
    assert_eq!(d.used(TX), [(3, 0), (4, 0), (5, 0)]);
    let lens: Vec<_> = d.m.wire.take().iter().map(Vec::len).collect();
    assert_eq!(lens, [60, 61, 62, 63, 64, 65]);
    // A segmented frame of which a part has left goes on behind it.
    d.m.wire.set_room(2);
    d.send(
        header(header::NEEDS_CSUM, header::GSO_TCPV4, 1000, 34, 16),
        &tcp4(5000),
    );
    assert!(d.used(TX).is_empty());
    d.m.wire.unlimit();
    d.m.run();
    assert_eq!(d.used(TX).len(), 1);
    assert_eq!(d.m.wire.take().len(), 5);
    assert_eq!(d.counter("tx_frames"), 7);
}

#[test]
fn a_turn_ends_by_frames_bytes_and_descriptors() {
    let mut d = Driver::with(USUAL | feature::INDIRECT_DESC, 1024, Wire::default());
    let table = BUFFERS + 0x10_0000;
    d.m.poke(BUFFERS, &[0; 100]);
    for i in 0..1024 {
        let next = if i < 1023 { NEXT } else { 0 };
        let len = if i < 2 { 50 } else { 0 };
        d.desc_at(table, i, (BUFFERS, len, next), i + 1);
    }
    for i in 0..64 {
        d.desc_at(desc(TX), i, (table, 16 * 1024, INDIRECT), 0);
        d.offer(TX, i);
    }
    let (nic, env) = (&mut d.m.nic, &d.m.env);
    assert_eq!(nic.transmit.run(env, &d.m.wire, 256), Progress::More);
    assert_eq!(d.m.wire.take().len(), 4, "each has 1025 descriptors");
    assert_eq!(nic.transmit.run(env, &d.m.wire, 2), Progress::More);
    assert_eq!(d.m.wire.take().len(), 2);
    assert_eq!(d.m.run(), Progress::Idle);
    assert_eq!(d.m.wire.take().len(), 58);
}

#[test]
fn without_a_cable_packets_are_given_back_and_counted() {
    let mut d = Driver::new(USUAL);
    d.m.nic.control.set_link(&d.m.env, false);
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.used(TX).len(), 1);
    assert_eq!(d.counter("tx_no_link"), 1);
    assert!(d.m.wire.take().is_empty());
    assert_eq!(d.m.offer(&[&frame(crate::driver::MAC, 60)]), 1);
    assert_eq!(d.counter("rx_no_link"), 1);
}

#[test]
fn sending_and_receiving_allocate_nothing_once_they_run() {
    let mut d = Driver::with(USUAL | OFFLOADS, 256, Wire::default());
    let hole = model_testkit::Hole::default();
    let sent = [&header(1, header::GSO_TCPV4, 1000, 34, 16)[..], &tcp4(5000)].concat();
    d.m.poke(BUFFERS, &sent);
    // The list of interrupts would grow.
    for queue in [TX, RX] {
        d.m.poke(avail(queue), &[1, 0]);
    }
    let round = |d: &mut Driver| {
        for _ in 0..32 {
            d.give(TX, &[(BUFFERS, sent.len() as u32, false)]);
            d.receive_at(BUFFERS + 0x2_0000, 2048);
        }
        let mut batch = frame::Batch::new();
        for _ in 0..32 {
            batch.push_bytes(&sent[12..112]);
            batch.end(Offload::NONE);
        }
        let picks: Vec<u16> = (0..32).collect();
        let (nic, env) = (&mut d.m.nic, &d.m.env);
        let info = allocation_counter::measure(|| {
            assert_eq!(nic.transmit.run(env, &hole, 256), Progress::Idle);
            assert_eq!(nic.receive.deliver(env, &batch, &picks), 32);
        });
        info.count_total
    };
    for _ in 0..2 {
        round(&mut d);
    }
    assert_eq!(round(&mut d), 0);
}

//! What the transmit side does with rings in earnest and in malice.

use std::sync::atomic::Ordering;

use frame::Caps;
use model::{Progress, Transmit};
use model_testkit::Hole;
use proptest::prelude::*;
use wire::{Crc32c, Layers, Sum};

use crate::core::stats::Stat;
use crate::regs as r;
use crate::regs::QUEUES;
use crate::testing::{APART, Guest, MEMORY, TX_RINGS, Wire, packet};
use crate::tx::desc::cmd;

const BUFFER: u64 = 0x100_0000;

/// A legacy descriptor.
fn legacy(at: u64, len: usize, cmd: u8) -> (u64, u64) {
    (at, len as u64 | u64::from(cmd) << 24)
}

/// An advanced data descriptor; `olinfo` without PAYLEN.
fn data(at: u64, len: usize, cmd: u8, olinfo: u32, paylen: usize) -> (u64, u64) {
    let low = len as u64 | 3 << 20 | u64::from(cmd | cmd::DEXT) << 24;
    (at, low | u64::from(olinfo | (paylen as u32) << 14) << 32)
}

/// A context descriptor.
struct Ctx {
    mac: u64,
    ip: u64,
    l4: u64,
    mss: u64,
    vlan: u64,
    /// L4T and the bit of IPv4.
    kind: u64,
    slot: u64,
}

const TCP4: u64 = 1 << 11 | 1 << 10;
const UDP4: u64 = 1 << 10;
const SCTP4: u64 = 2 << 11 | 1 << 10;
const IXSM: u32 = 1 << 8;
const TXSM: u32 = 1 << 9;

impl Ctx {
    fn desc(&self) -> (u64, u64) {
        let low = self.vlan << 16 | self.mac << 9 | self.ip;
        let high = 2 << 20 | u64::from(cmd::DEXT) << 24 | self.kind;
        let last = self.slot << 4 | self.l4 << 8 | self.mss << 16;
        (low, high | last << 32)
    }
}

const ALL: u8 = cmd::EOP | cmd::IFCS | cmd::RS;

/// A packet as a driver leaves it for segmentation: lengths zero, the checksum seeded without one.
fn unsegmented(tcp: bool, payload: usize) -> Vec<u8> {
    let mut bytes = packet::v4_with([10, 0, 0, 1], [10, 0, 0, 2], tcp, 1000, 2000, payload);
    let layers = Layers::parse(&bytes).expect("headers");
    let l4 = layers.l4.expect("transport");
    let seed = layers.pseudo_sum(&bytes, 0).expect("IP").value();
    let field = l4.offset + l4.kind.checksum_offset().expect("TCP or UDP");
    bytes[field..field + 2].copy_from_slice(&seed.to_be_bytes());
    bytes[16..18].fill(0);
    bytes[24..26].fill(0);
    bytes
}

/// Segments of [`send_tso`].
pub(crate) const TSO_SEGMENTS: usize = 10;

/// Starts a queue and hands it one packet to be cut into [`TSO_SEGMENTS`] of 100 bytes.
pub(crate) fn send_tso(guest: &Guest, queue: u32) {
    guest.start_tx(queue, 16);
    let bytes = unsegmented(true, 1000);
    guest.write(BUFFER, &bytes);
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 100,
        vlan: 0,
        kind: TCP4,
        slot: 1,
    };
    let olinfo = IXSM | TXSM | 1 << 4;
    let desc = data(BUFFER, bytes.len(), cmd::TSE | ALL, olinfo, 1000);
    guest.send(queue, &[ctx.desc(), desc]);
}

fn intact(frame: &[u8]) -> bool {
    let layers = Layers::parse(frame).expect("headers");
    let l3 = layers.l3.expect("IP");
    let ip =
        l3.kind == wire::L3Kind::V6 || Sum::of(&frame[l3.offset..l3.offset + l3.len]).is_intact();
    ip && layers.l4_intact(frame) == Some(true)
}

#[test]
fn legacy_and_advanced_descriptors_are_sent_and_written_back() {
    let mut guest = Guest::pf();
    guest.start_tx(3, 8);
    let frames: Vec<_> = (0..3)
        .map(|i| packet::v4([1, 2, 3, i], [4; 4], true, 5, 6))
        .collect();
    for (i, frame) in (0..).zip(&frames) {
        guest.write(BUFFER + i * 0x1000, frame);
    }
    let len = frames[0].len();
    guest.send(
        3,
        &[
            legacy(BUFFER, len, ALL),
            data(BUFFER + 0x1000, 10, cmd::IFCS, 0, len),
            data(BUFFER + 0x100a, len - 10, ALL, 0, len),
            data(BUFFER + 0x2000, len, cmd::EOP | cmd::IFCS, 0, len),
        ],
    );
    let wire = Wire::default();
    assert_eq!(guest.run(&wire), Progress::Idle);
    assert_eq!(wire.take(), frames);
    let ring = TX_RINGS + 3 * APART;
    let done: Vec<_> = (0..4)
        .map(|i| guest.word(ring + 16 * i + 8) >> 32 & 1)
        .collect();
    assert_eq!(done, [1, 0, 1, 0], "only where it was asked for");
    assert_eq!(guest.get(QUEUES.tdh, 3), 4);
    let sent = guest.function.queues[3]
        .counts
        .tx_packets
        .load(Ordering::Relaxed);
    assert_eq!((sent, guest.function.stats.total(Stat::Gptc)), (3, 3));
    // Nothing more is said to be there.
    assert_eq!(guest.run(&wire), Progress::Idle);
    assert!(wire.take().is_empty());
}

#[test]
fn the_head_is_written_where_it_is_asked_for_and_descriptors_are_not() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    guest.set(QUEUES.tdwbal, 0, 0x9001);
    guest.send(
        0,
        &[
            legacy(BUFFER, 60, cmd::EOP | cmd::IFCS),
            legacy(BUFFER, 60, ALL),
        ],
    );
    guest.run(&Wire::default());
    assert_eq!(guest.word(0x9000) as u32, 2);
    assert_eq!(guest.word(TX_RINGS + 24) >> 32 & 1, 0);
}

#[test]
fn segments_are_what_tcp_wants() {
    for (payload, mss) in [(3000, 1448), (2896, 1448), (5, 1), (100, 1000)] {
        let mut guest = Guest::pf();
        guest.start_tx(0, 32);
        let bytes = unsegmented(true, payload);
        guest.write(BUFFER, &bytes);
        let ctx = Ctx {
            mac: 14,
            ip: 20,
            l4: 20,
            mss,
            vlan: 0,
            kind: TCP4,
            slot: 1,
        };
        let flags = cmd::TSE | ALL;
        guest.send(
            0,
            &[
                ctx.desc(),
                data(BUFFER, bytes.len(), flags, IXSM | TXSM | 1 << 4, payload),
            ],
        );
        let wire = Wire::default();
        guest.run(&wire);
        let frames = wire.take();
        assert_eq!(frames.len(), payload.div_ceil(mss as usize));
        let mut whole = Vec::new();
        for (i, frame) in frames.iter().enumerate() {
            let last = i + 1 == frames.len();
            // What is padding is not of IP.
            let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let frame = &frame[..14 + total];
            assert!(intact(frame), "segment {i}");
            assert_eq!(frame[18..20], (0x1234 + i as u16).to_be_bytes());
            assert_eq!(frame[38..42], (i as u32 * mss as u32).to_be_bytes());
            assert_eq!(frame[47], if last { 0x18 } else { 0x10 });
            whole.extend_from_slice(&frame[54..]);
        }
        assert_eq!(whole, bytes[54..]);
        assert_eq!(guest.function.stats.total(Stat::Tsctfc), 0);
    }
}

#[test]
fn cwr_is_in_the_first_segment_only() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    let mut bytes = unsegmented(true, 300);
    bytes[47] = 0x90;
    guest.write(BUFFER, &bytes);
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 100,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    guest.send(
        0,
        &[
            ctx.desc(),
            data(BUFFER, bytes.len(), cmd::TSE | ALL, IXSM | TXSM, 300),
        ],
    );
    let wire = Wire::default();
    guest.run(&wire);
    let flags: Vec<_> = wire.take().iter().map(|frame| frame[47]).collect();
    assert_eq!(flags, [0x90, 0x10, 0x10]);
}

#[test]
fn segments_of_udp_have_lengths_and_sums_of_their_own() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    let bytes = unsegmented(false, 2500);
    guest.write(BUFFER, &bytes);
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 8,
        mss: 1000,
        vlan: 0,
        kind: UDP4,
        slot: 0,
    };
    guest.send(
        0,
        &[
            ctx.desc(),
            data(BUFFER, bytes.len(), cmd::TSE | ALL, IXSM | TXSM, 2500),
        ],
    );
    let wire = Wire::default();
    guest.run(&wire);
    let frames = wire.take();
    let lens: Vec<_> = frames
        .iter()
        .map(|f| u16::from_be_bytes([f[38], f[39]]))
        .collect();
    assert_eq!(lens, [1008, 1008, 508]);
    assert!(frames.iter().all(|frame| intact(frame)));
}

#[test]
fn what_is_given_counts_and_not_what_the_packet_looks_like() {
    // A tunnel: outer IPv4 and UDP (8), VXLAN (8), inner Ethernet, inner IPv4 and TCP. The driver
    // gives all up to the inner TCP as IPLEN (GSO_PARTIAL), and prepares the outer sums for that.
    let inner = unsegmented(true, 250);
    let mut bytes = packet::v4_with([9, 9, 9, 1], [9, 9, 9, 2], false, 7, 4789, 8 + inner.len());
    let at = bytes.len() - inner.len();
    bytes[at..].copy_from_slice(&inner);
    guest_prepares(&mut bytes);
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    guest.write(BUFFER, &bytes);
    let iplen = (at + 34 - 14) as u64;
    let ctx = Ctx {
        mac: 14,
        ip: iplen,
        l4: 20,
        mss: 100,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    guest.send(
        0,
        &[
            ctx.desc(),
            data(BUFFER, bytes.len(), cmd::TSE | ALL, IXSM | TXSM, 250),
        ],
    );
    let wire = Wire::default();
    guest.run(&wire);
    let frames = wire.take();
    assert_eq!(frames.len(), 3);
    for (i, frame) in frames.iter().enumerate() {
        // The outer header has the whole length and a right sum, the inner sequence number moves.
        let total = u16::from_be_bytes([frame[16], frame[17]]);
        assert_eq!(usize::from(total), frame.len() - 14);
        assert!(Sum::of(&frame[14..34]).is_intact(), "segment {i}");
        assert_eq!(frame[at + 38..at + 42], (i as u32 * 100).to_be_bytes());
        let tcp = &frame[at + 34..];
        let mut sum = Layers::parse(&frame[at..])
            .expect("inner")
            .pseudo_sum(&frame[at..], tcp.len())
            .expect("IP");
        sum.add(tcp);
        assert!(sum.is_intact(), "segment {i}");
    }

    fn guest_prepares(bytes: &mut [u8]) {
        // What lies between the outer IP header and the inner TCP cancels itself in the sum.
        let at = bytes.len() - 250 - 20;
        bytes[16..18].fill(0);
        let rest = Sum::of(&bytes[34..at]).finish();
        bytes[24..26].copy_from_slice(&rest.to_be_bytes());
    }
}

#[test]
fn a_queue_keeps_two_contexts() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 16);
    let mut bytes = packet::v4([10, 0, 0, 1], [10, 0, 0, 2], false, 1, 2);
    let layers = Layers::parse(&bytes).expect("headers");
    let seed = layers.pseudo_sum(&bytes, 28).expect("IP").value();
    bytes[40..42].copy_from_slice(&seed.to_be_bytes());
    bytes[24..26].fill(0);
    guest.write(BUFFER, &bytes);
    let len = bytes.len();
    let sums = Ctx {
        mac: 14,
        ip: 20,
        l4: 8,
        mss: 0,
        vlan: 7,
        kind: UDP4,
        slot: 0,
    };
    let other = Ctx {
        mac: 0,
        ip: 0,
        l4: 0,
        mss: 0,
        vlan: 9,
        kind: TCP4,
        slot: 1,
    };
    guest.send(
        0,
        &[
            sums.desc(),
            other.desc(),
            data(BUFFER, len, ALL, IXSM | TXSM, len),
            data(BUFFER, len, ALL | cmd::VLE, 1 << 4, len),
            data(BUFFER, len, ALL | cmd::VLE, IXSM | TXSM, len),
        ],
    );
    let wire = Wire::default();
    guest.run(&wire);
    let frames = wire.take();
    assert!(intact(&frames[0]));
    assert_eq!(frames[1][12..16], [0x81, 0, 0, 9]);
    assert_eq!(frames[1][16..], bytes[12..]);
    assert_eq!(frames[2][12..16], [0x81, 0, 0, 7]);
    assert!(intact(&frames[2]));
}

/// What is counted is what is on the wire, wherever a tag goes meanwhile.
#[test]
fn a_tag_counts_in_the_frame_and_beside_it() {
    for caps in [Caps::NONE, Caps::ALL] {
        for (mss, frames) in [(0, 1), (100, TSO_SEGMENTS)] {
            let mut guest = Guest::pf();
            guest.start_tx(0, 16);
            let bytes = unsegmented(true, 1000);
            guest.write(BUFFER, &bytes);
            let ctx = Ctx {
                mac: 14,
                ip: 20,
                l4: 20,
                mss,
                vlan: 9,
                kind: TCP4,
                slot: 0,
            };
            let cut = if mss == 0 { 0 } else { cmd::TSE };
            let paylen = if mss == 0 { bytes.len() } else { 1000 };
            let desc = data(
                BUFFER,
                bytes.len(),
                ALL | cmd::VLE | cut,
                IXSM | TXSM,
                paylen,
            );
            guest.send(0, &[ctx.desc(), desc]);
            let wire = Wire {
                caps,
                ..Wire::default()
            };
            guest.run(&wire);
            let counted =
                [Stat::Gptc, Stat::Gotc, Stat::Tot].map(|s| guest.function.stats.total(s));
            // Headers, tag and FCS of each, and what they carry.
            let octets = frames * (54 + 4 + 4) + 1000;
            assert_eq!(counted, [frames as u64, octets as u64, octets as u64]);
        }
    }
}

#[test]
fn each_pool_of_a_pf_has_its_tag() {
    let mut guest = Guest::pf();
    let bytes = packet::v4([10, 0, 0, 1], [10, 0, 0, 2], false, 1, 2);
    guest.write(BUFFER, &bytes);
    let asked = Ctx {
        mac: 0,
        ip: 0,
        l4: 0,
        mss: 0,
        vlan: 9,
        kind: 0,
        slot: 0,
    };
    let len = bytes.len();
    let descs = [
        data(BUFFER, len, ALL, 0, len),
        asked.desc(),
        data(BUFFER, len, ALL | cmd::VLE, 0, len),
    ];
    guest.function.vfs.store(3, Ordering::Relaxed);
    let file = &guest.function.file;
    file.set_at(r::VMVIR, 3, 1 << 30 | 5 << 13 | 100);
    file.set_at(r::VMVIR, 4, 2 << 30 | 200);
    let kind = std::cell::Cell::new(0x81);
    let tags = |guest: &mut Guest, queue: u32| {
        guest.start_tx(queue, 16);
        guest.send(queue, &descs);
        let wire = Wire::default();
        guest.run(&wire);
        let tag = |frame: &Vec<u8>| match frame[12..16] {
            [first, 0, high, low] if first == kind.get() => Some(u16::from_be_bytes([high, low])),
            _ => None,
        };
        wire.take().iter().map(tag).collect::<Vec<_>>()
    };
    // Without pools VMVIR says nothing.
    assert_eq!(tags(&mut guest, 3), [None, Some(9)]);
    guest.function.file.set(r::MRQC, 3);
    let forced = Some(5 << 13 | 100);
    assert_eq!(tags(&mut guest, 11), [forced, forced], "its other queue");
    assert_eq!(tags(&mut guest, 4), [None, None], "never");
    assert_eq!(tags(&mut guest, 5), [None, Some(9)], "as asked");
    guest.function.file.set(r::VET, 0x9100);
    kind.set(0x91);
    assert_eq!(tags(&mut guest, 3), [forced, forced], "of the port's type");
}

#[test]
fn sctp_has_its_crc() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    let mut bytes = packet::v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 1, 2, 1200);
    bytes[23] = 132;
    guest.write(BUFFER, &bytes);
    let len = bytes.len();
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 12,
        mss: 0,
        vlan: 0,
        kind: SCTP4,
        slot: 0,
    };
    guest.send(0, &[ctx.desc(), data(BUFFER, len, ALL, TXSM, len)]);
    let wire = Wire {
        caps: Caps::ALL,
        ..Wire::default()
    };
    guest.run(&wire);
    let frame = &wire.take()[0];
    let mut want = Crc32c::new();
    bytes[42..46].fill(0);
    want.add(&bytes[34..]);
    assert_eq!(frame[42..46], want.finish().to_le_bytes());
    assert_eq!(frame[46..], bytes[46..]);
}

#[test]
fn sending_allocates_nothing() {
    let mut guest = Guest::pf();
    let bytes = unsegmented(true, 3000);
    guest.write(BUFFER, &bytes);
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 1000,
        vlan: 5,
        kind: TCP4,
        slot: 0,
    };
    let all = [
        ctx.desc(),
        data(
            BUFFER,
            bytes.len(),
            cmd::TSE | ALL | cmd::VLE,
            IXSM | TXSM,
            3000,
        ),
        data(BUFFER, 100, ALL, 0, 100),
        legacy(BUFFER, 60, ALL),
    ];
    for queue in 0..3 {
        guest.start_tx(queue, 8);
    }
    let round = |guest: &mut Guest| {
        for queue in 0..3 {
            guest.send(queue, &all);
        }
        guest.sender.run(&guest.env, &Hole::default(), 256);
    };
    round(&mut guest);
    let again = || (0..10).for_each(|_| round(&mut guest));
    assert_eq!(allocation_counter::measure(again).count_total, 0);
    assert_eq!(guest.counter("tx_frames"), 11 * 3 * 5);
}

#[test]
fn queues_take_turns() {
    let mut guest = Guest::pf();
    let len = 256;
    for queue in [0, 5, 15] {
        guest.start_tx(queue, len);
        guest.write(BUFFER + u64::from(queue) * 0x1000, &[queue as u8; 60]);
        let desc = legacy(BUFFER + u64::from(queue) * 0x1000, 60, ALL);
        guest.send(queue, &vec![desc; len as usize - 1]);
    }
    let wire = Wire::default();
    assert_eq!(guest.run_some(&wire, 192), Progress::More);
    let frames = wire.take();
    for queue in [0, 5, 15] {
        let n = frames.iter().filter(|f| f[0] == queue).count();
        assert_eq!(n, 64, "queue {queue}");
    }
    while guest.run(&wire) == Progress::More {}
    assert_eq!(wire.take().len(), 3 * 255 - 192);
}

#[test]
fn what_the_sink_has_no_room_for_is_sent_later_and_once() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 16);
    let bytes = unsegmented(true, 1000);
    guest.write(BUFFER, &bytes);
    let ctx = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 100,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let desc = data(BUFFER, bytes.len(), cmd::TSE | ALL, IXSM | TXSM, 1000);
    guest.send(0, &[ctx.desc(), desc, desc]);
    let wire = Wire::default();
    let mut frames = Vec::new();
    for room in [3, 0, 9, 1, 100] {
        wire.set_room(room);
        let want = if room == 100 {
            Progress::Idle
        } else {
            Progress::Blocked
        };
        assert_eq!(guest.run(&wire), want, "room for {room}");
        frames.extend(wire.take());
        let head = guest.get(QUEUES.tdh, 0);
        assert_eq!(head as usize, [1, 2, 3][frames.len() / 10].min(3));
    }
    let seqs: Vec<_> = frames
        .iter()
        .map(|f| u32::from_be_bytes([f[38], f[39], f[40], f[41]]) / 100)
        .collect();
    assert_eq!(seqs, (0..10).chain(0..10).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_sent_is_counted_by_its_reason() {
    let zero = Ctx {
        mac: 0,
        ip: 0,
        l4: 0,
        mss: 0,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let huge = Ctx {
        mac: 127,
        ip: 511,
        l4: 255,
        mss: 0xffff,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let tiny = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 1,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let sctp = Ctx {
        mac: 14,
        ip: 20,
        l4: 12,
        mss: 100,
        vlan: 0,
        kind: SCTP4,
        slot: 0,
    };
    let tso = cmd::TSE | ALL;
    let cases: &[(&str, &[(u64, u64)])] = &[
        (
            "tx_bad_tso",
            &[zero.desc(), data(BUFFER, 1000, tso, 0, 1000)],
        ),
        ("tx_bad_tso", &[huge.desc(), data(BUFFER, 500, tso, 0, 100)]),
        ("tx_bad_tso", &[tiny.desc(), data(BUFFER, 54, tso, 0, 0)]),
        (
            "tx_bad_tso",
            &[sctp.desc(), data(BUFFER, 1000, tso, 0, 900)],
        ),
        (
            "tx_bad_tso",
            &[tiny.desc(), data(BUFFER, 0xffff, tso, 0, 0xffff - 54)],
        ),
        ("tx_too_long", &[data(BUFFER, 0xffff, ALL, 0, 0)]),
        ("tx_dma_fault", &[data(MEMORY - 8, 60, ALL, 0, 60)]),
        ("tx_dma_fault", &[data(u64::MAX - 8, 60, ALL, 0, 60)]),
        (
            "tx_bad_checksum",
            &[huge.desc(), data(BUFFER, 60, ALL, IXSM | TXSM, 60)],
        ),
        (
            "tx_bad_desc",
            &[(0, 0x2050_0000), data(BUFFER, 60, ALL, 0, 60)],
        ),
    ];
    for (counter, descs) in cases {
        let mut guest = Guest::pf();
        guest.start_tx(0, 16);
        guest.send(0, descs);
        assert_eq!(guest.run(&Wire::default()), Progress::Idle, "{counter}");
        assert_eq!(guest.counter(counter), 1, "{counter}");
        assert_eq!(
            guest.get(QUEUES.tdh, 0),
            guest.get(QUEUES.tdt, 0),
            "{counter}"
        );
    }
}

#[test]
fn a_frame_without_padding_is_a_runt() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 16);
    guest.send(0, &[data(BUFFER, 13, ALL, 0, 13)]);
    guest.run(&Wire::default());
    assert_eq!(guest.counter("tx_runt"), 1);
}

#[test]
fn a_ring_that_is_none_is_counted_and_left_alone() {
    for (len, head, tail) in [
        (0, 0, 1),
        (128, 8, 0),
        (128, 0, 8),
        (128, 0xffff, 0xffff - 1),
    ] {
        let mut guest = Guest::pf();
        guest.start_tx(0, 8);
        guest.set(QUEUES.tdlen, 0, len);
        guest.set(QUEUES.tdh, 0, head);
        guest.set(QUEUES.tdt, 0, tail);
        assert_eq!(guest.run(&Wire::default()), Progress::Idle);
        assert_eq!(guest.counter("tx_bad_ring"), 1);
        assert_eq!(guest.get(QUEUES.tdh, 0), head);
    }
}

#[test]
fn a_packet_without_an_end_is_given_up() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    guest.send(0, &[data(BUFFER, 60, cmd::IFCS, 0, 60); 7]);
    while guest.run(&Wire::default()) != Progress::Idle {}
    assert_eq!(guest.counter("tx_too_many_descs"), 1);
    // Up to its end it is passed over; what is behind it is sent.
    let frame = packet::v4([1; 4], [2; 4], true, 3, 4);
    guest.write(BUFFER, &frame);
    let wire = Wire::default();
    guest.send(
        0,
        &[
            data(BUFFER, 60, ALL, 0, 60),
            legacy(BUFFER, frame.len(), ALL),
        ],
    );
    guest.run(&wire);
    assert_eq!(wire.take(), [frame]);
}

#[test]
fn a_stopped_queue_sends_when_it_is_started() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    guest.set(QUEUES.txdctl, 0, 0);
    guest.send(0, &[legacy(BUFFER, 60, ALL)]);
    let wire = Wire::default();
    assert_eq!(guest.run(&wire), Progress::Idle);
    assert!(wire.take().is_empty());
    guest.set(QUEUES.txdctl, 0, crate::regs::bits::xdctl::ENABLE);
    guest.run(&wire);
    assert_eq!(wire.take().len(), 1);
}

#[test]
fn looped_back_frames_come_to_our_own_receiver() {
    let mut guest = Guest::pf();
    guest.function.loopback.store(true, Ordering::Relaxed);
    guest.function.link_up.store(false, Ordering::Relaxed);
    guest.start_tx(0, 8);
    guest.start_rx(0, 8, 0);
    let frame = packet::v4([1; 4], [2; 4], true, 3, 4);
    guest.write(BUFFER, &frame);
    guest.send(0, &[legacy(BUFFER, frame.len(), ALL); 7]);
    let wire = Wire::default();
    guest.run(&wire);
    assert!(wire.take().is_empty());
    assert_eq!(guest.get(QUEUES.rdh, 0), 7);
    assert_eq!(
        guest.read(crate::testing::packet_buffer(0, 6), frame.len()),
        frame
    );
    // From the wire nothing comes in.
    assert_eq!(guest.receive(&[frame]), 1);
    assert_eq!(guest.counter("rx_disabled"), 1);
}

/// Any descriptor, most of them with sense.
fn any_desc() -> impl Strategy<Value = (u64, u64)> {
    let addr = prop_oneof![Just(BUFFER), 0..MEMORY + 0x1000, any::<u64>()];
    let len = prop_oneof![0..200usize, 0..0x1_0000usize];
    let sane = (addr, len, any::<u8>(), any::<u32>(), 0..0x4_0000usize)
        .prop_map(|(at, len, cmd, olinfo, paylen)| data(at, len, cmd, olinfo & 0x3ff0, paylen));
    let ctx = (
        0..128u64,
        0..512u64,
        0..256u64,
        0..0x1_0000u64,
        0..16u64,
        0..2u64,
    )
        .prop_map(|(mac, ip, l4, mss, kind, slot)| {
            Ctx {
                mac,
                ip,
                l4,
                mss,
                vlan: 1,
                kind: kind << 10,
                slot,
            }
            .desc()
        });
    prop_oneof![4 => sane, 2 => ctx, 1 => (any::<u64>(), any::<u64>())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 60 }))]
    /// Whatever descriptors say: calls end, heads stay inside, frames are of lengths a wire takes,
    /// and what is taken away comes to its end.
    #[test]
    fn any_descriptors_come_to_an_end(
        descs in proptest::collection::vec(any_desc(), 1..31),
        queue in 0..16u32,
        all_caps: bool,
        room in 0..40usize,
    ) {
        let mut guest = Guest::pf();
        guest.start_tx(queue, 32);
        guest.send(queue, &descs);
        let caps = if all_caps { Caps::ALL } else { Caps::NONE };
        let wire = Wire { caps, ..Wire::default() };
        wire.set_room(room);
        let mut calls = 0;
        loop {
            let progress = guest.run(&wire);
            if progress == Progress::Idle {
                break;
            }
            if progress == Progress::Blocked {
                wire.set_room(1000);
            }
            calls += 1;
            prop_assert!(calls < 4000, "it goes on for ever");
        }
        prop_assert!(guest.get(QUEUES.tdh, queue) < 32);
        for frame in wire.take() {
            prop_assert!(frame.len() >= 14);
        }
    }
}

/// One call is one ring's worth of descriptors and the rest of a turn, not that of sixteen rings: whoever
/// shares the worker would wait for it.
#[test]
#[cfg_attr(miri, ignore = "a million descriptors")]
fn the_largest_rings_of_all_queues_are_not_one_calls_work() {
    const LARGEST: u32 = 65_528;
    let context = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 100,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let (low, high) = context.desc();
    let raw = u128::from(high | u64::from(cmd::RS) << 24) << 64 | u128::from(low);
    for raw in [0, raw] {
        let mut guest = Guest::pf();
        let wire = Wire::default();
        guest.write(0, &raw.to_le_bytes().repeat(LARGEST as usize));
        for queue in 0..16 {
            guest.start_tx(queue, LARGEST);
            guest.set(QUEUES.tdbal, queue, 0);
            guest.set(QUEUES.tdt, queue, LARGEST - 1);
        }
        let (mut calls, mut before) = (0, 0);
        loop {
            let progress = guest.run(&wire);
            let fetched = guest.counter("tx_desc_fetched");
            assert!(
                fetched - before <= u64::from(LARGEST),
                "{}",
                fetched - before
            );
            before = fetched;
            calls += 1;
            match progress {
                Progress::More => assert!(calls < 100),
                other => {
                    assert_eq!(other, Progress::Idle);
                    break;
                }
            }
        }
        for queue in 0..16 {
            assert_eq!(guest.get(QUEUES.tdh, queue), LARGEST - 1);
        }
    }
}

//! Segmentation, checksums and tags.

use std::sync::atomic::Ordering;

use frame::Caps;
use wire::{Crc32c, Layers, Sum};

use crate::core::stats::Stat;
use crate::regs as r;
use crate::testing::{Guest, Wire, packet};
use crate::tx::desc::cmd;
use crate::tx::tests::descs::*;

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
fn a_packet_with_cwr_stays_whole_for_a_sink_that_knows_ecn() {
    let ignorant = Caps {
        ecn: false,
        ..Caps::ALL
    };
    for (flags, caps, frames) in [
        (0x90, Caps::ALL, 1),
        (0x90, ignorant, 3),
        (0x10, ignorant, 1),
    ] {
        let mut guest = Guest::pf();
        guest.start_tx(0, 8);
        let mut bytes = unsegmented(true, 3000);
        bytes[47] = flags;
        guest.write(BUFFER, &bytes);
        let ctx = Ctx {
            mac: 14,
            ip: 20,
            l4: 20,
            mss: 1000,
            vlan: 0,
            kind: TCP4,
            slot: 0,
        };
        let desc = data(BUFFER, bytes.len(), cmd::TSE | ALL, IXSM | TXSM, 3000);
        guest.send(0, &[ctx.desc(), desc]);
        let wire = Wire::with(caps);
        guest.run(&wire);
        let got = wire.take_notes();
        assert_eq!(got.len(), frames, "{flags:#x}");
        let (first, notes) = &got[0];
        assert_eq!(first[47], flags);
        assert_eq!(notes.ecn, frames == 1 && flags & 0x80 != 0);
        assert!(got[1..].iter().all(|(frame, _)| frame[47] & 0x80 == 0));
    }
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

//! What goes on the wire for what the guest wrote.

mod common;
#[path = "common/packet.rs"]
mod packet;

use common::*;
use frame::Caps;
use model::Progress;
use packet::*;
use wire::Gso;

const IXSM: u8 = 1;
const TXSM: u8 = 2;

fn machine(caps: Caps) -> Machine {
    let mut m = Machine::new(Wire::with(caps));
    m.tx_on(64);
    m
}

/// Puts a packet into the ring as data descriptors of the given lengths, from `index` on, behind a
/// context. Returns the next index; the tail is not moved.
fn put(m: &Machine, index: u32, ctx: Option<&Ctx>, bytes: &[u8], cuts: &[usize], desc: D) -> u32 {
    let base = TX_BUFFERS + u64::from(index) * 0x1_0000;
    m.poke(base, bytes);
    let mut index = index;
    if let Some(ctx) = ctx {
        let (low, high) = ctx.words();
        m.tx_desc(index, low, high);
        index += 1;
    }
    let mut at = 0;
    let mut lens: Vec<usize> = cuts.to_vec();
    lens.push(bytes.len() - cuts.iter().sum::<usize>());
    for (i, len) in lens.iter().enumerate() {
        let last = i + 1 == lens.len();
        let cmd = desc.cmd | IFCS | if last { EOP | RS } else { 0 };
        // POPTS and special count in the first descriptor only.
        let popts = if i == 0 { desc.popts } else { !desc.popts & 3 };
        let special = if i == 0 { desc.special } else { 0xffff };
        let high = data(*len as u32, cmd, popts, special);
        m.tx_desc(index, base + at as u64, high);
        at += len;
        index += 1;
    }
    index
}

#[derive(Clone, Copy, Default)]
struct D {
    cmd: u8,
    popts: u8,
    special: u16,
}

fn send(m: &mut Machine, ctx: Option<&Ctx>, bytes: &[u8], cuts: &[usize], desc: D) {
    let next = put(m, 0, ctx, bytes, cuts, desc);
    m.w(reg::TDT, next);
    assert_eq!(m.r(reg::TDH), next, "all of it is done");
    assert!(m.tx_done(next - 1));
}

fn ctx4(l4: u8) -> Ctx {
    Ctx {
        ip: (14, 24, 33),
        tu: (34, if l4 == 6 { 50 } else { 40 }, 0),
        paylen: 0,
        cmd: if l4 == 6 { 3 } else { 2 },
        hdrlen: 0,
        mss: 0,
    }
}

fn partial4(protocol: u8, data: &[u8]) -> Vec<u8> {
    let l4 = if protocol == 6 { 20 } else { 8 } + data.len() as u16;
    let mut frame = ethernet(0x0800);
    frame.extend(ipv4(protocol, 20 + l4));
    let seed = pseudo4(protocol, l4);
    if protocol == 6 {
        frame.extend(tcp(0x18, seed));
    } else {
        frame.extend(udp(l4, seed));
    }
    frame.extend(data);
    frame
}

#[test]
fn checksums_are_inserted_where_the_context_says() {
    for protocol in [6, 17] {
        for len in [6, 7, 100, 1401, 1460] {
            for cuts in [&[][..], &[1], &[14], &[54], &[60, 1, 3]] {
                let packet = partial4(protocol, &payload(len));
                if cuts.iter().sum::<usize>() >= packet.len() {
                    continue;
                }
                let mut want = packet.clone();
                finish4(&mut want);
                let mut m = machine(Caps::NONE);
                let popts = IXSM | TXSM;
                let desc = D {
                    popts,
                    ..D::default()
                };
                send(&mut m, Some(&ctx4(protocol)), &packet, cuts, desc);
                assert_eq!(m.wire.take(), [want], "{protocol} {len} {cuts:?}");
            }
        }
    }
}

#[test]
fn a_sink_that_takes_notes_gets_the_checksum_as_a_note() {
    let packet = partial4(6, &payload(1460));
    let mut m = machine(Caps::ALL);
    let desc = D {
        popts: IXSM | TXSM,
        ..D::default()
    };
    send(&mut m, Some(&ctx4(6)), &packet, &[], desc);
    let (bytes, notes) = m.wire.take_notes().remove(0);
    let csum = notes.csum.expect("a note");
    assert_eq!((csum.start, csum.offset), (34, 16));
    assert_eq!(sum(&bytes[14..34]), 0xffff, "the IP checksum is ours to do");
    assert_eq!(bytes[34..], packet[34..]);
}

/// Anything that is not what the headers say is done as the hardware does it.
#[test]
fn odd_offsets_are_computed_and_not_noted() {
    let packet = partial4(17, &payload(200));
    let odd = [
        (40, 44, 0),
        (34, 41, 0),
        (34, 40, 100),
        (20, 60, 0),
        (0, 255 - 20, 0),
    ];
    for tu in odd {
        let ctx = Ctx { tu, ..ctx4(17) };
        let (start, field) = (usize::from(tu.0), usize::from(tu.1));
        let end = match tu.2 {
            0 => packet.len(),
            last => usize::from(last) + 1,
        };
        let mut want = packet.clone();
        let value = !sum(&packet[start..end]);
        want[field..field + 2].copy_from_slice(&value.to_be_bytes());
        let mut m = machine(Caps::ALL);
        let desc = D {
            popts: TXSM,
            ..D::default()
        };
        send(&mut m, Some(&ctx), &packet, &[9, 30], desc);
        let (bytes, notes) = m.wire.take_notes().remove(0);
        assert!(notes.is_plain());
        assert_eq!(bytes, want, "{tu:?}");
    }
    // A wrong seed gives a wrong checksum, not a repaired one.
    let mut bad = packet.clone();
    bad[41] ^= 0x55;
    let mut m = machine(Caps::ALL);
    let desc = D {
        popts: TXSM,
        ..D::default()
    };
    send(&mut m, Some(&ctx4(17)), &bad, &[], desc);
    let (bytes, notes) = m.wire.take_notes().remove(0);
    assert!(notes.is_plain());
    let mut right = packet;
    finish4(&mut right);
    assert_ne!(bytes[40..42], right[40..42]);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    let mut packet = partial4(17, &[0; 20]);
    // Choose the data so that the sum comes out as 0xFFFF.
    let rest = !sum(&packet[34..]);
    packet[60..62].copy_from_slice(&rest.to_be_bytes());
    let mut m = machine(Caps::NONE);
    let desc = D {
        popts: TXSM,
        ..D::default()
    };
    send(&mut m, Some(&ctx4(17)), &packet, &[], desc);
    assert_eq!(m.wire.take()[0][40..42], [0xff, 0xff]);
}

#[test]
fn legacy_descriptors_insert_one_checksum() {
    let packet = partial4(6, &payload(100));
    let mut want = packet.clone();
    finish4(&mut want);
    want[24..26].copy_from_slice(&packet[24..26]);
    let mut m = machine(Caps::NONE);
    m.poke(TX_BUFFERS, &packet);
    let high = legacy(packet.len() as u16, EOP | IFCS | IC | RS);
    m.tx_desc(0, TX_BUFFERS, high | 50 << 16 | 34 << 40);
    m.w(reg::TDT, 1);
    assert_eq!(m.wire.take(), [want]);
}

#[test]
fn the_two_contexts_do_not_disturb_each_other() {
    let mut m = machine(Caps::NONE);
    let tso = Ctx {
        cmd: 1 | 2 | 4,
        hdrlen: 54,
        mss: 500,
        ..ctx4(6)
    };
    let udp_packet = partial4(17, &payload(64));
    let (low, high) = ctx4(17).words();
    m.tx_desc(0, low, high);
    let (low, high) = tso.words();
    m.tx_desc(1, low, high);
    let desc = D {
        popts: IXSM | TXSM,
        ..D::default()
    };
    let next = put(&m, 2, None, &udp_packet, &[], desc);
    m.w(reg::TDT, next);
    let mut want = udp_packet;
    finish4(&mut want);
    assert_eq!(m.wire.take(), [want]);
}

fn tso4(len: usize, flags: u8) -> Vec<u8> {
    let mut frame = ethernet(0x0800);
    frame.extend(ipv4(6, 0));
    frame.extend(tcp(flags, pseudo4(6, 0)));
    frame.extend(payload(len));
    frame
}

fn tso_ctx4(mss: u16) -> Ctx {
    Ctx {
        cmd: 1 | 2 | 4,
        hdrlen: 54,
        mss,
        ..ctx4(6)
    }
}

const SEGMENT: D = D {
    cmd: TSE,
    popts: IXSM | TXSM,
    special: 0,
};

fn check_segments(frames: &[Vec<u8>], hdr: usize, mss: usize, len: usize, flags: u8) {
    assert_eq!(frames.len(), len.div_ceil(mss));
    let mut data: Vec<u8> = Vec::new();
    let l4 = hdr - 20;
    for (i, frame) in frames.iter().enumerate() {
        assert_right(frame);
        let seq = u32::from_be_bytes(frame[l4 + 4..l4 + 8].try_into().expect("4"));
        assert_eq!(seq, 0xffff_ff00u32.wrapping_add(data.len() as u32));
        let last = i + 1 == frames.len();
        let want = if last { flags } else { flags & !0x09 };
        assert_eq!(frame[l4 + 13], want, "flags of segment {i}");
        if hdr == 54 {
            let id = u16::from_be_bytes([frame[18], frame[19]]);
            assert_eq!(id, 0x12fe + i as u16);
        }
        data.extend(&frame[hdr..]);
    }
    assert_eq!(data, payload(len));
}

#[test]
fn tcp_over_ipv4_is_cut_with_a_right_last_segment() {
    for (len, mss) in [
        (1500, 1000),
        (3000, 1000),
        (65000, 1448),
        (700, 1000),
        (1, 1),
    ] {
        for cuts in [&[][..], &[54], &[20, 34, 100]] {
            if cuts.iter().sum::<usize>() >= 54 + len {
                continue;
            }
            let mut m = machine(Caps::NONE);
            let packet = tso4(len, 0x19);
            send(&mut m, Some(&tso_ctx4(mss)), &packet, cuts, SEGMENT);
            let mss = usize::from(mss);
            check_segments(&m.wire.take(), 54, mss, len, 0x19);
            assert_eq!(m.counter("tx_tso_frames"), 1);
            assert_eq!(m.r(0x4080), len.div_ceil(mss) as u32, "GPTC");
            assert_eq!(m.r(0x40f8), 1, "TSCTC");
        }
    }
}

fn tso6(len: usize) -> (Vec<u8>, Ctx) {
    let mut frame = ethernet(0x86dd);
    frame.extend(ipv6(6, 0));
    frame.extend(tcp(0x18, pseudo6(6, 0)));
    frame.extend(payload(len));
    let ctx = Ctx {
        ip: (14, 0, 53),
        tu: (54, 70, 0),
        paylen: len as u32,
        cmd: 1 | 4,
        hdrlen: 74,
        mss: 1428,
    };
    (frame, ctx)
}

#[test]
fn tcp_over_ipv6_is_cut() {
    let mut m = machine(Caps::NONE);
    let (packet, ctx) = tso6(10_000);
    let desc = D {
        popts: TXSM,
        ..SEGMENT
    };
    send(&mut m, Some(&ctx), &packet, &[74], desc);
    check_segments(&m.wire.take(), 74, 1428, 10_000, 0x18);
}

#[test]
fn a_sink_that_takes_large_frames_gets_them_whole() {
    let mut m = machine(Caps::ALL);
    let packet = tso4(60_000, 0x18);
    send(
        &mut m,
        Some(&tso_ctx4(1448)),
        &packet,
        &[54, 30_000],
        SEGMENT,
    );
    let (bytes, notes) = m.wire.take_notes().remove(0);
    assert_eq!(
        (notes.gso, notes.gso_size, notes.hdr_len),
        (Gso::Tcp4, 1448, 54)
    );
    let csum = notes.csum.expect("a note");
    assert_eq!((csum.start, csum.offset), (34, 16));
    assert_eq!(u16::from_be_bytes([bytes[16], bytes[17]]), 60_040);
    assert_eq!(sum(&bytes[14..34]), 0xffff);
    assert_eq!(bytes[50..52], pseudo4(6, 60_020).to_be_bytes());
    assert_eq!(bytes[54..], payload(60_000));
    assert_eq!(m.r(0x4080), 42, "GPTC counts what goes on the wire");
    assert_eq!(m.r(0x4090), 60_000 + 42 * 58, "GOTC");

    let mut m = machine(Caps::ALL);
    let (packet, ctx) = tso6(50_000);
    let desc = D {
        popts: TXSM,
        ..SEGMENT
    };
    send(&mut m, Some(&ctx), &packet, &[], desc);
    let (bytes, notes) = m.wire.take_notes().remove(0);
    assert_eq!((notes.gso, notes.hdr_len), (Gso::Tcp6, 74));
    assert_eq!(u16::from_be_bytes([bytes[18], bytes[19]]), 50_020);
    assert_eq!(bytes[70..72], pseudo6(6, 50_020).to_be_bytes());
}

#[test]
fn what_a_note_cannot_say_is_cut_here() {
    // More than IP can hold; CWR; a wrong seed; a checksum that ends early.
    let long = tso4(0x1_2000, 0x18);
    let cwr = tso4(3000, 0x98);
    let mut seed = tso4(3000, 0x18);
    seed[50] ^= 1;
    let early = Ctx {
        tu: (34, 50, 60),
        ..tso_ctx4(1000)
    };
    for (packet, ctx) in [
        (&long, tso_ctx4(1000)),
        (&cwr, tso_ctx4(1000)),
        (&seed, tso_ctx4(1000)),
        (&tso4(3000, 0x18), early),
    ] {
        let mut m = machine(Caps::ALL);
        send(&mut m, Some(&ctx), packet, &[], SEGMENT);
        let frames = m.wire.take_notes();
        assert_eq!(frames.len(), (packet.len() - 54).div_ceil(1000));
        assert!(frames.iter().all(|(_, notes)| notes.is_plain()));
    }
}

#[test]
fn tags_are_inserted_in_front_of_the_type() {
    let packet = partial4(6, &payload(100));
    let mut finished = packet.clone();
    finish4(&mut finished);
    let desc = D {
        cmd: VLE,
        popts: IXSM | TXSM,
        special: 0x2064,
    };
    for vme in [false, true] {
        let mut m = machine(Caps::NONE);
        let ctrl = m.r(reg::CTRL);
        m.w(reg::CTRL, ctrl | if vme { 1 << 30 } else { 0 });
        send(&mut m, Some(&ctx4(6)), &packet, &[], desc);
        let mut want = finished[..12].to_vec();
        if vme {
            want.extend([0x81, 0, 0x20, 0x64]);
        }
        want.extend(&finished[12..]);
        assert_eq!(m.wire.take(), [want]);
    }
    // Beside the frame for a sink that takes it so; inside if the type is not 802.1Q.
    for (vet, caps, beside, start) in [
        (0x8100, Caps::ALL, true, 34),
        (0x88a8, Caps::ALL, false, 38),
        (
            0x8100,
            Caps {
                vlan: false,
                ..Caps::ALL
            },
            false,
            38,
        ),
    ] {
        let mut m = machine(caps);
        let ctrl = m.r(reg::CTRL);
        m.w(reg::CTRL, ctrl | 1 << 30);
        m.w(reg::VET, vet);
        send(&mut m, Some(&ctx4(6)), &packet, &[], desc);
        let (bytes, notes) = m.wire.take_notes().remove(0);
        assert_eq!(notes.vlan, beside.then_some(0x2064));
        assert_eq!(notes.csum.expect("a note").start, start);
        assert_eq!(bytes.len(), packet.len() + if beside { 0 } else { 4 });
        if !beside {
            assert_eq!(bytes[12..14], (vet as u16).to_be_bytes());
        }
    }
}

#[test]
fn tags_go_into_every_segment() {
    let mut m = machine(Caps::NONE);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl | 1 << 30);
    let desc = D {
        cmd: TSE | VLE,
        special: 7,
        ..SEGMENT
    };
    send(&mut m, Some(&tso_ctx4(1000)), &tso4(2500, 0x18), &[], desc);
    let mut frames = m.wire.take();
    for frame in &mut frames {
        assert_eq!(frame[12..16], [0x81, 0, 0, 7]);
        frame.drain(12..16);
    }
    check_segments(&frames, 54, 1000, 2500, 0x18);
}

#[test]
fn short_packets_are_padded_only_when_asked() {
    let packet = plain(PEER, 20);
    for (tctl, len) in [(0x2, 20), (0xa, 60)] {
        let mut m = machine(Caps::NONE);
        m.w(reg::TCTL, tctl);
        send(&mut m, None, &packet, &[], D::default());
        let frames = m.wire.take();
        assert_eq!(frames[0].len(), len);
        assert_eq!(frames[0][..20], packet);
        assert!(frames[0][20..].iter().all(|b| *b == 0));
    }
}

#[test]
fn without_ifcs_the_guest_has_written_the_fcs_itself() {
    let mut m = machine(Caps::NONE);
    let packet = plain(PEER, 104);
    m.poke(TX_BUFFERS, &packet);
    m.tx_desc(0, TX_BUFFERS, legacy(104, EOP | RS));
    m.w(reg::TDT, 1);
    assert_eq!(m.wire.take(), [packet[..100].to_vec()]);
}

#[test]
fn status_is_written_back_where_asked_and_only_there() {
    let mut m = machine(Caps::NONE);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    let cmds = [RS, 0, RPS, RS | IDE, 0];
    for (i, cmd) in (0..).zip(cmds) {
        m.tx_desc(i, TX_BUFFERS, legacy(60, EOP | IFCS | cmd) | 0xabcd << 48);
    }
    m.w(reg::TDT, 5);
    let done: Vec<_> = (0..5).map(|i| m.tx_done(i)).collect();
    assert_eq!(done, [true, false, true, true, false]);
    let desc = m.peek(TX_RING, 16);
    assert_eq!(desc[14..], [0xcd, 0xab], "nothing else is touched");
    assert_eq!(m.wire.take().len(), 5);
}

#[test]
fn the_ring_wraps() {
    let mut m = machine(Caps::NONE);
    m.w(reg::TDLEN, 128);
    let mut sent = 0u32;
    for round in 0..20u32 {
        for i in 0..5 {
            let index = (sent + i) % 8;
            let at = TX_BUFFERS + u64::from(index) * 256;
            m.poke(at, &plain(PEER, 60 + ((round * 5 + i) % 100) as usize));
            m.tx_desc(
                index,
                at,
                legacy(60 + ((round * 5 + i) % 100) as u16, EOP | IFCS | RS),
            );
        }
        sent += 5;
        m.w(reg::TDT, sent % 8);
        assert_eq!(m.r(reg::TDH), sent % 8);
        let lens: Vec<_> = m.wire.take().iter().map(Vec::len).collect();
        let want: Vec<_> = (0..5)
            .map(|i| 60 + ((round * 5 + i) % 100) as usize)
            .collect();
        assert_eq!(lens, want);
    }
}

#[test]
fn what_the_sink_does_not_take_is_not_done() {
    let mut m = machine(Caps::NONE);
    m.r(reg::ICR);
    *m.wire.room.lock().expect("room") = Some(2);
    for i in 0..5u32 {
        let at = TX_BUFFERS + u64::from(i) * 256;
        m.poke(at, &plain(PEER, 60 + i as usize));
        m.tx_desc(i, at, legacy(60 + i as u16, EOP | IFCS | RS));
    }
    m.w(reg::TDT, 5);
    assert_eq!(m.r(reg::TDH), 2);
    let done: Vec<_> = (0..5).map(|i| m.tx_done(i)).collect();
    assert_eq!(done, [true, true, false, false, false]);
    assert_eq!(m.run(), Progress::Blocked);
    assert_eq!(m.r(reg::ICR) & 3, 1, "TXDW but not TXQE");
    *m.wire.room.lock().expect("room") = None;
    assert_eq!(m.run(), Progress::Idle);
    assert_eq!(m.r(reg::TDH), 5);
    assert_eq!(m.r(reg::ICR) & 3, 3);
    let lens: Vec<_> = m.wire.take().iter().map(Vec::len).collect();
    assert_eq!(lens, [60, 61, 62, 63, 64]);
    assert_eq!(m.counter("tx_frames"), 5);
}

/// A sink that fills up in the middle of a segmented packet gets each segment once, and the
/// context that belongs to the packet is still known when it goes on.
#[test]
fn a_packet_cut_short_by_the_sink_goes_on_where_it_was() {
    for step in [1, 3, 7] {
        let mut m = machine(Caps::NONE);
        *m.wire.room.lock().expect("room") = Some(0);
        let first = tso4(20_000, 0x18);
        let next = put(&m, 0, Some(&tso_ctx4(1000)), &first, &[54], SEGMENT);
        let next = put(&m, next, Some(&tso_ctx4(700)), &first, &[], SEGMENT);
        m.w(reg::TDT, next);
        for _ in 0..100 {
            *m.wire.room.lock().expect("room") = Some(step);
            if m.run() == Progress::Idle {
                break;
            }
        }
        assert_eq!(m.r(reg::TDH), next);
        let frames = m.wire.take();
        check_segments(&frames[..20], 54, 1000, 20_000, 0x18);
        check_segments(&frames[20..], 54, 700, 20_000, 0x18);
    }
}

#[test]
fn more_segments_than_a_batch_holds_go_in_several() {
    let mut m = machine(Caps::NONE);
    let packet = tso4(60_000, 0x18);
    send(&mut m, Some(&tso_ctx4(88)), &packet, &[54], SEGMENT);
    check_segments(&m.wire.take(), 54, 88, 60_000, 0x18);
}

#[test]
fn a_packet_waits_for_its_end() {
    let mut m = machine(Caps::NONE);
    let packet = plain(PEER, 300);
    m.poke(TX_BUFFERS, &packet);
    m.tx_desc(0, TX_BUFFERS, data(100, IFCS, 0, 0));
    m.tx_desc(1, TX_BUFFERS + 100, data(100, IFCS, 0, 0));
    m.tx_desc(2, TX_BUFFERS + 200, data(100, IFCS | EOP | RS, 0, 0));
    m.w(reg::TDT, 1);
    m.w(reg::TDT, 2);
    assert!(m.wire.take().is_empty());
    m.w(reg::TDT, 3);
    assert_eq!(m.wire.take(), [packet]);
    assert_eq!(m.r(reg::TDH), 3);
}

#[test]
fn the_transmitter_waits_for_enable_link_and_bus_mastering() {
    let mut m = machine(Caps::NONE);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    for i in 0..4 {
        m.tx_desc(i, TX_BUFFERS, legacy(60, EOP | IFCS | RS));
    }
    m.w(reg::TCTL, 0);
    m.w(reg::TDT, 1);
    assert!(m.wire.take().is_empty());
    m.w(reg::TCTL, 2);
    assert_eq!(m.wire.take().len(), 1);
    m.nic.control.set_link(&m.env, false);
    m.w(reg::TDT, 2);
    assert!(m.wire.take().is_empty());
    m.nic.control.set_link(&m.env, true);
    m.sleep(10_000_000);
    assert_eq!(m.wire.take().len(), 1);
    let off = model::PciState::default();
    m.nic.control.pci(&m.env, off);
    m.w(reg::TDT, 3);
    assert!(m.wire.take().is_empty());
    let on = model::PciState {
        bus_master: true,
        ..off
    };
    m.nic.control.pci(&m.env, on);
    m.work();
    assert_eq!(m.wire.take().len(), 1);
}

/// PHY loopback with the frames and flags of the drivers' self-test; RCTL.LBM likewise.
#[test]
fn loopback_brings_frames_back_and_cuts_the_wire() {
    for by_phy in [true, false] {
        let mut m = Machine::default();
        m.rx_on(128, 0x8008);
        m.tx_on(128);
        if by_phy {
            m.phy_write(0, 0x4140);
        } else {
            m.w(reg::RCTL, 0x8008 | 2 | 3 << 6);
        }
        let frame = plain([0xff; 6], 1024);
        m.poke(TX_BUFFERS, &frame);
        for i in 0..64 {
            m.tx_desc(i, TX_BUFFERS, legacy(1024, EOP | IFCS | RPS));
        }
        m.w(reg::TDT, 64);
        assert!(m.wire.take().is_empty());
        assert_eq!(m.r(reg::RDH), 64);
        assert_eq!(m.peek(RX_BUFFERS + 63 * 0x4000, 1024), frame);
        assert!(m.tx_done(63));
        assert_eq!(m.offer(&[&frame]), 1);
        assert_eq!(m.r(reg::RDH), 64, "nothing comes in from outside");
    }
}

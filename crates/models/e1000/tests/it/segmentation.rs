//! Large packets: cut as the hardware cuts them, or handed on whole.

use crate::common::*;
use crate::packet::*;
use crate::send::*;
use frame::Caps;
use model::Progress;
use wire::Gso;

pub fn tso4(len: usize, flags: u8) -> Vec<u8> {
    let mut frame = ethernet(0x0800);
    frame.extend(ipv4(6, 0));
    frame.extend(tcp(flags, pseudo4(6, 0)));
    frame.extend(payload(len));
    frame
}

pub fn tso_ctx4(mss: u16) -> Ctx {
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
            let ctx = Ctx {
                paylen: len as u32,
                ..tso_ctx4(mss)
            };
            send(&mut m, Some(&ctx), &packet, cuts, SEGMENT);
            let mss = usize::from(mss);
            check_segments(&m.wire.take(), 54, mss, len, 0x19);
            assert_eq!(m.counter("tx_tso_frames"), 1);
            assert_eq!(m.r(0x4080), len.div_ceil(mss) as u32, "GPTC");
            assert_eq!((m.r(0x40f8), m.r(0x40fc)), (1, 0), "TSCTC, TSCTFC");
            let wrong = Ctx {
                paylen: len as u32 + 1,
                ..ctx
            };
            m.w(reg::TDH, 0);
            send(&mut m, Some(&wrong), &packet, cuts, SEGMENT);
            assert_eq!((m.r(0x40f8), m.r(0x40fc)), (1, 1), "TSCTC, TSCTFC");
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

/// A sink that fills up in the middle of a segmented packet gets each segment once, and the
/// context that belongs to the packet is still known when it goes on.
#[test]
fn a_packet_cut_short_by_the_sink_goes_on_where_it_was() {
    for step in [1, 3, 7] {
        let mut m = machine(Caps::NONE);
        m.wire.set_room(0);
        let first = tso4(20_000, 0x18);
        let next = put(&m, 0, Some(&tso_ctx4(1000)), &first, &[54], SEGMENT);
        let next = put(&m, next, Some(&tso_ctx4(700)), &first, &[], SEGMENT);
        m.w(reg::TDT, next);
        for _ in 0..100 {
            m.wire.set_room(step);
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

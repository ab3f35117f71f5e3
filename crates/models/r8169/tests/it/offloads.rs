//! Checksums, segmentation and tags, in the layouts of all drivers.

use crate::common::*;
use frame::Caps;
use hypernic_r8169::{Config, Variant};
use model_testkit::packet::{large, sums, v4_with, v6_tcp};
use proptest::prelude::*;
use wire::{Gso, Layers, Offload};

const IP_CS: u32 = 1 << 29;
const V6_CS: u32 = 1 << 28;
const TCP_CS: u32 = 1 << 30;
const UDP_CS: u32 = 1 << 31;

/// The frame with rubbish where its checksums were.
pub fn spoilt(right: &[u8], rubbish: u16) -> Vec<u8> {
    let mut frame = right.to_vec();
    let layers = Layers::parse(right).expect("headers");
    let (l3, l4) = (layers.l3.expect("IP"), layers.l4.expect("transport"));
    if l3.kind == wire::L3Kind::V4 {
        frame[l3.offset + 10..l3.offset + 12].copy_from_slice(&rubbish.to_be_bytes());
    }
    let field = l4.offset + l4.kind.checksum_offset().expect("TCP or UDP");
    frame[field..field + 2].copy_from_slice(&rubbish.to_be_bytes());
    frame
}

#[test]
fn checksums_are_written_whatever_the_field_holds_and_whoever_writes_them() {
    let udp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 7, 9, 101);
    let tcp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], true, 7, 9, 100);
    let six = v6_tcp([0xfd; 16].into(), [0xfe; 16].into(), 7, 9);
    let caps = [
        Caps::NONE,
        Caps {
            csum: true,
            ..Caps::NONE
        },
    ];
    for caps in caps {
        let mut m = Machine::with(Config::new(MAC), Wire::with(caps));
        m.rings(4, 1536);
        let mut index = 0;
        for (right, bits) in [
            (&udp, IP_CS | UDP_CS),
            (&tcp, IP_CS | TCP_CS),
            (&six, V6_CS | TCP_CS),
        ] {
            for rubbish in [0, 0xffff, 0x1234] {
                let offset = Layers::parse(right)
                    .expect("headers")
                    .l4
                    .expect("l4")
                    .offset as u32;
                m.send(index, &spoilt(right, rubbish), BOTH, bits | offset << 18);
                index = (index + 1) % 4;
                let (mut got, notes) = m.wire.take_notes().remove(0);
                assert_eq!(notes.csum.is_some(), caps.csum);
                if caps.csum {
                    // What is left is what the sums of the testkit write.
                    sums(&mut got);
                }
                assert_eq!(&got, right);
            }
        }
        assert_eq!(m.counter("tx_bad_csum"), 0);
    }
}

/// A datagram shorter than its frame: what follows is not covered.
#[test]
fn what_follows_a_datagram_is_not_summed() {
    let caps = Caps {
        csum: true,
        ..Caps::NONE
    };
    let mut m = Machine::with(Config::new(MAC), Wire::with(caps));
    m.rings(4, 1536);
    let mut right = v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 7, 9, 701);
    let mut frame = spoilt(&right, 0x5555);
    for bytes in [&mut right, &mut frame] {
        bytes.extend([0xee; 5]);
    }
    m.send(0, &frame, BOTH, IP_CS | UDP_CS | 34 << 18);
    assert_eq!(m.wire.take(), [right]);
}

#[test]
fn a_checksum_of_what_is_not_there_is_not_written() {
    let mut m = Machine::new();
    m.rings(4, 1536);
    let frame = plain(PEER, 100);
    m.send(0, &frame, BOTH, IP_CS | TCP_CS);
    let tcp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], true, 7, 9, 100);
    m.send(1, &tcp, BOTH, UDP_CS);
    let mut fragment = tcp.clone();
    fragment[20] = 0x20;
    m.send(2, &fragment, BOTH, TCP_CS);
    assert_eq!(m.wire.take(), [frame, tcp, fragment]);
    assert_eq!(m.counter("tx_bad_csum"), 3);
}

#[test]
fn a_tag_goes_beside_the_frame_or_into_it() {
    let frame = plain(PEER, 100);
    for vlan in [false, true] {
        let caps = Caps { vlan, ..Caps::NONE };
        let mut m = Machine::with(Config::new(MAC), Wire::with(caps));
        m.rings(4, 1536);
        let tci = 0x6123_u16;
        m.send(0, &frame, BOTH, 1 << 17 | u32::from(tci.swap_bytes()));
        let (got, notes) = m.wire.take_notes().remove(0);
        if vlan {
            assert_eq!((got, notes.vlan), (frame.clone(), Some(tci)));
        } else {
            let mut want = frame.clone();
            want.splice(12..12, [0x81, 0, 0x61, 0x23]);
            assert_eq!(got, want);
        }
    }
}

/// Linux says v4 or v6 and where the transport is; FreeBSD only that it is large, and so do all for the 8169, in other bits.
/// Each leaves another sum in the field.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Linux,
    FreeBsd,
    First,
}

fn words(layout: Layout, v6: bool, l4: u32, mss: u16) -> (u32, u32) {
    if let Layout::First = layout {
        return (1 << 27 | u32::from(mss) << 16, 0);
    }
    let mss = u32::from(mss) << 18;
    match layout {
        Layout::Linux if v6 => (1 << 25 | l4 << 18, mss),
        Layout::Linux => (1 << 26 | l4 << 18, mss),
        _ => (1 << 27, mss),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]
    #[test]
    fn a_large_packet_leaves_whole_or_in_its_segments(
        v6: bool, options in 0u8..4, payload in 1usize..20_000, mss in 100u16..2000,
        rubbish: u16, whole: bool,
        layout in prop::sample::select(vec![Layout::Linux, Layout::FreeBsd, Layout::First]), at in 0usize..200,
    ) {
        let variant = match layout {
            Layout::First => Variant::Rtl8169S,
            _ => Variant::Rtl8168C,
        };
        let caps = if whole { Caps::ALL } else { Caps::NONE };
        let mut m = Machine::with(Config::of(variant, MAC), Wire::with(caps));
        m.rings(64, 1536);
        let (seeded, notes) = large(PEER, v6, options, payload, mss);
        let l4 = if v6 { 54 } else { 34 };
        let frame = spoilt(&seeded, rubbish);
        m.poke(TX_BUFFERS, &frame);
        let (first, second) = words(layout, v6, l4, mss);
        // In two pieces.
        let cut = at.min(frame.len()) as u32;
        m.tx_desc(1, OWN | LS | first | (frame.len() as u32 - cut), second, TX_BUFFERS + u64::from(cut));
        m.tx_desc(0, OWN | FS | first | cut, second, TX_BUFFERS);
        m.w8(reg::TX_POLL, 0x40);
        let got = m.wire.take_notes();
        let segments = payload.div_ceil(mss.into());
        // What the crate that cuts frames for everybody makes of it, with the notes that are right.
        let mut batch = frame::Batch::new();
        batch.push_bytes(&seeded);
        batch.end(Offload { gso: if segments > 1 { notes.gso } else { Gso::None }, ..notes });
        let mut want = frame::Batch::new();
        let one = batch.get(0).expect("there");
        if whole && (mss >= 256 || segments == 1) {
            prop_assert_eq!(got.len(), 1);
            let (bytes, said) = &got[0];
            let mut bytes = bytes.clone();
            bytes.truncate(seeded.len());
            // The header sum of IPv4 is right, and the seed.
            prop_assert_eq!(&bytes, &seeded);
            prop_assert_eq!(said.csum, notes.csum);
            if segments > 1 {
                prop_assert_eq!((said.gso, said.gso_size), (notes.gso, mss));
            }
        } else {
            frame::expand(&one, Caps::NONE, &mut want).expect("possible");
            let mut want: Vec<_> = want.iter().map(|frame| frame.to_vec()).collect();
            if segments == 1 {
                // The chip fills it up; what is cut of a large packet is the switch's.
                want.iter_mut().for_each(|frame| frame.resize(frame.len().max(60), 0));
            }
            let got: Vec<_> = got.into_iter().map(|(mut bytes, notes)| {
                if let Some(csum) = notes.csum {
                    // A sink that computes sums was given the seed.
                    let at = usize::from(csum.start + csum.offset);
                    let mut sum = wire::Sum::ZERO;
                    sum.add(&bytes[csum.start.into()..]);
                    bytes[at..at + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
                }
                bytes
            }).collect();
            prop_assert_eq!(got, want);
        }
        prop_assert_eq!(m.counter("tx_bad_gso"), 0);
        prop_assert_eq!(m.tx_words(1).0 & OWN, 0);
    }
}

#[test]
fn segmentation_that_cannot_be_is_refused_and_the_ring_goes_on() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    let (frame, _) = large(PEER, false, 0, 3000, 1000);
    let udp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 7, 9, 3000);
    let tcp = v4_with([10, 0, 0, 1], [10, 0, 0, 2], true, 7, 9, 0);
    m.send(0, &frame, BOTH | 1 << 26, 0);
    m.send(1, &udp, BOTH | 1 << 26, 1000 << 18);
    m.send(2, &plain(PEER, 2000), BOTH | 1 << 25, 1000 << 18);
    m.send(3, &tcp, BOTH | 1 << 27, 1000 << 18);
    assert!(m.wire.take().is_empty());
    assert_eq!(m.counter("tx_bad_gso"), 4);
    assert_eq!(m.take_isr() & (TER | TOK), TER);
    assert!((0..4).all(|i| m.tx_words(i).0 & OWN == 0));
    m.send(4, &frame, BOTH | 1 << 26, 1000 << 18);
    assert_eq!(m.wire.take().len(), 3);
}

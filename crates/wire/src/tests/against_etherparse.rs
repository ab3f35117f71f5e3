//! Header location, checksums and segmentation against an independent implementation.

use crate::{Csum, EtherType, Gso, L3Kind, L4Kind, Layers, Offload, Segments, Sum, Template};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice};
use proptest::collection::vec;
use proptest::prelude::*;

/// What to build a frame of.
#[derive(Clone, Debug)]
struct Recipe {
    udp: bool,
    v6: bool,
    tagged: bool,
    options: bool,
    flags: u8,
    seq: u32,
    id: u16,
    payload: Vec<u8>,
}

fn recipe(longest: usize) -> impl Strategy<Value = Recipe> {
    let bytes = vec(any::<u8>(), 0..longest);
    (any::<(bool, bool, bool, bool, u8, u32, u16)>(), bytes).prop_map(
        |((udp, v6, tagged, options, flags, seq, id), payload)| Recipe {
            udp,
            v6,
            tagged,
            options,
            flags,
            seq,
            id,
            payload,
        },
    )
}

/// A whole frame with all checksums right.
fn built(recipe: &Recipe) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let vlan = etherparse::VlanId::try_new(77).expect("fits");
    let ip = match (recipe.tagged, recipe.v6) {
        (false, false) => link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        (true, false) => link
            .single_vlan(vlan)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        (false, true) => link.ipv6([0xfd; 16], [0xfe; 16], 64),
        (true, true) => link.single_vlan(vlan).ipv6([0xfd; 16], [0xfe; 16], 64),
    };
    let mut frame = Vec::new();
    if recipe.udp {
        let udp = ip.udp(4242, 80);
        udp.write(&mut frame, &recipe.payload).expect("fits");
    } else {
        let mut tcp = ip.tcp(4242, 80, recipe.seq, 512).ack(77);
        if recipe.options {
            let stamp = [TcpOptionElement::Timestamp(1, 2)];
            tcp = tcp.options(&stamp).expect("fits");
        }
        tcp.write(&mut frame, &recipe.payload).expect("fits");
    }
    // What the builder has no words for, and the checksums that go with it.
    let layers = Layers::parse(&frame).expect("built");
    let (l3, l4) = (layers.l3.expect("built"), layers.l4.expect("built"));
    if l3.kind == L3Kind::V4 {
        frame[l3.offset + 4..l3.offset + 6].copy_from_slice(&recipe.id.to_be_bytes());
        frame[l3.offset + 10..l3.offset + 12].fill(0);
        let sum = crate::Sum::of(&frame[l3.offset..l4.offset]).finish();
        frame[l3.offset + 10..l3.offset + 12].copy_from_slice(&sum.to_be_bytes());
    }
    if !recipe.udp {
        frame[l4.offset + 13] = recipe.flags;
    }
    finish(&mut frame);
    frame
}

fn finish(frame: &mut [u8]) {
    let layers = Layers::parse(frame).expect("built");
    let l4 = layers.l4.expect("built");
    let (at, field) = (l4.offset, l4.kind.checksum_offset().expect("has one"));
    frame[at + field..at + field + 2].fill(0);
    let mut sum = layers
        .pseudo_sum(frame, frame.len() - at)
        .expect("has both");
    sum.add(&frame[at..]);
    frame[at + field..at + field + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
}

/// Whether the other implementation finds every checksum and length right.
fn sound(frame: &[u8]) -> bool {
    let packet = SlicedPacket::from_ethernet(frame).expect("parses");
    let right = |v4: Option<([u8; 4], [u8; 4])>, v6: Option<([u8; 16], [u8; 16])>| match (
        &packet.transport,
        v4,
        v6,
    ) {
        (Some(TransportSlice::Tcp(tcp)), Some((from, to)), _) => {
            same(tcp.calc_checksum_ipv4(from, to), tcp.checksum())
        }
        (Some(TransportSlice::Tcp(tcp)), _, Some((from, to))) => {
            same(tcp.calc_checksum_ipv6(from, to), tcp.checksum())
        }
        (Some(TransportSlice::Udp(udp)), v4, v6) => {
            let header = udp.to_header();
            let sum = match (v4, v6) {
                (Some((from, to)), _) => header.calc_checksum_ipv4_raw(from, to, udp.payload()),
                (_, Some((from, to))) => header.calc_checksum_ipv6_raw(from, to, udp.payload()),
                _ => return false,
            };
            usize::from(udp.length()) == udp.slice().len() && same(sum, udp.checksum())
        }
        _ => false,
    };
    match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header().to_header();
            usize::from(ip.header().total_len()) == frame.len() - header_at(frame)
                && header.calc_header_checksum() == ip.header().header_checksum()
                && right(Some((header.source, header.destination)), None)
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            usize::from(header.payload_length()) == frame.len() - header_at(frame) - 40
                && right(None, Some((header.source(), header.destination())))
        }
        _ => false,
    }
}

/// Whether two checksums are one number: 0 and 0xFFFF are (RFC 1071 §2).
fn same<E>(computed: Result<u16, E>, found: u16) -> bool {
    computed.is_ok_and(|sum| sum % 0xffff == found % 0xffff)
}

fn header_at(frame: &[u8]) -> usize {
    Layers::parse(frame).expect("built").l2_len
}

fn notes(frame: &[u8], size: u16) -> Offload {
    let layers = Layers::parse(frame).expect("built");
    let l4 = layers.l4.expect("built");
    Offload {
        csum: Some(Csum {
            start: l4.offset as u16,
            offset: l4.kind.checksum_offset().expect("has one") as u16,
        }),
        gso: match (layers.l3.expect("built").kind, l4.kind) {
            (L3Kind::V4, L4Kind::Tcp) => Gso::Tcp4,
            (L3Kind::V6, L4Kind::Tcp) => Gso::Tcp6,
            (L3Kind::V4, _) => Gso::Udp4,
            (L3Kind::V6, _) => Gso::Udp6,
        },
        gso_size: size,
        hdr_len: layers.headers_len() as u16,
        ..Offload::NONE
    }
}

proptest! {
    #[test]
    fn headers_are_where_the_other_finds_them(recipe in recipe(100)) {
        let frame = built(&recipe);
        let layers = Layers::parse(&frame).expect("whole");
        let packet = SlicedPacket::from_ethernet(&frame).expect("parses");
        let (kind, whole, header) = match &packet.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                (L4Kind::Tcp, tcp.slice().len(), tcp.header_slice().len())
            }
            Some(TransportSlice::Udp(udp)) => {
                (L4Kind::Udp, udp.slice().len(), udp.header_slice().len())
            }
            _ => panic!("built as TCP or UDP"),
        };
        prop_assert_eq!(layers.vlan, recipe.tagged.then_some(77));
        prop_assert_eq!(layers.ether_type == EtherType::IPV6, recipe.v6);
        let l4 = layers.l4.expect("built");
        prop_assert_eq!(l4.kind, kind);
        prop_assert_eq!(l4.offset, frame.len() - whole);
        prop_assert_eq!(l4.len, header);
        prop_assert_eq!(layers.l4_intact(&frame), Some(true));
        prop_assert!(sound(&frame));
    }

    #[test]
    fn one_flipped_bit_is_noticed(recipe in recipe(100), bit: usize) {
        let mut frame = built(&recipe);
        let layers = Layers::parse(&frame).expect("whole");
        let from = layers.l4.expect("built").offset;
        // The data offset decides where the header ends; the rest is only summed.
        let bit = bit % ((frame.len() - from) * 8);
        prop_assume!(recipe.udp || bit / 8 != 12);
        // A checksum of 0 is none.
        prop_assume!(!recipe.udp || !(6..8).contains(&(bit / 8)));
        frame[from + bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(Layers::parse(&frame).expect("whole").l4_intact(&frame), Some(false));
    }

    #[test]
    fn segments_are_sound_and_make_up_the_whole(recipe in recipe(9000), size in 8u16..3000) {
        let frame = built(&recipe);
        let notes = notes(&frame, size);
        let plan = Segments::new(&frame, frame.len(), &notes).expect("a good frame");
        let head = plan.header_len();
        // Datagrams have none.
        let mut template = Template::new(&plan);
        prop_assert_eq!(template.is_none(), recipe.udp);
        if let Some(template) = &template {
            prop_assert_eq!((template.count(), template.header_len()), (plan.count(), head));
        }
        let mut whole = Vec::new();
        for index in 0..plan.count() {
            let mut header = [0xaa; 200];
            let part = plan.segment(index, &mut header).expect("counted");
            let mut segment = header[..head].to_vec();
            segment.extend_from_slice(&frame[head..][part.clone()]);
            prop_assert!(part.len() <= usize::from(size));
            let unsummed = template.as_mut().map(|t| t.unsummed(index, part.len()));
            prop_assert!(unsummed.is_none_or(|bytes| *bytes == segment[..head]));
            let at = plan.l4_offset();
            // The seed in the field, summed with the segment, is its checksum.
            let sum = crate::Sum::of(&segment[at..]).finish_nonzero();
            let field = plan.checksum_at();
            segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            prop_assert!(sound(&segment), "segment {index}");
            // The template says the same, in any order.
            if let Some(template) = &mut template {
                prop_assert_eq!(template.payload_of(index), part.len());
                let other = plan.count() - 1 - index;
                template.segment(other, (template.payload_of(other), 7));
                let sum = Sum::of(&segment[head..]).value();
                let same = template.segment(index, (part.len(), sum));
                prop_assert_eq!(same, &segment[..head], "segment {}", index);
            }

            if !recipe.udp {
                let (first, last) = (index == 0, index + 1 == plan.count());
                let keep = |flag: u8, here: bool| if here { flag } else { 0 };
                let want = recipe.flags & !0x89
                    | recipe.flags & (keep(0x09, last) | keep(0x80, first));
                prop_assert_eq!(segment[at + 13], want);
                let seq = u32::from_be_bytes(segment[at + 4..at + 8].try_into().expect("four"));
                prop_assert_eq!(seq, recipe.seq.wrapping_add(whole.len() as u32));
            }
            if !recipe.v6 {
                let id = &segment[header_at(&segment) + 4..][..2];
                let want = recipe.id.wrapping_add(index as u16);
                prop_assert_eq!(id, &want.to_be_bytes()[..]);
            }
            whole.extend_from_slice(&segment[head..]);
        }
        prop_assert_eq!(whole, recipe.payload);
        prop_assert_eq!(plan.segment(plan.count(), &mut [0; 200]), None);
        prop_assert_eq!(plan.segment(0, &mut [0; 10]), None);
    }
}

//! Nothing a guest writes makes the parsers panic, look outside of what they were given, or
//! work without bound.

use crate::{
    Csum, Fragment, Gso, L4Kind, Layers, MAX_SEGMENTS, NotesError, Offload, SegmentError, Segments,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn any_notes() -> impl Strategy<Value = Offload> {
    let word = prop_oneof![0u16..80, any::<u16>()];
    let csum = proptest::option::of((word.clone(), word.clone()));
    let gso = prop_oneof![
        Just(Gso::None),
        Just(Gso::Tcp4),
        Just(Gso::Tcp6),
        Just(Gso::Udp4),
        Just(Gso::Udp6)
    ];
    (csum, gso, word.clone(), word).prop_map(|(csum, gso, gso_size, hdr_len)| Offload {
        csum: csum.map(|(start, offset)| Csum { start, offset }),
        gso,
        gso_size,
        hdr_len,
        ..Offload::NONE
    })
}

/// Bytes that often look like something.
fn headers() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just(vec![0x08, 0x00, 0x45]),
        Just(vec![0x08, 0x00, 0x4f]),
        Just(vec![0x86, 0xdd, 0x60]),
        Just(vec![0x81, 0x00, 0, 7, 0x86, 0xdd, 0x60]),
        Just(vec![0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 8, 0x08, 0x00, 0x45]),
        vec(any::<u8>(), 0..6),
    ];
    let next = prop_oneof![
        Just(0u8),
        Just(6),
        Just(17),
        Just(43),
        Just(44),
        Just(51),
        Just(60)
    ];
    (kind, vec(prop_oneof![next, any::<u8>()], 0..200)).prop_map(|(kind, rest)| {
        let mut bytes = vec![2; 12];
        bytes.extend(kind);
        bytes.extend(rest);
        bytes
    })
}

proptest! {
    #[test]
    fn everything_found_is_inside(bytes in headers(), cut in 0usize..220) {
        let bytes = &bytes[..cut.min(bytes.len())];
        let Some(layers) = Layers::parse(bytes) else {
            return Ok(());
        };
        prop_assert!(layers.headers_len() <= bytes.len());
        if let Some(l3) = layers.l3 {
            prop_assert_eq!(l3.offset, layers.l2_len);
            prop_assert!(l3.offset + l3.len <= bytes.len());
        }
        if let Some(l4) = layers.l4 {
            let l3 = layers.l3.expect("above it");
            prop_assert_eq!(l4.offset, l3.offset + l3.len);
            prop_assert!(l3.fragment != Fragment::Later);
        }
        let _ = layers.l4_intact(bytes);
    }

    #[test]
    fn any_plan_is_refused_or_bounded(
        bytes in headers(), len in prop_oneof![0usize..300, 0usize..200_000], notes in any_notes()
    ) {
        let checked = notes.check(len);
        let Ok(plan) = Segments::new(&bytes, len, &notes) else {
            return Ok(());
        };
        prop_assert!(checked.is_ok());
        prop_assert!((1..=MAX_SEGMENTS).contains(&plan.count()));
        let mut end = 0;
        let mut header = vec![0; plan.header_len()];
        for index in 0..plan.count() {
            let part = plan.segment(index, &mut header).expect("counted");
            prop_assert_eq!(part.start, end);
            end = part.end;
        }
        prop_assert_eq!(end + plan.header_len(), len);
    }
}

/// Ethernet, IPv4 and TCP headers without payload.
fn plain_headers() -> [u8; 54] {
    let mut bytes = [0; 54];
    bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    bytes[23] = 6;
    bytes[46] = 0x50;
    bytes
}

const GOOD: Offload = Offload {
    csum: Some(Csum {
        start: 34,
        offset: 16,
    }),
    gso: Gso::Tcp4,
    gso_size: 1000,
    hdr_len: 54,
    ..Offload::NONE
};

#[test]
fn each_lie_has_its_answer() {
    let bytes = plain_headers();
    let plan = |len, notes| Segments::new(&bytes, len, &notes).map(|p| p.count());
    assert_eq!(plan(2054, GOOD), Ok(2));
    assert_eq!(plan(54, GOOD), Ok(1));
    let cases = [
        (
            Offload {
                gso: Gso::None,
                ..GOOD
            },
            SegmentError::NotAsked,
        ),
        (
            Offload {
                gso: Gso::Tcp6,
                ..GOOD
            },
            SegmentError::Headers,
        ),
        (
            Offload {
                gso_size: 0,
                ..GOOD
            },
            SegmentError::ZeroSize,
        ),
        (
            Offload {
                hdr_len: 53,
                ..GOOD
            },
            SegmentError::HeaderLength,
        ),
        (
            Offload {
                hdr_len: 2055,
                ..GOOD
            },
            SegmentError::HeaderLength,
        ),
        (Offload { csum: None, ..GOOD }, SegmentError::Checksum),
        (
            Offload {
                csum: Some(Csum {
                    start: 34,
                    offset: 6,
                }),
                ..GOOD
            },
            SegmentError::Checksum,
        ),
    ];
    for (notes, want) in cases {
        assert_eq!(plan(2054, notes), Err(want));
    }
    assert_eq!(
        plan(
            54 + MAX_SEGMENTS,
            Offload {
                gso_size: 1,
                ..GOOD
            }
        ),
        Ok(MAX_SEGMENTS)
    );
    assert_eq!(
        plan(
            55 + MAX_SEGMENTS,
            Offload {
                gso_size: 1,
                ..GOOD
            }
        ),
        Err(SegmentError::TooMany)
    );
    let huge = Offload {
        gso_size: 65535,
        ..GOOD
    };
    assert_eq!(plan(54 + 65535, huge), Err(SegmentError::TooLong));
    assert_eq!(plan(54 + 65495, huge), Ok(1));
}

#[test]
fn udp_is_cut_by_its_own_header_only() {
    let mut bytes = plain_headers();
    bytes[23] = 17;
    let good = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 6,
        }),
        gso: Gso::Udp4,
        hdr_len: 42,
        ..GOOD
    };
    let plan = |bytes: &[u8], notes| Segments::new(bytes, 2042, &notes).map(|p| p.count());
    assert_eq!(plan(&bytes[..42], good), Ok(2));
    let six = Offload {
        gso: Gso::Udp6,
        ..good
    };
    assert_eq!(plan(&bytes, six), Err(SegmentError::Headers));
    let tcp = Offload {
        gso: Gso::Tcp4,
        ..good
    };
    assert_eq!(plan(&bytes, tcp), Err(SegmentError::Headers));
    let udp = Offload {
        gso: Gso::Udp4,
        ..GOOD
    };
    assert_eq!(plan(&plain_headers(), udp), Err(SegmentError::Headers));
    let other = Offload {
        csum: GOOD.csum,
        hdr_len: 54,
        ..good
    };
    assert_eq!(plan(&bytes, other), Err(SegmentError::Checksum));
}

#[test]
fn a_longer_header_length_is_a_hint_within_the_frame() {
    let bytes = plain_headers();
    let hint = Offload {
        hdr_len: 200,
        ..GOOD
    };
    assert_eq!(
        Segments::new(&bytes, 2054, &hint).map(|p| p.header_len()),
        Ok(54)
    );
    assert_eq!(
        Segments::new(&bytes, 199, &hint).map(|p| p.header_len()),
        Err(SegmentError::HeaderLength)
    );
}

#[test]
fn notes_are_checked_against_the_frame() {
    assert_eq!(GOOD.check(54), Ok(()));
    assert_eq!(GOOD.check(53), Err(NotesError::HeaderLength));
    assert_eq!(GOOD.check(51), Err(NotesError::CsumOutside));
    let all = Csum {
        start: u16::MAX,
        offset: u16::MAX,
    };
    assert_eq!(
        Offload {
            csum: Some(all),
            ..Offload::NONE
        }
        .check(usize::MAX),
        Ok(())
    );
    assert_eq!(
        Offload { csum: None, ..GOOD }.check(100),
        Err(NotesError::GsoWithoutCsum)
    );
    assert_eq!(
        Offload {
            gso_size: 0,
            ..GOOD
        }
        .check(100),
        Err(NotesError::GsoSizeZero)
    );
    assert_eq!(
        Offload {
            hdr_len: 51,
            ..GOOD
        }
        .check(100),
        Err(NotesError::HeaderLength)
    );
}

#[test]
fn ipv6_extensions_are_walked_so_far_and_no_further() {
    let frame = |extensions: &[u8]| {
        let mut bytes = vec![0; 12];
        bytes.extend([0x86, 0xdd, 0x60]);
        bytes.resize(14 + 40, 0);
        bytes[20] = extensions.first().copied().unwrap_or(17);
        for (i, _) in extensions.iter().enumerate() {
            bytes.extend([
                extensions.get(i + 1).copied().unwrap_or(17),
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ]);
        }
        bytes.extend([0; 8]);
        Layers::parse(&bytes)
            .expect("long enough")
            .l4
            .map(|l4| (l4.kind, l4.offset))
    };
    assert_eq!(frame(&[]), Some((L4Kind::Udp, 54)));
    assert_eq!(frame(&[0, 43, 60]), Some((L4Kind::Udp, 78)));
    assert_eq!(frame(&[44]), Some((L4Kind::Udp, 62)));
    assert_eq!(frame(&[51]), Some((L4Kind::Udp, 62)));
    assert_eq!(frame(&[60; 7]), Some((L4Kind::Udp, 110)));
    assert_eq!(frame(&[60; 9]), None);
    assert_eq!(frame(&[59]), None);
}

#[test]
fn ipv6_fragments_and_other_transports_are_told_by_their_headers() {
    let parse = |next: u8, extension: &[u8]| {
        let mut bytes = vec![0; 12];
        bytes.extend([0x86, 0xdd, 0x60]);
        bytes.resize(14 + 40, 0);
        bytes[20] = next;
        bytes.extend(extension);
        Layers::parse(&bytes).expect("long enough")
    };
    let icmp = parse(58, &[0; 8]).l4.expect("a transport");
    assert_eq!((icmp.kind, icmp.len), (L4Kind::Other(58), 0));
    assert_eq!(icmp.kind.number(), 58);
    assert_eq!(icmp.kind.checksum_offset(), None);
    // A fragment header: next, reserved, offset and "more follow".
    let fragment = |place: u16| {
        let [high, low] = place.to_be_bytes();
        let mut extension = vec![17, 0, high, low, 0, 0, 0, 0];
        extension.extend([0; 8]);
        let layers = parse(44, &extension);
        (layers.l3.expect("IPv6").fragment, layers.l4.is_some())
    };
    assert_eq!(fragment(0), (Fragment::Whole, true));
    assert_eq!(fragment(1), (Fragment::First, true));
    assert_eq!(fragment(8), (Fragment::Later, false));
    assert_eq!(fragment(9), (Fragment::Later, false));
    // Cut off in the middle of an extension: the transport is not told.
    for len in 0..8 {
        assert_eq!(parse(44, &[17; 8][..len]).l4, None, "{len}");
        assert_eq!(parse(60, &[17, 0, 0, 0, 0, 0, 0, 0][..len]).l4, None);
    }
}

#[test]
fn fragments_hide_what_cannot_be_checked() {
    let mut bytes = plain_headers();
    bytes[20] = 0x20;
    let first = Layers::parse(&bytes).expect("long enough");
    assert_eq!(first.l3.map(|l3| l3.fragment), Some(Fragment::First));
    assert!(first.l4.is_some());
    assert_eq!(first.l4_intact(&bytes), None);
    bytes[21] = 1;
    let later = Layers::parse(&bytes).expect("long enough");
    assert_eq!(later.l3.map(|l3| l3.fragment), Some(Fragment::Later));
    assert_eq!(later.l4, None);
}

#[test]
fn lengths_that_lie_leave_the_checksum_untold() {
    let mut bytes = plain_headers();
    let mut with_total = |total: u8| {
        bytes[17] = total;
        let layers = Layers::parse(&bytes).expect("long enough");
        (layers.l4_span(bytes.len()), layers.l4_intact(&bytes))
    };
    assert_eq!(with_total(40), (Some(20), Some(false)));
    // Into the TCP header, into the IP header, beyond the frame.
    for total in [39, 20, 3, 41, 255] {
        assert_eq!(with_total(total), (None, None), "{total}");
    }
}

#[test]
fn udp_may_go_without_a_checksum() {
    let mut bytes = plain_headers();
    bytes[17] = 28;
    bytes[23] = 17;
    let layers = Layers::parse(&bytes).expect("long enough");
    assert_eq!(layers.l4.map(|l4| l4.kind), Some(L4Kind::Udp));
    assert_eq!(layers.l4_intact(&bytes), None);
    assert_eq!(layers.l4_has_checksum(&bytes), Some(false));
    let mut sum = layers.pseudo_sum(&bytes, 8).expect("has both");
    sum.add(&bytes[34..42]);
    bytes[40..42].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
    assert_eq!(layers.l4_intact(&bytes), Some(true));
    bytes[41] ^= 1;
    assert_eq!(layers.l4_intact(&bytes), Some(false));
}

//! Segments of large frames are received in cuts as they are in batches.

use frame::Batch;
use guest_mem::ReadSlice;
use hypernic_virtio_net::RX;
use hypernic_virtio_net::regs::{ctrl, feature, hash, header};
use model_testkit::Finished;
use proptest::prelude::*;
use wire::{Csum, Gso, Layers, Offload};

use crate::driver::{BUFFERS, Driver, MAC, OFFLOADS, OTHER, USUAL, tcp4};
use crate::runs::{COMMANDS, Change, Shape, change, device, equal, features, shape};

/// A large frame, and what is left to do of it.
type Large = (Vec<u8>, Offload);

/// TCP with options, so much payload and this MSS.
fn tcp(v6: bool, tagged: bool, dst: [u8; 6], words: usize, (payload, size): (usize, u16)) -> Large {
    let mut bytes = [dst, OTHER].concat();
    if tagged {
        bytes.extend([0x81, 0, 0, 5]);
    }
    let ip = bytes.len() + 2;
    let span = 20 + 4 * words + payload;
    if v6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend((span as u16).to_be_bytes());
        bytes.extend([6, 64]);
        bytes.extend([0xfd; 32]);
    } else {
        bytes.extend(&tcp4(span - 20)[12..34]);
    }
    let l4 = bytes.len();
    bytes.extend([0x30, 0, 0x40, 0, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 0]);
    bytes.extend([(5 + words as u8) << 4, 0x98, 1, 0, 0, 0, 0, 0]);
    bytes.extend((0..4 * words + payload).map(|i| (i * 13) as u8));
    let layers = Layers::parse(&bytes).expect("headers");
    assert_eq!(layers.l3.map(|l3| l3.offset), Some(ip));
    let seed = layers.pseudo_sum(&bytes, span).expect("TCP").value();
    bytes[l4 + 16..l4 + 18].copy_from_slice(&seed.to_be_bytes());
    let notes = Offload {
        csum: Some(Csum {
            start: l4 as u16,
            offset: 16,
        }),
        gso: if v6 { Gso::Tcp6 } else { Gso::Tcp4 },
        gso_size: size,
        hdr_len: (l4 + 20 + 4 * words) as u16,
        ..Offload::NONE
    };
    (bytes, notes)
}

fn large() -> impl Strategy<Value = Large> {
    let dst = prop::sample::select(vec![MAC, MAC, MAC, MAC, OTHER, [0xff; 6]]);
    let kind = (any::<bool>(), prop::bool::weighted(0.1), dst, 0usize..11);
    let size = prop_oneof![6 => 300u16..1448, 1 => 20u16..60, 1 => 1448u16..4000];
    (kind, 1usize..9000, size, prop::bool::weighted(0.05)).prop_map(
        |(kind, payload, size, wrong)| {
            let (v6, tagged, dst, words) = kind;
            let (bytes, mut notes) = tcp(v6, tagged, dst, words, (payload, size));
            if wrong {
                notes.hdr_len -= 1;
            }
            (bytes, notes)
        },
    )
}

/// A step: a change, buffers, frames.
type Step = (Option<Change>, Vec<(bool, Shape)>, Vec<Large>);

fn received(features: u64, steps: &[Step]) -> Result<u64, TestCaseError> {
    let mut both = [device(features), device(features)];
    let mut finished = [true, false].map(Finished::new);
    let mut at = BUFFERS;
    for (change, buffers, frames) in steps {
        let mut dealt = Vec::new();
        let begun = at;
        for (d, finished) in both.iter_mut().zip(&mut finished) {
            if let Some(change) = change {
                d.change(change);
            }
            at = begun;
            for (second, shape) in buffers {
                let queue = if *second && d.ctrl == 4 { 2 } else { RX };
                at = BUFFERS + (at - BUFFERS + 0x1000) % 0x20_0000;
                d.give_shape(queue, at, 2048, true, *shape);
            }
            d.kick(RX);
            let mut batch = Batch::new();
            for (bytes, notes) in frames {
                // Payload in two pieces.
                let (a, b) = bytes.split_at(bytes.len() / 2);
                batch.push_slice(ReadSlice::from_bytes(a));
                batch.push_slice(ReadSlice::from_bytes(b));
                batch.end(*notes);
            }
            let mut room = Vec::new();
            let picks = batch.all_picks(&mut room);
            let (receive, env) = (&d.m.nic.receive, &d.m.env);
            dealt.push(finished.deliver(receive, env, &batch, picks));
        }
        prop_assert_eq!(dealt[0], dealt[1]);
    }
    equal(&both[0], &both[1], features & feature::EVENT_IDX != 0)?;
    prop_assert_eq!(finished[1].in_cuts(), 0);
    Ok(finished[0].in_cuts())
}

/// Receive offloads that do not take all large frames whole, with merging and without.
fn some_offloads() -> impl Strategy<Value = u64> {
    let offloads = prop::sample::select(vec![
        0,
        feature::GUEST_CSUM,
        feature::GUEST_CSUM,
        feature::GUEST_CSUM | feature::GUEST_TSO4,
        feature::GUEST_CSUM | feature::GUEST_TSO6,
    ]);
    (features(), offloads, any::<bool>()).prop_map(|(features, offloads, merges)| {
        let merging = if merges { 0 } else { feature::MRG_RXBUF };
        (features | offloads) & !merging
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 300 }))]

    #[test]
    fn cuts_are_received_as_segments_are(
        features in some_offloads(),
        steps in prop::collection::vec(
            (
                prop::option::weighted(0.3, change()),
                prop::collection::vec((any::<bool>(), shape()), 0..40),
                prop::collection::vec(large(), 1..4),
            ),
            1..12,
        ),
    ) {
        received(features, &steps)?;
    }
}

/// So that the test above does not compare batches with batches.
#[test]
fn segments_of_a_large_frame_are_taken_in_a_cut() {
    let v4 = |size| tcp(false, false, MAC, 3, (5000, size));
    let v6 = |size| tcp(true, false, MAC, 3, (5000, size));
    let hashes = |second: u8| {
        let mut bytes = hash::TYPES.to_le_bytes().to_vec();
        bytes.extend([0, 0, second, 0, second, 0, 1, 0, 40]);
        bytes.extend([0x6d; 40]);
        Some(Change::Command(ctrl::MQ, ctrl::RSS_CONFIG, bytes))
    };
    for packed in [0, feature::PACKED] {
        for (more, change, frame, in_cuts) in [
            (0, None, v4(1000), 5),
            (0, None, v6(1000), 5),
            (feature::GUEST_CSUM, None, v4(1448), 4),
            (feature::GUEST_CSUM | feature::GUEST_TSO4, None, v6(1448), 4),
            (feature::HASH_REPORT, None, v4(1448), 4),
            (feature::MQ | feature::RSS, hashes(0), v4(1448), 4),
            // Too long for its buffers.
            (0, None, v4(2048), 0),
            // Taken whole.
            (feature::GUEST_CSUM | feature::GUEST_TSO4, None, v4(1448), 0),
        ] {
            let buffers = vec![(false, Shape::Usual); 8];
            let step = (change, buffers, vec![frame]);
            let got = received(USUAL | COMMANDS | packed | more, &[step]);
            assert_eq!(got.expect("the same"), in_cuts, "{more:#x}");
        }
    }
}

/// What the driver sees of them: checksums that are right, or that it was told to compute.
#[test]
fn segments_are_summed_in_the_copy_or_by_the_driver() {
    for (offloads, flags) in [(0, 0), (feature::GUEST_CSUM, header::NEEDS_CSUM)] {
        let mut d = Driver::new(USUAL | OFFLOADS & !(feature::GUEST_CSUM | GUEST) | offloads);
        for i in 0..4 {
            d.receive_at(BUFFERS + 0x1000 * i, 2048);
        }
        let (sent, notes) = tcp(false, false, MAC, 3, (5000, 1448));
        let mut batch = Batch::new();
        batch.push_slice(ReadSlice::from_bytes(&sent));
        batch.end(notes);
        let mut finished = Finished::new(true);
        let (receive, env) = (&d.m.nic.receive, &d.m.env);
        assert_eq!(finished.deliver(receive, env, &batch, &[0]), (1, 4));
        assert_eq!(finished.in_cuts(), 4);
        let mut payload = Vec::new();
        for (i, (_, len)) in d.used(RX).into_iter().enumerate() {
            let got = d.m.peek(BUFFERS + 0x1000 * i as u64, len as usize);
            let (front, segment) = got.split_at(header::LEN);
            assert_eq!((front[0], front[1], front[10]), (flags, 0, 1));
            let mut segment = segment.to_vec();
            if flags != 0 {
                assert_eq!((front[6], front[8]), (34, 16));
                let sum = wire::Sum::of(&segment[34..]).finish_nonzero();
                segment[50..52].copy_from_slice(&sum.to_be_bytes());
            }
            let layers = Layers::parse(&segment).expect("headers");
            assert_eq!(layers.l4_intact(&segment), Some(true));
            payload.extend_from_slice(&segment[layers.headers_len()..]);
        }
        assert_eq!(payload, sent[66..]);
    }
}

const GUEST: u64 = feature::GUEST_TSO4
    | feature::GUEST_TSO6
    | feature::GUEST_ECN
    | feature::GUEST_USO4
    | feature::GUEST_USO6;

//! What crosses, and in which order.

use port::InletStatus;
use proptest::prelude::*;
use wire::{Csum, Gso, Offload};

use super::rig::{Pair, Sent, pattern, send, send_all, small};
use crate::MAX_FRAME;
use frame::{Batch, Sink, Wake};
use std::sync::Arc;
use std::time::Instant;

/// A frame of TCP over IPv4 that is to be cut.
fn large(len: usize, vlan: Option<u16>) -> Sent {
    let mut bytes = pattern(len, len);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[23] = 6;
    bytes[34 + 12] = 8 << 4;
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size: 1448,
        hdr_len: 66,
        ecn: vlan.is_some(),
        csum_valid: true,
        vlan,
    };
    (bytes, notes)
}

fn take(frames: &std::sync::mpsc::Receiver<Sent>) -> Vec<Sent> {
    frames.try_iter().collect()
}

#[test]
fn frames_of_all_sizes_cross_both_ways_in_order() {
    let mut pair = Pair::new(|config| config);
    let sizes = [14, 15, 59, 60, 64, 65, 96, 1514, 9000, 65535, MAX_FRAME];
    for round in 0..30 {
        let frames: Vec<Sent> = sizes
            .iter()
            .map(|len| (pattern(round + len, *len), Offload::NONE))
            .collect();
        assert_eq!(send_all(&*pair.a.sink, &frames), frames.len());
        assert_eq!(send_all(&*pair.b.sink, &frames[1..]), frames.len() - 1);
        assert_eq!(pair.b.settle(), InletStatus::Idle);
        assert_eq!(pair.a.settle(), InletStatus::Idle);
        assert!(take(&pair.b.frames) == frames, "round {round}");
        assert!(take(&pair.a.frames) == frames[1..], "round {round}");
    }
    let frames = 30 * sizes.len() as u64;
    let bytes = 30 * sizes.iter().sum::<usize>() as u64;
    assert_eq!(
        (pair.a.count("frames_out"), pair.a.count("bytes_out")),
        (frames, bytes)
    );
    assert_eq!(
        (pair.b.count("frames_in"), pair.b.count("bytes_in")),
        (frames, bytes)
    );
    assert_eq!(
        pair.b.count("ring_bad_record") + pair.b.count("ring_bad_peer"),
        0
    );
}

#[test]
fn notes_and_tags_cross_beside_the_frame() {
    let mut pair = Pair::new(|config| config);
    let csum = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 6,
        }),
        csum_valid: true,
        ..Offload::NONE
    };
    let valid = Offload {
        csum_valid: true,
        vlan: Some(0xefff),
        ..Offload::NONE
    };
    let frames = [
        large(40_000, None),
        (pattern(1, 60), csum),
        (pattern(2, 60), Offload::NONE),
        (pattern(3, 60), valid),
        large(65_549, Some(7)),
    ];
    assert_eq!(send_all(&*pair.a.sink, &frames), frames.len());
    pair.b.settle();
    assert!(take(&pair.b.frames) == frames);
}

#[test]
fn what_no_peer_takes_is_dropped_before_and_counted() {
    let mut pair = Pair::new(|config| config);
    for len in [MAX_FRAME + 1, 13, 0] {
        assert!(send(&*pair.a.sink, &vec![1; len]));
    }
    assert!(send(&*pair.a.sink, &[1; 60]));
    pair.b.settle();
    assert_eq!(take(&pair.b.frames).len(), 1);
    assert_eq!(pair.a.count("ring_too_long"), 1);
    assert_eq!(pair.a.count("ring_too_short"), 2);
    assert_eq!(pair.b.count("ring_bad_record"), 0);
}

#[test]
fn a_short_sink_gets_each_frame_once() {
    let mut pair = Pair::new(small);
    let frames: Vec<Sent> = (0..200)
        .map(|n| (pattern(n, 60 + n * 3), Offload::NONE))
        .collect();
    assert_eq!(send_all(&*pair.a.sink, &frames), 200);
    let mut got = Vec::new();
    for room in [0, 1, 7, 0, 50, 141] {
        pair.b.to.set_room(room);
        assert_eq!(pair.b.run(), InletStatus::Blocked);
        let now = take(&pair.b.frames);
        assert_eq!(now.len(), room.min(200 - got.len()));
        got.extend(now);
    }
    pair.b.to.set_room(1);
    assert_eq!(pair.b.settle(), InletStatus::Idle);
    got.extend(take(&pair.b.frames));
    assert!(got == frames);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_ring_goes_round_and_round_with_frames_of_any_size(
        bursts in proptest::collection::vec(
            (proptest::collection::vec(prop_oneof![14usize..200, 14usize..3000, 14usize..MAX_FRAME + 1], 1..40), 0usize..60),
            20..60,
        ),
    ) {
        let mut pair = Pair::new(small);
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for (n, (sizes, room)) in bursts.iter().enumerate() {
            let frames: Vec<Sent> = sizes.iter().enumerate().map(|(i, len)| match i % 5 {
                4 if *len > 100 => large(*len, (i % 2 == 0).then_some(n as u16)),
                _ => (pattern(n * 100 + i, *len), Offload::NONE),
            }).collect();
            let done = send_all(&*pair.a.sink, &frames);
            sent.extend(frames.into_iter().take(done));
            pair.b.to.set_room(*room);
            pair.b.settle();
            got.extend(take(&pair.b.frames));
        }
        pair.b.to.set_room(usize::MAX);
        prop_assert_eq!(pair.b.settle(), InletStatus::Idle);
        got.extend(take(&pair.b.frames));
        prop_assert!(got == sent);
        prop_assert_eq!(pair.b.count("ring_bad_peer") + pair.a.count("ring_bad_peer"), 0);
        prop_assert_eq!(pair.b.count("frames_in"), sent.len() as u64);
    }
}

/// Takes everything and looks at nothing.
struct Nowhere;

impl Sink for Nowhere {
    fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
        picks.len()
    }
    fn caps(&self) -> frame::Caps {
        frame::Caps::ALL
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// `cargo test --release -- --ignored --nocapture throughput`
#[test]
#[ignore = "measures"]
fn throughput_of_one_thread() {
    for len in [60, 1514] {
        let mut pair = Pair::new(|config| config);
        let mut batch = Batch::new();
        let bytes = pattern(1, len);
        let borrowed = guest_mem::ReadSlice::from_bytes(&bytes);
        (0..64).for_each(|_| batch.push_frame(borrowed));
        let mut room = Vec::new();
        let picks = batch.all_picks(&mut room);
        let start = Instant::now();
        let rounds = 50_000;
        for _ in 0..rounds {
            assert_eq!(pair.a.sink.deliver(&batch, picks), 64);
            pair.b.inlet.run(&Nowhere, 256);
        }
        let each = start.elapsed().as_secs_f64() / f64::from(rounds * 64);
        println!("{len} B: {:.2} Mpps, {:.1} ns", 1e-6 / each, each * 1e9);
    }
}

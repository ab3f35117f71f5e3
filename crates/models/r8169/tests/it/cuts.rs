//! Segments of large frames are received as a batch of them is.

use crate::common::*;
use crate::runs::{equal, machine};
use frame::{Batch, EACH};
use guest_mem::ReadSlice;
use model_testkit::Finished;
use model_testkit::packet::large;
use proptest::prelude::*;

/// Large frames for these stations, each of so many bytes and cut into so many.
fn batch<'b>(frames: &'b [(Vec<u8>, wire::Offload)]) -> Batch<'b> {
    let mut batch = Batch::new();
    for (frame, notes) in frames {
        batch.push_slice(ReadSlice::from_bytes(frame));
        batch.end(*notes);
    }
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]
    #[test]
    fn cuts_are_received_as_segments_are(
        ring in 1u32..40,
        sizes in proptest::collection::vec(prop::sample::select(vec![2048u32, 2048, 2048, 2048, 100, 0]), 40),
        gaps in proptest::collection::vec(0u8..20, 40),
        cplus in prop::sample::select(vec![0u16, 0x20, 0x40, 0x60]),
        rms in prop::sample::select(vec![0u16, 1518, 100]),
        rcr in prop::sample::select(vec![0xfu32, 0xe, 2]),
        frames in proptest::collection::vec((0usize..3, any::<bool>(), 0u8..4, 1usize..9000, 1u16..1500), 1..6),
    ) {
        let [mut a, mut b] = [0, 0].map(|_| machine(ring, 2048, cplus, rms, rcr));
        let [mut cuts, mut segments] = [true, false].map(Finished::new);
        for frames in frames.chunks(2) {
            for m in [&a, &b] {
                for i in 0..ring {
                    let (size, gap) = (sizes[i as usize], gaps[i as usize]);
                    let end = if i + 1 == ring { EOR } else { 0 };
                    let own = if gap == 1 { 0 } else { OWN };
                    let at = if gap == 2 { RAM + RAM_LEN - 50 } else { RX_BUFFERS + u64::from(i) * RX_STEP };
                    m.rx_desc(i, own | end | size, at);
                }
            }
            let frames: Vec<_> = frames
                .iter()
                .map(|&(to, v6, options, payload, mss)| {
                    let mss = mss.max((payload / 60) as u16 + 1);
                    large([MAC, PEER, [0xff; 6]][to], v6, options, payload, mss)
                })
                .collect();
            let batch = batch(&frames);
            let picks = &EACH[..frames.len()];
            let by_cuts = cuts.deliver(&a.nic.receive, &a.env, &batch, picks);
            let by_segments = segments.deliver(&b.nic.receive, &b.env, &batch, picks);
            prop_assert_eq!(by_cuts, by_segments);
            equal(&a, &b)?;
            for m in [&mut a, &mut b] {
                m.take_isr();
            }
        }
        prop_assert_eq!(segments.in_cuts(), 0);
    }
}

/// So that the test above does not compare batches with batches.
#[test]
fn segments_of_a_large_frame_arrive_as_a_cut() {
    for (cplus, v6) in [(0, false), (0x60, false), (0x60, true)] {
        let m = machine(12, 2048, cplus, 0, 0xf);
        let frames = [large(MAC, v6, 0, 5000, 1000), large(MAC, v6, 0, 9000, 1000)];
        let mut cuts = Finished::new(true);
        let all = cuts.deliver(&m.nic.receive, &m.env, &batch(&frames), &EACH[..2]);
        // What finds no buffer stays.
        assert_eq!((all.0, cuts.in_cuts()), (1, 12));
        let (first, second) = m.rx_words(0);
        let (headers, words) = match (v6, cplus) {
            (_, 0) => (58, (0, 0)),
            (false, _) => (58, (1 << 17, 1 << 30)),
            (true, _) => (78, (1 << 17, 1 << 31)),
        };
        let headers = if v6 { 78 } else { headers };
        assert_eq!(first, BOTH | 1 << 26 | words.0 | (1000 + headers));
        assert_eq!(second, words.1);
    }
}

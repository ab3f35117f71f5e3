//! Large frames that are cut on their way into the ring, against batches of their segments.

use super::*;

/// Batches with large frames among others, and changes between them.
fn with_large() -> impl Strategy<Value = Steps> {
    let mss = prop_oneof![4 => 300u16..1500, 1 => 1u16..60, 1 => 1500u16..9000];
    let large = (sent(), mss, 100usize..9000, any::<bool>());
    let large = large
        .prop_map(|(one, mss, len, ours)| Sent {
            mss,
            len,
            dst: if ours { 5 } else { one.dst },
            ..one
        })
        .boxed();
    let frames = prop_oneof![
        3 => prop::collection::vec(large.clone(), 1..4),
        1 => (batch(), large).prop_map(|(mut all, large)| {
            all.insert(all.len() / 2, large);
            all
        }),
    ];
    let step = (frames, any::<u8>(), prop::option::of(change()), 0u8..4);
    prop::collection::vec(step, 1..12).prop_map(repeated)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    #[cfg_attr(miri, ignore = "takes hours; tests/ goes the same ways")]
    fn cuts_are_received_as_segments_are_whatever_changes_between_them(
        setting in setting(),
        batches in with_large(),
    ) {
        let setting = Setting { rdtr: 0, ..setting };
        let segments = run(&setting, &batches, Way::Segments);
        let cuts = run(&setting, &batches, Way::Cuts);
        prop_assert!(segments.memory == cuts.memory, "memory differs");
        prop_assert_eq!(&segments.interrupts, &cuts.interrupts);
        prop_assert_eq!(&segments.counters, &cuts.counters);
        prop_assert_eq!(&segments.registers, &cuts.registers);
        prop_assert_eq!(&segments.dealt, &cuts.dealt);
        prop_assert_eq!(segments.in_cuts, 0);
    }
}

/// So that the test above does not compare batches with batches.
#[test]
fn segments_of_a_large_frame_are_taken_in_a_cut() {
    let mut setting = PLAIN;
    setting.rxcsum = 0x300;
    let large = |kind, mss, len| Sent {
        dst: 5,
        len,
        kind,
        notes: 9,
        seed: 0,
        number: 0,
        mss,
    };
    for (kind, mss, len, want) in [(1, 1000, 5500, 6), (0, 1428, 9000, 7), (1, 1000, 5001, 5)] {
        let batches = [(vec![large(kind, mss, len)], 0, None)];
        assert_eq!(run(&setting, &batches, Way::Cuts).in_cuts, want);
    }
    // 9000 bytes and headers in buffers of 16 KiB: a jumbo receiver.
    setting.rctl |= 1 << 5 | 1 << 25 | 1 << 16;
    let batches = [(vec![large(1, 8948, 30_000)], 0, None)];
    assert_eq!(run(&setting, &batches, Way::Cuts).in_cuts, 4);
}

//! What cannot be sent, and descriptors without sense.

use frame::Caps;
use model::Progress;
use proptest::prelude::*;

use crate::regs::QUEUES;
use crate::testing::{Guest, MEMORY, Wire, packet};
use crate::tx::desc::cmd;
use crate::tx::tests::descs::*;

#[test]
fn what_cannot_be_sent_is_counted_by_its_reason() {
    let zero = Ctx {
        mac: 0,
        ip: 0,
        l4: 0,
        mss: 0,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let huge = Ctx {
        mac: 127,
        ip: 511,
        l4: 255,
        mss: 0xffff,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let tiny = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 1,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let sctp = Ctx {
        mac: 14,
        ip: 20,
        l4: 12,
        mss: 100,
        vlan: 0,
        kind: SCTP4,
        slot: 0,
    };
    let tso = cmd::TSE | ALL;
    let cases: &[(&str, &[(u64, u64)])] = &[
        (
            "tx_bad_tso",
            &[zero.desc(), data(BUFFER, 1000, tso, 0, 1000)],
        ),
        ("tx_bad_tso", &[huge.desc(), data(BUFFER, 500, tso, 0, 100)]),
        ("tx_bad_tso", &[tiny.desc(), data(BUFFER, 54, tso, 0, 0)]),
        (
            "tx_bad_tso",
            &[sctp.desc(), data(BUFFER, 1000, tso, 0, 900)],
        ),
        (
            "tx_bad_tso",
            &[tiny.desc(), data(BUFFER, 0xffff, tso, 0, 0xffff - 54)],
        ),
        ("tx_too_long", &[data(BUFFER, 0xffff, ALL, 0, 0)]),
        ("tx_dma_fault", &[data(MEMORY - 8, 60, ALL, 0, 60)]),
        ("tx_dma_fault", &[data(u64::MAX - 8, 60, ALL, 0, 60)]),
        (
            "tx_bad_checksum",
            &[huge.desc(), data(BUFFER, 60, ALL, IXSM | TXSM, 60)],
        ),
        (
            "tx_bad_desc",
            &[(0, 0x2050_0000), data(BUFFER, 60, ALL, 0, 60)],
        ),
    ];
    for (counter, descs) in cases {
        let mut guest = Guest::pf();
        guest.start_tx(0, 16);
        guest.send(0, descs);
        assert_eq!(guest.run(&Wire::default()), Progress::Idle, "{counter}");
        assert_eq!(guest.counter(counter), 1, "{counter}");
        assert_eq!(
            guest.get(QUEUES.tdh, 0),
            guest.get(QUEUES.tdt, 0),
            "{counter}"
        );
    }
}

#[test]
fn a_frame_without_padding_is_a_runt() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 16);
    let runt = data(BUFFER, 13, ALL, 0, 13);
    guest.send(0, &[runt]);
    let wire = Wire::default();
    wire.look_at_unsent();
    guest.run(&wire);
    assert_eq!(guest.counter("tx_runt"), 1);
    // Who looks is shown its descriptor.
    let desc = [runt.0.to_le_bytes(), runt.1.to_le_bytes()].concat();
    assert_eq!(wire.take_unsent(), [("tx_runt", desc)]);
}

#[test]
fn a_ring_that_is_none_is_counted_and_left_alone() {
    for (len, head, tail) in [
        (0, 0, 1),
        (128, 8, 0),
        (128, 0, 8),
        (128, 0xffff, 0xffff - 1),
    ] {
        let mut guest = Guest::pf();
        guest.start_tx(0, 8);
        guest.set(QUEUES.tdlen, 0, len);
        guest.set(QUEUES.tdh, 0, head);
        guest.set(QUEUES.tdt, 0, tail);
        assert_eq!(guest.run(&Wire::default()), Progress::Idle);
        assert_eq!(guest.counter("tx_bad_ring"), 1);
        assert_eq!(guest.get(QUEUES.tdh, 0), head);
    }
}

#[test]
fn a_packet_without_an_end_is_given_up() {
    let mut guest = Guest::pf();
    guest.start_tx(0, 8);
    guest.send(0, &[data(BUFFER, 60, cmd::IFCS, 0, 60); 7]);
    while guest.run(&Wire::default()) != Progress::Idle {}
    assert_eq!(guest.counter("tx_too_many_descs"), 1);
    // Up to its end it is passed over; what is behind it is sent.
    let frame = packet::v4([1; 4], [2; 4], true, 3, 4);
    guest.write(BUFFER, &frame);
    let wire = Wire::default();
    guest.send(
        0,
        &[
            data(BUFFER, 60, ALL, 0, 60),
            legacy(BUFFER, frame.len(), ALL),
        ],
    );
    guest.run(&wire);
    assert_eq!(wire.take(), [frame]);
}

/// Any descriptor, most of them with sense.
fn any_desc() -> impl Strategy<Value = (u64, u64)> {
    let addr = prop_oneof![Just(BUFFER), 0..MEMORY + 0x1000, any::<u64>()];
    let len = prop_oneof![0..200usize, 0..0x1_0000usize];
    let sane = (addr, len, any::<u8>(), any::<u32>(), 0..0x4_0000usize)
        .prop_map(|(at, len, cmd, olinfo, paylen)| data(at, len, cmd, olinfo & 0x3ff0, paylen));
    let ctx = (
        0..128u64,
        0..512u64,
        0..256u64,
        0..0x1_0000u64,
        0..16u64,
        0..2u64,
    )
        .prop_map(|(mac, ip, l4, mss, kind, slot)| {
            Ctx {
                mac,
                ip,
                l4,
                mss,
                vlan: 1,
                kind: kind << 10,
                slot,
            }
            .desc()
        });
    prop_oneof![4 => sane, 2 => ctx, 1 => (any::<u64>(), any::<u64>())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 60 }))]
    /// Whatever descriptors say: calls end, heads stay inside, frames are of lengths a wire takes,
    /// and what is taken away comes to its end.
    #[test]
    fn any_descriptors_come_to_an_end(
        descs in proptest::collection::vec(any_desc(), 1..31),
        queue in 0..16u32,
        all_caps: bool,
        room in 0..40usize,
    ) {
        let mut guest = Guest::pf();
        guest.start_tx(queue, 32);
        guest.send(queue, &descs);
        let caps = if all_caps { Caps::ALL } else { Caps::NONE };
        let wire = Wire { caps, ..Wire::default() };
        wire.set_room(room);
        let mut calls = 0;
        loop {
            let progress = guest.run(&wire);
            if progress == Progress::Idle {
                break;
            }
            if progress == Progress::Blocked {
                wire.set_room(1000);
            }
            calls += 1;
            prop_assert!(calls < 4000, "it goes on for ever");
        }
        prop_assert!(guest.get(QUEUES.tdh, queue) < 32);
        for frame in wire.take() {
            prop_assert!(frame.len() >= 14);
        }
    }
}

/// One call handles one ring's worth of descriptors and the rest of a turn, not sixteen rings': the other
/// NICs of the worker would wait for it.
#[test]
#[cfg_attr(miri, ignore = "a million descriptors")]
fn the_largest_rings_of_all_queues_are_not_one_calls_work() {
    const LARGEST: u32 = 65_528;
    let context = Ctx {
        mac: 14,
        ip: 20,
        l4: 20,
        mss: 100,
        vlan: 0,
        kind: TCP4,
        slot: 0,
    };
    let (low, high) = context.desc();
    let raw = u128::from(high | u64::from(cmd::RS) << 24) << 64 | u128::from(low);
    for raw in [0, raw] {
        let mut guest = Guest::pf();
        let wire = Wire::default();
        guest.write(0, &raw.to_le_bytes().repeat(LARGEST as usize));
        for queue in 0..16 {
            guest.start_tx(queue, LARGEST);
            guest.set(QUEUES.tdbal, queue, 0);
            guest.set(QUEUES.tdt, queue, LARGEST - 1);
        }
        let (mut calls, mut before) = (0, 0);
        loop {
            let progress = guest.run(&wire);
            let fetched = guest.counter("tx_desc_fetched");
            assert!(
                fetched - before <= u64::from(LARGEST),
                "{}",
                fetched - before
            );
            before = fetched;
            calls += 1;
            match progress {
                Progress::More => assert!(calls < 100),
                other => {
                    assert_eq!(other, Progress::Idle);
                    break;
                }
            }
        }
        for queue in 0..16 {
            assert_eq!(guest.get(QUEUES.tdh, queue), LARGEST - 1);
        }
    }
}

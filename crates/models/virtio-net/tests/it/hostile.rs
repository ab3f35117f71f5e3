//! Rings that no driver makes: each is answered with a counter of its own and DEVICE_NEEDS_RESET.

use hypernic_virtio_net::regs::{feature, page};
use hypernic_virtio_net::{CTRL, RX, TX};
use proptest::prelude::*;

use crate::driver::{
    BUFFERS, Driver, INDIRECT, MAC, MEMORY, NEXT, OTHER, PLAIN, USUAL, WRITE, avail, desc, frame,
    used,
};

const RINGS: u64 = USUAL | feature::INDIRECT_DESC | feature::CTRL_VQ;

/// A queue with what `break_it` makes of it is broken for the reason that `counter` names; a reset heals it.
fn breaks(queue: usize, counter: &str, break_it: impl Fn(&mut Driver)) {
    breaks_with(RINGS, queue, counter, break_it);
}

fn breaks_with(features: u64, queue: usize, counter: &str, break_it: impl Fn(&mut Driver)) {
    let mut d = Driver::new(features);
    break_it(&mut d);
    d.m.vectors();
    d.kick(queue);
    if queue == RX {
        assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1, "{counter}");
    }
    assert_eq!(d.counter(counter), 1, "{counter}");
    assert!(d.needs_reset(), "{counter}");
    assert!(d.m.vectors().contains(&0), "{counter}");
    assert_eq!(d.r8(page::ISR), 2);
    // It is not looked at again.
    d.kick(queue);
    d.m.offer(&[&frame(MAC, 60)]);
    assert_eq!(d.counter(counter), 1, "{counter}");
    d.start(features, 64);
    assert!(!d.needs_reset());
    d.send(PLAIN, &frame(OTHER, 60));
    d.receive_at(BUFFERS, 200);
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    assert_eq!((d.used(TX).len(), d.used(RX).len()), (1, 1));
}

#[test]
fn more_entries_available_than_the_ring_has() {
    for queue in [RX, TX, CTRL] {
        breaks(queue, "broken_avail_index", |d| {
            d.m.poke(avail(queue) + 2, &65u16.to_le_bytes());
        });
    }
}

#[test]
fn chains_that_leave_the_table_or_go_in_circles() {
    for queue in [RX, TX, CTRL] {
        breaks(queue, "broken_head", |d| d.offer(queue, 64));
        breaks(queue, "broken_next", |d| {
            d.desc_at(desc(queue), 0, (BUFFERS, 10, NEXT), 64);
            d.offer(queue, 0);
        });
        breaks(queue, "broken_loop", |d| {
            d.desc_at(desc(queue), 0, (BUFFERS, 10, NEXT), 1);
            d.desc_at(desc(queue), 1, (BUFFERS, 10, NEXT), 0);
            d.offer(queue, 0);
        });
    }
}

#[test]
fn indirect_tables_that_cannot_be() {
    let table = BUFFERS + 0x1_0000;
    let indirect = |len: u32, flags: u16, at: u64| {
        move |d: &mut Driver| {
            for i in 0..64 {
                d.desc_at(table, i, (BUFFERS, 20, NEXT), i + 1);
            }
            d.desc_at(desc(TX), 0, (at, len, INDIRECT | flags), 1);
            d.offer(TX, 0);
        }
    };
    breaks(TX, "broken_indirect_next", indirect(16, NEXT, table));
    for len in [0, 15, 24, 65 * 16, u32::MAX] {
        breaks(TX, "broken_indirect_length", indirect(len, 0, table));
    }
    breaks(TX, "broken_indirect_length", indirect(32, 0, u64::MAX - 16));
    // The last entry goes on.
    breaks(TX, "broken_next", indirect(16, 0, table));
    breaks(TX, "broken_unmapped", |d| {
        d.desc_at(MEMORY - 16, 0, (BUFFERS, 80, NEXT), 1);
        d.desc_at(desc(TX), 0, (MEMORY - 16, 32, INDIRECT), 0);
        d.offer(TX, 0);
    });
    breaks(TX, "broken_nested", |d| {
        d.desc_at(table, 0, (table, 16, INDIRECT), 0);
        d.desc_at(desc(TX), 0, (table, 16, INDIRECT), 0);
        d.offer(TX, 0);
    });
    breaks(TX, "broken_loop", |d| {
        d.desc_at(table, 0, (BUFFERS, 16, NEXT), 0);
        d.desc_at(desc(TX), 0, (table, 32, INDIRECT), 0);
        d.offer(TX, 0);
    });
    breaks_with(USUAL, TX, "broken_no_indirect", |d| {
        d.desc_at(desc(TX), 0, (table, 16, INDIRECT), 0);
        d.offer(TX, 0);
    });
}

#[test]
fn parts_in_the_wrong_order_or_direction() {
    breaks(TX, "broken_order", |d| {
        d.give(TX, &[(BUFFERS, 20, true), (BUFFERS, 20, false)]);
    });
    breaks(TX, "broken_direction", |d| {
        d.give(TX, &[(BUFFERS, 80, false), (BUFFERS, 20, true)]);
    });
    breaks(RX, "broken_direction", |d| {
        d.give(RX, &[(BUFFERS, 80, false), (BUFFERS, 200, true)]);
    });
    // No room for the answer.
    breaks(CTRL, "broken_direction", |d| {
        d.give(CTRL, &[(BUFFERS, 3, false)]);
    });
    breaks(CTRL, "broken_direction", |d| {
        d.give(CTRL, &[(BUFFERS, 3, false), (BUFFERS, 0, true)]);
    });
}

#[test]
fn buffers_that_are_not_mapped() {
    for at in [MEMORY - 10, MEMORY, u64::MAX - 30] {
        breaks(TX, "broken_unmapped", |d| {
            d.give(TX, &[(at, 80, false)]);
        });
        breaks(RX, "broken_unmapped", |d| {
            d.give(RX, &[(at, 80, true)]);
        });
        breaks(CTRL, "broken_unmapped", |d| {
            d.give(CTRL, &[(at, 80, false), (BUFFERS, 1, true)]);
        });
        breaks(CTRL, "broken_unmapped", |d| {
            d.give(CTRL, &[(BUFFERS, 3, false), (at.wrapping_add(20), 1, true)]);
        });
    }
}

#[test]
fn memory_that_goes_away_stops_the_rings_and_not_the_device() {
    let mut d = Driver::new(RINGS);
    d.receive_at(BUFFERS, 200);
    d.m.env.memory.unmap(0, MEMORY).expect("mapped");
    d.kick(TX);
    assert_eq!(d.counter("broken_unmapped"), 1);
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    assert_eq!(d.counter("broken_unmapped"), 2);
    assert!(d.needs_reset());
}

#[test]
fn packets_before_the_broken_one_are_sent_first() {
    let mut d = Driver::new(RINGS);
    for len in [72, 73] {
        d.give(TX, &[(BUFFERS, len, false)]);
    }
    d.offer(TX, 1000);
    d.kick(TX);
    assert_eq!(d.m.wire.take().len(), 2);
    assert_eq!(d.used(TX).len(), 2);
    assert_eq!(d.counter("broken_head"), 1);
}

#[test]
fn what_the_device_has_written_is_never_read_back() {
    let mut d = Driver::new(RINGS);
    for round in 0..5u16 {
        d.send(PLAIN, &frame(OTHER, 60));
        assert_eq!(d.peek16(used(TX) + 2), round + 1);
        d.m.poke(used(TX), &[0xff; 4 + 8 * 64 + 2]);
    }
    assert_eq!(d.m.wire.take().len(), 5);
    assert!(!d.needs_reset());
}

#[test]
fn a_buffer_of_four_gigabytes_is_used_as_far_as_it_is_needed() {
    let mut d = Driver::new(RINGS);
    d.give(RX, &[(BUFFERS, u32::MAX, true)]);
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    assert_eq!(d.used(RX), [(0, 72)]);
    d.give(
        TX,
        &[(BUFFERS, u32::MAX, false), (BUFFERS, u32::MAX, false)],
    );
    d.kick(TX);
    assert_eq!(d.counter("tx_too_long"), 1);
    assert!(!d.needs_reset());
}

/// One word of a ring or a table, and what is written there.
#[derive(Clone, Debug)]
enum Step {
    Desc(usize, u16, u64, u32, u16, u16),
    Avail(usize, u16, u16),
    Index(usize, u16),
    Kick(usize),
    Frames(u8, u16),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let queue = 0usize..4;
    let place = prop_oneof![
        4 => (0u64..64).prop_map(|i| BUFFERS + 0x1000 * i),
        1 => Just(MEMORY - 8),
        1 => any::<u64>(),
        2 => (0usize..3).prop_map(desc),
    ];
    let len = prop_oneof![
        6 => 0u32..3000,
        2 => (0u32..70).prop_map(|n| 16 * n),
        1 => any::<u32>(),
    ];
    let flags = prop_oneof![6 => 0u16..4, 2 => 0u16..8, 1 => any::<u16>()];
    // In a packed ring these are flags.
    let next =
        prop_oneof![6 => 0u16..16, 3 => (0u16..8).prop_map(|n| 1 << 7 | n), 1 => any::<u16>()];
    prop_oneof![
        8 => (queue.clone(), 0u16..16, place, len, flags, next.clone())
            .prop_map(|(q, i, at, len, flags, next)| Step::Desc(q, i, at, len, flags, next)),
        4 => (queue.clone(), 0u16..16, next).prop_map(|(q, i, head)| Step::Avail(q, i, head)),
        4 => (queue.clone(), 0u16..20).prop_map(|(q, n)| Step::Index(q, n)),
        4 => queue.prop_map(Step::Kick),
        3 => (0u8..20, 14u16..2000).prop_map(|(n, len)| Step::Frames(n, len)),
        1 => Just(Step::Reset),
    ]
}

#[test]
fn buffers_of_one_frame_in_too_many_parts_cost_their_sender_no_walk() {
    let mut d = Driver::new(USUAL | feature::INDIRECT_DESC);
    // Each buffer is a table of 64 parts, of which 63 have no bytes and one has one.
    let table = BUFFERS + 0x1_0000;
    for i in 0..64 {
        let flags = WRITE | if i < 63 { NEXT } else { 0 };
        d.desc_at(table, i, (BUFFERS, u32::from(i == 63), flags), i + 1);
    }
    for head in 0..64 {
        d.desc_at(desc(RX), head, (table, 1024, INDIRECT), 0);
        d.offer(RX, head);
    }
    assert_eq!(d.m.offer(&[&frame(MAC, 60)]), 1);
    assert_eq!(d.counter("broken_parts"), 1);
    assert!(d.needs_reset());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]
    #[test]
    fn no_ring_panics_and_work_is_bounded_by_its_size(
        features in any::<u64>(),
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let offered = hypernic_virtio_net::Config::new(MAC).features();
        let mut d = Driver::cold(
            hypernic_virtio_net::Config::new(MAC),
            model_testkit::Wire::default(),
        );
        let mut features = features & offered & !feature::PACKED | feature::VERSION_1;
        if !d.negotiate(features) {
            features = RINGS | features & feature::PACKED;
        }
        d.start(features, 16);
        for step in steps {
            // A table of no queue is at the buffers: an indirect one.
            let table = |q: usize| if q < 3 { desc(q) } else { BUFFERS };
            match step {
                Step::Desc(q, i, at, len, flags, next) => {
                    d.desc_at(table(q), i, (at, len, flags), next);
                }
                Step::Avail(q, i, head) if q < 3 => {
                    d.m.poke(avail(q) + 4 + 2 * u64::from(i), &head.to_le_bytes());
                }
                Step::Index(q, n) if q < 3 => {
                    let now = d.peek16(avail(q) + 2).wrapping_add(n);
                    d.m.poke(avail(q) + 2, &now.to_le_bytes());
                }
                Step::Kick(q) => {
                    let before = [CTRL, TX].map(|q| d.peek16(used(q) + 2));
                    d.kick(q);
                    let after = [CTRL, TX].map(|q| d.peek16(used(q) + 2));
                    // A buffer may have been written there: then it says nothing.
                    let moved = after[0].wrapping_sub(before[0]);
                    let written = d.counter("ctrl_done") + d.counter("ctrl_refused") + d.counter("rx_frames");
                    prop_assert!(d.packed || moved <= 32 || written > 0);
                }
                Step::Frames(n, len) => {
                    let frame = frame(MAC, len.into());
                    let frames = vec![&frame[..]; n.into()];
                    prop_assert!(d.m.offer(&frames) <= frames.len());
                }
                Step::Reset => d.start(features, 16),
                _ => {}
            }
        }
        d.start(features, 16);
        prop_assert!(!d.needs_reset());
        d.m.wire.take();
        d.send(PLAIN, &frame(OTHER, 60));
        prop_assert_eq!(d.m.wire.take().len(), 1);
    }
}

//! Queues, rings and buffers: what is full, stopped, faulty or no ring at all.

use std::sync::Arc;

use frame::{Batch, Wake};
use model::Receive;
use model_testkit::CountedWake;
use wire::Offload;

use crate::core::stats::Stat;
use crate::regs as r;
use crate::regs::QUEUES;
use crate::regs::bits::{icr, rctl, xdctl};
use crate::rx::tests::{ALWAYS, Case, DROP, LEGACY, SMALL, SPLIT, WHOLE, tcp};
use crate::testing::{Guest, MEMORY, packet, packet_buffer};

#[test]
fn what_finds_no_descriptor_waits_or_is_dropped() {
    for (drop, dealt) in [(0, 7), (DROP, 10)] {
        let guest = Guest::pf();
        guest.start_rx(0, 8, WHOLE | drop);
        assert_eq!(guest.receive(&vec![tcp(); 10]), dealt);
        assert_eq!(guest.get(QUEUES.rdh, 0), 7);
        let (dropped, waits) = (
            guest.counter("rx_dropped"),
            guest.counter("rx_back_pressure"),
        );
        assert_eq!((dropped, waits), if drop == 0 { (0, 1) } else { (3, 0) });
        // Buffers given back are used.
        guest.set(QUEUES.rdt, 0, 3);
        assert_eq!(guest.receive(&vec![tcp(); 3]), 3);
        assert_eq!(guest.get(QUEUES.rdh, 0), 2);
    }
}

#[test]
fn a_queue_that_another_sender_holds_for_long_is_not_waited_for() {
    for guest in [Guest::pf(), Guest::pf_with(false)] {
        guest.start_rx(0, 8, WHOLE);
        let woken = Arc::new(CountedWake::default());
        let lock = guest.function.queues[0].rx.lock();
        // The copy of the one that holds it may wait for memory; these frames stay with their sender.
        assert_eq!(guest.receive(&vec![tcp(); 3]), 0);
        let wake: Arc<dyn Wake> = woken.clone();
        guest.receiver.want_room(&wake);
        assert_eq!(guest.receive(&vec![tcp(); 3]), 0);
        assert!(guest.counter("rx_held_up") >= 2);
        assert_eq!((guest.get(QUEUES.rdh, 0), woken.rung()), (0, 0));
        drop(lock);
        guest.function.let_go(0);
        assert_eq!(woken.rung(), 1);
        assert_eq!(guest.receive(&vec![tcp(); 3]), 3);
        guest.function.let_go(0);
        assert_eq!((guest.get(QUEUES.rdh, 0), woken.rung()), (3, 1));
    }
}

#[test]
fn few_descriptors_left_interrupt_once() {
    let guest = Guest::pf();
    guest.start_rx(0, 64, WHOLE | 1 << 20);
    let interrupts = || {
        let mut irq = guest.function.irq.lock();
        let causes = irq.causes();
        irq.write_icr(&guest.env, icr::ALL);
        causes & icr::RXDMT0 != 0
    };
    guest.receive(&vec![tcp(); 46]);
    assert!(!interrupts(), "17 are left");
    guest.receive(&[tcp()]);
    assert!(interrupts(), "16 are left");
    guest.receive(&[tcp()]);
    assert!(!interrupts());
}

#[test]
fn flows_spread_over_queues_and_stay_in_order() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::MRQC, 0x0037_0002);
    for i in 0..10 {
        file.set_at(r::RSSRK, i, 0x6d5a_56da_u32.rotate_left(i * 5));
    }
    for i in 0..32 {
        file.set_at(r::RETA, i, 0x0302_0100 + 0x0404_0404 * (i % 4));
    }
    for queue in 0..16 {
        guest.start_rx(queue, 128, WHOLE);
    }
    let frames: Vec<_> = (0..250)
        .map(|i| packet::v4([10, 0, 0, 1], [10, 0, 0, 2], true, 1000 + i % 50, i))
        .collect();
    assert_eq!(guest.receive(&frames), 250);
    let mut seen = 0;
    let mut used = 0;
    for queue in 0..16 {
        let head = guest.get(QUEUES.rdh, queue);
        used += u32::from(head > 0);
        let mut last = None;
        for i in 0..head {
            let port = guest.read(packet_buffer(queue, i) + 36, 2);
            let number = u16::from_be_bytes([port[0], port[1]]);
            assert!(last < Some(number), "in order");
            last = Some(number);
            seen += 1;
        }
    }
    assert_eq!(seen, 250);
    assert!(used >= 8, "only {used} queues");
}

#[test]
fn what_is_no_buffer_of_the_shape_is_not_looked_at() {
    // The second word is a header buffer only where headers are split off.
    for kind in [LEGACY, WHOLE] {
        let guest = Guest::pf();
        guest.start_rx(0, 8, kind);
        guest.write(crate::testing::RX_RINGS + 8, &[0xff; 8]);
        guest.receive(&[tcp()]);
        assert_eq!(guest.counter("rx_dma_fault"), 0);
        assert_eq!(guest.counter("rx_frames"), 1);
    }
}

#[test]
fn receiving_allocates_nothing() {
    let guest = Guest::pf();
    let file = &guest.function.file;
    file.set(r::MRQC, 0x0037_0002);
    for i in 0..32 {
        file.set_at(r::RSSRK, i % 10, 0x6d5a_56da_u32.rotate_left(i * 5));
        file.set_at(r::RETA, i, 0x0302_0100);
    }
    for (queue, kind) in [(0, WHOLE), (1, SPLIT), (2, ALWAYS), (3, LEGACY)] {
        guest.start_rx(queue, 128, kind | SMALL);
    }
    let mut batch = Batch::new();
    for i in 0..64 {
        batch.push_bytes(&packet::v4([1; 4], [2; 4], true, i, 80));
        batch.end(Offload::NONE);
    }
    let mut picks = Vec::new();
    let picks = batch.all_picks(&mut picks);
    let round = || {
        let taken = guest.receiver.deliver(&guest.env, &batch, picks);
        assert_eq!(taken, 64);
        for queue in 0..4 {
            let head = guest.get(QUEUES.rdh, queue);
            guest.set(QUEUES.rdt, queue, (head + 127) % 128);
        }
    };
    round();
    let again = || (0..10).for_each(|_| round());
    assert_eq!(allocation_counter::measure(again).count_total, 0);
}

#[test]
fn rings_and_buffers_that_are_none_are_counted() {
    let cases: &[Case] = &[
        ("rx_bad_ring", |g| g.set(QUEUES.rdlen, 0, 0)),
        ("rx_bad_ring", |g| g.set(QUEUES.rdt, 0, 8)),
        ("rx_bad_ring", |g| g.set(QUEUES.rdh, 0, 0xffff)),
        ("rx_bad_type", |g| g.set(QUEUES.srrctl, 0, 3 << 25)),
        ("rx_bad_type", |g| g.set(QUEUES.srrctl, 0, 7 << 25)),
        ("rx_disabled", |g| g.set(QUEUES.rxdctl, 0, 0)),
        ("rx_disabled", |g| g.function.file.set(r::RCTL, 0)),
        ("rx_filtered", |g| g.function.file.set(r::RCTL, rctl::EN)),
        ("rx_dma_fault", |g| g.set(QUEUES.rdbah, 0, 1)),
        ("rx_dma_fault", |g| {
            g.write(crate::testing::RX_RINGS, &(MEMORY - 8).to_le_bytes())
        }),
        ("rx_dma_fault", |g| {
            g.write(crate::testing::RX_RINGS, &[0xff; 8])
        }),
    ];
    for (counter, spoil) in cases {
        let guest = Guest::pf();
        guest.start_rx(0, 8, WHOLE);
        spoil(&guest);
        assert_eq!(guest.receive(&[tcp()]), 1, "{counter}");
        assert_eq!(guest.counter(counter), 1, "{counter}");
        assert_eq!(guest.counter("rx_frames"), 0, "{counter}");
    }
    let guest = Guest::pf();
    guest.start_rx(0, 8, WHOLE);
    assert_eq!(guest.receive(&[vec![2; 13], vec![2; 5], vec![]]), 3);
    assert_eq!(guest.counter("rx_runt"), 3);
}

#[test]
fn a_faulty_buffer_is_reported_and_the_ring_goes_on() {
    let guest = Guest::pf();
    guest.start_rx(0, 8, WHOLE);
    guest.write(crate::testing::RX_RINGS, &[0xff; 8]);
    let frame = tcp();
    guest.receive(&[frame.clone(), frame.clone()]);
    assert_eq!(guest.rx_desc(0, 0).1 as u32, 0x8000_0007);
    assert_eq!(guest.read(packet_buffer(0, 1), frame.len()), frame);
    assert_eq!(guest.get(QUEUES.rdh, 0), 2);
}

#[test]
fn null_buffers_are_passed_over_and_no_frame_walks_for_ever() {
    for (kind, tail) in [
        (LEGACY, 7),
        (WHOLE, 7),
        (SPLIT, 7),
        (ALWAYS, 7),
        (WHOLE | DROP, 3),
    ] {
        let guest = Guest::pf();
        guest.start_rx(0, 8, kind);
        guest.set(QUEUES.rdt, 0, tail);
        for i in 0..8 {
            guest.write(crate::testing::RX_RINGS + i * 16, &[0; 8]);
        }
        let frame = packet::v4_with([1; 4], [2; 4], true, 5, 6, 1000);
        assert_eq!(guest.receive(&[frame]), 1);
        assert_eq!(guest.counter("rx_too_large"), 1);
        assert_eq!(guest.get(QUEUES.rdh, 0), tail);
        let causes = guest.function.irq.lock().causes();
        assert_ne!(causes & icr::RXO, 0);
    }
}

#[test]
fn frames_given_up_are_missed() {
    let guest = Guest::pf();
    crate::rx::give_up(&guest.function, &guest.env, &[0, 1, 2]);
    assert_eq!(guest.function.stats.total(Stat::Mpc), 3);
    let causes = guest.function.irq.lock().causes();
    assert_ne!(causes & icr::RXO, 0);
}

#[test]
fn a_stopped_queue_is_written_no_more() {
    let guest = Arc::new(Guest::pf());
    guest.start_rx(0, 64, WHOLE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                guest.receive(&vec![tcp(); 4]);
                guest.set(QUEUES.rdt, 0, guest.get(QUEUES.rdh, 0).wrapping_sub(1) % 64);
            }
        });
        for _ in 0..50 {
            guest.set(QUEUES.rxdctl, 0, 0);
            // Whatever was under way is over: the driver frees the buffers now.
            guest.write(packet_buffer(0, 0), &[0xee; 32]);
            let head = guest.get(QUEUES.rdh, 0);
            for _ in 0..20 {
                assert_eq!(guest.read(packet_buffer(0, 0), 32), [0xee; 32]);
                std::thread::yield_now();
            }
            assert_eq!(guest.get(QUEUES.rdh, 0), head);
            guest.set(QUEUES.rxdctl, 0, xdctl::ENABLE);
            std::thread::yield_now();
        }
    });
}

//! Packed rings.

use hypernic_virtio_net::regs::{ctrl, feature, header};
use hypernic_virtio_net::{CTRL, RX, TX};
use model::Progress;
use model_testkit::Wire;

use crate::driver::{
    BUFFERS, Driver, INDIRECT, MAC, MEMORY, NEXT, OFFLOADS, OTHER, PLAIN, USUAL, WRITE, avail,
    desc, frame, header, tcp4, used,
};

const PACKED: u64 = USUAL | feature::PACKED | feature::INDIRECT_DESC | feature::CTRL_VQ;

/// A packet of these many parts at `BUFFERS`, whose header is zeros.
fn parts(d: &Driver, parts: usize, len: usize) -> (Vec<(u64, u32, bool)>, Vec<u8>) {
    let sent = frame(OTHER, len);
    let all = [&PLAIN[..], &sent].concat();
    d.m.poke(BUFFERS, &all);
    let each = all.len().div_ceil(parts);
    let list = all.chunks(each).scan(BUFFERS, |at, chunk| {
        let this = *at;
        *at += chunk.len() as u64;
        Some((this, chunk.len() as u32, false))
    });
    (list.collect(), sent)
}

#[test]
fn packets_go_round_a_packed_ring_of_any_size() {
    for size in [1, 3, 7, 16, 64] {
        let mut d = Driver::with(PACKED, size, Wire::default());
        for round in 0..200usize {
            let (list, sent) = parts(&d, 1 + round % usize::from(size.min(5)), 60 + round);
            let id = d.give(TX, &list);
            d.kick(TX);
            assert_eq!(d.m.wire.take(), [sent], "ring of {size}, round {round}");
            assert_eq!(d.used(TX), [(u32::from(id), 0)]);
        }
        // Through a table.
        let table = BUFFERS + 0x10_0000;
        let (list, sent) = parts(&d, 4, 300);
        if size >= 4 {
            for (i, part) in list.iter().enumerate() {
                // Neither the next one nor the id of an entry means anything.
                d.desc_at(table, i as u16, (part.0, part.1, 0xffff), 0);
            }
            d.give_packed(TX, &[(table, 16 * 4, false)], INDIRECT);
            d.kick(TX);
            assert_eq!(d.m.wire.take(), [sent]);
            assert_eq!(d.used(TX).len(), 1);
        }
        assert!(!d.needs_reset());
    }
}

#[test]
fn a_burst_fills_a_packed_ring_and_what_finds_no_room_waits_in_it() {
    let mut d = Driver::with(PACKED | OFFLOADS, 10, Wire::default());
    for round in 0..40 {
        d.m.wire.set_room(2);
        let (list, _) = parts(&d, 2, 100 + round);
        let ids: Vec<_> = (0..5).map(|_| u32::from(d.give(TX, &list))).collect();
        d.kick(TX);
        assert_eq!(d.used(TX).len(), 2);
        d.m.wire.set_room(1);
        assert_eq!(d.m.run(), Progress::Blocked);
        assert_eq!(d.used(TX), [(ids[2], 0)]);
        d.m.wire.unlimit();
        assert_eq!(d.m.run(), Progress::Idle);
        assert_eq!(d.used(TX), [(ids[3], 0), (ids[4], 0)]);
        assert_eq!(d.m.wire.take().len(), 5);
    }
}

#[test]
fn received_frames_fill_the_buffers_of_a_packed_ring_or_none() {
    let mut d = Driver::with(PACKED, 5, Wire::default());
    let sent = frame(MAC, 900);
    for round in 0..50 {
        let ids: Vec<_> = (0..2)
            .map(|i| u32::from(d.receive_at(BUFFERS + 0x1000 * i, 400)))
            .collect();
        assert_eq!(d.m.offer(&[&sent]), 0, "round {round}");
        assert!(d.used(RX).is_empty());
        let last = u32::from(d.receive_at(BUFFERS + 0x2000, 400));
        assert_eq!(d.m.offer(&[&sent]), 1);
        assert_eq!(d.used(RX), [(ids[0], 400), (ids[1], 400), (last, 112)]);
        let got = [
            d.m.peek(BUFFERS + 12, 388),
            d.m.peek(BUFFERS + 0x1000, 400),
            d.m.peek(BUFFERS + 0x2000, 112),
        ];
        assert_eq!(got.concat(), sent);
    }
    // Segments: all or none; and a frame that the whole ring cannot hold.
    for _ in 0..5 {
        d.receive_at(BUFFERS, 400);
    }
    assert_eq!(d.m.offer(&[&frame(MAC, 2000)]), 1);
    assert_eq!(d.counter("rx_too_long"), 1);
    let notes = wire::Offload {
        csum: Some(wire::Csum {
            start: 34,
            offset: 16,
        }),
        gso: wire::Gso::Tcp4,
        gso_size: 300,
        hdr_len: 54,
        ..wire::Offload::NONE
    };
    assert_eq!(d.m.offer_notes(&[(&tcp4(1500), notes)]), 1);
    assert_eq!(d.used(RX).len(), 5);
    assert_eq!(header(0, 0, 0, 0, 0)[0], header::NEEDS_CSUM - 1);
}

#[test]
fn the_driver_of_a_packed_ring_is_called_when_its_descriptor_is_passed() {
    let mut d = Driver::with(PACKED | feature::EVENT_IDX, 10, Wire::default());
    d.m.poke(BUFFERS, &[0; 200]);
    let one = [(BUFFERS, 72, false)];
    let event = |d: &Driver, at: u64| {
        let lap = (at / 10).is_multiple_of(2);
        let word = (at % 10) as u16 | if lap { 0x8000 } else { 0 };
        d.m.poke(avail(TX), &[word.to_le_bytes(), [2, 0]].concat());
    };
    for round in 0..500u64 {
        event(&d, d.given[TX] + 2);
        for i in 0..4 {
            d.give(TX, &one);
            d.kick(TX);
            assert_eq!(d.m.vectors().len(), usize::from(i == 2), "{round} {i}");
            d.used(TX);
        }
        // The device asks for the next one.
        let next = d.given[TX];
        let lap = (next / 10).is_multiple_of(2);
        let want = (next % 10) as u16 | if lap { 0x8000 } else { 0 };
        assert_eq!(d.peek16(used(TX)), want);
        assert_eq!(d.peek16(used(TX) + 2), 2);
        // Several at once.
        for (ahead, called) in [(8, 0), (7, 1), (1, 1), (0, 0)] {
            // The one before the next is passed already.
            event(&d, d.given[TX] + ahead - 1);
            for _ in 0..7 {
                d.give(TX, &one);
            }
            d.kick(TX);
            assert_eq!(d.m.vectors().len(), called, "{round} {ahead}");
            assert_eq!(d.used(TX).len(), 7);
        }
        d.m.wire.take();
    }
    for (flags, called) in [(1, 0), (0, 1)] {
        d.m.poke(avail(TX), &[0, 0, flags, 0]);
        d.send(PLAIN, &frame(OTHER, 60));
        assert_eq!(d.m.vectors().len(), called);
    }
}

#[test]
fn commands_come_by_a_packed_ring() {
    let features = PACKED | feature::CTRL_RX;
    let mut d = Driver::new(features);
    for on in 0..100u8 {
        assert_eq!(d.command(ctrl::RX, 1, &[on & 1]), ctrl::OK);
    }
    assert_eq!(d.command(ctrl::RX, 7, &[1]), ctrl::ERR);
}

/// A packed ring with what `break_it` makes of it is broken for the reason that `counter` names.
fn breaks(features: u64, queue: usize, counter: &str, break_it: impl Fn(&mut Driver)) {
    let mut d = Driver::with(features, 16, Wire::default());
    break_it(&mut d);
    d.kick(queue);
    if queue == RX {
        d.m.offer(&[&frame(MAC, 60)]);
    }
    assert_eq!(d.counter(counter), 1, "{counter}");
    assert!(d.needs_reset(), "{counter}");
    d.start(features, 16);
    d.send(PLAIN, &frame(OTHER, 60));
    assert_eq!(d.used(TX).len(), 1);
}

#[test]
fn packed_rings_that_no_driver_makes_are_broken_by_name() {
    let table = BUFFERS + 0x1_0000;
    for queue in [RX, TX, CTRL] {
        breaks(PACKED, queue, "broken_loop", |d| {
            let write = if queue == RX { WRITE } else { 0 };
            for slot in 0..16 {
                d.desc_at(
                    desc(queue),
                    slot,
                    (BUFFERS, 10, slot),
                    NEXT | write | 1 << 7,
                );
            }
        });
    }
    let indirect = |len: u32, flags: u16| {
        move |d: &mut Driver| {
            d.give_packed(TX, &[(table, len, false)], INDIRECT | flags);
        }
    };
    breaks(PACKED, TX, "broken_indirect_next", indirect(16, NEXT));
    for len in [0, 15, 24, 17 * 16, u32::MAX] {
        breaks(PACKED, TX, "broken_indirect_length", indirect(len, 0));
    }
    let without = PACKED & !feature::INDIRECT_DESC;
    breaks(without, TX, "broken_no_indirect", indirect(16, 0));
    breaks(PACKED, TX, "broken_nested", |d| {
        d.desc_at(table, 0, (table, 16, 0), INDIRECT);
        d.give_packed(TX, &[(table, 16, false)], INDIRECT);
    });
    breaks(PACKED, TX, "broken_unmapped", |d| {
        d.give_packed(TX, &[(MEMORY - 8, 32, false)], INDIRECT);
    });
    breaks(PACKED, TX, "broken_order", |d| {
        d.give(TX, &[(BUFFERS, 20, true), (BUFFERS, 20, false)]);
    });
    breaks(PACKED, RX, "broken_direction", |d| {
        d.give(RX, &[(BUFFERS, 20, false), (BUFFERS, 200, true)]);
    });
}

/// DPDK's driver makes tables of entries to write, and leaves some of them so.
#[test]
fn a_packet_in_a_table_is_read_whatever_its_entries_say() {
    let sent = |marked: [u16; 3]| {
        let mut d = Driver::with(PACKED, 16, Wire::default());
        let table = BUFFERS + 0x1000;
        d.m.poke(BUFFERS, &[&PLAIN[..], &frame(OTHER, 60)].concat());
        d.desc_at(table, 0, (BUFFERS, 12, 0), marked[0]);
        d.desc_at(table, 1, (BUFFERS + 12, 40, 0), marked[1]);
        d.desc_at(table, 2, (BUFFERS + 52, 20, 0), marked[2]);
        d.give_packed(TX, &[(table, 48, false)], INDIRECT);
        d.kick(TX);
        assert!(!d.needs_reset());
        d.m.wire.take()
    };
    let plain = sent([0; 3]);
    assert_eq!(plain.len(), 1);
    for marked in [
        [WRITE, 0, 0],
        [WRITE, WRITE, 0],
        [WRITE, 0, WRITE],
        [0, WRITE, 0],
    ] {
        assert_eq!(sent(marked), plain, "{marked:?}");
    }
}

#[test]
fn only_a_descriptor_whose_bits_say_so_is_available_and_any_id_goes_back() {
    let mut d = Driver::with(PACKED, 4, Wire::default());
    d.m.poke(BUFFERS, &[0; 200]);
    // Both bits, none, and those of the other lap.
    for flags in [1 << 7 | 1 << 15, 0, 1 << 15] {
        d.desc_at(desc(TX), 0, (BUFFERS, 72, 9), flags);
        d.kick(TX);
        assert!(d.m.wire.take().is_empty(), "{flags:#x}");
    }
    d.desc_at(desc(TX), 0, (BUFFERS, 72, 0xbeef), 1 << 7);
    d.kick(TX);
    assert_eq!(d.m.wire.take().len(), 1);
    assert_eq!(d.m.peek(desc(TX) + 12, 4), [0xef, 0xbe, 0x80, 0x80]);
    assert!(!d.needs_reset());
}

#[test]
fn a_packet_that_is_taken_back_while_it_waits_is_not_looked_for_without_end() {
    for event_idx in [0, feature::EVENT_IDX] {
        let mut d = Driver::with(PACKED | event_idx, 8, Wire::default());
        d.m.poke(BUFFERS, &[&PLAIN[..], &frame(OTHER, 60)].concat());
        d.m.wire.set_room(0);
        for _ in 0..3 {
            d.give(TX, &[(BUFFERS, 72, false)]);
        }
        d.kick(TX);
        assert_eq!(d.m.run(), Progress::Blocked);
        // The first is not available any more, those behind it are.
        d.m.poke(desc(TX) + 14, &[0; 2]);
        d.m.wire.unlimit();
        assert_eq!(d.m.run(), Progress::Idle);
        assert!(d.m.wire.take().is_empty() && !d.needs_reset());
        // Given again, all leave.
        d.m.poke(desc(TX) + 14, &(1u16 << 7).to_le_bytes());
        d.kick(TX);
        assert_eq!(d.m.wire.take().len(), 3);
    }
}

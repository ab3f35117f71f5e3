//! IN_ORDER: one used element for several buffers that were sent.

use hypernic_virtio_net::regs::feature;
use hypernic_virtio_net::{Config, RX, TX};
use model_testkit::Wire;

use crate::driver::{BUFFERS, Driver, MAC, OTHER, PLAIN, USUAL, desc, frame, used};

const IN_ORDER: u64 = USUAL | feature::IN_ORDER;

fn word32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Element `slot` of the used ring.
fn element(d: &Driver, queue: usize, slot: u64) -> (u32, u32) {
    let bytes = d.m.peek(used(queue) + 4 + 8 * slot, 8);
    (word32(&bytes), word32(&bytes[4..]))
}

/// Gives packets of so many parts and has them sent.
fn send(d: &mut Driver, parts: &[usize]) -> Vec<u16> {
    d.m.poke(BUFFERS, &[&PLAIN[..], &frame(OTHER, 100)].concat());
    let heads = parts
        .iter()
        .map(|parts| {
            let mut list = vec![(BUFFERS, 12, false)];
            for i in 1..*parts as u64 {
                list.push((BUFFERS + 12 + i * 20, 20, false));
            }
            d.give(TX, &list)
        })
        .collect();
    d.kick(TX);
    assert_eq!(d.m.wire.take().len(), parts.len());
    heads
}

#[test]
fn one_used_element_stands_for_a_run_of_a_split_ring() {
    let mut d = Driver::with(IN_ORDER, 16, Wire::default());
    d.m.poke(used(TX), &[0xee; 4 + 8 * 16]);
    let heads = send(&mut d, &[2, 3, 2]);
    assert_eq!(d.peek16(used(TX) + 2), 3);
    assert_eq!(element(&d, TX, 0), (heads[2].into(), 0));
    assert_eq!(
        element(&d, TX, 1),
        (0xeeee_eeee, 0xeeee_eeee),
        "nobody reads it"
    );
    let heads = send(&mut d, &[2]);
    assert_eq!(
        (d.peek16(used(TX) + 2), element(&d, TX, 3)),
        (4, (heads[0].into(), 0))
    );
    // Over the end of the ring, many times.
    let mut index = 4u16;
    for round in 0..1000 {
        let parts = vec![2; 1 + round % 8];
        let heads = send(&mut d, &parts);
        let last = *heads.last().expect("some");
        assert_eq!(element(&d, TX, u64::from(index % 16)), (last.into(), 0));
        index = index.wrapping_add(parts.len() as u16);
        assert_eq!(d.peek16(used(TX) + 2), index);
    }
    // What the sink leaves is a run of its own.
    d.m.wire.set_room(2);
    d.m.poke(used(TX), &[0xee; 4 + 8 * 16]);
    for _ in 0..3 {
        d.give(TX, &[(BUFFERS, 112, false)]);
    }
    d.kick(TX);
    assert_eq!(d.peek16(used(TX) + 2), index.wrapping_add(2));
    d.m.wire.unlimit();
    d.m.run();
    assert_eq!(d.peek16(used(TX) + 2), index.wrapping_add(3));
}

#[test]
fn one_used_descriptor_stands_for_a_run_of_a_packed_ring() {
    let mut d = Driver::with(IN_ORDER | feature::PACKED, 10, Wire::default());
    let tail = |d: &Driver, slot: u64| {
        let bytes = d.m.peek(desc(TX) + 16 * slot + 12, 4);
        (
            u16::from_le_bytes([bytes[0], bytes[1]]),
            u16::from_le_bytes([bytes[2], bytes[3]]),
        )
    };
    let mut first = 0u64;
    for round in 0..500 {
        let parts = [[2, 3, 2], [4, 2, 4], [2, 2, 2], [3, 2, 2]][round % 4];
        let before: Vec<_> = parts
            .iter()
            .scan(first, |at, parts| {
                let here = *at;
                *at += *parts as u64;
                Some(here % 10)
            })
            .collect();
        let ids = send(&mut d, &parts);
        // The last one's id is where the first one was, and the others are as the driver gave them.
        let lap = (first / 10).is_multiple_of(2);
        let flags = if lap { 1 << 7 | 1 << 15 } else { 0 };
        assert_eq!(tail(&d, first % 10), (ids[2], flags), "round {round}");
        for slot in &before[1..] {
            let (_, flags) = tail(&d, *slot);
            assert_ne!(flags & 1 << 7 != 0, flags & 1 << 15 != 0, "round {round}");
        }
        first += parts.iter().sum::<usize>() as u64;
        d.taken[TX] = first;
    }
}

#[test]
fn what_is_received_has_an_element_for_each_buffer() {
    for packed in [0, feature::PACKED] {
        let mut d = Driver::cold(Config::new(MAC), Wire::default());
        d.start(IN_ORDER | packed, 16);
        for i in 0..6 {
            d.receive_at(BUFFERS + 0x1000 * i, 400);
        }
        assert_eq!(
            d.m.offer(&[&frame(MAC, 900), &frame(MAC, 60), &frame(MAC, 61)]),
            3
        );
        let lens: Vec<_> = d.used(RX).into_iter().map(|(_, len)| len).collect();
        assert_eq!(lens, [400, 400, 112, 72, 73]);
    }
}

//! Drivers that break the rules: each way of doing so is named, and none makes the device work without end.

use guest_mem::Memory;
use proptest::prelude::*;

use super::driver::{DESC, DEVICE, DRIVER, Driver, INDIRECT, MEMORY, NEXT, TABLES, WRITE, part};
use crate::core::chain::{Chain, Part};
use crate::core::ring::{Broken, Format, Place, Position, Refused, Ring};

const SIZE: u16 = 8;

fn packed(indirect: bool) -> Driver {
    let format = Format {
        indirect,
        event_idx: true,
        packed: true,
        in_order: false,
    };
    Driver::new(format, SIZE)
}

/// What the device says of a packed ring with these descriptors, all of them available.
fn verdict(indirect: bool, descs: &[(Part, u16)]) -> Result<bool, Broken> {
    let driver = packed(indirect);
    for (i, (part, flags)) in descs.iter().enumerate() {
        let flags = flags | Driver::available(1 << 15);
        driver.packed_desc(DESC + 16 * i as u64, *part, 3, flags);
    }
    take(&driver, &mut driver.ring())
}

fn take(driver: &Driver, ring: &mut Ring) -> Result<bool, Broken> {
    ring.take(&driver.memory.view(), &mut Chain::default())
}

#[test]
fn a_packed_chain_that_goes_in_a_circle_is_a_broken_ring() {
    let circle = [(part(1), NEXT); SIZE as usize];
    assert_eq!(verdict(true, &circle), Err(Broken::Loop));
}

#[test]
fn a_packed_part_to_read_behind_one_to_write_is_a_broken_ring() {
    let descs = [(part(1), NEXT | WRITE), (part(1), 0)];
    assert_eq!(verdict(true, &descs), Err(Broken::Order));
}

#[test]
fn packed_tables_that_cannot_be_are_broken_rings() {
    let table = |len| Part { at: TABLES, len };
    assert_eq!(verdict(true, &[(table(16), INDIRECT)]), Ok(true));
    for (indirect, descs, why) in [
        (false, &[(table(16), INDIRECT)][..], Broken::NoIndirect),
        (true, &[(table(16), INDIRECT | NEXT)], Broken::IndirectNext),
        (
            true,
            &[(part(1), NEXT), (table(16), INDIRECT)],
            Broken::IndirectNext,
        ),
        (true, &[(table(0), INDIRECT)], Broken::IndirectLength),
        (true, &[(table(17), INDIRECT)], Broken::IndirectLength),
        (
            true,
            &[(table(16 * (u32::from(SIZE) + 1)), INDIRECT)],
            Broken::IndirectLength,
        ),
        (
            true,
            &[(
                Part {
                    at: u64::MAX - 15,
                    len: 32,
                },
                INDIRECT,
            )],
            Broken::IndirectLength,
        ),
        (
            true,
            &[(
                Part {
                    at: MEMORY - 16,
                    len: 32,
                },
                INDIRECT,
            )],
            Broken::Unmapped,
        ),
    ] {
        assert_eq!(verdict(indirect, descs), Err(why), "{descs:?}");
    }
}

#[test]
fn a_packed_table_in_a_table_is_a_broken_ring() {
    let driver = packed(true);
    driver.packed_desc(TABLES, part(16), 0, INDIRECT);
    let table = Part {
        at: TABLES,
        len: 16,
    };
    driver.packed_desc(DESC, table, 0, INDIRECT | Driver::available(1 << 15));
    assert_eq!(take(&driver, &mut driver.ring()), Err(Broken::Nested));
}

#[test]
fn packed_flags_that_say_used_or_both_are_not_available() {
    for flags in [0, 1 << 7 | 1 << 15, 1 << 15] {
        let driver = packed(true);
        driver.packed_desc(DESC, part(1), 0, flags);
        assert_eq!(take(&driver, &mut driver.ring()), Ok(false), "{flags:#x}");
    }
}

#[test]
fn packed_slots_that_are_given_twice_are_a_broken_ring() {
    let driver = packed(true);
    let mut ring = driver.ring();
    for at in 0..SIZE {
        let at = DESC + 16 * u64::from(at);
        driver.packed_desc(at, part(1), 0, Driver::available(1 << 15));
    }
    for _ in 0..SIZE {
        assert_eq!(take(&driver, &mut ring), Ok(true));
    }
    assert_eq!(take(&driver, &mut ring), Ok(false));
    // The driver gives a slot again that the device has not shown as used.
    driver.packed_desc(DESC, part(1), 0, Driver::available(0));
    assert_eq!(take(&driver, &mut ring), Err(Broken::AvailIndex));
}

#[test]
fn an_id_is_a_number_to_give_back_and_no_more() {
    let driver = packed(true);
    let mut ring = driver.ring();
    driver.packed_desc(DESC, part(1), 0xffff, Driver::available(1 << 15));
    assert_eq!(take(&driver, &mut ring), Ok(true));
    let view = driver.memory.view();
    ring.used(&view, 0xffff, 0).expect("mapped");
    ring.publish(&view).expect("mapped");
    drop(view);
    assert_eq!(driver.peek16(DESC + 12), 0xffff);
}

#[test]
fn a_packed_ring_must_have_entries_and_lie_where_it_can() {
    let format = packed(true).format;
    let place = packed(true).place();
    let make = |place: Place| Ring::new(place, format, Position::start(format)).err();
    assert_eq!(make(Place { size: 7, ..place }), None);
    for size in [0, 1025, 0x8000, 0xffff] {
        assert_eq!(make(Place { size, ..place }), Some(Refused::Size));
    }
    for place in [
        Place {
            desc: DESC + 8,
            ..place
        },
        Place {
            driver: DRIVER + 2,
            ..place
        },
        Place {
            device: DEVICE + 1,
            ..place
        },
        Place {
            desc: u64::MAX - 15,
            ..place
        },
        Place {
            driver: u64::MAX - 3,
            ..place
        },
    ] {
        assert_eq!(make(place), Some(Refused::Address), "{place:?}");
    }
}

/// Bytes that rings are made of, more often than others.
fn word() -> impl Strategy<Value = u16> {
    prop_oneof![
        0..12u16,
        Just(1 << 7),
        Just(1 << 15),
        Just(1 << 7 | 1),
        Just(1 << 7 | 2),
        Just(1 << 7 | 4),
        Just(1 << 7 | 1 << 15),
        any::<u16>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 512 }))]

    #[test]
    fn no_ring_makes_the_device_panic_or_work_without_end(
        packed: bool,
        event_idx: bool,
        size in 0..5u32,
        words in proptest::collection::vec(word(), 96),
        changes in proptest::collection::vec((0..96u64, word()), 0..24),
        turns in 1..12u16,
    ) {
        let format = Format { indirect: true, event_idx, packed, in_order: false };
        let size = 1u16 << size;
        let memory = Memory::new();
        memory.map_anon(0, 0x1000).expect("memory");
        // All of it in 192 bytes: tables, rings and what they name lie on top of each other.
        let place = Place { size, desc: 0, driver: 64, device: 128 };
        for (at, word) in words.iter().enumerate() {
            memory.view().write(2 * at as u64, &word.to_le_bytes()).expect("mapped");
        }
        let mut ring = Ring::new(place, format, Position::start(format)).expect("possible");
        let mut changes = changes.into_iter();
        let mut chain = Chain::default();
        for _ in 0..turns {
            let view = memory.view();
            let mut held = 0;
            for _ in 0..2 * size {
                let found = ring.take(&view, &mut chain);
                // A chain has at most the entries of the ring and of one table.
                prop_assert!(u32::from(size) * 2 >= ring.take_read());
                prop_assert!(chain.parts.len() <= 2 * usize::from(size));
                match found {
                    Ok(true) => held += 1,
                    Ok(false) => break,
                    Err(_) => return Ok(()),
                }
                if let Some((at, word)) = changes.next() {
                    view.write(2 * at, &word.to_le_bytes()).expect("mapped");
                }
            }
            // What is held is never more than there is.
            prop_assert!(held <= size);
            let back = held / 2;
            ring.give_back(back);
            for id in 0..held - back {
                let _ = ring.used(&view, id, 7);
            }
            let _ = ring.publish(&view);
            let _ = ring.want_kick(&view);
            let _ = ring.no_kick(&view);
        }
    }

    #[test]
    fn a_ring_that_is_unmapped_is_broken_and_nothing_else(packed: bool, cut in 0..3usize) {
        let format = Format { indirect: true, event_idx: true, packed, in_order: false };
        let mut driver = Driver::new(format, 8);
        let mut ring = driver.ring();
        driver.give(&[(part(1), false)], false).expect("room");
        let gone = [DESC, DRIVER, DEVICE][cut] & !0xfff;
        driver.memory.unmap_all();
        for page in 0..16u64 {
            if page * 0x1000 != gone {
                driver.memory.map_anon(page * 0x1000, 0x1000).expect("memory");
            }
        }
        // It still finds something in the others.
        if gone != DRIVER {
            driver.poke16(DRIVER + 2, if packed { 0 } else { 1 });
        }
        if packed && gone != DESC {
            driver.packed_desc(DESC, part(1), 0, Driver::available(1 << 15));
        }
        let view = driver.memory.view();
        let all = [
            ring.take(&view, &mut Chain::default()).map(|_| ()),
            ring.used(&view, 0, 1),
            ring.publish(&view).map(|_| ()),
            ring.want_kick(&view).map(|_| ()),
            ring.no_kick(&view),
        ];
        prop_assert!(all.contains(&Err(Broken::Unmapped)));
    }
}

use proofs::proofs;

use super::{Cursor, DESC, MAX_SIZE, Packed, WRAP};
use crate::core::place::{Format, Place, Position};

/// A cursor in a ring of so many slots.
fn cursor(size: u16, index: u16, wrap: bool) -> (u16, Cursor) {
    let size = size % MAX_SIZE + 1;
    let wrap = if wrap { WRAP } else { 0 };
    (size, Cursor((index % size) | wrap))
}

proofs! {
    fn on_and_back_is_the_same_place(size: u16, index: u16, wrap: bool, slots: u16) {
        let (size, old) = cursor(size, index, wrap);
        let slots = slots % (size + 1);
        let new = old.on(slots, size);
        assert!(new.index() < size);
        assert_eq!(new.back(slots, size), old);
        assert_eq!(new.since(old, size), slots);
    }

    fn the_wrap_counter_turns_where_the_ring_ends(size: u16, index: u16, wrap: bool, slots: u16) {
        let (size, old) = cursor(size, index, wrap);
        let slots = slots % (size + 1);
        let new = old.on(slots, size);
        assert_eq!(new.wrap() != old.wrap(), old.index() + slots >= size);
        let one_by_one = old.on(slots / 2, size).on(slots - slots / 2, size);
        assert_eq!(one_by_one, new);
    }

    fn what_lies_between_two_places_is_at_most_a_ring(size: u16, one: u16, other: u16, wraps: u8) {
        let (size, one) = cursor(size, one, wraps & 1 != 0);
        let (_, other) = cursor(size - 1, other, wraps & 2 != 0);
        assert!(one.since(other, size) <= size);
    }

    // It makes its storage, of which Kani would have to follow every byte.
    #[cfg_attr(kani, kani::unwind(4))]
    fn no_part_of_a_ring_that_is_taken_wraps(size: u16, desc: u64, driver: u64, device: u64) {
        let size = if cfg!(kani) { size % 2 + 1 } else { size };
        let [desc, driver, device] = [desc & !15, driver & !3, device & !3];
        let place = Place { size, desc, driver, device };
        let format = Format { packed: true, ..Format::default() };
        let Ok(ring) = Packed::new(place, format, Position::start(format)) else {
            let fits = |at: u64, len: u64| at.checked_add(len + 8).is_some();
            let all = fits(desc, DESC * u64::from(size)) && fits(driver, 4) && fits(device, 4);
            assert!(size == 0 || size > MAX_SIZE || !all);
            return;
        };
        let last = DESC * u64::from(ring.place().size - 1);
        assert!(desc.checked_add(last + DESC).is_some());
        assert!(driver.checked_add(4).is_some() && device.checked_add(4).is_some());
    }
}

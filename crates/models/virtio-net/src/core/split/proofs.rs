use proofs::proofs;

use super::{DESC, MAX_SIZE, Split};
use crate::core::place::{Format, Place, Position};

proofs! {
    fn no_part_of_a_ring_that_is_taken_wraps(
        power: u8, desc: u64, driver: u64, device: u64, entry: u16,
    ) {
        let size = 1_u16 << (power % 16);
        let [desc, driver, device] = [desc & !15, driver & !1, device & !3];
        let place = Place { size, desc, driver, device };
        let Ok(ring) = Split::new(place, Format::default(), Position::default()) else {
            let n = u64::from(size);
            let fits = |at: u64, len: u64| at.checked_add(len + 8).is_some();
            let all = fits(desc, DESC * n) && fits(driver, 6 + 2 * n) && fits(device, 6 + 8 * n);
            assert!(size > MAX_SIZE || !all);
            return;
        };
        let size = u64::from(ring.place().size);
        let entry = u64::from(entry) % size;
        // A descriptor, an entry with the event behind the last, and a used element with the same.
        assert!(desc.checked_add(DESC * entry + DESC).is_some());
        assert!(driver.checked_add(4 + 2 * entry + 2 + 2).is_some());
        assert!(device.checked_add(4 + 8 * entry + 8 + 2).is_some());
    }

    fn a_size_that_is_no_power_of_two_is_refused(size: u16) {
        let place = Place { size, ..Place::default() };
        let ring = Split::new(place, Format::default(), Position::default());
        assert_eq!(ring.is_ok(), size.is_power_of_two() && size <= MAX_SIZE);
    }
}

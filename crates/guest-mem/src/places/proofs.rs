use std::ptr::NonNull;

use proofs::proofs;

use super::ReadPlaces;

/// Bytes of the memory that places are looked for in.
const ROOM: usize = 32;

/// Places of `len` bytes in `memory`, which is said to begin at `first`.
fn places<'v>(
    first: u64,
    memory: &'v [u8; ROOM],
    len: usize,
    #[cfg(feature = "meter")] meter: &'v crate::meter::Meter,
) -> Option<ReadPlaces<'v>> {
    // SAFETY: the memory is borrowed for as long, and places to read from are only read.
    unsafe {
        ReadPlaces::new(
            first,
            (NonNull::from(memory).cast(), ROOM as u64),
            len,
            #[cfg(feature = "meter")]
            meter,
        )
    }
}

proofs! {
    fn a_place_that_is_found_lies_in_its_region(first: u64, iova: u64, len: u8, other: u8) {
        let memory = [0; ROOM];
        let (len, other) = (usize::from(len) % (ROOM + 8), usize::from(other) % (ROOM + 8));
        #[cfg(feature = "meter")]
        let meter = crate::meter::Meter::default();
        let places = places(
            first,
            &memory,
            len,
            #[cfg(feature = "meter")]
            &meter,
        );
        let Some(places) = places else {
            assert!(len > ROOM);
            return;
        };
        let offset = iova.wrapping_sub(first);
        for len in [len, other] {
            let inside = u128::from(offset) + len as u128 <= ROOM as u128;
            assert_eq!(places.find_of(iova, len), inside.then_some(offset));
            let place = places.0.place_of(offset, len);
            let start = memory.as_ptr().cast_mut();
            assert_eq!(place, inside.then(|| start.wrapping_add(offset as usize)));
        }
        assert_eq!(places.find(iova), places.find_of(iova, len));
        assert_eq!(places.0.place(offset), places.0.place_of(offset, len));
    }
}

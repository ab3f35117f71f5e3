//! Cache lines that will soon be needed.
//!
//! A thread that serves many devices in turn finds the next one's state in no cache. It knows which device is next, and can have the
//! processor fetch that state while it serves the present one.

use std::ptr;

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Most places of a [`Hot`]: three lines of them.
const PLACES: usize = 24;

/// Some lines next to each other. Only an address, which nobody reads from: to fetch them is a hint, and harmless whatever became of
/// what was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines(usize);

impl Lines {
    /// No lines.
    pub const NONE: Lines = Lines(0);

    /// Those of a value; at most 63 from the first on.
    pub fn of<T: ?Sized>(value: &T) -> Lines {
        Lines::first(value, size_of_val(value))
    }

    /// Those of its first bytes.
    pub fn first<T: ?Sized>(value: &T, bytes: usize) -> Lines {
        let at = ptr::from_ref(value).cast::<u8>().addr();
        let bytes = bytes.min(size_of_val(value));
        let count = (at % LINE + bytes).div_ceil(LINE).min(LINE - 1);
        Lines((at - at % LINE) | count)
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.0 % LINE
    }

    /// Has the processor fetch them. Only a hint.
    #[inline]
    pub fn prefetch(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for at in 0..self.count() {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = ptr::without_provenance(self.0 / LINE * LINE + at * LINE);
            // SAFETY: a prefetch reads and writes nothing, whatever the address is.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        }
    }
}

/// What a turn of a device touches, as far as it fits: 24 places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hot([Lines; PLACES]);

impl Hot {
    /// Adds lines. What finds no place is not fetched ahead, and what has one needs no other.
    pub fn add(&mut self, lines: Lines) {
        if self.0.contains(&lines) {
            return;
        }
        if let Some(free) = self.0.iter_mut().find(|place| **place == Lines::NONE) {
            *free = lines;
        }
    }

    /// How many lines there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|lines| lines.count()).sum()
    }

    /// Which they are, by their number in memory.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        let of = |lines: &Lines| lines.0 / LINE..lines.0 / LINE + lines.count();
        self.0.iter().flat_map(of)
    }

    /// Has the processor fetch them. Only a hint.
    #[inline]
    pub fn prefetch(&self) {
        let places = self.0.iter().take_while(|lines| **lines != Lines::NONE);
        places.for_each(|lines| lines.prefetch());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Page([u8; 4096]);

    #[test]
    fn lines_are_counted_from_the_one_a_value_begins_in() {
        let page = Page([0; 4096]);
        let count = |from: usize, to: usize| Lines::of(&page.0[from..to]).count();
        assert_eq!((count(0, 64), count(0, 65), count(63, 65)), (1, 2, 2));
        assert_eq!(
            (count(8, 8), count(0, 4096)),
            (1, 63),
            "as many as fit beside an address"
        );
        assert_eq!(Lines::first(&page, 128).count(), 2);
        assert_eq!(Lines::first(&page.0[..10], 128).count(), 1);
    }

    #[test]
    fn what_finds_no_place_is_left_out() {
        let page = Page([0; 4096]);
        let mut hot = Hot::default();
        hot.prefetch();
        for n in 0..2 * PLACES {
            assert_eq!(hot.count(), n.min(PLACES));
            hot.add(Lines::of(&page.0[n * LINE]));
        }
        // Fetching is no access: also not of what is gone.
        let gone = Lines::of(&*Box::new(Page([1; 4096])));
        gone.prefetch();
        hot.prefetch();
    }
}

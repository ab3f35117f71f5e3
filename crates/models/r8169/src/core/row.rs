//! Descriptors one after the other, for runs: the ring is found once, and what is done with is written back in one pass.

use std::sync::atomic::AtomicU64;

use datapath::counters::count_alone;
use guest_mem::{ReadPlaces, View};

use crate::core::queues::{MOST, place};
use crate::regs::bits::desc;

/// Bytes of a descriptor.
const SIZE: usize = 16;

/// A ring all of which lies in one region, or as much of it as is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Row<'v> {
    from: ReadPlaces<'v>,
    /// Where in the region it begins.
    base: u64,
}

impl<'v> Row<'v> {
    /// `None`: look at each descriptor where it is.
    #[inline(always)]
    pub fn of(view: &'v View<'_>, base: u64) -> Option<Self> {
        let from = view
            .read_places(base, SIZE)
            .or_else(|| Self::found(view, base))?;
        let base = from.find(base)?;
        Some(Row { from, base })
    }

    /// The view keeps at hand what was asked for.
    #[cold]
    fn found(view: &'v View<'_>, base: u64) -> Option<ReadPlaces<'v>> {
        view.read(base, &mut [0; SIZE]).ok()?;
        view.read_places(base, SIZE)
    }

    /// The two words of the descriptor at `index`, the address read after OWN was. `None`: it is in another region.
    #[inline(always)]
    pub fn words(&self, index: u32) -> Option<[u64; 2]> {
        self.from
            .pair(self.base + u64::from(index) * SIZE as u64)
    }
}

/// Which descriptors a run takes: they stand in a row, or go around the ring's end once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    begin: u32,
    /// The one that is looked at next.
    pub next: u32,
    /// How many stand before the ring's end, if it was passed; otherwise 0.
    wrap: usize,
}

impl Walk {
    pub fn new(begin: u32) -> Self {
        Walk {
            begin,
            next: begin,
            wrap: 0,
        }
    }

    /// Whether one whose first word is `word` can be taken: a ring has one end.
    #[inline(always)]
    pub fn takes(&self, word: u64) -> bool {
        word as u32 & desc::EOR == 0 || self.wrap == 0
    }

    /// Takes it, as number `n`. `false`: it was the last of the ring, and none is taken twice.
    #[inline(always)]
    pub fn take(&mut self, word: u64, n: usize) -> bool {
        self.next += 1;
        if word as u32 & desc::EOR != 0 || self.next >= MOST {
            self.next = 0;
            self.wrap = n + 1;
        }
        self.next != self.begin
    }

    /// The index behind the first `n`.
    #[inline]
    pub fn behind(&self, n: usize) -> u32 {
        match self.wrap {
            wrap if wrap > 0 && n >= wrap => (n - wrap) as u32,
            _ => self.begin + n as u32,
        }
    }

    /// Descriptors of the ring, if its end is one of the first `n`.
    #[inline]
    pub fn ring(&self, n: usize) -> Option<u32> {
        (self.wrap > 0 && n >= self.wrap).then_some(self.begin + self.wrap as u32)
    }

    /// Writes the first words of the first descriptors back, in order, after all that was written before. Those out of reach are
    /// counted in `faults`.
    #[inline]
    pub fn store(&self, view: &View<'_>, base: u64, words: &[u64], faults: &AtomicU64) {
        if self.wrap == 0 || words.len() <= self.wrap {
            return store(view, place(base, self.begin), words, faults);
        }
        let (straight, around) = words.split_at(self.wrap);
        store(view, place(base, self.begin), straight, faults);
        store(view, base, around, faults);
    }
}

#[inline(always)]
fn store(view: &View<'_>, first: u64, words: &[u64], faults: &AtomicU64) {
    let window = view.write_window(first);
    if window.is_none_or(|window| !window.store_words(first, SIZE, words)) {
        store_each(view, first, words, faults);
    }
}

#[cold]
fn store_each(view: &View<'_>, first: u64, words: &[u64], faults: &AtomicU64) {
    for (i, word) in words.iter().enumerate() {
        let at = first.wrapping_add((i * SIZE) as u64);
        if view.write_release(at, &word.to_le_bytes()).is_err() {
            count_alone(faults, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_goes_around_once() {
        let (plain, end) = (0, u64::from(desc::EOR));
        let mut walk = Walk::new(2);
        assert!(walk.take(plain, 0) && walk.take(end, 1));
        assert_eq!((walk.next, walk.behind(1), walk.behind(2)), (0, 3, 0));
        assert_eq!((walk.ring(1), walk.ring(2)), (None, Some(4)));
        assert!(walk.takes(plain) && !walk.takes(end), "a second end");
        assert!(walk.take(plain, 2) && !walk.take(plain, 3));
        assert_eq!(walk.behind(4), 2);
        let mut one = Walk::new(0);
        assert!(!one.take(end, 0));
        assert_eq!((one.behind(1), one.ring(1)), (0, Some(1)));
        let mut last = Walk::new(MOST - 1);
        assert!(last.take(plain, 0));
        assert_eq!((last.next, last.behind(1)), (0, 0));
    }
}

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

    /// The two words of descriptors from `index` on, each read once, the address after OWN: at most `n`, as far as a ring can
    /// go, and as far as the region goes.
    #[inline(always)]
    pub fn words(&self, index: u32, n: u32) -> impl Iterator<Item = [u64; 2]> + use<'v> {
        let at = self.base + u64::from(index) * SIZE as u64;
        let most = MOST.saturating_sub(index).min(n);
        self.from.pairs(at, most as usize)
    }
}

/// Which descriptors a run takes: they stand in a row, or go around the ring's end once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    begin: u32,
    /// How many stand before the ring's end, with it, if that is one of them; otherwise 0.
    wrap: usize,
}

impl Walk {
    #[inline]
    pub fn new(begin: u32) -> Self {
        Walk { begin, wrap: 0 }
    }

    /// That of descriptors from `begin` on whose first words say this.
    pub fn along(begin: u32, mut opts1: impl Iterator<Item = u32>) -> Self {
        let end = opts1.position(|word| word & desc::EOR != 0);
        let wrap = end.map_or(0, |at| at + 1);
        Walk { begin, wrap }
    }

    /// Descriptors before the first, which are those to go on with behind the ring's end.
    #[inline(always)]
    pub fn begin(&self) -> u32 {
        self.begin
    }

    /// How many stand before the ring's end, with it; 0: it is none of them.
    #[inline]
    pub fn wrap(&self) -> usize {
        self.wrap
    }

    /// The first descriptor, and those behind it.
    pub fn split(&self) -> (Self, Self) {
        let first = Walk {
            begin: self.begin,
            wrap: usize::from(self.wrap == 1),
        };
        let rest = Walk {
            begin: self.behind(1),
            wrap: self.wrap.saturating_sub(1),
        };
        (first, rest)
    }

    /// The last of the first `n` has EOR.
    #[inline(always)]
    pub fn ended(&mut self, n: usize) {
        self.wrap = n;
    }

    /// Whether one had EOR: a ring has one end.
    #[inline(always)]
    pub fn has_ended(&self) -> bool {
        self.wrap != 0
    }

    /// The index behind the first `n`.
    #[inline]
    pub fn behind(&self, n: usize) -> u32 {
        match self.wrap {
            wrap if wrap > 0 && n >= wrap => (n - wrap) as u32,
            _ => (self.begin + n as u32) % MOST,
        }
    }

    /// Descriptors of the ring, if its end is one of the first `n`.
    #[inline]
    pub fn ring(&self, n: usize) -> Option<u32> {
        (self.wrap > 0 && n >= self.wrap).then_some(self.begin + self.wrap as u32)
    }

    /// Writes the first words of the first descriptors back, in order, after all that was written before. They say what they are
    /// to say, and EOR where the ring ends. Those out of reach are counted in `faults`.
    #[inline]
    pub fn store(&self, view: &View<'_>, base: u64, words: &mut [u64], faults: &AtomicU64) {
        let first = place(base, self.begin);
        if self.wrap == 0 || words.len() < self.wrap {
            return store(view, first, words, faults);
        }
        self.mark_end(words);
        let (straight, around) = words.split_at_mut(self.wrap);
        store(view, first, straight, faults);
        store(view, base, around, faults);
    }

    /// Adds EOR to what the descriptor says with which the ring ends.
    #[inline]
    pub fn mark_end(&self, words: &mut [u64]) {
        let last = self.wrap.checked_sub(1).and_then(|at| words.get_mut(at));
        if let Some(last) = last {
            *last |= u64::from(desc::EOR);
        }
    }

    /// The same as [`Walk::store`] where all `n` say the same.
    #[inline(always)]
    pub fn store_same(
        &self,
        view: &View<'_>,
        base: u64,
        (n, word): (usize, u64),
        faults: &AtomicU64,
    ) {
        let first = place(base, self.begin);
        let window = view
            .write_window(first)
            .filter(|_| self.wrap == 0 || n < self.wrap);
        if window.is_none_or(|window| !window.store_same(first, SIZE, n, [word])) {
            self.store_around(view, base, (n, word), faults);
        }
    }

    /// The ring's end is one of them, or they are out of reach.
    #[inline(never)]
    fn store_around(
        &self,
        view: &View<'_>,
        base: u64,
        (n, word): (usize, u64),
        faults: &AtomicU64,
    ) {
        let store = |at: u64, n: usize, word: u64| {
            let window = view.write_window(at);
            if window.is_none_or(|window| !window.store_same(at, SIZE, n, [word])) {
                (0..n as u32).for_each(|i| store_each(view, place(at, i), &[word], faults));
            }
        };
        let first = place(base, self.begin);
        if self.wrap == 0 || n < self.wrap {
            return store(first, n, word);
        }
        let straight = self.wrap - 1;
        store(first, straight, word);
        let end = place(first, straight as u32);
        store(end, 1, word | u64::from(desc::EOR));
        store(base, n - self.wrap, word);
    }
}

/// Writes the first word of the descriptor at `index` back, as [`Walk::store`].
#[inline(always)]
pub(crate) fn store_one(view: &View<'_>, (base, index): (u64, u32), word: u64, faults: &AtomicU64) {
    let at = place(base, index);
    if view.write_release(at, &word.to_le_bytes()).is_err() {
        count_alone(faults, 1);
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
        let mut walk = Walk::new(2);
        walk.ended(2);
        assert!(walk.has_ended());
        assert_eq!([1, 2, 4].map(|n| walk.behind(n)), [3, 0, 2]);
        assert_eq!([1, 2, 3].map(|n| walk.ring(n)), [None, Some(4), Some(4)]);
        let (first, rest) = walk.split();
        assert_eq!((first.behind(1), rest.begin(), rest.behind(1)), (3, 3, 0));
        let (first, rest) = rest.split();
        assert_eq!((first.behind(1), rest.begin(), rest.behind(2)), (0, 0, 2));
        let last = Walk::new(MOST - 1);
        assert_eq!((last.behind(1), last.ring(1)), (0, None));
    }
}

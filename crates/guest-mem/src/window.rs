//! A whole region, found once for many accesses: rings and buffers lie close together.

use crate::slice::WriteSlice;
use std::ptr::NonNull;

/// A region of guest memory that may be written, for as long as the view it came from.
///
/// What does not lie in it whole is not there; ask the [`View`](crate::view::View) then, which knows all
/// regions, or for another window.
#[derive(Clone, Copy)]
pub struct WriteWindow<'v> {
    first: u64,
    run: WriteSlice<'v>,
    #[cfg(feature = "meter")]
    meter: &'v crate::meter::Meter,
}

impl<'v> WriteWindow<'v> {
    /// # Safety
    /// As [`WriteSlice::new`], for `len` bytes at `ptr`, which `first` is the IOVA of.
    pub(crate) unsafe fn new(
        first: u64,
        ptr: NonNull<u8>,
        len: usize,
        #[cfg(feature = "meter")] meter: &'v crate::meter::Meter,
    ) -> Self {
        Self {
            first,
            // SAFETY: the caller's promise, word for word.
            run: unsafe { WriteSlice::new(ptr, len) },
            #[cfg(feature = "meter")]
            meter,
        }
    }

    /// Borrows `len` bytes at `iova` for writing; `None` when not all of them are in the window.
    #[inline]
    pub fn at(&self, iova: u64, len: usize) -> Option<WriteSlice<'v>> {
        let to = self.reach(iova, len)?;
        #[cfg(feature = "meter")]
        self.meter.note(iova, len as u64, true);
        Some(to)
    }

    /// Whether all of these bytes are in the window.
    #[inline]
    pub fn covers(&self, iova: u64, len: usize) -> bool {
        self.reach(iova, len).is_some()
    }

    /// Writes words `step` bytes apart, the first at `iova`, each after everything written before it,
    /// as [`View::write_release`](crate::view::View). `false`, and nothing written, when they do not all lie
    /// in the window, or are not aligned.
    #[inline]
    pub fn store_words(&self, iova: u64, step: usize, words: &[u64]) -> bool {
        self.store_rows(iova, step, words.iter().map(|word| [*word]))
    }

    /// The same for pairs of words, as many as there are of both: of each pair the second right behind
    /// the first, and after it.
    #[inline]
    pub fn store_pairs(&self, iova: u64, step: usize, first: &[u64], second: &[u64]) -> bool {
        let pairs = first.iter().zip(second);
        self.store_rows(iova, step, pairs.map(|(a, b)| [*a, *b]))
    }

    /// As [`WriteWindow::store_words`], for `n` bytes that are all `byte`.
    #[inline]
    pub fn store_bytes(&self, iova: u64, step: usize, n: usize, byte: u8) -> bool {
        if n == 0 {
            return true;
        }
        let done = self
            .behind(iova)
            .is_some_and(|to| to.store_bytes(step, n, byte));
        #[cfg(feature = "meter")]
        if done {
            self.note_rows(iova, step, n, 1);
        }
        done
    }

    /// Stores the same words in `n` rows, a row every `step` bytes, the first at `iova`: the first row after everything
    /// written before it, and in each row a word after the one before it. `false`, and nothing written, when they do
    /// not all lie in the window, or are not aligned.
    #[inline]
    pub fn store_same<const W: usize>(
        &self,
        iova: u64,
        step: usize,
        n: usize,
        words: [u64; W],
    ) -> bool {
        if n == 0 {
            return true;
        }
        let done = self
            .behind(iova)
            .is_some_and(|to| to.store_same(step, n, words));
        #[cfg(feature = "meter")]
        if done {
            self.note_rows(iova, step, n, 8 * W as u64);
        }
        done
    }

    #[inline]
    fn store_rows<const W: usize>(
        &self,
        iova: u64,
        step: usize,
        rows: impl ExactSizeIterator<Item = [u64; W]>,
    ) -> bool {
        if rows.len() == 0 {
            return true;
        }
        #[cfg(feature = "meter")]
        let n = rows.len();
        let done = self
            .behind(iova)
            .is_some_and(|to| to.store_rows(step, rows));
        #[cfg(feature = "meter")]
        if done {
            self.note_rows(iova, step, n, 8 * W as u64);
        }
        done
    }

    #[cfg(feature = "meter")]
    fn note_rows(&self, iova: u64, step: usize, n: usize, bytes: u64) {
        for i in 0..n {
            self.meter.note(iova + (i * step) as u64, bytes, true);
        }
    }

    /// All of the window from `iova` on.
    #[inline]
    fn behind(&self, iova: u64) -> Option<WriteSlice<'v>> {
        let start = usize::try_from(iova.checked_sub(self.first)?).ok()?;
        let room = self.run.len().checked_sub(start)?;
        Some(self.run.sub(start, room))
    }

    /// What [`WriteWindow::at`] lends, without a note of it.
    #[inline]
    fn reach(&self, iova: u64, len: usize) -> Option<WriteSlice<'v>> {
        let behind = self.behind(iova)?;
        (len <= behind.len()).then(|| behind.sub(0, len))
    }
}

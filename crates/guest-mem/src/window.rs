//! A whole region, found once for many accesses: rings and buffers lie close together.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use crate::slice::WriteSlice;

/// A region of guest memory that may be written, for as long as the view it came from.
///
/// What does not lie in it whole is not there; ask the [`View`](crate::View) then, which knows all
/// regions, or for another window.
#[derive(Clone, Copy)]
pub struct WriteWindow<'v> {
    first: u64,
    run: WriteSlice<'v>,
    #[cfg(feature = "meter")]
    meter: &'v crate::Meter,
}

impl<'v> WriteWindow<'v> {
    /// # Safety
    /// As [`WriteSlice::new`], for `len` bytes at `ptr`, which `first` is the IOVA of.
    pub(crate) unsafe fn new(
        first: u64,
        ptr: NonNull<u8>,
        len: usize,
        #[cfg(feature = "meter")] meter: &'v crate::Meter,
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

    /// Writes words `step` bytes apart, the first at `iova`, each after everything written before it,
    /// as [`View::write_release`](crate::View). `false`, and nothing written, when they do not all lie
    /// in the window.
    #[inline]
    pub fn store_words(&self, iova: u64, step: usize, words: &[u64]) -> bool {
        self.store_each(iova, step, words.iter().map(|word| word.to_ne_bytes()))
    }

    /// As [`WriteWindow::store_words`], for `n` bytes that are all `byte`.
    #[inline]
    pub fn store_bytes(&self, iova: u64, step: usize, n: usize, byte: u8) -> bool {
        self.store_each(iova, step, std::iter::repeat_n([byte], n))
    }

    #[inline]
    fn store_each<const N: usize>(
        &self,
        iova: u64,
        step: usize,
        values: impl ExactSizeIterator<Item = [u8; N]>,
    ) -> bool {
        let Some(last) = values.len().checked_sub(1) else {
            return true;
        };
        let whole = step.checked_mul(last).and_then(|n| n.checked_add(N));
        let Some(to) = whole.and_then(|len| self.reach(iova, len)) else {
            return false;
        };
        for (i, value) in values.enumerate() {
            #[cfg(feature = "meter")]
            self.meter.note(iova + (i * step) as u64, N as u64, true);
            fence(Ordering::Release);
            to.sub(i * step, N).store(&value);
        }
        true
    }

    /// What [`WriteWindow::at`] lends, without a note of it.
    #[inline]
    fn reach(&self, iova: u64, len: usize) -> Option<WriteSlice<'v>> {
        let start = usize::try_from(iova.checked_sub(self.first)?).ok()?;
        let room = self.run.len().checked_sub(start)?;
        (len <= room).then(|| self.run.sub(start, len))
    }
}

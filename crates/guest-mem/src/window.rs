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
        let start = usize::try_from(iova.checked_sub(self.first)?).ok()?;
        let room = self.run.len().checked_sub(start)?;
        if len > room {
            return None;
        }
        #[cfg(feature = "meter")]
        self.meter.note(iova, len as u64, true);
        Some(self.run.sub(start, len))
    }

    /// Writes a word after everything written before, as [`View::write_release`](crate::View).
    /// `false`, and nothing written, when it does not lie in the window whole.
    #[inline]
    pub fn store_release(&self, iova: u64, word: u64) -> bool {
        let Some(to) = self.at(iova, 8) else {
            return false;
        };
        fence(Ordering::Release);
        to.store(&word.to_ne_bytes());
        true
    }
}

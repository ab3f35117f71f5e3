//! A checksum that is written while the frame is copied, for guests without checksum offload.

use frame::Frame;
use guest_mem::{ReadSlice, WriteSlice};
use wire::Sum;

use crate::layout::{GLANCE, Layout};

/// The sum of a frame under way into buffers. Places are those of the [`Layout`].
#[derive(Clone, Copy, Debug)]
pub struct Finish {
    start: usize,
    field: usize,
    sum: Sum,
}

/// Whether the checksum noted for `frame` can be written during the copy: its notes are true, and
/// what it covers is not what tags are put in or taken out of.
pub fn possible(frame: &Frame<'_>) -> bool {
    frame.notes().csum.is_none_or(|csum| {
        usize::from(csum.start) >= GLANCE && frame.notes().check(frame.len()).is_ok()
    })
}

impl Finish {
    /// For a frame with a checksum noted and [`possible`].
    pub fn new(layout: &Layout<'_, '_>) -> Option<Finish> {
        let csum = layout.frame.notes().csum?;
        // The part of the frame begins at the glance at the latest.
        let start = (usize::from(csum.start) + layout.head.len()).checked_sub(layout.from)?;
        Some(Finish {
            start,
            field: start + usize::from(csum.offset),
            sum: Sum::ZERO,
        })
    }

    /// Computes it over a copy of head and frame, and writes it there.
    pub fn write(&self, copy: &mut [u8]) {
        let Some(covered) = copy.get(self.start..) else {
            return;
        };
        let mut sum = Sum::ZERO;
        sum.add_part(ReadSlice::from_bytes(covered).sum(), covered.len());
        let value = Finish { sum, ..*self }.value();
        if let Some(field) = copy.get_mut(self.field..self.field + value.len()) {
            field.copy_from_slice(&value);
        }
    }

    /// Where the checksum goes.
    pub fn field(&self) -> usize {
        self.field
    }

    /// What goes there once all is copied.
    pub fn value(&self) -> [u8; 2] {
        self.sum.finish_nonzero().to_be_bytes()
    }

    /// Copies from byte `at` on until `to` is full, and sums what the checksum covers. To be called
    /// for one part after the other.
    pub fn copy(&mut self, layout: &Layout<'_, '_>, at: usize, to: &WriteSlice<'_>) {
        let before = self.start.saturating_sub(at).min(to.len());
        if before > 0 {
            layout.copy(at, &to.sub(0, before));
        }
        if before < to.len() {
            let to = to.sub(before, to.len());
            layout.copy_summed(at + before, &to, &mut self.sum);
        }
    }
}

//! A frame in memory of our own. Reading from a guest's memory may wait for a page that another process punches out of its
//! file, and a lock that others want is not held that long.

use std::cell::Cell;

use frame::{Batch, Frame};
use guest_mem::ReadSlice;
use wire::Offload;

use crate::rx::call::Outcome;

thread_local! {
    /// Storage for the copy, and for the frame made of it.
    static BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static FRAME: Cell<Batch<'static>> = Cell::default();
}

/// Which frame of a call is copied; its bytes are this thread's.
#[derive(Debug, Default)]
pub(crate) struct OwnCopy {
    of: Option<usize>,
    bytes: Vec<u8>,
}

impl OwnCopy {
    pub(crate) fn is(&self, number: usize) -> bool {
        self.of == Some(number)
    }

    /// Copies a frame, of this number in its call.
    pub(crate) fn keep(&mut self, number: usize, frame: &Frame<'_>) {
        if self.bytes.capacity() == 0 {
            self.bytes = BYTES.take();
        }
        self.bytes.resize(frame.len(), 0);
        let copied = frame.copy_to(0, &mut self.bytes);
        self.bytes.truncate(copied);
        self.of = Some(number);
    }

    /// Offers the copy.
    pub(crate) fn offer(
        &self,
        notes: &Offload,
        offer: impl FnOnce(&Frame<'_>) -> Outcome,
    ) -> Outcome {
        let mut out = FRAME.take().recycle();
        out.push_slice(ReadSlice::from_bytes(&self.bytes));
        out.end(*notes);
        let outcome = out.get(0).map_or(Outcome::Lost, |frame| offer(&frame));
        FRAME.set(out.recycle());
        outcome
    }
}

impl Drop for OwnCopy {
    fn drop(&mut self) {
        if self.bytes.capacity() > 0 {
            BYTES.set(std::mem::take(&mut self.bytes));
        }
    }
}

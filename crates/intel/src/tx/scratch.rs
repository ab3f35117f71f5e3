//! Storage for frames that borrow from guest memory, kept from call to call.

use std::cell::Cell;

use frame::Batch;
use guest_mem::ReadSlice;

/// What is kept. Slices are bound to a thread, so their storage is too.
#[derive(Default)]
struct Kept {
    batch: Batch<'static>,
    pieces: Vec<ReadSlice<'static>>,
}

thread_local! {
    /// In a box: taking it and giving it back moves a pointer.
    static KEPT: Cell<Option<Box<Kept>>> = Cell::default();
}

/// Frames under way.
pub struct Scratch<'v> {
    /// Those that are complete.
    pub batch: Batch<'v>,
    /// The pieces of the packet that is being gathered.
    pub pieces: Vec<ReadSlice<'v>>,
    kept: Box<Kept>,
}

/// Empties a list of slices for use with another lifetime, keeping its storage.
fn recycle<'n>(mut pieces: Vec<ReadSlice<'_>>) -> Vec<ReadSlice<'n>> {
    pieces.clear();
    // Collecting an emptied Vec in place keeps its allocation.
    pieces
        .into_iter()
        .map(|_| unreachable!("emptied above"))
        .collect()
}

impl Scratch<'_> {
    /// With the storage of the last that ended in this thread.
    #[inline]
    pub fn take() -> Self {
        let mut kept = KEPT.take().unwrap_or_default();
        Scratch {
            batch: std::mem::take(&mut kept.batch).recycle(),
            pieces: recycle(std::mem::take(&mut kept.pieces)),
            kept,
        }
    }

    /// Gives the storage back; what is in it is forgotten.
    #[inline]
    pub fn end(self) {
        let mut kept = self.kept;
        kept.batch = self.batch.recycle();
        kept.pieces = recycle(self.pieces);
        KEPT.set(Some(kept));
    }
}

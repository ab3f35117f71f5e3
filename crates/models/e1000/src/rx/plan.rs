//! What the fast path has planned and not copied yet.

use std::cell::Cell;

use guest_mem::WriteSlice;

use crate::core::stats::Group;

/// A buffer, and what goes into it.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'v> {
    pub to: WriteSlice<'v>,
    /// The frame's place in its batch.
    pub pick: u16,
    /// Status bits beside those of the verdict.
    pub status: u8,
    /// The frame goes on in the next one.
    pub more: bool,
}

/// What the filters decide for one destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// `None`: of none yet.
    pub dst: Option<[u8; 6]>,
    pub passes: bool,
    pub status: u8,
    pub group: Group,
}

thread_local! {
    /// Storage kept from call to call. Borrowed slices are bound to a thread, so it is too.
    static PIECES: Cell<Vec<Piece<'static>>> = const { Cell::new(Vec::new()) };
}

/// Empties a list for use with another lifetime, keeping its storage.
fn recycle<'n>(mut pieces: Vec<Piece<'_>>) -> Vec<Piece<'n>> {
    pieces.clear();
    // Collecting an emptied Vec in place keeps its allocation.
    pieces
        .into_iter()
        .map(|_| unreachable!("emptied above"))
        .collect()
}

/// Frames that have their buffers.
pub(crate) struct Plan<'v> {
    pub pieces: Vec<Piece<'v>>,
    /// What the filters decide for the destination seen last.
    pub run: Run,
}

impl Plan<'_> {
    #[inline]
    pub(crate) fn new() -> Self {
        Plan {
            pieces: recycle(PIECES.take()),
            run: Run::default(),
        }
    }

    /// Gives the storage back.
    #[inline]
    pub(crate) fn end(self) {
        PIECES.set(recycle(self.pieces));
    }
}

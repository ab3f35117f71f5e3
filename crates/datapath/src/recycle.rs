//! Storage for what borrows from a view, kept between views. Slices are bound to a thread, and so is this.

use std::cell::Cell;

use frame::Batch;
use guest_mem::{ReadSlice, WriteSlice};

thread_local! {
    static BATCH: Cell<Batch<'static>> = Cell::default();
    static PIECES: Cell<Vec<ReadSlice<'static>>> = Cell::default();
    static PLACES: Cell<Vec<WriteSlice<'static>>> = Cell::default();
}

/// Empties a list that will borrow nothing any more, for another lifetime.
fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    // Collecting an emptied Vec in place keeps its allocation and changes only the lifetime.
    list.into_iter()
        .map(|_| unreachable!("emptied above"))
        .collect()
}

/// Calls `with` with an empty batch and an empty list of slices to read.
pub fn with_batch<'v, T>(with: impl FnOnce(&mut Batch<'v>, &mut Vec<ReadSlice<'v>>) -> T) -> T {
    let mut batch = BATCH.take().recycle();
    let mut pieces = emptied(PIECES.take());
    let result = with(&mut batch, &mut pieces);
    BATCH.set(batch.recycle());
    PIECES.set(emptied(pieces));
    result
}

/// Calls `with` with an empty list of slices to write.
pub fn with_places<'v, T>(with: impl FnOnce(&mut Vec<WriteSlice<'v>>) -> T) -> T {
    let mut places = emptied(PLACES.take());
    let result = with(&mut places);
    PLACES.set(emptied(places));
    result
}

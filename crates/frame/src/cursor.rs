//! A walk along the slices of a frame.

use guest_mem::ReadSlice;

/// Walks the slices of a frame once, from front to back.
#[derive(Clone)]
pub(crate) struct Cursor<'b, I> {
    rest: I,
    current: Option<ReadSlice<'b>>,
}

impl<'b, I: Iterator<Item = ReadSlice<'b>>> Cursor<'b, I> {
    pub(crate) fn new(slices: I, skip: usize) -> Self {
        let mut cursor = Cursor {
            rest: slices,
            current: None,
        };
        cursor.take(skip, |_| {});
        cursor
    }

    /// The next `len` bytes, if they are a part of the run in which the walk has stopped.
    pub(crate) fn run(&mut self, len: usize) -> Option<ReadSlice<'b>> {
        let run = self.current.filter(|run| run.len() > len && len > 0)?;
        self.current = Some(run.sub(len, run.len()));
        Some(run.sub(0, len))
    }

    /// Hands the next `len` bytes to `each`.
    pub(crate) fn take(&mut self, mut len: usize, mut each: impl FnMut(ReadSlice<'b>)) {
        while len > 0 {
            let Some(slice) = self.current.take().or_else(|| self.rest.next()) else {
                return;
            };
            let part = slice.sub(0, len);
            len -= part.len();
            if part.len() < slice.len() {
                self.current = Some(slice.sub(part.len(), slice.len()));
            }
            if !part.is_empty() {
                each(part);
            }
        }
    }
}

//! A reusable list of frames made of borrowed slices.

use guest_mem::ReadSlice;
use wire::Offload;

/// Most frames in one batch. More would not fit the caches of those who walk it twice.
pub const MAX_BATCH: usize = 256;

/// Frames on their way, in order.
///
/// Bytes that were decided upon (headers) are kept as our own copy in the batch's arena; the rest
/// stays where it is until a sink copies it. The storage is reused from batch to batch by
/// [`Batch::recycle`], so steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Batch<'v> {
    arena: Vec<u8>,
    pieces: Vec<Piece<'v>>,
    frames: Vec<Meta>,
    /// First piece of the frame being built, and its length so far.
    open: usize,
    open_len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Piece<'v> {
    Own { start: usize, len: usize },
    Memory(ReadSlice<'v>),
}

#[derive(Clone, Copy, Debug)]
struct Meta {
    first: usize,
    end: usize,
    len: usize,
    notes: Offload,
}

impl<'v> Batch<'v> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the batch and frees it from the lifetime of its slices, keeping its storage.
    pub fn recycle<'n>(mut self) -> Batch<'n> {
        self.arena.clear();
        self.frames.clear();
        self.pieces.clear();
        // Collecting an emptied Vec in place keeps its allocation and changes only the lifetime.
        let pieces = self
            .pieces
            .into_iter()
            .map(|_| unreachable!("emptied above"))
            .collect();
        Batch {
            arena: self.arena,
            pieces,
            frames: self.frames,
            open: 0,
            open_len: 0,
        }
    }

    /// Frames finished so far.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether no frame has been finished.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether [`MAX_BATCH`] frames are in it.
    pub fn is_full(&self) -> bool {
        self.frames.len() >= MAX_BATCH
    }

    /// Adds a copy of `bytes` to the frame being built.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        self.pieces.push(Piece::Own {
            start,
            len: bytes.len(),
        });
        self.open_len += bytes.len();
    }

    /// Adds borrowed memory to the frame being built.
    pub fn push_slice(&mut self, slice: ReadSlice<'v>) {
        if !slice.is_empty() {
            self.open_len += slice.len();
            self.pieces.push(Piece::Memory(slice));
        }
    }

    /// Bytes added to the frame being built.
    pub fn open_len(&self) -> usize {
        self.open_len
    }

    /// Finishes the frame being built. Returns its index in the batch.
    pub fn end(&mut self, notes: Offload) -> usize {
        let meta = Meta {
            first: self.open,
            end: self.pieces.len(),
            len: self.open_len,
            notes,
        };
        self.frames.push(meta);
        self.open = self.pieces.len();
        self.open_len = 0;
        self.frames.len() - 1
    }

    /// Forgets the frame being built.
    pub fn abandon(&mut self) {
        self.pieces.truncate(self.open);
        self.open_len = 0;
    }

    /// Frame `index`; `None` beyond the end.
    pub fn get(&self, index: usize) -> Option<Frame<'_>> {
        let meta = *self.frames.get(index)?;
        Some(Frame {
            arena: &self.arena,
            pieces: &self.pieces[meta.first..meta.end],
            meta,
        })
    }

    /// All frames in order.
    pub fn iter(&self) -> impl Iterator<Item = Frame<'_>> {
        (0..self.len()).filter_map(|i| self.get(i))
    }

    /// The indices of all frames, for a sink that shall take every one. `room` is scratch space.
    pub fn all_picks<'r>(&self, room: &'r mut Vec<u16>) -> &'r [u16] {
        room.clear();
        room.extend((0..self.len()).map(|i| i as u16));
        room
    }
}

/// One frame of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'b> {
    arena: &'b [u8],
    pieces: &'b [Piece<'b>],
    meta: Meta,
}

impl<'b> Frame<'b> {
    /// Length in bytes, without FCS.
    pub fn len(&self) -> usize {
        self.meta.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.meta.len == 0
    }

    /// What it still asks for.
    pub fn notes(&self) -> &Offload {
        &self.meta.notes
    }

    /// Its bytes, run by run.
    pub fn slices(&self) -> impl Iterator<Item = ReadSlice<'b>> + Clone + use<'b> {
        let arena = self.arena;
        self.pieces.iter().map(move |piece| match *piece {
            Piece::Own { start, len } => ReadSlice::from_bytes(&arena[start..start + len]),
            Piece::Memory(slice) => slice,
        })
    }

    /// Copies from byte `start` on into `out`; returns how many bytes there were.
    pub fn copy_to(&self, start: usize, out: &mut [u8]) -> usize {
        let (mut skip, mut done) = (start, 0);
        for slice in self.slices() {
            if done == out.len() {
                break;
            }
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            done += slice.copy_to(skip, &mut out[done..]);
            skip = 0;
        }
        done
    }

    /// The whole frame as a vector of its own; for tests and slow paths.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len()];
        let n = self.copy_to(0, &mut out);
        out.truncate(n);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_was_pushed() {
        let (a, b) = ([1u8, 2, 3], [4u8, 5]);
        let mut batch = Batch::new();
        batch.push_slice(ReadSlice::from_bytes(&a));
        batch.push_bytes(&[9]);
        batch.push_slice(ReadSlice::from_bytes(&b));
        assert_eq!(batch.end(Offload::NONE), 0);
        batch.push_bytes(&[7, 7]);
        batch.abandon();
        batch.push_slice(ReadSlice::from_bytes(&b));
        batch.end(Offload {
            csum_valid: true,
            ..Offload::NONE
        });
        let frames: Vec<_> = batch.iter().map(|f| f.to_vec()).collect();
        assert_eq!(frames, [vec![1, 2, 3, 9, 4, 5], vec![4, 5]]);
        let first = batch.get(0).expect("there");
        let mut mid = [0u8; 3];
        assert_eq!(first.copy_to(2, &mut mid), 3);
        assert_eq!(mid, [3, 9, 4]);
        assert_eq!(first.copy_to(5, &mut mid), 1);
        assert!(batch.get(1).expect("there").notes().csum_valid);
        assert!(batch.get(2).is_none());
    }

    #[test]
    fn recycling_keeps_the_storage_and_drops_the_frames() {
        let mut batch = Batch::new();
        for _ in 0..100 {
            batch.push_bytes(&[1; 10]);
            batch.end(Offload::NONE);
        }
        let storage = batch.pieces.capacity();
        let batch: Batch<'static> = batch.recycle();
        assert!(batch.is_empty());
        assert_eq!(batch.pieces.capacity(), storage);
    }
}

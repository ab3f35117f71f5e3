//! A reusable list of frames made of borrowed slices.

use guest_mem::ReadSlice;
use wire::Offload;

use crate::alike::{Alike, HEAD, Kin};

/// Most frames in one batch. More would not fit the caches of those who walk it twice.
pub const MAX_BATCH: usize = 256;

/// The picks of a batch that is offered whole.
pub const EACH: [u16; MAX_BATCH] = {
    let mut each = [0; MAX_BATCH];
    let mut i = 0;
    while i < MAX_BATCH {
        each[i] = i as u16;
        i += 1;
    }
    each
};

/// By how many heads the storage grows.
const HEADS_AT_ONCE: usize = 32;

/// The notes of a frame that has none.
const NO_NOTES: &Offload = &Offload::NONE;

/// Frames on their way, in order.
///
/// The first [`HEAD`] bytes of each frame are the batch's own copy, made once: code that looks at
/// them, counts by them, filters by them or delivers them sees the same bytes, whatever a guest
/// writes meanwhile. What lies behind stays where it is until a sink copies it. The storage is
/// reused from batch to batch by [`Batch::recycle`], so steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Batch<'v> {
    /// One for each frame, and one for the frame being built. Never shortened: what is behind the
    /// frames of now is of frames gone by, and never shown.
    heads: Vec<Head>,
    frames: Vec<Meta<'v>>,
    /// Runs of the frames that have more than one behind their head.
    pieces: Vec<Piece<'v>>,
    /// Own bytes behind heads.
    arena: Vec<u8>,
    /// Those of the frames that have any.
    notes: Vec<Offload>,
    open: Open<'v>,
    kin: Kin,
}

/// In a cache line of its own, so that a short frame touches one.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Head([u8; HEAD]);

/// Bytes behind the head, in one run.
#[derive(Clone, Copy, Debug)]
enum Piece<'v> {
    Own { start: u32, len: u32 },
    Memory(ReadSlice<'v>),
}

/// A frame, in half a cache line.
#[derive(Clone, Copy, Debug)]
struct Meta<'v> {
    /// What lies behind the head, if that is one run.
    run: Piece<'v>,
    len: u32,
    /// Runs behind the head; if more than one they are in the list of pieces.
    runs: u32,
    /// The first of them there.
    first: u32,
    /// One more than the place of its notes in their list; 0 for none.
    notes: u32,
}

/// The frame being built.
#[derive(Clone, Copy, Debug)]
struct Open<'v> {
    run: Piece<'v>,
    len: usize,
    runs: u32,
    /// Ends of the lists when it was begun.
    pieces: usize,
    arena: usize,
}

impl Default for Open<'_> {
    fn default() -> Self {
        Open {
            run: Piece::NOTHING,
            len: 0,
            runs: 0,
            pieces: 0,
            arena: 0,
        }
    }
}

impl<'v> Piece<'v> {
    const NOTHING: Piece<'static> = Piece::Own { start: 0, len: 0 };

    #[inline]
    fn slice<'b>(self, arena: &'b [u8]) -> ReadSlice<'b>
    where
        'v: 'b,
    {
        match self {
            Piece::Memory(slice) => slice,
            Piece::Own { start, len } => {
                let start = start as usize;
                ReadSlice::from_bytes(&arena[start..start + len as usize])
            }
        }
    }
}

/// Empties a list that borrows nothing any more, for another lifetime.
fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    // Collecting an emptied Vec in place keeps its allocation and changes only the lifetime.
    list.into_iter()
        .map(|_| unreachable!("emptied above"))
        .collect()
}

impl<'v> Batch<'v> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the batch and frees it from the lifetime of its slices, keeping its storage.
    pub fn recycle<'n>(mut self) -> Batch<'n> {
        self.arena.clear();
        self.notes.clear();
        Batch {
            heads: self.heads,
            frames: emptied(self.frames),
            pieces: emptied(self.pieces),
            arena: self.arena,
            notes: self.notes,
            open: Open::default(),
            kin: Kin::default(),
        }
    }

    /// Empties the batch, for more slices of the same lifetime.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.pieces.clear();
        self.arena.clear();
        self.notes.clear();
        self.open = Open::default();
    }

    /// Frames finished so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether no frame has been finished.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether [`MAX_BATCH`] frames are in it.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frames.len() >= MAX_BATCH
    }

    /// Where the head of the frame being built goes.
    #[inline]
    fn open_head(&mut self) -> &mut [u8; HEAD] {
        let at = self.frames.len();
        if self.heads.len() <= at {
            self.more_heads();
        }
        &mut self.heads[at].0
    }

    /// Compares the frame being built, whose head is there, with the first.
    #[inline]
    fn compare(&mut self, len: usize) {
        let at = self.frames.len();
        self.kin.add(at == 0, &self.heads[at].0, len);
    }

    #[cold]
    fn more_heads(&mut self) {
        let more = self.heads.len() + HEADS_AT_ONCE;
        self.heads.resize(more, Head([0; HEAD]));
    }

    /// Adds a whole frame without notes, made of one run: what [`Batch::push_slice`] and
    /// [`Batch::end`] do for it, in less time. No frame may be under way.
    #[inline]
    pub fn push_frame(&mut self, slice: ReadSlice<'v>) {
        debug_assert_eq!(self.open.len, 0, "a frame is under way");
        let copied = slice.copy_head(self.open_head());
        self.compare(slice.len());
        let rest = slice.sub(copied, usize::MAX);
        self.frames.push(Meta {
            run: Piece::Memory(rest),
            len: slice.len() as u32,
            runs: u32::from(!rest.is_empty()),
            first: 0,
            notes: 0,
        });
    }

    /// Adds a frame that begins with the first `len` bytes of `head` and goes on with `rest`, and has
    /// the notes of the one before it ([`Batch::end_alike`]). No frame may be under way.
    #[inline]
    pub fn push_alike(&mut self, head: &[u8; HEAD], len: usize, rest: ReadSlice<'v>) {
        debug_assert_eq!(self.open.len, 0, "a frame is under way");
        let notes = self.frames.last().map_or(0, |before| before.notes);
        let len = len.min(HEAD);
        let room = self.open_head();
        *room = *head;
        let copied = rest.copy_to(0, &mut room[len..]);
        self.compare(len + rest.len());
        let behind = rest.sub(copied, usize::MAX);
        self.frames.push(Meta {
            run: Piece::Memory(behind),
            len: (len + rest.len()) as u32,
            runs: u32::from(!behind.is_empty()),
            first: 0,
            notes,
        });
    }

    /// Adds a copy of `bytes` to the frame being built.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let filled = self.open.len;
        let n = bytes.len().min(HEAD.saturating_sub(filled));
        if n > 0 {
            self.open_head()[filled..filled + n].copy_from_slice(&bytes[..n]);
        }
        self.open.len += bytes.len();
        let rest = &bytes[n..];
        if !rest.is_empty() {
            let start = self.arena.len() as u32;
            self.arena.extend_from_slice(rest);
            self.push_piece(Piece::Own {
                start,
                len: rest.len() as u32,
            });
        }
    }

    /// Adds borrowed memory to the frame being built. What of it belongs to the head is copied now.
    #[inline]
    pub fn push_slice(&mut self, slice: ReadSlice<'v>) {
        let filled = self.open.len;
        self.open.len += slice.len();
        let mut copied = 0;
        if filled < HEAD {
            copied = slice.copy_to(0, &mut self.open_head()[filled..]);
        }
        if copied < slice.len() {
            self.push_piece(Piece::Memory(slice.sub(copied, usize::MAX)));
        }
    }

    #[inline]
    fn push_piece(&mut self, piece: Piece<'v>) {
        if self.open.runs == 0 {
            self.open.run = piece;
        } else {
            self.push_another(piece);
        }
        self.open.runs += 1;
    }

    #[cold]
    fn push_another(&mut self, piece: Piece<'v>) {
        if self.open.runs == 1 {
            self.pieces.push(self.open.run);
        }
        self.pieces.push(piece);
    }

    /// Pads the frame under way with zeros to `len` bytes, at most [`HEAD`].
    pub fn pad(&mut self, len: usize) {
        let missing = len.min(HEAD).saturating_sub(self.open_len());
        if missing > 0 {
            self.push_bytes(&[0; HEAD][..missing]);
        }
    }

    /// Bytes added to the frame being built.
    #[inline]
    pub fn open_len(&self) -> usize {
        self.open.len
    }

    /// Finishes the frame being built. Returns its index in the batch.
    #[inline]
    pub fn end(&mut self, notes: Offload) -> usize {
        let notes = if notes == Offload::NONE {
            0
        } else {
            self.notes.push(notes);
            self.notes.len() as u32
        };
        self.finish(notes)
    }

    /// Finishes the frame being built, which has the notes of the one before it in the batch; of
    /// none if it is the first.
    #[inline]
    pub fn end_alike(&mut self) -> usize {
        let notes = self.frames.last().map_or(0, |before| before.notes);
        self.finish(notes)
    }

    #[inline]
    fn finish(&mut self, notes: u32) -> usize {
        let at = self.frames.len();
        if self.open.len == 0 {
            // Every frame has a place for its head.
            self.open_head();
        }
        self.compare(self.open.len);
        self.frames.push(Meta {
            run: self.open.run,
            len: self.open.len as u32,
            runs: self.open.runs,
            first: self.open.pieces as u32,
            notes,
        });
        self.begin();
        at
    }

    #[inline]
    fn begin(&mut self) {
        self.open = Open {
            pieces: self.pieces.len(),
            arena: self.arena.len(),
            ..Open::default()
        };
    }

    /// Forgets the frame being built.
    pub fn abandon(&mut self) {
        self.pieces.truncate(self.open.pieces);
        self.arena.truncate(self.open.arena);
        self.begin();
    }

    /// Frame `index`; `None` beyond the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Frame<'_>> {
        let meta = self.frames.get(index)?;
        let head = &self.heads.get(index)?.0;
        Some(Frame {
            head: &head[..HEAD.min(meta.len as usize)],
            meta,
            batch: self,
        })
    }

    /// All frames in order.
    pub fn iter(&self) -> impl Iterator<Item = Frame<'_>> {
        (0..self.len()).filter_map(|i| self.get(i))
    }

    /// What all frames have in common, if they begin with the same header. One look, however many
    /// they are.
    #[inline]
    pub fn alike(&self) -> Option<Alike<'_>> {
        let header = self.get(0)?.head.first_chunk()?;
        self.kin.told(header, self.notes.is_empty())
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
    head: &'b [u8],
    meta: &'b Meta<'b>,
    batch: &'b Batch<'b>,
}

impl<'b> Frame<'b> {
    /// Length in bytes, without FCS.
    #[inline]
    pub fn len(&self) -> usize {
        self.meta.len as usize
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.meta.len == 0
    }

    /// What it still asks for.
    #[inline]
    pub fn notes(&self) -> &'b Offload {
        match self.meta.notes {
            0 => NO_NOTES,
            more => &self.batch.notes[more as usize - 1],
        }
    }

    /// Whether it has no notes at all ([`Offload::NONE`]).
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.meta.notes == 0
    }

    /// Its first bytes, [`HEAD`] of them or all: the batch's own copy, which nothing changes.
    #[inline]
    pub fn head(&self) -> &'b [u8] {
        self.head
    }

    /// What lies behind the head, run by run.
    #[inline]
    pub fn rest(&self) -> impl Iterator<Item = ReadSlice<'b>> + Clone + use<'b> {
        let (meta, batch) = (self.meta, self.batch);
        let list = match meta.runs {
            0 => &[][..],
            1 => std::slice::from_ref(&meta.run),
            runs => &batch.pieces[meta.first as usize..][..runs as usize],
        };
        list.iter().map(|piece| piece.slice(&batch.arena))
    }

    /// What lies behind the head, if that is one run.
    #[inline]
    pub fn single_rest(&self) -> Option<ReadSlice<'b>> {
        (self.meta.runs == 1).then(|| self.meta.run.slice(&self.batch.arena))
    }

    /// Its bytes, run by run: the head, then the rest.
    #[inline]
    pub fn slices(&self) -> impl Iterator<Item = ReadSlice<'b>> + Clone + use<'b> {
        let head = (!self.head.is_empty()).then(|| ReadSlice::from_bytes(self.head));
        head.into_iter().chain(self.rest())
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
mod tests;

//! Frames that came in and are on their way to a sink.

use std::cell::Cell;

use frame::{Batch, Finisher, MAX_BATCH, Sink};
use guest_mem::ReadSlice;
use wire::Offload;

thread_local! {
    /// The storage of batches and of finishing, kept from flush to flush. A batch may hold slices
    /// of guest memory and so stays on its thread, while a backlog may move.
    static SPARE: Cell<Spare> = Cell::default();
}

#[derive(Default)]
struct Spare {
    batch: Batch<'static>,
    finisher: Finisher,
}

/// A bounded store of received frames, packed one behind the other in one reused buffer.
///
/// An inlet reads into [`Backlog::room`], keeps with [`Backlog::commit`] and hands over with
/// [`Backlog::flush`]. What the sink had no room for stays, in order, for the next flush.
#[derive(Debug)]
pub struct Backlog {
    bytes: Vec<u8>,
    used: usize,
    max_frame: usize,
    max_frames: usize,
    held: Vec<Held>,
    /// First frame not yet taken.
    next: usize,
    picks: Vec<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    start: usize,
    len: usize,
    notes: Offload,
}

/// What a [`Backlog::flush`] achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Frames the sink dealt with.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames dropped because the sink cannot take their notes and they cannot be finished.
    pub unfinished: u64,
}

impl Backlog {
    /// Room for `capacity` bytes of frames of at most `max_frame` bytes each. The memory is
    /// touched only as far as it gets used.
    pub fn new(capacity: usize, max_frame: usize) -> Self {
        Self {
            bytes: vec![0; capacity.max(max_frame)],
            used: 0,
            max_frame,
            max_frames: MAX_BATCH,
            held: Vec::with_capacity(MAX_BATCH),
            next: 0,
            picks: Vec::with_capacity(MAX_BATCH),
        }
    }

    /// The same with room for `max_frames` frames instead of one batch.
    pub fn with_frames(mut self, max_frames: usize) -> Self {
        self.max_frames = max_frames;
        self
    }

    /// Frames waiting.
    pub fn len(&self) -> usize {
        self.held.len() - self.next
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the next frame may be written: at least `max_frame` bytes. `None` when full.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.held.len() >= self.max_frames || self.bytes.len() - self.used < self.max_frame {
            return None;
        }
        Some(&mut self.bytes[self.used..][..self.max_frame])
    }

    /// Keeps bytes `start..end` of what was written into [`Backlog::room`] as one frame. Bounds
    /// beyond the room are cut.
    pub fn commit(&mut self, start: usize, end: usize, notes: Offload) {
        let end = end.min(self.max_frame).min(self.bytes.len() - self.used);
        let start = start.min(end);
        self.held.push(Held {
            start: self.used + start,
            len: end - start,
            notes,
        });
        // Cache lines are not shared between frames.
        self.used = (self.used + end).next_multiple_of(64).min(self.bytes.len());
    }

    /// Copies a whole frame in. `false` when there is no room, or the frame is too long.
    pub fn push(&mut self, frame: &[u8], notes: Offload) -> bool {
        match self.room() {
            Some(room) if frame.len() <= room.len() => {
                room[..frame.len()].copy_from_slice(frame);
                self.commit(0, frame.len(), notes);
                true
            }
            _ => false,
        }
    }

    /// Offers everything to `to`, oldest first, in batches, until it has no more room. Frames that
    /// the sink cannot take as they are get finished on the way.
    pub fn flush(&mut self, to: &dyn Sink) -> Flushed {
        let mut done = Flushed::default();
        while !self.is_empty() && self.flush_batch(to, &mut done) {}
        if self.is_empty() {
            self.held.clear();
            self.next = 0;
            self.used = 0;
        }
        done
    }

    /// Offers one batch; says whether all of it went.
    fn flush_batch(&mut self, to: &dyn Sink, done: &mut Flushed) -> bool {
        let (unfinished, mut lost_bytes) = (done.unfinished, 0);
        let end = self.held.len().min(self.next + MAX_BATCH);
        let waiting = &self.held[self.next..end];
        let mut spare = SPARE.take();
        let mut batch = spare.batch.recycle();
        for held in waiting {
            batch.push_slice(ReadSlice::from_bytes(&self.bytes[held.start..][..held.len]));
            batch.end(held.notes);
        }
        let picks = batch.all_picks(&mut self.picks);
        let dealt = spare.finisher.deliver(to, &batch, picks, |pick, _| {
            done.unfinished += 1;
            let lost = waiting.get(usize::from(pick)).map_or(0, |held| held.len);
            lost_bytes += lost as u64;
        });
        spare.batch = batch.recycle();
        SPARE.set(spare);
        let dealt = dealt.min(waiting.len());
        let bytes: u64 = waiting[..dealt].iter().map(|held| held.len as u64).sum();
        done.frames += dealt as u64 - (done.unfinished - unfinished);
        done.bytes += bytes - lost_bytes;
        self.next += dealt;
        self.next == end
    }
}

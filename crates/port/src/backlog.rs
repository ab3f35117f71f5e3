//! Frames that came in and are on their way to a sink.

use std::cell::Cell;

use frame::{Batch, MAX_BATCH, Sink};
use guest_mem::ReadSlice;
use wire::Offload;

thread_local! {
    /// The batch's storage, kept from flush to flush. A batch may hold slices of guest memory and
    /// so stays on its thread, while a backlog may move.
    static SPARE: Cell<Batch<'static>> = Cell::new(Batch::new());
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
    /// Frames dropped because the sink cannot take their notes.
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
            held: Vec::with_capacity(MAX_BATCH),
            next: 0,
            picks: Vec::with_capacity(MAX_BATCH),
        }
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
        if self.held.len() >= MAX_BATCH || self.bytes.len() - self.used < self.max_frame {
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

    /// Offers everything to `to`, oldest first.
    pub fn flush(&mut self, to: &dyn Sink) -> Flushed {
        let mut done = Flushed::default();
        if self.is_empty() {
            return done;
        }
        let caps = to.caps();
        let waiting = &self.held[self.next..];
        let mut batch = SPARE.take().recycle();
        self.picks.clear();
        for (i, held) in waiting.iter().enumerate() {
            batch.push_slice(ReadSlice::from_bytes(&self.bytes[held.start..][..held.len]));
            batch.end(held.notes);
            if caps.accepts(&held.notes) {
                self.picks.push(i as u16);
            }
        }
        let taken = to.deliver(&batch, &self.picks).min(self.picks.len());
        let passed = self.picks.get(taken).map_or(waiting.len(), |&i| i.into());
        for &i in &self.picks[..taken] {
            done.bytes += waiting[usize::from(i)].len as u64;
        }
        done.frames = taken as u64;
        done.unfinished = (passed - taken) as u64;
        SPARE.set(batch.recycle());
        self.next += passed;
        if self.next == self.held.len() {
            self.held.clear();
            self.next = 0;
            self.used = 0;
        }
        done
    }
}

//! Frames that came in and are on their way to a sink.

use frame::{Batch, Finisher, MAX_BATCH, Sink};
use guest_mem::ReadSlice;
use wire::Offload;

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
    batch: Batch<'static>,
    picks: Vec<u16>,
    finisher: Finisher,
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
            batch: Batch::new(),
            picks: Vec::with_capacity(MAX_BATCH),
            finisher: Finisher::new(),
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
        let mut batch = std::mem::take(&mut self.batch).recycle();
        for held in waiting {
            batch.push_slice(ReadSlice::from_bytes(&self.bytes[held.start..][..held.len]));
            batch.end(held.notes);
        }
        let picks = batch.all_picks(&mut self.picks);
        let dealt = self.finisher.deliver(to, &batch, picks, |pick, _| {
            done.unfinished += 1;
            let lost = waiting.get(usize::from(pick)).map_or(0, |held| held.len);
            lost_bytes += lost as u64;
        });
        self.batch = batch.recycle();
        let dealt = dealt.min(waiting.len());
        let bytes: u64 = waiting[..dealt].iter().map(|held| held.len as u64).sum();
        done.frames += dealt as u64 - (done.unfinished - unfinished);
        done.bytes += bytes - lost_bytes;
        self.next += dealt;
        self.next == end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frame::{Caps, Wake};
    use parking_lot::Mutex;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Takes as many frames per call as it is told.
    struct Gate {
        rooms: Mutex<Vec<usize>>,
        got: Mutex<Vec<Vec<u8>>>,
    }

    impl Sink for Gate {
        fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
            let n = self.rooms.lock().pop().unwrap_or(0).min(picks.len());
            let frames = picks[..n].iter().filter_map(|&p| batch.get(p.into()));
            self.got.lock().extend(frames.map(|f| f.to_vec()));
            n
        }
        fn caps(&self) -> Caps {
            Caps::NONE
        }
        fn want_room(&self, _: &Arc<dyn Wake>) {}
    }

    #[test]
    fn it_is_bounded_in_bytes_and_in_frames() {
        let mut few = Backlog::new(1 << 20, 64).with_frames(3);
        let mut small = Backlog::new(256, 64);
        for i in 0..10 {
            assert_eq!(few.push(&[i; 10], Offload::NONE), i < 3);
            assert_eq!(small.push(&[i; 60], Offload::NONE), i < 4);
        }
        assert!(!Backlog::new(256, 64).push(&[0; 65], Offload::NONE));
    }

    #[test]
    fn bounds_beyond_the_room_are_cut() {
        let mut backlog = Backlog::new(128, 64);
        backlog.commit(10, 1000, Offload::NONE);
        backlog.commit(90, 80, Offload::NONE);
        let gate = Gate {
            rooms: Mutex::new(vec![9]),
            got: Mutex::default(),
        };
        assert_eq!(backlog.flush(&gate).bytes, 54);
        let lens: Vec<usize> = gate.got.lock().iter().map(Vec::len).collect();
        assert_eq!(lens, [54, 0]);
    }

    #[test]
    fn what_cannot_be_finished_is_dropped_and_told() {
        let mut backlog = Backlog::new(4096, 64);
        let nonsense = Offload {
            gso: wire::Gso::Tcp4,
            gso_size: 100,
            ..Offload::NONE
        };
        for (byte, notes) in [(1, Offload::NONE), (2, nonsense), (3, Offload::NONE)] {
            assert!(backlog.push(&[byte; 60], notes));
        }
        let gate = Gate {
            rooms: Mutex::new(vec![9; 9]),
            got: Mutex::default(),
        };
        let expected = Flushed {
            frames: 2,
            bytes: 120,
            unfinished: 1,
        };
        assert_eq!(backlog.flush(&gate), expected);
        assert_eq!(*gate.got.lock(), [vec![1; 60], vec![3; 60]]);
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            lens in proptest::collection::vec(0usize..200, 0..600),
            rooms in proptest::collection::vec(0usize..300, 0..40),
        ) {
            let mut backlog = Backlog::new(1 << 20, 256).with_frames(400);
            let gate = Gate { rooms: Mutex::new(rooms), got: Mutex::default() };
            let (mut sent, mut frames, mut bytes) = (Vec::new(), 0, 0);
            let mut tally = |done: Flushed| {
                frames += done.frames;
                bytes += done.bytes;
            };
            for (i, len) in lens.into_iter().enumerate() {
                let frame = vec![i as u8; len];
                while !backlog.push(&frame, Offload::NONE) {
                    gate.rooms.lock().push(77);
                    tally(backlog.flush(&gate));
                }
                sent.push(frame);
            }
            gate.rooms.lock().extend([usize::MAX; 4]);
            tally(backlog.flush(&gate));
            prop_assert!(backlog.is_empty());
            prop_assert_eq!(frames, sent.len() as u64);
            prop_assert_eq!(bytes, sent.iter().map(Vec::len).sum::<usize>() as u64);
            prop_assert_eq!(&*gate.got.lock(), &sent);
        }
    }
}

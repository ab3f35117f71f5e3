//! The way out of one connection: our ring, as those who fill it see it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use frame::{Batch, Frame};
use guest_mem::{Words, WriteWindow};
use port::Tally;

use crate::config::MAX_FRAME;
use crate::count;
use crate::crossing::{
    Broken, Crossing, HEAD, OUR_RING, SLEEPS, TAIL, WANTS_ROOM, another, our_words, their_words,
};
use crate::record::{self, ALIGN};

/// The sending half of a connection.
pub struct Out {
    crossing: Arc<Crossing>,
    /// Bytes put into the ring so far, and as many of them as the peer had taken when we looked last.
    head: u32,
    tail: u32,
    /// The sleep of the peer's that it was woken from.
    rung: u32,
    /// How often room was asked for, and where the peer was then.
    asked: u32,
    asked_at: u32,
}

/// What became of a batch.
#[derive(Default)]
pub struct Given {
    /// Frames that were dealt with; less than all when there was no room.
    pub done: usize,
    frames: u64,
    bytes: u64,
    too_long: u64,
    too_short: u64,
    bad_memory: u64,
    wakes: u64,
}

impl Given {
    pub fn count(&self, tally: &Tally<{ count::NAMES.len() }>) {
        tally.add(count::FRAMES_OUT, self.frames);
        tally.add(count::BYTES_OUT, self.bytes);
        tally.add(count::TOO_LONG, self.too_long);
        tally.add(count::TOO_SHORT, self.too_short);
        tally.add(count::BAD_MEMORY, self.bad_memory);
        tally.add(count::WAKES, self.wakes);
    }
}

impl Out {
    pub fn new(crossing: Arc<Crossing>) -> Self {
        Self {
            crossing,
            head: 0,
            tail: 0,
            rung: 0,
            asked: 0,
            asked_at: 0,
        }
    }

    /// Goes on where the process before has left the ring.
    pub fn resume(crossing: Arc<Crossing>) -> Result<Self, Broken> {
        let mut out = Self::new(Arc::clone(&crossing));
        let view = crossing.view();
        let (ours, theirs) = (our_words(&view)?, their_words(&view)?);
        out.head = ours.load(HEAD, Ordering::Acquire);
        out.tail = theirs.load(TAIL, Ordering::Acquire);
        if out.head.wrapping_sub(out.tail) > crossing.ours || !out.head.is_multiple_of(ALIGN) {
            return Err(Broken);
        }
        // Those who waited for room are gone.
        out.asked = ours.load(WANTS_ROOM, Ordering::Relaxed);
        ours.store(WANTS_ROOM, 0, Ordering::Relaxed);
        // It may not have been woken for what is there.
        crossing.wake();
        Ok(out)
    }

    pub fn crossing(&self) -> &Crossing {
        &self.crossing
    }

    /// Looks how far the peer is; `true`: further than before. It can be no further than we are, and never goes back.
    fn look(&mut self, theirs: &Words<'_>) -> Result<bool, Broken> {
        let tail = theirs.load(TAIL, Ordering::Acquire);
        let moved = tail.wrapping_sub(self.tail);
        if moved > self.head.wrapping_sub(self.tail) {
            return Err(Broken);
        }
        self.tail = tail;
        Ok(moved > 0)
    }

    fn offset(&self) -> u32 {
        self.head & (self.crossing.ours - 1)
    }

    /// Bytes from here to the end of the ring.
    fn rest(&self) -> u32 {
        self.crossing.ours - self.offset()
    }

    fn has_room(&self, size: u32) -> bool {
        let skipped = if size > self.rest() { self.rest() } else { 0 };
        let used = self.head.wrapping_sub(self.tail);
        skipped + size <= self.crossing.ours - used
    }

    /// The same, after another look at the peer if need be.
    #[inline]
    fn finds_room(&mut self, size: u32, theirs: &Words<'_>) -> Result<bool, Broken> {
        Ok(self.has_room(size) || (self.look(theirs)? && self.has_room(size)))
    }

    /// Has the peer go on at the start of the ring.
    fn skip(&mut self, window: &WriteWindow<'_>) -> Result<(), Broken> {
        let at = OUR_RING + u64::from(self.offset());
        let to = window.at(at, record::HEADER).ok_or(Broken)?;
        to.copy_short(&record::skip());
        self.head = self.head.wrapping_add(self.rest());
        Ok(())
    }

    /// An empty ring begins anew at its start: what is used again and again stays in the cache, and what is not used is no
    /// memory at all. Until the peer has seen it, there is room up to where the ring stood, so that must be enough for what
    /// comes now, and for what may come soon.
    fn rewind(
        &mut self,
        window: &WriteWindow<'_>,
        batch: &Batch<'_>,
        picks: &[u16],
    ) -> Result<(), Broken> {
        let offset = self.offset();
        if self.head != self.tail || offset < self.crossing.ours / 4 {
            return Ok(());
        }
        let frames = picks.iter().filter_map(|&pick| batch.get(pick.into()));
        let mut sizes = frames.map(|frame| record::size(frame.len().min(MAX_FRAME)));
        let fits = sizes.try_fold(offset, |left, size| left.checked_sub(size));
        if fits.is_some() {
            self.skip(window)?;
        }
        Ok(())
    }

    /// Puts frames into the ring, as many as have room, and shows them to the peer.
    pub fn give(&mut self, batch: &Batch<'_>, picks: &[u16]) -> Result<Given, Broken> {
        let crossing = Arc::clone(&self.crossing);
        let view = crossing.view();
        let (ours, theirs) = (our_words(&view)?, their_words(&view)?);
        let window = view.write_window(OUR_RING).ok_or(Broken)?;
        let mut given = Given::default();
        let before = self.head;
        self.look(&theirs)?;
        self.rewind(&window, batch, picks)?;
        for &pick in picks {
            if let Some(frame) = batch.get(usize::from(pick)) {
                let size = record::size(frame.len().min(MAX_FRAME));
                if frame.len() > MAX_FRAME {
                    given.too_long += 1;
                } else if !record::is_long_enough(frame.len()) {
                    given.too_short += 1;
                } else if !self.finds_room(size, &theirs)? {
                    break;
                } else {
                    if size > self.rest() {
                        self.skip(&window)?;
                    }
                    self.put(&window, &frame, &mut given)?;
                }
            }
            given.done += 1;
        }
        if self.head != before {
            ours.store(HEAD, self.head, Ordering::Release);
            // One who says that it sleeps looks once more behind this.
            fence(Ordering::SeqCst);
            let sleep = theirs.load(SLEEPS, Ordering::Relaxed);
            if sleep != 0 && sleep != self.rung {
                self.rung = sleep;
                given.wakes += 1;
                crossing.wake();
            }
        }
        Ok(given)
    }

    /// The one copy of a frame.
    #[inline]
    fn put(
        &mut self,
        window: &WriteWindow<'_>,
        frame: &Frame<'_>,
        given: &mut Given,
    ) -> Result<(), Broken> {
        let len = frame.len();
        let at = OUR_RING + u64::from(self.offset());
        let to = window.at(at, record::HEADER + len).ok_or(Broken)?;
        to.copy_short(&record::frame(len, frame.notes()));
        let to = to.sub(record::HEADER, len);
        let mut copied = to.copy_short(frame.head());
        for slice in frame.rest() {
            copied += to.copy_from_slice(copied, slice);
        }
        if copied < len {
            given.bad_memory += 1;
            return Ok(());
        }
        self.head = self.head.wrapping_add(record::size(len));
        given.frames += 1;
        given.bytes += len as u64;
        Ok(())
    }

    /// Asks the peer to say when it makes room. `false`: there is some by now.
    pub fn ask_for_room(&mut self) -> Result<bool, Broken> {
        let crossing = Arc::clone(&self.crossing);
        let view = crossing.view();
        let (ours, theirs) = (our_words(&view)?, their_words(&view)?);
        self.asked = another(self.asked);
        ours.store(WANTS_ROOM, self.asked, Ordering::Relaxed);
        // The peer looks for this after it has made room, and we look for room after this.
        fence(Ordering::SeqCst);
        // An empty ring has room for every frame.
        if self.look(&theirs)? || self.head == self.tail {
            ours.store(WANTS_ROOM, 0, Ordering::Relaxed);
            return Ok(false);
        }
        self.asked_at = self.tail;
        Ok(true)
    }

    /// Whether the peer has made room since it was asked to. Then it need not say so any more.
    pub fn room_came(&mut self) -> Result<bool, Broken> {
        let crossing = Arc::clone(&self.crossing);
        let view = crossing.view();
        // Another sender may have seen it before.
        self.look(&their_words(&view)?)?;
        let came = self.tail != self.asked_at;
        if came {
            our_words(&view)?.store(WANTS_ROOM, 0, Ordering::Relaxed);
        }
        Ok(came)
    }

    /// Bytes in the ring that the peer has not taken, as far as it can be believed.
    pub fn left(&mut self) -> u64 {
        let crossing = Arc::clone(&self.crossing);
        let view = crossing.view();
        let _ = their_words(&view).and_then(|theirs| self.look(&theirs));
        self.head.wrapping_sub(self.tail).into()
    }
}

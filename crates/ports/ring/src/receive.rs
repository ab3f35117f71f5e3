//! The way in: frames that lie in the peer's ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use frame::{Batch, Finisher, MAX_BATCH, Sink};
use guest_mem::{ReadSlice, View, Words};
use port::{InletStatus, vnet};
use wire::Offload;

use crate::count;
use crate::crossing::{
    Broken, CLAIM, Crossing, HEAD, SLEEPS, TAIL, THEIR_RING, WANTS_ROOM, another, our_words,
    their_words,
};
use crate::record::{self, ALIGN, HEADER, Record};
use crate::shared::Shared;

/// The receiving half of a connection.
pub struct In {
    crossing: Arc<Crossing>,
    /// Bytes taken from the ring so far.
    tail: u32,
    /// How often this side slept, and whether the peer has been told that it does.
    sleeps: u32,
    asleep: bool,
    /// The wish for room of the peer's that was answered last.
    answered: u32,
    batch: Batch<'static>,
    picks: Vec<u16>,
    /// Where the ring stands behind each frame of the batch.
    ends: Vec<u32>,
    finisher: Finisher,
}

/// What stands at a place of the ring.
enum Found<'v> {
    /// Nothing more before the end.
    Skip,
    Frame(ReadSlice<'v>, Offload),
    /// A frame that its header contradicts.
    Lie,
}

/// What one pass came to.
struct Passed {
    /// Records looked at.
    looked: usize,
    /// The sink had no room for all of them.
    short: bool,
}

impl In {
    pub fn new(crossing: Arc<Crossing>) -> Self {
        Self {
            crossing,
            tail: 0,
            sleeps: 0,
            asleep: false,
            answered: 0,
            batch: Batch::new(),
            picks: Vec::with_capacity(MAX_BATCH),
            ends: Vec::with_capacity(MAX_BATCH),
            finisher: Finisher::new(),
        }
    }

    /// Goes on where the process before has left the ring. What that was passing on is taken for passed on: no frame comes twice.
    /// Returns how many bytes that is.
    pub fn resume(crossing: Arc<Crossing>) -> Result<(Self, u64), Broken> {
        let mut there = Self::new(Arc::clone(&crossing));
        let view = crossing.view();
        let (ours, theirs) = (our_words(&view)?, their_words(&view)?);
        let (tail, claim) = (
            ours.load(TAIL, Ordering::Acquire),
            ours.load(CLAIM, Ordering::Acquire),
        );
        there.tail = tail;
        let unsure = claim.wrapping_sub(tail);
        if unsure > there.there(&theirs)? || !claim.is_multiple_of(ALIGN) {
            return Err(Broken);
        }
        there.tail = claim;
        ours.store(TAIL, claim, Ordering::Release);
        there.sleeps = ours.load(SLEEPS, Ordering::Relaxed);
        ours.store(SLEEPS, 0, Ordering::Relaxed);
        Ok((there, unsure.into()))
    }

    pub fn crossing(&self) -> &Crossing {
        &self.crossing
    }

    /// Whether the peer was told that we sleep. It rings for nothing else before it is told anew.
    pub fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// Bytes published and not taken; `Err` if there cannot be so many.
    fn there(&self, theirs: &Words<'_>) -> Result<u32, Broken> {
        let head = theirs.load(HEAD, Ordering::Acquire);
        let there = head.wrapping_sub(self.tail);
        if there > self.crossing.theirs || !head.is_multiple_of(ALIGN) {
            return Err(Broken);
        }
        Ok(there)
    }

    /// Passes what has come to `to`, at most about `budget` frames. What this costs is bounded, whatever the peer writes
    /// meanwhile: each record it looks at, and each look for one, is of the budget.
    pub fn run(
        &mut self,
        shared: &Shared,
        to: &dyn Sink,
        budget: usize,
    ) -> Result<InletStatus, Broken> {
        let crossing = Arc::clone(&self.crossing);
        let mut left = budget.max(1);
        if std::mem::take(&mut self.asleep) {
            let view = crossing.view();
            our_words(&view)?.store(SLEEPS, 0, Ordering::Relaxed);
        }
        while left > 0 {
            let passed = self.pass(&crossing, shared, to, left)?;
            if passed.short {
                return Ok(InletStatus::Blocked);
            }
            if passed.looked == 0 && self.sleep(&crossing)? {
                return Ok(InletStatus::Idle);
            }
            left -= passed.looked.clamp(1, left);
        }
        Ok(InletStatus::More)
    }

    /// Has the peer ring when there is more; `false` if there is by now.
    fn sleep(&mut self, crossing: &Crossing) -> Result<bool, Broken> {
        let view = crossing.view();
        let (ours, theirs) = (our_words(&view)?, their_words(&view)?);
        self.sleeps = another(self.sleeps);
        ours.store(SLEEPS, self.sleeps, Ordering::Relaxed);
        // The peer looks for this after it has published, and we look for more after this.
        fence(Ordering::SeqCst);
        self.asleep = self.there(&theirs)? == 0;
        if !self.asleep {
            ours.store(SLEEPS, 0, Ordering::Relaxed);
        }
        Ok(self.asleep)
    }

    /// Offers one batch, of at most so many records.
    fn pass(
        &mut self,
        crossing: &Crossing,
        shared: &Shared,
        to: &dyn Sink,
        most: usize,
    ) -> Result<Passed, Broken> {
        let view = crossing.view();
        let (ours, theirs) = (our_words(&view)?, their_words(&view)?);
        let there = self.there(&theirs)?;
        if there == 0 {
            return Ok(Passed {
                looked: 0,
                short: false,
            });
        }
        let mut batch = std::mem::take(&mut self.batch).recycle();
        let read = self.collect(&view, there, most, &mut batch);
        let (looked, end, lies) = match read {
            Ok(read) => read,
            Err(Broken) => {
                self.batch = batch.recycle();
                return Err(Broken);
            }
        };
        shared.tally.add(count::BAD_RECORD, lies);
        // The first frame begins there, behind what was skipped.
        let first = batch.get(0).zip(self.ends.first());
        let begin = first.map_or(end, |(frame, end)| {
            end.wrapping_sub(record::size(frame.len()))
        });
        let offered = batch.len();
        ours.store(CLAIM, end, Ordering::Release);
        let dealt = self.deliver(shared, to, &batch);
        let now = match dealt {
            0 => begin,
            all if all == offered => end,
            some => self.ends[some - 1],
        };
        self.batch = batch.recycle();
        if now != self.tail {
            self.tail = now;
            self.publish(shared, &ours, &theirs);
        }
        ours.store(CLAIM, now, Ordering::Release);
        Ok(Passed {
            looked,
            short: dealt < offered,
        })
    }

    /// Fills a batch. Returns how many records it looked at, where the ring stands behind them, and how many of them were
    /// lies.
    ///
    /// A lie ends a batch that has frames, and what cannot be does so too: it is met again when those are dealt with. So
    /// nothing is counted twice.
    fn collect<'v>(
        &mut self,
        view: &'v View<'_>,
        there: u32,
        most: usize,
        batch: &mut Batch<'v>,
    ) -> Result<(usize, u32, u64), Broken> {
        self.ends.clear();
        let (mut taken, mut looked, mut lies) = (0, 0, 0);
        while taken < there && looked < most && !batch.is_full() {
            let at = self.tail.wrapping_add(taken) & (self.crossing.theirs - 1);
            match self.find(view, at, there - taken) {
                Err(Broken) if batch.is_empty() => return Err(Broken),
                Err(Broken) => break,
                Ok((Found::Lie, _)) if !batch.is_empty() => break,
                Ok((Found::Lie, size)) => {
                    lies += 1;
                    taken += size;
                }
                Ok((Found::Skip, size)) => taken += size,
                Ok((Found::Frame(slice, notes), size)) => {
                    if notes == Offload::NONE {
                        batch.push_frame(slice);
                    } else {
                        batch.push_slice(slice);
                        batch.end(notes);
                    }
                    taken += size;
                    self.ends.push(self.tail.wrapping_add(taken));
                }
            }
            looked += 1;
        }
        Ok((looked, self.tail.wrapping_add(taken), lies))
    }

    /// Reads the record at `at`, of which there are `there` bytes, and says how many it has.
    #[inline]
    fn find<'v>(
        &self,
        view: &'v View<'_>,
        at: u32,
        there: u32,
    ) -> Result<(Found<'v>, u32), Broken> {
        let ring = THEIR_RING + u64::from(at);
        let mut header = [0; HEADER];
        view.read(ring, &mut header).map_err(|_| Broken)?;
        let rest = self.crossing.theirs - at;
        let len = match record::read(&header).ok_or(Broken)? {
            Record::Skip if rest > there => return Err(Broken),
            Record::Skip => return Ok((Found::Skip, rest)),
            Record::Frame(len) => len,
        };
        let size = record::size(len);
        if size > there || size > rest {
            return Err(Broken);
        }
        if !record::is_long_enough(len) {
            return Ok((Found::Lie, size));
        }
        let frame = view.read_run(ring + HEADER as u64, len as u64);
        let frame = frame.ok_or(Broken)?;
        let notes = if record::is_plain(&header) {
            Some(Offload::NONE)
        } else {
            let mut head = [0; vnet::HEADERS];
            let known = frame.copy_to(0, &mut head);
            record::notes(&header, &head[..known], len)
        };
        Ok(match notes {
            Some(notes) => (Found::Frame(frame, notes), size),
            None => (Found::Lie, size),
        })
    }

    /// Offers a batch; returns how many frames were dealt with.
    fn deliver(&mut self, shared: &Shared, to: &dyn Sink, batch: &Batch<'_>) -> usize {
        if batch.is_empty() {
            return 0;
        }
        let (mut refused, mut refused_bytes) = (0, 0);
        let len = |at: usize| batch.get(at).map_or(0, |frame| frame.len() as u64);
        let picks = batch.all_picks(&mut self.picks);
        let refuse = |pick: u16, _| {
            refused += 1;
            refused_bytes += len(pick.into());
        };
        let dealt = self.finisher.deliver(to, batch, picks, refuse);
        let dealt = dealt.min(batch.len());
        let bytes: u64 = (0..dealt).map(len).sum();
        let tally = &shared.tally;
        tally.add(count::FRAMES_IN, dealt as u64 - refused);
        tally.add(count::BYTES_IN, bytes - refused_bytes);
        tally.add(count::CANNOT_TAKE, refused);
        dealt
    }

    /// Gives the peer its room back, and wakes those of its senders that wait for some.
    fn publish(&mut self, shared: &Shared, ours: &Words<'_>, theirs: &Words<'_>) {
        ours.store(TAIL, self.tail, Ordering::Release);
        // One who asks for room looks once more behind this.
        fence(Ordering::SeqCst);
        let wish = theirs.load(WANTS_ROOM, Ordering::Relaxed);
        if wish != 0 && wish != self.answered {
            self.answered = wish;
            shared.tally.add(count::WAKES, 1);
            self.crossing.wake();
        }
    }

    /// Bytes in the peer's ring that were not taken, as far as it can be believed.
    pub fn left(&self) -> u64 {
        let view = self.crossing.view();
        let there = their_words(&view).and_then(|theirs| self.there(&theirs));
        there.unwrap_or(0).into()
    }
}

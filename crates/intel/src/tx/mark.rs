//! What is remembered of the packets of a batch until it is known how many of them were taken.

use std::cell::Cell;
use std::thread::LocalKey;

use datapath::counters::count;
use frame::Batch;
use wire::Gso;

use crate::counters::Counters;
use crate::ring::{Fetcher, Ring};
use crate::stats::{Stat, Tally};
use crate::tx::complete::Completed;

/// What the transmit side of a ring remembers from call to call; `C` are its contexts.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Position<C> {
    /// Frames of the packet at the head that the sink has already taken.
    pub taken: usize,
    /// What the descriptors up to the head have set up.
    pub memory: Memory<C>,
}

impl<C> Position<C> {
    /// Whether a run may begin here: no packet is under way.
    #[inline]
    pub fn is_between(&self) -> bool {
        self.taken == 0 && !self.memory.skipping
    }
}

/// What is carried from descriptor to descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Memory<C> {
    /// In a packet that was given up; its remaining descriptors are passed over.
    pub skipping: bool,
    /// What context descriptors have set up.
    pub contexts: C,
}

/// Where a thread keeps a [`Store`] between calls. There are many NICs and few threads, and of a NIC at rest it would only be cold.
pub type Shelf<C> = LocalKey<Cell<Option<Box<Store<C>>>>>;

/// The storage of a call: taken from the thread's shelf by the first batch.
#[derive(Debug)]
pub struct Borrowed<C>(Option<Box<Store<C>>>);

impl<C> Default for Borrowed<C> {
    fn default() -> Self {
        Borrowed(None)
    }
}

impl<C: Default> Borrowed<C> {
    /// The storage.
    #[inline]
    pub fn get(&mut self, shelf: &'static Shelf<C>) -> &mut Store<C> {
        let take = || shelf.take().unwrap_or_else(|| Box::new(Store::default()));
        self.0.get_or_insert_with(take)
    }

    /// The call ends.
    #[inline]
    pub fn give_back(&mut self, shelf: &'static Shelf<C>) {
        if let Some(store) = self.0.take() {
            shelf.set(Some(store));
        }
    }
}

/// Storage of a batch, kept from call to call.
#[derive(Debug, Default)]
pub struct Store<C> {
    pub(crate) fetcher: Fetcher,
    pub(crate) marks: Vec<Mark>,
    /// What marks remember, the first from before the batch.
    pub(crate) memories: Vec<Memory<C>>,
    /// Descriptors to be written back.
    pub(crate) written: Vec<u32>,
    /// What was refused, with the mark that has the end of it; those behind the last mark have none yet.
    refused: Vec<Refused>,
}

/// Something that was refused.
#[derive(Clone, Copy, Debug)]
struct Refused {
    mark: Option<usize>,
    why: Refusal,
    /// The descriptor behind it, and how many it has had.
    descs: (u32, u32),
}

/// Why something in a ring became no frame, or not the frame that was asked for. It is counted once the descriptors are
/// done: those that a sink had no room for are gathered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Fault,
    Runt,
    TooLong,
    BadTso,
    BadChecksum,
    BadDesc,
    TooManyDescs,
}

impl Refusal {
    /// Of one that costs a packet: the name of its counter.
    fn lost(self) -> Option<&'static str> {
        Some(match self {
            Refusal::Fault => "tx_dma_fault",
            Refusal::Runt => "tx_runt",
            Refusal::TooLong => "tx_too_long",
            Refusal::BadTso => "tx_bad_tso",
            Refusal::TooManyDescs => "tx_too_many_descs",
            Refusal::BadChecksum | Refusal::BadDesc => return None,
        })
    }

    #[cold]
    fn count(self, counters: &Counters) {
        let counter = match self {
            Refusal::Fault => &counters.tx_dma_fault,
            Refusal::Runt => &counters.tx_runt,
            Refusal::TooLong => &counters.tx_too_long,
            Refusal::BadTso => &counters.tx_bad_tso,
            Refusal::BadChecksum => &counters.tx_bad_checksum,
            Refusal::BadDesc => &counters.tx_bad_desc,
            Refusal::TooManyDescs => &counters.tx_too_many_descs,
        };
        count(counter, 1);
    }
}

/// A place up to which the ring is done once `frames` of the batch are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub frames: u32,
    /// The next descriptor.
    pub next: u32,
    /// What was carried there, in the list of memories.
    pub memory: u32,
    /// Descriptors to write back up to here, in the list of them.
    pub written: u32,
    /// A descriptor to be reported was passed; one whose interrupt may be delayed.
    pub now: bool,
    pub delayed: bool,
    /// A packet with segmentation ends here.
    pub tso: Option<Tso>,
    /// The time at which the packet that ends here leaves is wanted.
    pub stamp: bool,
    /// It ends so many packets of one descriptor and one frame each, without marks of their own; what
    /// was there before the first of them.
    pub run: u32,
    pub before: Before,
}

/// What a run of packets begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    pub written: u32,
    pub now: bool,
}

/// How a packet with segmentation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tso {
    Sent,
    /// Its length was not the one its context announced (8254x manual §3.3.7.1), or it could not be cut.
    Failed,
}

impl Mark {
    /// The place inside of the run where `taken` frames are through.
    fn cut(&self, taken: usize, ring: &Ring, written: &[u32]) -> Option<Mark> {
        let back = self.frames.checked_sub(taken as u32)?;
        if back >= self.run {
            return None;
        }
        let next = ring.before(self.next, back);
        let behind = |index: u32| ring.distance(next, index) < back;
        let left = written.get(..self.written as usize).unwrap_or(&[]);
        let own = left.get(self.before.written as usize..).unwrap_or(&[]);
        let gone = own.iter().filter(|index| behind(**index)).count() as u32;
        let written = self.written - gone;
        Some(Mark {
            frames: taken as u32,
            next,
            written,
            now: self.before.now || written > self.before.written,
            run: self.run - back,
            ..*self
        })
    }
}

impl<C: Copy> Store<C> {
    #[inline]
    pub(crate) fn begin(&mut self, memory: Memory<C>) {
        self.fetcher.forget();
        self.marks.clear();
        self.written.clear();
        self.refused.clear();
        self.memories.clear();
        self.memories.push(memory);
    }

    /// Something is refused whose end is not there yet: so many descriptors before this one.
    #[cold]
    pub(crate) fn refuse(&mut self, why: Refusal, descs: (u32, u32)) {
        let mark = None;
        self.refused.push(Refused { mark, why, descs });
    }

    /// Whether something was refused.
    #[inline]
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// What of the packets up to the end of the first `taken` frames became no frame: the counter's name, the descriptor behind
    /// it, and how many it has had.
    #[cold]
    pub(crate) fn unsent(&self, taken: usize, each: &mut dyn FnMut(&'static str, u32, u32)) {
        let within = |mark: &Mark| mark.frames as usize <= taken;
        let done = self.marks.partition_point(within);
        let settled = self.refused.iter();
        let settled = settled.filter(|one| one.mark.is_some_and(|mark| mark < done));
        for one in settled {
            if let Some(counter) = one.why.lost() {
                each(counter, one.descs.0, one.descs.1);
            }
        }
    }

    /// The last mark has the end of all that was refused.
    #[inline]
    pub(crate) fn settle_refused(&mut self) {
        let last = self.marks.len().checked_sub(1);
        let open = self.refused.iter_mut().rev();
        open.map_while(|one| one.mark.is_none().then_some(one))
            .for_each(|one| one.mark = last);
    }

    /// Where the ring is done once all of the batch is, and the first descriptor to be reported on the way.
    pub fn end(&self) -> Option<(u32, Option<u32>)> {
        let last = self.marks.last()?;
        let reported = self.written.first().filter(|_| last.written > 0);
        Some((last.next, reported.copied()))
    }

    /// Where the packet ends whose frame is the first that was not taken, if the sink was to cut it and so may have taken some of
    /// its segments.
    pub fn begun(&self, batch: &Batch<'_>, taken: usize) -> Option<u32> {
        let large = batch
            .get(taken)
            .filter(|frame| frame.notes().gso != Gso::None);
        large?;
        let behind = self.marks.iter().find(|mark| mark.frames as usize > taken);
        behind.map(|mark| mark.next)
    }

    /// Whether the time is wanted at which a packet of the batch leaves.
    pub fn is_timed(&self) -> bool {
        self.marks.iter().any(|mark| mark.stamp)
    }

    /// What the first `taken` frames of the batch complete; `position` goes on behind it. `None` when no
    /// descriptor is done. Packets with segmentation are counted, and what was refused.
    #[inline]
    pub fn complete(
        &self,
        position: &mut Position<C>,
        ring: &Ring,
        taken: usize,
        tally: &mut Tally,
        counters: &Counters,
    ) -> Option<Completed<'_>> {
        let marks = &self.marks;
        let within = |mark: &Mark| mark.frames as usize <= taken;
        let done = match marks.last() {
            Some(last) if within(last) => marks.len(),
            _ => marks.partition_point(within),
        };
        let before = || done.checked_sub(1).map(|i| marks[i]);
        let cut = |mark: &Mark| mark.cut(taken, ring, &self.written);
        let Some(last) = marks.get(done).and_then(cut).or_else(before) else {
            position.taken += taken;
            return None;
        };
        let mut stamp = false;
        for mark in &marks[..done] {
            stamp |= mark.stamp;
            if let Some(tso) = mark.tso {
                count(&counters.tx_tso_frames, 1);
                tally.add(Stat::Tsctc, 1);
                tally.add(Stat::Tsctfc, (tso == Tso::Failed).into());
            }
        }
        for one in &self.refused {
            if one.mark.is_some_and(|mark| mark < done) {
                one.why.count(counters);
            }
        }
        // Frames of the next packet that went out before the sink was full. Those of the packet at the
        // head that went out before this batch are behind us with it.
        position.taken = taken - last.frames as usize;
        if let Some(memory) = self.memories.get(last.memory as usize) {
            position.memory = *memory;
        }
        let after = Ring {
            head: last.next,
            ..*ring
        };
        let left = after.available();
        Some(Completed {
            next: last.next,
            moved: ring.available().saturating_sub(left),
            left,
            written: &self.written[..last.written as usize],
            now: last.now,
            delayed: last.delayed,
            stamp,
        })
    }
}

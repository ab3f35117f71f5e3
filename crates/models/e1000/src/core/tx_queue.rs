//! The transmit queue: its ring, and what the transmitter remembers from call to call.

use frame::MAX_BATCH;
use intel::{Fetcher, Ring, RingIds};

use crate::core::context::Context;
use crate::core::csb::TxCsb;
use crate::regs as r;

pub(crate) const RING: RingIds = RingIds {
    base_low: r::TDBAL,
    base_high: r::TDBAH,
    len: r::TDLEN,
    head: r::TDH,
    tail: r::TDT,
};

/// Fewest frames gathered at once for a sink that was short of room.
const FEWEST: usize = 16;

/// What the transmitter remembers from call to call.
#[derive(Debug, Default)]
pub(crate) struct TxState {
    pub(crate) memory: Contexts,
    /// Frames of the packet at the head that the sink has already taken.
    pub(crate) taken: usize,
    /// The last run ended before its work did: somebody owes it another.
    pub(crate) unfinished: bool,
    pub(crate) stride: Stride,
    /// The guest's CSB.
    pub(crate) csb: TxCsb,
    /// Storage of a batch.
    pub(crate) fetcher: Fetcher,
    pub(crate) marks: Vec<Mark>,
    /// What marks remember, the first from before the batch.
    pub(crate) contexts: Vec<Contexts>,
    /// Descriptors to be written back.
    pub(crate) written: Vec<u32>,
}

/// What the walk along the ring carries from descriptor to descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contexts {
    /// The last context descriptor with TSE and the last without: the chip keeps both.
    pub(crate) segmenting: Context,
    pub(crate) plain: Context,
    /// In a packet that was given up; its remaining descriptors are passed over.
    pub(crate) skipping: bool,
}

/// How many frames are gathered at once: what a sink has no room for is gathered again later, so it is
/// offered at most about twice what it had room for last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride {
    pub(crate) frames: usize,
    /// Taken since the run began.
    pub(crate) taken: usize,
}

impl Default for Stride {
    fn default() -> Self {
        Stride {
            frames: MAX_BATCH,
            taken: 0,
        }
    }
}

impl Stride {
    /// So many of `offered` frames were taken.
    pub(crate) fn learn(&mut self, taken: usize, offered: usize) {
        self.taken += taken;
        if taken < offered {
            self.frames = (2 * self.taken).clamp(FEWEST, MAX_BATCH);
        } else if offered >= self.frames {
            self.frames = (2 * self.frames).min(MAX_BATCH);
        }
    }
}

impl TxState {
    pub(crate) fn reset(&mut self) {
        self.memory = Contexts::default();
        self.taken = 0;
        self.unfinished = false;
        self.csb.reset();
    }
}

/// A place up to which the ring is done once `frames` of the batch are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) frames: u32,
    /// That many frames before it are of one descriptor each, and places like it are behind them too.
    pub(crate) run: u32,
    /// Each descriptor of the run is written back; else none.
    pub(crate) reported: bool,
    /// The next descriptor.
    pub(crate) next: u32,
    /// What the walk carried there, in the list of contexts.
    pub(crate) memory: u32,
    /// Descriptors to write back up to here, in the list of them.
    pub(crate) written: u32,
    /// An RS descriptor without IDE was passed; one with IDE.
    pub(crate) now: bool,
    pub(crate) delayed: bool,
    /// A packet with segmentation ends here.
    pub(crate) tso: Option<Tso>,
}

impl Mark {
    /// The place inside of its run where `taken` frames of the batch are done; fewer than its own.
    pub(crate) fn cut(&self, taken: usize, ring: &Ring) -> Option<Mark> {
        let back = self.frames.checked_sub(taken as u32)?;
        (back < self.run).then(|| Mark {
            frames: taken as u32,
            run: self.run - back,
            next: ring.before(self.next, back),
            written: self.written - if self.reported { back } else { 0 },
            ..*self
        })
    }
}

/// How a packet with segmentation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tso {
    Sent,
    /// Its length was not the one its context announced (manual §3.3.7.1), or it could not be cut.
    Failed,
}

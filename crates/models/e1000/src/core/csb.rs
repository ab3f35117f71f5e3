//! The Communication Status Block (crate `csb`; netmap's `net/paravirt.h`): tails, heads and wishes
//! for calls in a page of the guest's memory in place of register accesses and interrupts.
//!
//! The page is hostile: each word is loaded once and judged on what was loaded. It is found anew in
//! every call that uses it, as all DMA is; when it is out of reach the block is off until the driver
//! gives it again. A register access touches none of it: what CSBAL and the doorbells ask for is done
//! with the work they note.

use std::sync::atomic::{AtomicBool, Ordering};

use csb::{Word, at};
use guest_mem::Words;
use model::{Nanos, Watch};
use parking_lot::Mutex;

use crate::core::counters::Counters;
use datapath::counters::count;

/// What the registers and the worker know of the block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The operator has switched it on for this NIC.
    pub(crate) offered: bool,
    /// The longest time the transmitter polls before it sleeps.
    pub(crate) most_poll: Nanos,
    /// There is a page. Changed under the lock; read first, on every path.
    pub(crate) set: AtomicBool,
    /// The guest wanted the block when it was last asked.
    pub(crate) on: AtomicBool,
    /// IMS was written: the guest is to be asked what it wants to hear of.
    pub(crate) ask: AtomicBool,
    pub(crate) base: Mutex<CsbBase>,
}

/// The registers. There is a page while CSBAL is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CsbBase {
    pub(crate) low: u32,
    pub(crate) high: u32,
    /// Counts changes: what was said in a page that was given before counts no more.
    pub(crate) epoch: u32,
}

impl CsbBase {
    pub(crate) fn page(&self) -> Option<u64> {
        (self.low != 0).then_some(u64::from(self.high) << 32 | u64::from(self.low))
    }
}

impl Block {
    pub(crate) fn new(offered: bool, most_poll: Nanos) -> Self {
        Self {
            offered,
            most_poll,
            ..Self::default()
        }
    }

    /// Whether there may be a page to look at: one load, for the paths that matter.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Whether the guest wanted the block when it was last asked.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut CsbBase)) {
        let mut base = self.base.lock();
        change(&mut base);
        base.epoch = base.epoch.wrapping_add(1);
        self.set.store(base.low != 0, Ordering::Release);
    }
}

/// The page, pinned for a call.
#[derive(Clone, Copy)]
pub(crate) struct CsbPage<'v> {
    pub(crate) words: Words<'v>,
    pub(crate) epoch: u32,
}

/// A word of it.
pub(crate) struct At<'v>(Words<'v>, u32);

impl Word for At<'_> {
    fn load(&self) -> u32 {
        self.0.load(self.1, Ordering::Acquire)
    }
    fn store(&self, value: u32) {
        self.0.store(self.1, value, Ordering::Release);
    }
}

impl<'v> CsbPage<'v> {
    pub(crate) fn word(&self, offset: u32) -> At<'v> {
        At(self.words, offset)
    }

    pub(crate) fn load(&self, offset: u32) -> u32 {
        self.word(offset).load()
    }

    pub(crate) fn store(&self, offset: u32, value: u32) {
        self.word(offset).store(value);
    }

    /// A tail, if it is one of a ring of `len`.
    pub(crate) fn tail(&self, counters: &Counters, offset: u32, len: u32) -> Option<u32> {
        if len == 0 {
            return None;
        }
        // The registers have 16 bits too.
        let tail = self.load(offset) & 0xffff;
        if tail < len {
            return Some(tail);
        }
        count(&counters.csb_bad_tail, 1);
        None
    }

    pub(crate) fn wanted(&self, offset: u32) -> bool {
        csb::wanted(&self.word(offset)) != 0
    }

    /// Frames up to the descriptor before `head` were sent and reported. Whether the guest wants to
    /// hear of it.
    pub(crate) fn sent(&self, head: u32) -> bool {
        self.store(at::HOST_TDH, head);
        self.wanted(at::GUEST_NEED_TXKICK)
    }

    /// Frames were received and written back up to the descriptor before `head`. Whether the guest wants to hear of it.
    pub(crate) fn received(&self, head: u32) -> bool {
        self.store(at::HOST_RDH, head);
        self.wanted(at::GUEST_NEED_RXKICK)
    }
}

/// What the transmitter remembers of the block.
#[derive(Debug, Default)]
pub(crate) struct TxCsb {
    /// The page that the rest is about.
    pub(crate) epoch: u32,
    /// The guest need not call.
    pub(crate) awake: bool,
    /// Where the ring was left.
    pub(crate) tail: u32,
    pub(crate) head: u32,
    /// Descriptors sent since it last slept, as far as they earn anything.
    pub(crate) sent: u32,
    /// Rounds without a frame in a row, and since when.
    pub(crate) idle: u32,
    pub(crate) since: Nanos,
    /// How long such rounds have paid of late.
    pub(crate) window: Nanos,
    /// When the transmitter fell asleep.
    pub(crate) slept: Option<Nanos>,
    /// How the last round ended.
    pub(crate) watch: Watch,
}

impl TxCsb {
    pub(crate) fn reset(&mut self) {
        self.awake = false;
        self.watch = Watch::Off;
        self.slept = None;
    }
}

/// What the receiver remembers of the block, behind its lock.
#[derive(Debug, Default)]
pub(crate) struct RxCsb {
    /// The page that the rest is about; none so far.
    pub(crate) epoch: Option<u32>,
    /// Where the guest was asked to call; [`csb::NONE`] for nowhere, and none for what is not known.
    pub(crate) asked: Option<u32>,
    /// Looks since then.
    pub(crate) looks: u32,
}

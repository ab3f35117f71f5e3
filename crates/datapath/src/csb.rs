//! The NIC's side of a Communication Status Block (crate `csb`; netmap's `net/paravirt.h`): tails, heads and wishes for calls
//! in a page of the guest's memory in place of register accesses and interrupts. What is here knows no chip.
//!
//! The page is hostile: each word is loaded once and judged on what was loaded. It is found anew in
//! every call that uses it, as all DMA is; when it is out of reach the block is off until the driver
//! gives it again. A register access touches none of it: what its registers and the doorbells ask for is done
//! with the work they note.

mod block;
mod receiver;
mod transmitter;

use std::sync::atomic::{AtomicU64, Ordering};

use ::csb::{Word, at};
use guest_mem::Words;

pub use block::{Block, CsbBase, Gate};
pub use receiver::{RxCsb, Settled};
pub use transmitter::{End, TxCsb};

use crate::counters::count;

/// The page, pinned for a call.
#[derive(Clone, Copy)]
pub struct CsbPage<'v> {
    words: Words<'v>,
    /// Which of those that were given it is.
    pub epoch: u32,
}

/// A word of it.
pub struct At<'v>(Words<'v>, u32);

impl Word for At<'_> {
    fn load(&self) -> u32 {
        self.0.load(self.1, Ordering::Acquire)
    }
    fn store(&self, value: u32) {
        self.0.store(self.1, value, Ordering::Release);
    }
}

impl<'v> CsbPage<'v> {
    /// The word at an offset of [`::csb::at`].
    pub fn word(&self, offset: u32) -> At<'v> {
        At(self.words, offset)
    }

    /// Loads it.
    pub fn load(&self, offset: u32) -> u32 {
        self.word(offset).load()
    }

    /// Stores it.
    pub fn store(&self, offset: u32, value: u32) {
        self.word(offset).store(value);
    }

    /// A tail, if it is one of a ring of `len`; others are counted as `bad`.
    pub fn tail(&self, bad: &AtomicU64, offset: u32, len: u32) -> Option<u32> {
        if len == 0 {
            return None;
        }
        // The registers have 16 bits too.
        let tail = self.load(offset) & 0xffff;
        if tail < len {
            return Some(tail);
        }
        count(bad, 1);
        None
    }

    fn wanted(&self, offset: u32) -> bool {
        ::csb::wanted(&self.word(offset)) != 0
    }

    /// Frames up to the descriptor before `head` were sent and reported. Whether the guest wants to
    /// hear of it.
    pub fn sent(&self, head: u32) -> bool {
        self.store(at::HOST_TDH, head);
        self.wanted(at::GUEST_NEED_TXKICK)
    }

    /// Frames were received and written back up to the descriptor before `head`. Whether the guest wants to hear of it.
    pub fn received(&self, head: u32) -> bool {
        self.store(at::HOST_RDH, head);
        self.wanted(at::GUEST_NEED_RXKICK)
    }
}

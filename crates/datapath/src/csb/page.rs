//! The page, as a call finds it.

use std::sync::atomic::{AtomicU64, Ordering};

use ::csb::{Word, at};
use guest_mem::Words;

use crate::counters::count;

/// The page, pinned for a call.
#[derive(Clone, Copy)]
pub struct CsbPage<'v> {
    pub(super) words: Words<'v>,
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

    /// Whether the guest has set this word, which what was stored before must be seen before.
    pub(super) fn wanted(&self, offset: u32) -> bool {
        ::csb::wanted(&self.word(offset)) != 0
    }

    /// The rings stand there: who said it last may have died before it was said of the last frames.
    pub fn stand(&self, (sent, received): (u32, u32)) {
        self.store(at::HOST_TDH, sent);
        self.store(at::HOST_RDH, received);
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

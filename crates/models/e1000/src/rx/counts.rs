//! What one call of the receiver counts, and what it has learned for others.

use crate::core::rx_queue::Account;
use crate::core::stats::Stat;

/// Counted under way, entered when it is published.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub account: Account,
    /// Frames that went into the FIFO.
    pub waited: u64,
    /// The FIFO's registers are no longer true.
    pub moved: bool,
    /// What the last pause frame asked for.
    pub pause: Option<u16>,
}

impl Counts {
    /// A frame of `len` bytes on the wire was lost for want of buffers.
    pub(crate) fn miss(&mut self, len: usize) {
        self.account.missed += 1;
        self.account.tally.missed(len);
    }

    /// A frame found no descriptor and no room in the FIFO (manual §13.7.5, §13.7.33).
    pub(crate) fn miss_without_buffer(&mut self, on_wire: usize) {
        self.account.tally.add(Stat::Rnbc, 1);
        self.miss(on_wire);
    }
}

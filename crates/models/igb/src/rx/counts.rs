//! What one call of the receive side counts, and the interrupts it raises.

use crate::core::function::{Function, count};
use crate::core::irq::{Causes, Moved};
use crate::core::stats::{Stat, Tally};
use crate::regs::bits::icr;
use model::Env;

/// Frames that were received.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub frames: u64,
    pub bytes: u64,
    pub multicast: u64,
}

/// Counted during the call, added to the counters at its end.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub tally: Tally,
    /// Of the open queue; of all queues.
    pub own: Account,
    pub all: Account,
    pub causes: Causes,
    /// What the queues have moved.
    pub moved: Moved,
    /// What the last pause frame asked for.
    pub pause: Option<u16>,
    pub fetched: u64,
}

impl Counts {
    /// A frame of `len` bytes was lost for want of buffers.
    pub(crate) fn miss(&mut self, len: usize) {
        self.tally.add(Stat::Mpc, 1);
        self.tally.total(len);
        self.causes.other |= icr::RXO;
    }

    /// The interrupt of a queue does not wait for moderation.
    pub(crate) fn hurry(&mut self, queue: Option<u32>) {
        if let Some(queue) = queue {
            self.causes.now |= 1 << queue;
        }
    }

    /// Adds all of it to the counters, and raises the interrupts.
    pub(crate) fn enter(&self, function: &Function, env: &Env) {
        let counters = &function.counters;
        count(&counters.rx_desc_fetched, self.fetched);
        count(&counters.rx_frames, self.all.frames);
        count(&counters.rx_bytes, self.all.bytes);
        function.stats.add(&self.tally);
        if let Some(quanta) = self.pause {
            function.obey_pause(env, quanta);
        }
        if !self.causes.is_empty() {
            let mut irq = function.irq.lock();
            if function.adapts() {
                irq.received(&self.moved);
            }
            irq.raise(env, self.causes);
        }
    }
}

//! Flow control of the transmit side (§3.5.5, §8.5): pauses are kept, and announced where software asks
//! for one. None is sent because the packet buffer fills: frames wait with their senders and never there.

use crate::core::flow::IDS;
use crate::core::function::Function;
use crate::core::stats::{Stat, Tally};
use crate::regs as r;
use std::sync::atomic::Ordering;

use datapath::{FCS, MIN_FRAME};
use frame::{Batch, Sink};
use intel::flow::{RFCE, pause_frame};
use model::Env;
use wire::Offload;

impl Function {
    /// Whether the transmitter is silent at the partner's wish (STATUS.TXOFF).
    pub(crate) fn is_silent(&self, env: &Env) -> bool {
        // A VF is never asked.
        let until = self.flow.silence.until();
        until.is_some_and(|until| self.file.get(r::CTRL) & RFCE != 0 && env.clock.now() < until)
    }

    /// Sends the pause frame that software has asked for, whatever else is sent. Returns whether there
    /// was one, or `None` when the sink had no room; it stays owed then.
    pub(crate) fn send_pause(&self, to: &dyn Sink) -> Option<bool> {
        if !self.flow.owed.load(Ordering::Acquire) || !self.flow.owed.swap(false, Ordering::AcqRel)
        {
            return Some(false);
        }
        let quanta = self.file.get(r::FCTTV) as u16;
        let mut batch = Batch::new();
        batch.push_bytes(&pause_frame(&self.file, &IDS, quanta));
        batch.end(Offload::NONE);
        if to.deliver(&batch, &[0]) == 0 {
            self.flow.owed.store(true, Ordering::Release);
            return None;
        }
        let mut tally = Tally::default();
        let kind = if quanta == 0 {
            Stat::Xontxc
        } else {
            Stat::Xofftxc
        };
        tally.add(kind, 1);
        tally.add(Stat::Tpt, 1);
        tally.add(Stat::Tot, (MIN_FRAME + FCS) as u64);
        self.stats.add(&tally);
        Some(true)
    }
}

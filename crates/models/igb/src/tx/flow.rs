//! Flow control of the transmit side (§3.5.5, §8.5): pauses are kept, and announced where software asks
//! for one. None is sent because the packet buffer fills: frames wait with their senders and never there.

use std::sync::atomic::Ordering;

use frame::Sink;
use intel::flow::{RFCE, send_pause};
use model::Env;

use crate::core::flow::IDS;
use crate::core::function::Function;
use crate::regs as r;

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
        let Some(tally) = send_pause(to, &self.file, &IDS, quanta) else {
            self.flow.owed.store(true, Ordering::Release);
            return None;
        };
        self.stats.add(&tally);
        Some(true)
    }
}

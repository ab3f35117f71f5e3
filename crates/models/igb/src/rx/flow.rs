//! Flow control (§3.5.5, §8.5): pause frames are obeyed, and sent where software asks for one.
//!
//! None is sent because the packet buffer fills: frames wait with their senders and never there. A PF
//! that has VFs obeys none, since what comes to it may be from a VF, and on the chip a VF cannot silence
//! the port's wire.

use std::sync::atomic::{AtomicBool, Ordering};

use datapath::{FCS, MIN_FRAME};
use frame::{Batch, Sink};
use intel::flow::{ControlFrame, HEAD, Ids, RFCE, Silence, control_frame, pause_frame};
use model::{Env, Nanos};
use wire::Offload;

use crate::core::function::{Function, Kind};
use crate::core::stats::{Stat, Tally};
use crate::regs as r;

static IDS: Ids = intel::flow_ids!(r);

/// What receive and transmit side share about it, of a PF.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// What the partner asked for.
    pub silence: Silence,
    /// A pause frame that software asked for (TCTL.SWXOFF) has not left yet.
    pub owed: AtomicBool,
}

impl Flow {
    /// Forgets everything (CTRL.RST).
    pub(crate) fn reset(&self) {
        self.silence.set(None);
        self.owed.store(false, Ordering::Release);
    }
}

impl Function {
    /// Whether pause frames are told from others, and obeyed.
    pub(crate) fn obeys_pause(&self) -> bool {
        let alone = self.vfs.load(Ordering::Acquire) == 0;
        matches!(self.kind, Kind::Pf) && alone && self.file.get(r::CTRL) & RFCE != 0
    }

    /// What a frame is to flow control, by its first bytes.
    pub(crate) fn control_frame(&self, head: &[u8; HEAD]) -> Option<ControlFrame> {
        control_frame(&self.file, &IDS, head)
    }

    /// Obeys a pause frame.
    pub(crate) fn obey_pause(&self, env: &Env, quanta: u16) {
        let mbps = Nanos::from(self.mbps.load(Ordering::Acquire));
        let ten_bits = 10_000 / mbps.max(1);
        // Under the lock: of two that come at once, the timer hears of the one that counts.
        let mut irq = self.irq.lock();
        let until = self.flow.silence.ask(env.clock.now(), quanta, ten_bits);
        irq.set_look(env, Some(until));
    }

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

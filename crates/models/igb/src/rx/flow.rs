//! Flow control of the receive side (§3.5.5, §8.5): pause frames are recognised and obeyed.
//!
//! A PF that has VFs obeys none: a frame for it may come from a VF, and on the chip a VF cannot pause
//! the port's wire.

use crate::core::flow::IDS;
use crate::core::function::{Function, FunctionKind};
use crate::regs as r;
use std::sync::atomic::Ordering;

use intel::flow::{ControlFrame, HEAD, RFCE, control_frame};
use model::{Env, Nanos};

impl Function {
    /// Whether pause frames are recognised and obeyed.
    pub(crate) fn obeys_pause(&self) -> bool {
        let alone = self.vfs.load(Ordering::Acquire) == 0;
        matches!(self.kind, FunctionKind::Pf) && alone && self.file.get(r::CTRL) & RFCE != 0
    }

    /// The MAC control frame that these first bytes are, if they are one.
    pub(crate) fn control_frame(&self, head: &[u8; HEAD]) -> Option<ControlFrame> {
        control_frame(&self.file, &IDS, head)
    }

    /// Obeys a pause frame.
    pub(crate) fn obey_pause(&self, env: &Env, quanta: u16) {
        let mbps = Nanos::from(self.mbps.load(Ordering::Acquire));
        let ten_bits = 10_000 / mbps.max(1);
        // Under the lock, so that of two at once the timer is set by the one that counts.
        let mut irq = self.irq.lock();
        let until = self.flow.silence.ask(env.clock.now(), quanta, ten_bits);
        irq.set_look(env, Some(until));
    }
}

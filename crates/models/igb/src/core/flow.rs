//! What receive and transmit side know of pause frames.

use std::sync::atomic::{AtomicBool, Ordering};

use intel::flow::{Ids, Silence};

use crate::regs as r;

/// Registers that pause frames follow from.
pub(crate) static IDS: Ids = intel::flow_ids!(r);

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

//! Interrupt causes, and what becomes of them.

use model::Env;

/// What has happened, gathered over a batch for one decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Causes {
    /// Receive queues with something written back, bit by bit.
    pub rx: u16,
    /// Transmit queues with something written back that was to be reported, bit by bit.
    pub tx: u16,
    /// Causes that belong to no queue, as in ICR (§8.8.1).
    pub other: u32,
}

impl Causes {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Causes::default()
    }
}

/// The interrupts of one function.
#[derive(Debug, Default)]
pub(crate) struct Irq {
    pending: Causes,
}

impl Irq {
    /// Enters causes, and raises what is enabled.
    pub(crate) fn raise(&mut self, _env: &Env, causes: Causes) {
        self.pending.rx |= causes.rx;
        self.pending.tx |= causes.tx;
        self.pending.other |= causes.other;
    }
}

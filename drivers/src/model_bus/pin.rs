//! The interrupt pin.

use std::sync::Mutex;

use super::lock::lock;
use model::Interrupts;

/// An interrupt pin as VFIO shows it: one signal when the line is up, then silence until
/// unmasked, then another if it is still up.
#[derive(Debug, Default)]
pub struct Automask(Mutex<Pin>);

#[derive(Debug, Default)]
struct Pin {
    level: bool,
    masked: bool,
    pending: bool,
    rises: u64,
    signals: u64,
    messages: u64,
    /// Vectors of MSI-X that have sent one, bit by bit.
    vectors: u32,
}

impl Pin {
    fn signal_if_due(&mut self) {
        if self.level && !self.masked {
            self.masked = true;
            self.pending = true;
            self.signals += 1;
        }
    }
}

impl Automask {
    /// The level of INTx.
    pub fn level(&self) -> bool {
        lock(&self.0).level
    }

    /// How often the line went from low to high.
    pub fn rises(&self) -> u64 {
        lock(&self.0).rises
    }

    /// Interrupts the guest got: INTx signals and messages.
    pub fn delivered(&self) -> u64 {
        let pin = lock(&self.0);
        pin.signals + pin.messages
    }

    /// The vectors of MSI-X, bit by bit, that have sent a message since the last call.
    pub fn take_vectors(&self) -> u32 {
        std::mem::take(&mut lock(&self.0).vectors)
    }

    pub(super) fn take(&self) -> bool {
        std::mem::take(&mut lock(&self.0).pending)
    }

    pub(super) fn unmask(&self) {
        let mut pin = lock(&self.0);
        pin.masked = false;
        pin.signal_if_due();
    }

    fn message(&self) {
        let mut pin = lock(&self.0);
        pin.messages += 1;
        pin.pending = true;
    }
}

impl Interrupts for Automask {
    fn set_line(&self, level: bool) {
        let mut pin = lock(&self.0);
        if level && !pin.level {
            pin.rises += 1;
        }
        pin.level = level;
        pin.signal_if_due();
    }

    fn msi(&self, _vector: u16) {
        self.message();
    }

    fn msix(&self, vector: u16) {
        lock(&self.0).vectors |= 1u32.checked_shl(vector.into()).unwrap_or(0);
        self.message();
    }
}

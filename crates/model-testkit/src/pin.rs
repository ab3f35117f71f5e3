//! Interrupts, recorded or ignored.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use model::{Interrupts, Through};

/// What the guest hears of a NIC.
#[derive(Debug, Default)]
pub struct Pin {
    /// The level of INTx.
    pub level: AtomicBool,
    /// How often INTx has risen.
    pub rises: AtomicU64,
    /// All that was heard: INTx risen or fallen, and messages.
    pub signals: AtomicU64,
    /// Messages by MSI. There is one vector.
    pub messages: AtomicU64,
    /// Vectors of messages by MSI-X, in order.
    pub vectors: Mutex<Vec<u16>>,
    /// PME_En and PME_Status.
    pub pme: Mutex<(bool, bool)>,
    /// What began to wait for its time.
    pub delayed: Mutex<Vec<Through>>,
}

impl Pin {
    /// The level of INTx.
    pub fn level(&self) -> bool {
        self.level.load(SeqCst)
    }

    /// PME_En and PME_Status.
    pub fn pme(&self) -> (bool, bool) {
        *self.pme.lock().expect("pme")
    }

    /// Messages by MSI since the last call.
    pub fn take_messages(&self) -> u64 {
        self.messages.swap(0, SeqCst)
    }

    /// What began to wait for its time since the last call, in order.
    pub fn take_delayed(&self) -> Vec<Through> {
        std::mem::take(&mut *self.delayed.lock().expect("delayed"))
    }

    /// Vectors of messages by MSI-X since the last call, in order.
    pub fn take_vectors(&self) -> Vec<u16> {
        std::mem::take(&mut *self.vectors.lock().expect("vectors"))
    }
}

impl Interrupts for Pin {
    fn set_line(&self, level: bool) {
        if self.level.swap(level, SeqCst) != level {
            self.signals.fetch_add(1, SeqCst);
            self.rises.fetch_add(level.into(), SeqCst);
        }
    }

    fn set_pme(&self, pme: model::Pme) {
        *self.pme.lock().expect("pme") = (pme.enabled, pme.status);
    }

    fn msi(&self, vector: u16) {
        assert_eq!(vector, 0);
        self.signals.fetch_add(1, SeqCst);
        self.messages.fetch_add(1, SeqCst);
    }

    fn msix(&self, vector: u16) {
        self.signals.fetch_add(1, SeqCst);
        self.vectors.lock().expect("vectors").push(vector);
    }

    fn delayed(&self, by: Through) {
        self.delayed.lock().expect("delayed").push(by);
    }
}

/// Interrupts and a timer that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Interrupts for Silent {
    fn set_line(&self, _: bool) {}
    fn msi(&self, _: u16) {}
    fn msix(&self, _: u16) {}
}

impl model::Timer for Silent {
    fn arm(&self, _: Option<model::Nanos>) {}
}

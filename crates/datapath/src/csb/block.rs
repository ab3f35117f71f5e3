//! Whether there is a page, whether the guest wants it, and what it wants to hear of.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ::csb::at;
use guest_mem::View;
use parking_lot::Mutex;

use crate::Nanos;
use crate::counters::count;
use crate::csb::page::CsbPage;

/// What the registers and the worker know of the block.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Block {
    /// There is a page. Changed under the lock; read first, on every path.
    set: AtomicBool,
    /// The guest wanted the block when it was last asked.
    on: AtomicBool,
    /// Interrupts were enabled: the guest is to be asked what it wants to hear of.
    ask: AtomicBool,
    /// The operator has switched it on for this NIC.
    pub offered: bool,
    /// The longest time the transmitter polls before it sleeps.
    pub most_poll: Nanos,
    base: Mutex<CsbBase>,
}

/// The registers. There is a page while the low half is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsbBase {
    /// Low half of its address.
    pub low: u32,
    /// High half.
    pub high: u32,
    /// Counts changes: what was said in a page that was given before counts no more.
    pub epoch: u32,
}

impl CsbBase {
    fn page(&self) -> Option<u64> {
        (self.low != 0).then_some(u64::from(self.high) << 32 | u64::from(self.low))
    }
}

/// The interrupt logic of a NIC: it tells the guest of sent and of received frames only if that wants to hear of them. What
/// it is told here concerns these alone.
pub trait Gate {
    /// The guest has a block: it is asked from now on. It wants to hear of all.
    fn gate(&self);
    /// It has none any more; what it was spared it hears now.
    fn ungate(&self);
    /// As [`Gate::ungate`], and there is nothing to look into.
    fn forget(&self);
    /// What it wants to hear of now, whatever it said before.
    fn regate(&self, sent: bool, received: bool);
    /// Whether something is not told because it did not want to hear of it.
    fn is_muffled(&self) -> bool;
}

impl Block {
    /// One that is switched on or not, with the longest time that the transmitter polls.
    pub fn new(offered: bool, most_poll: Nanos) -> Self {
        Self {
            offered,
            most_poll,
            ..Self::default()
        }
    }

    /// Whether there may be a page to look at: one load, for the paths that matter.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Whether the guest wanted the block when it was last asked.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The registers.
    pub fn base(&self) -> CsbBase {
        *self.base.lock()
    }

    fn change(&self, change: impl FnOnce(&mut CsbBase)) {
        let mut base = self.base.lock();
        change(&mut base);
        base.epoch = base.epoch.wrapping_add(1);
        self.set.store(base.low != 0, Ordering::Release);
    }

    /// The low half of the address was written.
    pub fn write_low(&self, value: u32, gate: &impl Gate) {
        self.change(|base| base.low = value);
        self.gone(gate);
    }

    /// The high half was written. Between two addresses there is no page.
    pub fn write_high(&self, value: u32, gate: &impl Gate) {
        if self.base.lock().high != value {
            self.set_base((0, value), gate);
        }
    }

    /// Low and high half as after power-up, or as they were saved.
    pub fn set_base(&self, (low, high): (u32, u32), gate: &impl Gate) {
        self.change(|base| {
            base.low = low;
            base.high = high;
        });
        self.gone(gate);
    }

    /// The page is another now, or none: what was said in it is forgotten.
    fn gone(&self, gate: &impl Gate) {
        self.on.store(false, Ordering::Release);
        self.ask.store(false, Ordering::Release);
        gate.forget();
    }

    /// The page, if there is one in reach. One that is not is given up, and counted as `unmapped`. Ask only for a NIC that
    /// may do DMA: what the page says counts when it may again.
    #[cold]
    pub fn page<'v>(
        &self,
        view: &'v View<'_>,
        gate: &impl Gate,
        unmapped: &AtomicU64,
    ) -> Option<CsbPage<'v>> {
        let base = self.base();
        if let Some(words) = view.words(base.page()?, ::csb::PAGE as u32) {
            return Some(CsbPage {
                words,
                epoch: base.epoch,
            });
        }
        let mut now = self.base.lock();
        // Unless the driver has given another meanwhile.
        if *now == base {
            now.low = 0;
            self.set.store(false, Ordering::Release);
            drop(now);
            count(unmapped, 1);
            self.gone(gate);
        }
        None
    }

    /// Whether the guest wants the block now.
    pub fn wants(&self, page: &CsbPage<'_>, gate: &impl Gate) -> bool {
        let on = page.load(at::GUEST_CSB_ON) != 0;
        if on != self.is_on() {
            if on {
                self.on.store(true, Ordering::Release);
                gate.gate();
            } else if self.on.swap(false, Ordering::AcqRel) {
                // Interrupts are as without.
                gate.ungate();
            }
        }
        on
    }

    /// Interrupts were enabled while a cause stood that the guest had not wanted to hear of: it may now, and
    /// the next turn asks it. Whether there is something to ask.
    pub fn unmasked(&self, gate: &impl Gate) -> bool {
        let ask = self.is_on() && gate.is_muffled();
        if ask {
            self.ask.store(true, Ordering::Release);
        }
        ask
    }

    /// Asks, if that is due.
    pub fn ask(&self, page: &CsbPage<'_>, gate: &impl Gate) {
        if self.ask.load(Ordering::Relaxed) && self.ask.swap(false, Ordering::AcqRel) {
            let sent = page.wanted(at::GUEST_NEED_TXKICK);
            let received = page.load(at::GUEST_NEED_RXKICK) != 0;
            gate.regate(sent, received);
        }
    }
}

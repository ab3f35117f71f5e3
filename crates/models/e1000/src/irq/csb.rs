//! The Communication Status Block and interrupts: whether there is a page, whether the guest wants it, and what
//! it wants to hear of.

use std::sync::atomic::Ordering;

use csb::at;
use datapath::counters::count;
use guest_mem::View;
use model::Env;

use crate::core::chip::Chip;
use crate::core::csb::CsbPage;
use crate::irq::{RECEIVED, SENT};

impl Chip {
    /// CSBAL was written.
    pub(crate) fn write_csbal(&self, env: &Env, value: u32) {
        self.csb.change(|base| base.low = value);
        self.csb_gone(env);
    }

    /// CSBAH was written. Between two addresses there is no page.
    pub(crate) fn write_csbah(&self, env: &Env, value: u32) {
        if self.csb.base.lock().high != value {
            self.csb.change(|base| {
                base.low = 0;
                base.high = value;
            });
            self.csb_gone(env);
        }
    }

    /// Both as after power-up, or as they were saved.
    pub(crate) fn set_csb(&self, env: &Env, low: u32, high: u32) {
        self.csb.change(|base| {
            base.low = low;
            base.high = high;
        });
        self.csb_gone(env);
    }

    /// The page is another now, or none: what was said in it is forgotten.
    fn csb_gone(&self, env: &Env) {
        self.csb.on.store(false, Ordering::Release);
        self.csb.ask.store(false, Ordering::Release);
        self.irq.lock().forget_csb(env);
    }

    /// The guest does not want the block: interrupts are as without.
    fn csb_off(&self, env: &Env) {
        if self.csb.on.swap(false, Ordering::AcqRel) {
            self.irq.lock().ungate(env);
        }
    }

    /// The page, if there is one in reach.
    #[inline]
    pub(crate) fn csb_page<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<CsbPage<'v>> {
        if !self.csb.is_set() {
            return None;
        }
        self.find_csb_page(env, view)
    }

    #[cold]
    fn find_csb_page<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<CsbPage<'v>> {
        // A device that may not do DMA does not; what the page says counts when it may again.
        if !self.bus_master.load(Ordering::Acquire) {
            return None;
        }
        let base = *self.csb.base.lock();
        if let Some(words) = view.words(base.page()?, csb::PAGE as u32) {
            return Some(CsbPage {
                words,
                epoch: base.epoch,
            });
        }
        let mut now = self.csb.base.lock();
        // Unless the driver has given another meanwhile.
        if *now == base {
            now.low = 0;
            self.csb.set.store(false, Ordering::Release);
            drop(now);
            count(&self.counters.csb_unmapped, 1);
            self.csb_gone(env);
        }
        None
    }

    /// Whether the guest wants the block now.
    pub(crate) fn csb_wants(&self, env: &Env, page: &CsbPage<'_>) -> bool {
        let on = page.load(at::GUEST_CSB_ON) != 0;
        if on != self.csb.is_on() {
            if on {
                self.csb.on.store(true, Ordering::Release);
                self.irq.lock().gate(env);
            } else {
                self.csb_off(env);
            }
        }
        on
    }

    /// IMS was written while a cause stood that the guest had not wanted to hear of: it may now, and
    /// the next turn asks it. Whether there is something to ask.
    pub(crate) fn csb_unmasked(&self) -> bool {
        let ask = self.csb.is_on() && self.irq.lock().is_muffled();
        if ask {
            self.csb.ask.store(true, Ordering::Release);
        }
        ask
    }

    pub(crate) fn csb_ask(&self, env: &Env, page: &CsbPage<'_>) {
        if self.csb.ask.load(Ordering::Relaxed) && self.csb.ask.swap(false, Ordering::AcqRel) {
            let mut wanted = 0;
            if page.wanted(at::GUEST_NEED_TXKICK) {
                wanted |= SENT;
            }
            if page.load(at::GUEST_NEED_RXKICK) != 0 {
                wanted |= RECEIVED;
            }
            self.irq.lock().regate(env, wanted);
        }
    }
}

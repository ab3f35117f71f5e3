//! The Communication Status Block and interrupts: whether there is a page, whether the guest wants it, and what
//! it wants to hear of.

use std::sync::atomic::Ordering;

use datapath::csb::{CsbPage, Gate};
use guest_mem::View;
use model::Env;

use crate::core::chip::Chip;
use crate::irq::{RECEIVED, SENT};
use crate::regs as r;

/// The interrupt logic, as the block sees it.
struct Gated<'g>(&'g Chip, &'g Env);

impl Gate for Gated<'_> {
    fn gate(&self) {
        self.0.irq.lock().gate(self.1);
    }

    fn ungate(&self) {
        self.0.irq.lock().ungate(self.1);
    }

    fn forget(&self) {
        self.0.irq.lock().forget_csb(self.1);
    }

    fn regate(&self, sent: bool, received: bool) {
        let sent = if sent { SENT } else { 0 };
        let received = if received { RECEIVED } else { 0 };
        self.0.irq.lock().regate(self.1, sent | received);
    }

    fn is_muffled(&self) -> bool {
        self.0.irq.lock().is_muffled()
    }
}

impl Chip {
    /// CSBAL was written.
    pub(crate) fn write_csbal(&self, env: &Env, value: u32) {
        self.csb.write_low(value, &Gated(self, env));
    }

    /// CSBAH was written.
    pub(crate) fn write_csbah(&self, env: &Env, value: u32) {
        self.csb.write_high(value, &Gated(self, env));
    }

    /// Both as after power-up, or as they were saved.
    pub(crate) fn set_csb(&self, env: &Env, low: u32, high: u32) {
        self.csb.set_base((low, high), &Gated(self, env));
    }

    /// The page, if there is one in reach.
    #[inline]
    pub(crate) fn csb_page<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<CsbPage<'v>> {
        // A device that may not do DMA does not.
        if !self.csb.is_set() || !self.bus_master.load(Ordering::Acquire) {
            return None;
        }
        self.find_csb_page(env, view)
    }

    #[cold]
    fn find_csb_page<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<CsbPage<'v>> {
        let unmapped = &self.counters.csb_unmapped;
        self.csb.page(view, &Gated(self, env), unmapped)
    }

    /// Whether the guest wants the block now.
    pub(crate) fn csb_wants(&self, env: &Env, page: &CsbPage<'_>) -> bool {
        self.csb.wants(page, &Gated(self, env))
    }

    /// IMS was written. Whether there is something to ask the guest.
    pub(crate) fn csb_unmasked(&self, env: &Env) -> bool {
        self.csb.unmasked(&Gated(self, env))
    }

    /// Tells a guest that wants the block where the rings stand.
    pub(crate) fn csb_stands(&self, env: &Env) {
        let view = env.memory.view();
        if let Some(page) = self.csb_page(env, &view)
            && self.csb_wants(env, &page)
        {
            page.stand((self.file.get(r::TDH), self.file.get(r::RDH)));
        }
    }

    pub(crate) fn csb_ask(&self, env: &Env, page: &CsbPage<'_>) {
        self.csb.ask(page, &Gated(self, env));
    }
}

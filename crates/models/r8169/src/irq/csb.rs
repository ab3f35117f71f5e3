//! The Communication Status Block and interrupts: what the guest wants to hear of.

use std::sync::atomic::Ordering;

use datapath::csb::{CsbPage, Gate};
use guest_mem::View;
use model::{Env, Nanos};

use crate::core::chip::Chip;
use crate::core::irq::Irq;
use crate::irq::{RECEIVED, SENT};

impl Irq {
    /// Whether the guest wants to hear of these causes, if it has a block.
    pub(super) fn wants(&mut self, about: u16, wanted: Option<bool>) {
        if let (Some(gate), Some(wanted)) = (&mut self.gate, wanted) {
            *gate = if wanted {
                *gate | about
            } else {
                *gate & !about
            };
        }
    }

    /// What there is to tell.
    pub(super) fn open(&self) -> u16 {
        let told = self.isr & self.imr;
        match self.gate {
            None => told,
            Some(gate) => told & (gate | !(SENT | RECEIVED)),
        }
    }

    fn set_gate(&mut self, env: &Env, gate: Option<u16>) {
        self.gate = gate;
        self.apply(env);
    }

    /// Has the transmitter look into the guest's block again, at `at` or when it was to already.
    pub(crate) fn set_second_look(&mut self, env: &Env, at: Nanos) {
        self.second.get_or_insert(at);
        self.arm(env);
    }
}

/// The interrupt logic, as the block sees it.
struct Gated<'g>(&'g Chip, &'g Env);

impl Gate for Gated<'_> {
    fn gate(&self) {
        self.0.irq.lock().set_gate(self.1, Some(SENT | RECEIVED));
    }

    fn ungate(&self) {
        self.0.irq.lock().set_gate(self.1, None);
    }

    fn forget(&self) {
        let mut irq = self.0.irq.lock();
        irq.second = None;
        irq.set_gate(self.1, None);
    }

    fn regate(&self, sent: bool, received: bool) {
        let sent = if sent { SENT } else { 0 };
        let received = if received { RECEIVED } else { 0 };
        let mut irq = self.0.irq.lock();
        if irq.gate.is_some() {
            irq.set_gate(self.1, Some(sent | received));
        }
    }

    fn is_muffled(&self) -> bool {
        let irq = self.0.irq.lock();
        irq.isr & irq.imr != 0 && !irq.raised && irq.open() == 0
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
        if !self.csb.is_set() || !self.awake.load(Ordering::Acquire) {
            return None;
        }
        self.find_csb_page(env, view)
    }

    /// The page, if the guest wants it now.
    #[inline]
    pub(crate) fn csb_wanted<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<CsbPage<'v>> {
        let page = self.csb_page(env, view)?;
        self.csb_wants(env, &page).then_some(page)
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

    /// IMR was written. Whether there is something to ask the guest.
    pub(crate) fn csb_unmasked(&self, env: &Env) -> bool {
        self.csb.unmasked(&Gated(self, env))
    }

    /// Tells a guest that wants the block where the rings stand.
    pub(crate) fn csb_stands(&self, env: &Env, heads: (u32, u32)) {
        let view = env.memory.view();
        if let Some(page) = self.csb_wanted(env, &view) {
            page.stand(heads);
        }
    }

    pub(crate) fn csb_ask(&self, env: &Env, page: &CsbPage<'_>) {
        self.csb.ask(page, &Gated(self, env));
    }
}

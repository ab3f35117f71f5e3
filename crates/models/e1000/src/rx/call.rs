//! One call of the receiver: what it has looked up, and its parts.

use guest_mem::View;
use intel::Ring;
use intel::flow::RFCE;
use intel::rx::FrameSettings;
pub(crate) use intel::rx::Outcome;
use model::Env;

use crate::core::chip::Chip;
use crate::core::rx_queue::{Account, RxGuard};
use crate::filter::address as filter;
use crate::regs as r;
use crate::regs::bits::ctrl;
use crate::rx::counts::Counts;
use crate::rx::csb::RxPage;
use crate::rx::plan::{Plan, Run};
use crate::rx::writer::Writer;

/// Times in one call that buffers given through a CSB are taken up in the last moment.
pub(crate) const ROUNDS: u32 = 4;

/// Where frames go that find no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Into the packet FIFO, as on a wire, which keeps nothing.
    IntoFifo,
    /// Nowhere: their sender keeps them.
    Left,
}

/// What registers and sender say, read once each time the lock is taken.
pub(crate) struct Call<'a, 'v> {
    pub chip: &'a Chip,
    /// The guest's CSB.
    pub page: Option<RxPage<'v>>,
    pub excess: Excess,
    /// Frames still to come in this call.
    pub expected: usize,
    pub rctl: u32,
    pub rxcsum: u32,
    pub rsrpd: usize,
    /// CTRL.RFCE: pause frames are recognised.
    pub obeys: bool,
    /// Tags and lengths.
    pub frames: FrameSettings,
}

/// One call's worth of receiving.
pub(crate) struct Rx<'a, 'v> {
    pub call: Call<'a, 'v>,
    pub plan: Plan<'v>,
    pub writer: Writer<'v>,
    pub counts: Counts,
}

/// Descriptors of `ring` that are not given out.
pub(crate) fn unused(state: &mut RxGuard<'_>, ring: &Ring) -> u32 {
    if state.is_out() && state.is_full() {
        0
    } else {
        ring.available().saturating_sub(state.leased)
    }
}

impl<'a, 'v> Call<'a, 'v> {
    #[inline]
    pub(crate) fn new(chip: &'a Chip, page: Option<RxPage<'v>>) -> Self {
        Call {
            chip,
            page,
            excess: Excess::IntoFifo,
            expected: 1,
            rctl: 0,
            rxcsum: 0,
            rsrpd: 0,
            obeys: false,
            frames: FrameSettings {
                vet: 0,
                strip_vlan: false,
                max_len: 0,
                max_tagged: 0,
            },
        }
    }

    /// Looks at the registers, with the lock just taken.
    pub(crate) fn read(&mut self) {
        let file = &self.chip.file;
        let ctrl = file.get(r::CTRL);
        self.rctl = file.get(r::RCTL);
        self.rxcsum = file.get(r::RXCSUM);
        self.rsrpd = file.get(r::RSRPD) as usize;
        self.obeys = ctrl & RFCE != 0;
        let longest = filter::max_len(self.rctl);
        self.frames = FrameSettings {
            vet: file.get(r::VET) as u16,
            strip_vlan: ctrl & ctrl::VME != 0,
            max_len: longest,
            max_tagged: longest,
        };
    }
}

impl<'a, 'v> Rx<'a, 'v> {
    /// One whose descriptors are wherever [`Rx::begin`] finds them.
    #[inline(always)]
    pub(crate) fn new(chip: &'a Chip, view: &'v View<'v>, page: Option<RxPage<'v>>) -> Self {
        Rx {
            call: Call::new(chip, page),
            plan: Plan::new(),
            writer: Writer::new(view),
            counts: Counts::default(),
        }
    }

    /// The ring's tail is where the guest's CSB has it, if there is one.
    #[inline]
    pub(crate) fn take_tail(&self) {
        if let Some(page) = &self.call.page {
            page.take_tail(self.call.chip);
        }
    }

    /// Whether something is `short` of buffers, which the guest's CSB shows. `true`: some have come, and
    /// all is ready for another round.
    pub(crate) fn settle(&mut self, env: &Env, state: &mut RxGuard<'_>, short: bool) -> bool {
        let Some(page) = &self.call.page else {
            return false;
        };
        let again = page.settle(self.call.chip, env, &mut state.csb, short);
        if again {
            self.counts.account = Account::default();
        }
        again
    }

    /// Looks at registers and ring, with the lock just taken.
    pub(crate) fn begin(&mut self, state: &mut RxGuard<'_>, ring: Ring) {
        let unused = unused(state, &ring);
        let free = unused.min(self.call.chip.allowance());
        let ring = Ring {
            head: ring.behind(state.leased),
            ..ring
        };
        self.writer.begin(ring, free, unused - free);
        self.call.read();
        self.plan.run = Run::default();
    }

    /// Gives the storage back. Inlined, or all of it would be copied to its end.
    #[inline(always)]
    pub(crate) fn end(self) {
        let Rx { plan, writer, .. } = self;
        plan.end();
        writer.descs.end();
    }
}

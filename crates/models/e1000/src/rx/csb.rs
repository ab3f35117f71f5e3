//! The receiver and the Communication Status Block: when the guest is to call for buffers.

use csb::at;
use datapath::counters::count_alone;
use datapath::csb::CsbPage;
use guest_mem::View;
use intel::{Ring, SIZE};
use model::{Env, Nanos};

use crate::core::chip::Chip;
use crate::core::csb::RxCsb;
use crate::core::kept;
use crate::core::rx_queue::RING;
use crate::regs as r;

/// A receiver that is out of buffers looks by itself so often, and this long after each other, for a guest that is behind
/// and gives way to its programs: it comes back within that time, and need not call for what it gives back.
const LOOKS: u32 = 8;
const LOOK: Nanos = 1_000_000;

/// The page in one call of the receiver, and whether the guest wants it.
#[derive(Clone, Copy)]
pub(crate) struct RxPage<'v> {
    page: CsbPage<'v>,
    on: bool,
}

impl Chip {
    #[inline]
    pub(crate) fn rx_page<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<RxPage<'v>> {
        let page = self.csb_page(env, view)?;
        let on = self.csb_wants(env, &page);
        Some(RxPage { page, on })
    }
}

impl<'v> RxPage<'v> {
    /// The page, if the guest wants it.
    pub(crate) fn wanted(&self) -> Option<&CsbPage<'v>> {
        Some(&self.page).filter(|_| self.on)
    }

    /// Takes the guest's word for where the ring ends; the register follows. Under the receive lock.
    pub(crate) fn take_tail(&self, chip: &Chip) {
        let len = chip.file.get(r::RDLEN) / SIZE as u32;
        let tail = self
            .wanted()
            .and_then(|page| page.tail(&chip.counters.csb_bad_tail, at::GUEST_RDT, len));
        if let Some(tail) = tail {
            chip.file.set(r::RDT, tail);
            chip.note_word(kept::RDT, tail);
        }
    }

    /// Something waits for buffers (`short`), or nothing does: the guest is to call, or not. Under the
    /// receive lock. Whether buffers have come meanwhile.
    pub(crate) fn settle(&self, chip: &Chip, env: &Env, csb: &mut RxCsb, short: bool) -> bool {
        let ring = Ring::read(&chip.file, &RING).filter(|_| short);
        let news = || {
            let (page, ring) = self.wanted().zip(ring)?;
            let tail = page.tail(&chip.counters.csb_bad_tail, at::GUEST_RDT, ring.len)?;
            Some(tail != ring.tail)
        };
        let ask = ring.map(|ring| (ring.tail, ring.available(), ring.len));
        let settled = (csb.rules).settle(&self.page, ask, || news().unwrap_or(false));
        if ask.is_none() {
            return false;
        }
        count_alone(&chip.counters.csb_rx_sleeps, settled.asks.into());
        if settled.news || settled.asks {
            csb.looks = 0;
        }
        // So often for each place: a NIC at rest is at rest.
        if csb.looks < LOOKS {
            let look = env.clock.now() + LOOK;
            let set = chip.irq.lock().set_second_look(env, look);
            csb.looks += u32::from(set);
        }
        settled.news
    }
}

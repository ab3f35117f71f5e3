//! What a frame is to the receiver, and whether it gets in (manual §3.2.1).

use datapath::counters::count;
use frame::Frame;
use intel::rx::Accepted;

use crate::core::flow;
use crate::filter::address::{FILTERS, MAX_LONG};
use crate::regs::bits::rctl;
use crate::rx::call::Call;
use crate::rx::counts::Counts;

impl Call<'_, '_> {
    /// Looks at the first bytes of a frame.
    pub(crate) fn look(&self, frame: &Frame<'_>) -> Accepted {
        Accepted::of(frame, &self.frames, |head| match self.obeys {
            true => flow::control_frame(&self.chip.file, head),
            false => None,
        })
    }

    /// "Bad packets that pass the filter function are stored", as far as the chip can hold them.
    pub(crate) fn stores_bad(&self, accepted: &Accepted) -> bool {
        self.rctl & rctl::SBP != 0 && accepted.on_wire <= MAX_LONG
    }
}

impl Counts {
    /// Passes a frame that has just come through the filters; counts it if it goes no further.
    pub(crate) fn accept(&mut self, call: &Call<'_, '_>, frame: &Frame<'_>) -> Option<Accepted> {
        let (file, counters, rctl) = (&call.chip.file, &call.chip.counters, call.rctl);
        let accepted = call.look(frame);
        count(&counters.rx_runt, accepted.runt.into());
        if !Accepted::has_address(frame) {
            return None;
        }
        let tally = &mut self.account.tally;
        if !accepted.obey(rctl, tally, &mut self.pause) {
            return None;
        }
        let address = |dst| FILTERS.address(file, rctl, dst);
        if !accepted.passes(rctl, address, |tci| FILTERS.vlan(file, rctl, tci)) {
            self.account.filtered += 1;
            return None;
        }
        if !accepted.bad {
            return Some(accepted);
        }
        count(&counters.rx_oversize, (!accepted.runt).into());
        accepted.count_bad(tally);
        if call.stores_bad(&accepted) {
            return Some(accepted);
        }
        tally.total(accepted.on_wire);
        None
    }
}

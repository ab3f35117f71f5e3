//! Which frames get in (§7.1.1, §7.1.2).

use frame::Frame;
use intel::rx::{Accepted, FrameSettings};

use crate::core::function::{FunctionKind, count};
use crate::filter::address::FILTERS;
use crate::regs as r;
use crate::regs::settings::Settings;
use crate::rx::call::Call;
use crate::rx::counts::Counts;

impl Call<'_> {
    /// Looks at the first bytes of a frame.
    pub(crate) fn look(&self, frame: &Frame<'_>) -> Accepted {
        let settings = FrameSettings {
            vet: self.settings.vet,
            strip_vlan: self.settings.strip_vlan,
            max_len: self.settings.max_len,
            max_tagged: self.settings.max_tagged,
        };
        Accepted::of(frame, &settings, |head| match self.obeys {
            true => self.function.control_frame(head),
            false => None,
        })
    }
}

impl Counts {
    /// Passes a frame through the filters; counts it if it goes no further.
    pub(crate) fn accept(&mut self, call: &Call<'_>, frame: &Frame<'_>) -> Option<Accepted> {
        let counters = &call.function.counters;
        let mut accepted = call.look(frame);
        count(&counters.rx_runt, accepted.runt.into());
        if !Accepted::has_address(frame) {
            return None;
        }
        if let (FunctionKind::Pf, None) = (&call.function.kind, call.settings.pools) {
            let file = &call.function.file;
            let rctl = file.get(r::RCTL);
            if !accepted.obey(rctl, &mut self.tally, &mut self.pause) {
                return None;
            }
            let address = |dst| FILTERS.address(file, rctl, dst);
            if !accepted.passes(rctl, address, |tci| FILTERS.vlan(file, rctl, tci)) {
                count(&counters.rx_filtered, 1);
                return None;
            }
            accepted.inexact = FILTERS.inexact(file, rctl, accepted.dst);
        }
        if !accepted.bad {
            return Some(accepted);
        }
        count(&counters.rx_oversize, (!accepted.runt).into());
        accepted.count_bad(&mut self.tally);
        // "Bad packets that pass the filter function are stored", as far as the chip can hold them.
        if call.settings.store_bad && accepted.on_wire <= Settings::LONGEST {
            return Some(accepted);
        }
        self.tally.total(accepted.on_wire);
        None
    }
}

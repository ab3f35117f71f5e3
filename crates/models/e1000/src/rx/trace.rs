//! Whether a frame would get in, without letting it in.

use frame::Frame;
use intel::Ring;
use intel::rx::trace::{self, Tell};

use crate::core::chip::Chip;
use crate::core::rx_queue::RING;
use crate::filter::address::FILTERS;
use crate::rx::call::Call;

/// Takes a frame through what stands before the ring, as [`Counts::accept`](crate::rx::counts::Counts::accept).
pub(crate) fn trace(chip: &Chip, frame: &Frame<'_>, tell: Tell<'_>) -> bool {
    if chip.loopback() {
        tell(
            "lost: the receiver hears its own transmitter only (RCTL.LBM)".into(),
            Some("rx_disabled"),
        );
        return false;
    }
    if !chip.rx_enabled() {
        tell(
            "lost: the receiver is off (RCTL.EN, the link, or PCI bus mastering)".into(),
            Some("rx_disabled"),
        );
        return false;
    }
    let Some(ring) = Ring::read(&chip.file, &RING) else {
        tell(
            "lost: there is no valid receive ring (RDBAL, RDLEN)".into(),
            Some("rx_bad_ring"),
        );
        return false;
    };
    let mut call = Call::new(chip, None);
    call.read();
    let (accepted, rctl) = (call.look(frame), call.rctl);
    trace::begins(rctl, frame, &accepted, tell)
        && trace::passes(&FILTERS, (&chip.file, rctl), &accepted, tell)
        && trace::length(&accepted, call.stores_bad(&accepted), tell)
        && trace::room(&ring, tell)
}

//! Whether a frame would get in, without letting it in.

use frame::Frame;
use intel::Ring;
use intel::rx::Accepted;

use crate::core::chip::Chip;
use crate::core::rx_queue::RING;
use crate::filter::address::FILTERS;
use crate::rx::call::Call;

/// Is told each decision, and the counter that goes with it.
type Tell<'a> = &'a mut dyn FnMut(String, Option<&'static str>);

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
    let accepted = call.look(frame);
    if !Accepted::has_address(frame) {
        tell(
            "lost: it is too short for an address".into(),
            Some("rx_runt"),
        );
        return false;
    }
    if let Some(control) = accepted.control {
        tell(
            "is flow control, which the receiver obeys (CTRL.RFCE)".into(),
            None,
        );
        if control.is_discarded(call.rctl) {
            tell("goes no further (RCTL.DPF)".into(), None);
            return false;
        }
    }
    if !filters(&call, &accepted, tell) {
        return false;
    }
    if accepted.bad {
        let counter = if accepted.runt {
            "rx_runt"
        } else {
            "rx_oversize"
        };
        let stored = call.stores_bad(&accepted);
        let on_wire = accepted.on_wire;
        match stored {
            true => tell(
                format!(
                    "{on_wire} bytes are no legal length; it is stored all the same (RCTL.SBP)"
                ),
                Some(counter),
            ),
            false => tell(
                format!("lost: {on_wire} bytes are no legal length (RCTL.LPE)"),
                Some(counter),
            ),
        }
        if !stored {
            return false;
        }
    }
    room(&ring, tell)
}

/// Address and VLAN.
fn filters(call: &Call<'_, '_>, accepted: &Accepted, tell: Tell<'_>) -> bool {
    let (file, rctl) = (&call.chip.file, call.rctl);
    let mut why = None;
    let passes = accepted.passes(
        rctl,
        |dst| {
            let passes = FILTERS.address(file, rctl, dst);
            if !passes {
                why = Some("no receive address, table or promiscuous mode lets the address in");
            }
            passes
        },
        |tci| FILTERS.vlan(file, rctl, tci),
    );
    match (passes, why) {
        (true, _) if FILTERS.inexact(file, rctl, accepted.dst) => {
            tell("only the multicast table lets it in (MTA)".into(), None);
        }
        (true, _) => tell("the address filter lets it in".into(), None),
        (false, Some(why)) => tell(format!("lost: {why}"), Some("rx_filtered")),
        (false, None) => tell(
            "lost: the VLAN filter does not let it in (VFTA)".into(),
            Some("rx_filtered"),
        ),
    }
    passes
}

/// Descriptors that are free now.
fn room(ring: &Ring, tell: Tell<'_>) -> bool {
    let free = ring.available();
    if free == 0 {
        tell(
            "no receive descriptor is free now: its sender waits, or it is lost".into(),
            Some("rx_missed"),
        );
        return false;
    }
    tell(
        format!("received: {free} descriptors are free"),
        Some("rx_frames"),
    );
    true
}

//! What a receiver would decide about a frame, told and not done.

use frame::Frame;
use regs::File;

use super::Accepted;
use crate::Ring;
use crate::filter::Filters;

/// Is told each decision, and the counter that goes with it.
pub type Tell<'a> = &'a mut dyn FnMut(String, Option<&'static str>);

/// What stands before the address filter: an address, and flow control. `false`: it goes no further.
pub fn begins(rctl: u32, frame: &Frame<'_>, accepted: &Accepted, tell: Tell<'_>) -> bool {
    if !Accepted::has_address(frame) {
        tell(
            "lost: it is too short for an address".into(),
            Some("rx_runt"),
        );
        return false;
    }
    let Some(control) = accepted.control else {
        return true;
    };
    tell(
        "is flow control, which the receiver obeys (CTRL.RFCE)".into(),
        None,
    );
    let discarded = control.is_discarded(rctl);
    if discarded {
        tell("goes no further (RCTL.DPF)".into(), None);
    }
    !discarded
}

/// Address and VLAN.
pub fn passes(
    filters: &Filters,
    (file, rctl): (&File, u32),
    accepted: &Accepted,
    tell: Tell<'_>,
) -> bool {
    let mut why = None;
    let passes = accepted.passes(
        rctl,
        |dst| {
            let passes = filters.address(file, rctl, dst);
            if !passes {
                why = Some("no receive address, table or promiscuous mode lets the address in");
            }
            passes
        },
        |tci| filters.vlan(file, rctl, tci),
    );
    match (passes, why) {
        (true, _) if filters.inexact(file, rctl, accepted.dst) => {
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

/// A length that is not legal; `stored`: it is kept all the same.
pub fn length(accepted: &Accepted, stored: bool, tell: Tell<'_>) -> bool {
    if !accepted.bad {
        return true;
    }
    let counter = if accepted.runt {
        "rx_runt"
    } else {
        "rx_oversize"
    };
    let what = match stored {
        true => "it is stored all the same (RCTL.SBP)",
        false => "lost (RCTL.LPE)",
    };
    let on_wire = accepted.on_wire;
    tell(
        format!("{on_wire} bytes are no legal length: {what}"),
        Some(counter),
    );
    stored
}

/// Descriptors that are free now.
pub fn room(ring: &Ring, tell: Tell<'_>) -> bool {
    let free = ring.available();
    if free == 0 {
        tell(
            "no receive descriptor is free now: it waits in the packet FIFO or with its sender, or is lost".into(),
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

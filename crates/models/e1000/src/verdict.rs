//! What the receiver says about checksums (manual §3.2.9, §13.4.47).

use frame::{Frame, l4_intact};
use wire::{Fragment, L3Kind, L4Kind, Layers, Sum};

use crate::bits::{rx_error, rx_status, rxcsum};

/// Bytes copied of a frame whose checksums are to be judged.
const HEADERS: usize = 256;

/// Status and error bits of the checksum offload. One pass over the frame, if TUOFL is set and
/// nobody has vouched for the checksum.
pub(crate) fn verdict(rxcsum: u32, frame: &Frame<'_>) -> (u8, u8) {
    let on = |bit| rxcsum & bit != 0;
    if !on(rxcsum::IPOFL) && !on(rxcsum::TUOFL) {
        return (rx_status::IXSM, 0);
    }
    let mut copy = [0u8; HEADERS];
    let n = frame.copy_to(0, &mut copy);
    let head = &copy[..n];
    let Some((layers, l3)) = Layers::parse(head).and_then(|l| Some((l, l.l3?))) else {
        return (rx_status::IXSM, 0);
    };
    let (mut status, mut errors) = (0, 0);
    if on(rxcsum::IPOFL) && l3.kind == L3Kind::V4 {
        status |= rx_status::IPCS;
        let header = head.get(l3.offset..l3.offset + l3.len).unwrap_or(&[]);
        if !Sum::of(header).is_intact() {
            errors |= rx_error::IPE;
        }
    }
    let known = layers
        .l4
        .is_some_and(|l4| matches!(l4.kind, L4Kind::Tcp | L4Kind::Udp));
    if on(rxcsum::TUOFL) && known && l3.fragment == Fragment::Whole {
        let notes = frame.notes();
        let intact = if notes.csum.is_some() || notes.csum_valid {
            Some(true)
        } else {
            l4_intact(frame, head, &layers)
        };
        if let Some(intact) = intact {
            status |= rx_status::TCPCS;
            if !intact {
                errors |= rx_error::TCPE;
            }
        }
    }
    if status == 0 {
        status = rx_status::IXSM;
    }
    (status, errors)
}

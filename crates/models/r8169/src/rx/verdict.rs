//! What the receiver says about headers and checksums.

use frame::{Frame, l4_intact};
use wire::{Fragment, L3Kind, L4Kind, Layers, Sum};

use crate::regs::bits::rx;

/// Bytes copied of a frame whose headers are judged.
const HEADERS: usize = 256;

/// The bits of both words of a descriptor. One pass over the frame, unless its sender vouches for the checksum.
pub(super) fn verdict(frame: &Frame<'_>) -> (u32, u32) {
    let mut copy = [0; HEADERS];
    let head: &[u8] = if frame.len() <= frame.head().len() {
        frame.head()
    } else {
        let copied = frame.copy_to(0, &mut copy);
        &copy[..copied]
    };
    let Some((layers, l3)) = Layers::parse(head).and_then(|all| Some((all, all.l3?))) else {
        return (0, 0);
    };
    let (mut first, second) = match l3.kind {
        L3Kind::V4 => (0, rx::V4),
        L3Kind::V6 => (0, rx::V6),
    };
    if l3.kind == L3Kind::V4 {
        let header = head.get(l3.offset..l3.offset + l3.len).unwrap_or(&[]);
        if !Sum::of(header).is_intact() {
            first |= rx::IP_FAIL;
        }
    }
    let known = match layers.l4.map(|l4| l4.kind) {
        Some(L4Kind::Tcp) => Some((rx::TCP, rx::TCP_FAIL)),
        Some(L4Kind::Udp) => Some((rx::UDP, rx::UDP_FAIL)),
        _ => None,
    };
    let Some((protocol, fail)) = known.filter(|_| l3.fragment == Fragment::Whole) else {
        return (first | rx::IP, second);
    };
    let notes = frame.notes();
    let vouched = notes.csum.is_some() || notes.csum_valid;
    let intact = match vouched {
        true => Some(true),
        false => l4_intact(frame, head, &layers),
    };
    match intact {
        Some(true) => (first | protocol, second),
        Some(false) => (first | protocol | fail, second),
        // It cannot be told: the driver is not to believe that it was.
        None => (first | rx::IP, second),
    }
}

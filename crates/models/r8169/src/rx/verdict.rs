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
    let header = head.get(l3.offset..l3.offset + l3.len).unwrap_or(&[]);
    let kind = match layers.l4.map(|l4| l4.kind) {
        Some(kind) if l3.fragment == Fragment::Whole => kind,
        _ => L4Kind::Other(0),
    };
    let notes = frame.notes();
    let vouched = notes.csum.is_some() || notes.csum_valid;
    let intact = match kind {
        L4Kind::Other(_) => None,
        _ if vouched => Some(true),
        _ => l4_intact(frame, head, &layers),
    };
    match l3.kind {
        L3Kind::V4 => verdict_of(header, kind, intact),
        L3Kind::V6 => (transport(kind, intact), rx::V6),
    }
}

/// The same of a packet over IPv4 with this header, whose transport checksum is right or not, if that can be told.
pub(super) fn verdict_of(header: &[u8], kind: L4Kind, intact: Option<bool>) -> (u32, u32) {
    let right = Sum::of(header).is_intact();
    let ip = if right { 0 } else { rx::IP_FAIL };
    (ip | transport(kind, intact), rx::V4)
}

/// What cannot be told the driver is not to believe that it was: IP is all that is said.
fn transport(kind: L4Kind, intact: Option<bool>) -> u32 {
    let (protocol, fail) = match kind {
        L4Kind::Tcp => (rx::TCP, rx::TCP_FAIL),
        L4Kind::Udp => (rx::UDP, rx::UDP_FAIL),
        L4Kind::Other(_) => return rx::IP,
    };
    match intact {
        Some(true) => protocol,
        Some(false) => protocol | fail,
        None => rx::IP,
    }
}

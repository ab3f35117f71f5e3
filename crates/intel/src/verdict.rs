//! What the receiver says about checksums (manual §3.2.9, §13.4.47).

use frame::{Frame, l4_intact, sum_range};
use wire::{EtherType, Fragment, L3Kind, L4Kind, Layers, SimpleV4, Sum};

/// Bits of RXCSUM that have checksums judged.
pub mod rxcsum {
    /// That of the IPv4 header.
    pub const IPOFL: u32 = 1 << 8;
    /// That of TCP and UDP.
    pub const TUOFL: u32 = 1 << 9;
}

/// Bits of a descriptor's status.
pub mod rx_status {
    /// Nothing was judged.
    pub const IXSM: u8 = 1 << 2;
    /// The checksum of TCP or UDP was.
    pub const TCPCS: u8 = 1 << 5;
    /// That of the IPv4 header was.
    pub const IPCS: u8 = 1 << 6;
}

/// Bits of a descriptor's errors.
pub mod rx_error {
    /// The checksum of TCP or UDP is wrong.
    pub const TCPE: u8 = 1 << 5;
    /// That of the IPv4 header is.
    pub const IPE: u8 = 1 << 6;
}

/// Bytes copied of a frame whose checksums are to be judged.
const HEADERS: usize = 256;

/// Status and error bits of the checksum offload. One pass over the frame, if TUOFL is set and
/// the frame's sender does not vouch for the checksum.
#[inline]
pub fn verdict(rxcsum: u32, frame: &Frame<'_>) -> (u8, u8) {
    if rxcsum & (rxcsum::IPOFL | rxcsum::TUOFL) == 0 {
        return (rx_status::IXSM, 0);
    }
    at_a_glance(rxcsum, frame).unwrap_or_else(|| at_length(rxcsum, frame))
}

/// As [`verdict`], of frames with this type that ask for nothing. `None` where more than the type decides.
#[inline]
pub fn verdict_of_type(rxcsum: u32, kind: u16) -> Option<(u8, u8)> {
    let judged = rxcsum & (rxcsum::IPOFL | rxcsum::TUOFL) != 0;
    let kind = EtherType(kind);
    let decides = !judged || !(kind.is_tag() || kind == EtherType::IPV4 || kind == EtherType::IPV6);
    decides.then_some((rx_status::IXSM, 0))
}

/// As [`verdict`], of whole TCP over IPv4, or else IPv6, whose checksums are written on the way.
#[inline]
pub fn verdict_of_segment(rxcsum: u32, v4: bool) -> (u8, u8) {
    let mut status = 0;
    if rxcsum & rxcsum::IPOFL != 0 && v4 {
        status |= rx_status::IPCS;
    }
    if rxcsum & rxcsum::TUOFL != 0 {
        status |= rx_status::TCPCS;
    }
    match status {
        0 => (rx_status::IXSM, 0),
        status => (status, 0),
    }
}

/// As [`at_length`], for the most frequent packets: whole TCP or UDP over IPv4 without options or tag. `None`
/// for all else.
#[inline]
fn at_a_glance(rxcsum: u32, frame: &Frame<'_>) -> Option<(u8, u8)> {
    let packet = SimpleV4::of(frame.head().first_chunk()?, frame.len())?;
    let notes = frame.notes();
    let vouched = notes.csum.is_some() || notes.csum_valid;
    let sum = |len| sum_range(frame, SimpleV4::ADDRESSES, len).value();
    verdict_of(rxcsum, (&packet, frame.len()), vouched, sum)
}

/// The verdict on a packet of `len` bytes whose sender vouches for its transport checksum or not; `sum` is that of so many
/// bytes from the addresses on. `None` where the headers alone do not say what is covered.
#[inline]
pub fn verdict_of(
    rxcsum: u32,
    (packet, len): (&SimpleV4<'_>, usize),
    vouched: bool,
    sum: impl FnOnce(usize) -> u16,
) -> Option<(u8, u8)> {
    let judged = rxcsum & rxcsum::TUOFL != 0;
    let intact = match judged {
        true if vouched => Some(true),
        true if packet.is_unsummed() => None,
        true => Some(l4_intact_behind(packet, len, sum)?),
        false => None,
    };
    let (mut status, mut errors) = (0, 0);
    if rxcsum & rxcsum::IPOFL != 0 {
        status |= rx_status::IPCS;
        // Ten words in either byte order (RFC 1071 §2 (B)).
        let (words, _) = packet.ip().as_chunks::<4>();
        let sum: u64 = words
            .iter()
            .map(|w| u64::from(u32::from_ne_bytes(*w)))
            .sum();
        if sum == 0 || !sum.is_multiple_of(0xffff) {
            errors |= rx_error::IPE;
        }
    }
    if let Some(intact) = intact {
        status |= rx_status::TCPCS;
        if !intact {
            errors |= rx_error::TCPE;
        }
    }
    if status == 0 {
        status = rx_status::IXSM;
    }
    Some((status, errors))
}

/// Whether the checksum behind an IPv4 header without options is right. `None` where the header alone does
/// not say what it covers.
#[inline]
fn l4_intact_behind(
    packet: &SimpleV4<'_>,
    len: usize,
    covered: impl FnOnce(usize) -> u16,
) -> Option<bool> {
    let span = packet.l4_span()?;
    if span < packet.l4_len || SimpleV4::L4 + span > len {
        return None;
    }
    // The pseudo-header (RFC 9293 §3.1); its addresses stand before the transport's header.
    let mut sum = Sum::ZERO;
    sum.add_word(u16::from(packet.kind.number()));
    sum.add_word(span as u16);
    sum.add_word(covered(SimpleV4::L4 - SimpleV4::ADDRESSES + span));
    Some(sum.is_intact())
}

/// Of any frame, by all its headers.
fn at_length(rxcsum: u32, frame: &Frame<'_>) -> (u8, u8) {
    let on = |bit| rxcsum & bit != 0;
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

#[cfg(test)]
mod tests {
    use frame::Batch;
    use guest_mem::ReadSlice;
    use proptest::prelude::*;
    use wire::Offload;

    use super::*;

    /// IPv4 and TCP or UDP, its header sum right, and then some bytes put there by chance.
    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let noise = proptest::collection::vec((12usize..56, any::<u8>()), 0..3);
        let payload = proptest::collection::vec(any::<u8>(), 34..120);
        let bools = any::<[bool; 3]>();
        let parts = (payload, bools, 4u8..9, noise);
        parts.prop_map(|(mut bytes, [tcp, right, without], words, noise)| {
            bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 90, 1, 2, 0x40, 0, 64, 17]);
            bytes[23] = if tcp { 6 } else { 17 };
            if let Some(offset) = bytes.get_mut(46) {
                *offset = words << 4;
            }
            bytes[24..26].fill(0);
            let sum = Sum::of(&bytes[14..34]).finish().to_be_bytes();
            bytes[24..26].copy_from_slice(&sum);
            let field = if tcp { 50 } else { 40 };
            if right && bytes.len() >= 104 {
                bytes[field..field + 2].fill(0);
                let mut sum = Sum::of(&bytes[26..34]);
                sum.add_word(bytes[23].into());
                sum.add_word(70);
                sum.add(&bytes[34..104]);
                bytes[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
            }
            if without {
                bytes[34..]
                    .iter_mut()
                    .skip(field - 34)
                    .take(2)
                    .for_each(|b| *b = 0);
            }
            for (at, byte) in noise {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes
        })
    }

    #[test]
    fn a_glance_is_enough_for_a_datagram_nobody_vouches_for() {
        let mut bytes = [7; 90];
        bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 66, 1, 2, 0x40, 0, 64, 17]);
        bytes[40..42].fill(0);
        let mut sum = Sum::of(&bytes[26..34]);
        sum.add_word(17);
        sum.add_word(46);
        sum.add(&bytes[34..80]);
        bytes[40..42].copy_from_slice(&sum.finish().to_be_bytes());
        for (at, wrong) in [(85, false), (79, true)] {
            bytes[at] ^= 1;
            let mut batch = Batch::new();
            batch.push_bytes(&bytes);
            batch.end(Offload::NONE);
            let frame = batch.get(0).expect("there");
            let errors = if wrong { rx_error::TCPE } else { 0 };
            let said = at_a_glance(rxcsum::TUOFL, &frame);
            assert_eq!(said, Some((rx_status::TCPCS, errors)));
        }
    }

    #[test]
    fn a_datagram_without_a_checksum_is_not_judged() {
        let mut bytes = [7; 90];
        bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 66, 1, 2, 0x40, 0, 64, 17]);
        bytes[40..42].fill(0);
        let mut batch = Batch::new();
        batch.push_bytes(&bytes);
        batch.end(Offload::NONE);
        let frame = batch.get(0).expect("there");
        let said = at_a_glance(rxcsum::TUOFL, &frame);
        assert_eq!(said, Some((rx_status::IXSM, 0)));
    }

    #[test]
    fn a_glance_is_enough_for_a_segment() {
        let mut bytes = [0; 80];
        bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 66, 1, 2, 0x40, 0, 64, 6]);
        bytes[46] = 0x80;
        let sum = Sum::of(&bytes[14..34]).finish().to_be_bytes();
        bytes[24..26].copy_from_slice(&sum);
        let mut batch = Batch::new();
        batch.push_bytes(&bytes);
        batch.end(Offload {
            csum_valid: true,
            ..Offload::NONE
        });
        let frame = batch.get(0).expect("there");
        let good = rx_status::IPCS | rx_status::TCPCS;
        let both = rxcsum::IPOFL | rxcsum::TUOFL;
        assert_eq!(at_a_glance(both, &frame), Some((good, 0)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2000 }))]
        #[test]
        fn a_glance_says_what_a_long_look_says(
            bytes in frames(), csum_valid: bool, which in 1u32..4
        ) {
            let rxcsum = ((which & 1) * rxcsum::IPOFL) | ((which >> 1) * rxcsum::TUOFL);
            let mut batch = Batch::new();
            batch.push_slice(ReadSlice::from_bytes(&bytes));
            batch.end(Offload { csum_valid, ..Offload::NONE });
            let frame = batch.get(0).expect("there");
            let long = at_length(rxcsum, &frame);
            prop_assert_eq!(at_a_glance(rxcsum, &frame).unwrap_or(long), long);
        }
    }
}

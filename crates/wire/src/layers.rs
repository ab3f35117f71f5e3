//! Where the headers of a frame are.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;
use crate::ethernet::{ETHERNET_HEADER, EtherType, Ethernet, VLAN_TAG};

/// Bytes of headers that are ever looked at: Ethernet, two tags, IPv6 with extensions, TCP with
/// options fit in the shapes any sender in earnest produces.
pub const MAX_HEADERS: usize = 512;

/// IPv6 extension headers walked before giving up.
const MAX_EXTENSIONS: usize = 8;
/// Tags walked before giving up: 802.1ad has two.
const MAX_TAGS: usize = 2;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Which IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L3Kind {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Whether a datagram is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// It is.
    Whole,
    /// Its first part: the L4 header is there, but its checksum covers more.
    First,
    /// A later part: there is no L4 header.
    Later,
}

/// The IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L3 {
    /// Which IP.
    pub kind: L3Kind,
    /// Its first byte in the frame.
    pub offset: usize,
    /// Its length with options or extension headers as far as they could be walked, in bytes.
    pub len: usize,
    /// Bytes of the datagram, this header included, as the header claims. Neither checked against
    /// the frame nor meaningful where a sender leaves lengths to be filled in.
    pub total: usize,
    /// Whether it is whole.
    pub fragment: Fragment,
}

/// Which transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4Kind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Another, by its number (RFC 5237 registry).
    Other(u8),
}

impl L4Kind {
    /// Its protocol number.
    pub const fn number(self) -> u8 {
        match self {
            L4Kind::Tcp => TCP,
            L4Kind::Udp => UDP,
            L4Kind::Other(number) => number,
        }
    }

    /// Where its checksum field is, counted from its header; for TCP and UDP.
    pub const fn checksum_offset(self) -> Option<usize> {
        match self {
            L4Kind::Tcp => Some(16),
            L4Kind::Udp => Some(6),
            L4Kind::Other(_) => None,
        }
    }
}

/// The transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L4 {
    /// Which transport.
    pub kind: L4Kind,
    /// Its first byte in the frame.
    pub offset: usize,
    /// Its length in bytes, TCP options included; 0 for others than TCP and UDP.
    pub len: usize,
}

/// The headers of a frame, found in a copy of its first bytes.
///
/// What lies beyond the copy, or is malformed, is absent; nothing is ever located outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Bytes of the Ethernet header with its tags.
    pub l2_len: usize,
    /// Tag control information of the outer tag.
    pub vlan: Option<u16>,
    /// The type behind the tags.
    pub ether_type: EtherType,
    /// The IP header.
    pub l3: Option<L3>,
    /// The transport header.
    pub l4: Option<L4>,
}

impl Layers {
    /// Looks through `bytes`, the start of a frame; `None` when the Ethernet header is cut short.
    pub fn parse(bytes: &[u8]) -> Option<Layers> {
        let frame = Ethernet::new_checked(bytes).ok()?;
        let mut ether_type = frame.outer_type();
        let mut l2_len = ETHERNET_HEADER;
        for _ in 0..MAX_TAGS {
            if !ether_type.is_tag() {
                break;
            }
            let inner = word(bytes, l2_len + 2)?;
            ether_type = EtherType(inner);
            l2_len += VLAN_TAG;
        }
        let found = match ether_type {
            EtherType::IPV4 => ipv4(bytes, l2_len),
            EtherType::IPV6 => ipv6(bytes, l2_len),
            _ => None,
        };
        let (l3, next) = match found {
            Some((l3, next)) => (Some(l3), next),
            None => (None, None),
        };
        let l4 = match (l3, next) {
            (Some(l3), Some(protocol)) => transport(bytes, l3.offset + l3.len, protocol),
            _ => None,
        };
        Some(Layers {
            l2_len,
            vlan: frame.vlan(),
            ether_type,
            l3,
            l4,
        })
    }

    /// Bytes of all headers found, Ethernet to transport.
    pub fn headers_len(&self) -> usize {
        match (self.l3, self.l4) {
            (_, Some(l4)) => l4.offset + l4.len,
            (Some(l3), None) => l3.offset + l3.len,
            (None, None) => self.l2_len,
        }
    }

    /// The sum over the pseudo-header for `l4_len` bytes of transport header and payload, read
    /// from the same bytes that were parsed. `None` without IP and transport.
    pub fn pseudo_sum(&self, bytes: &[u8], l4_len: usize) -> Option<Sum> {
        let (l3, l4) = (self.l3?, self.l4?);
        let len = u32::try_from(l4_len).ok()?;
        let header = bytes.get(l3.offset..)?;
        Some(match l3.kind {
            L3Kind::V4 => {
                let src: [u8; 4] = *header.get(12..)?.first_chunk()?;
                let dst: [u8; 4] = *header.get(16..)?.first_chunk()?;
                let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
                Sum::pseudo_v4(src, dst, l4.kind.number(), len)
            }
            L3Kind::V6 => {
                let src: [u8; 16] = *header.get(8..)?.first_chunk()?;
                let dst: [u8; 16] = *header.get(24..)?.first_chunk()?;
                let (src, dst) = (Ipv6Addr::from(src), Ipv6Addr::from(dst));
                Sum::pseudo_v6(src, dst, l4.kind.number(), len)
            }
        })
    }

    /// Bytes of transport header and payload as the IP header claims them; `None` for a fragment,
    /// or when they would not fit a frame of `frame_len` bytes.
    pub fn l4_span(&self, frame_len: usize) -> Option<usize> {
        let (l3, l4) = (self.l3?, self.l4?);
        if l3.fragment != Fragment::Whole {
            return None;
        }
        let end = l3.offset + l3.total;
        let span = end.checked_sub(l4.offset)?;
        (end <= frame_len && span >= l4.len).then_some(span)
    }

    /// Whether the TCP or UDP checksum of a frame that is here in full is right. `None` when it
    /// cannot be told: no such header, a fragment, lengths that do not fit, UDP without checksum.
    pub fn l4_intact(&self, frame: &[u8]) -> Option<bool> {
        let l4 = self.l4?;
        let span = self.l4_span(frame.len())?;
        if !self.l4_has_checksum(frame)? {
            return None;
        }
        let mut sum = self.pseudo_sum(frame, span)?;
        sum.add(frame.get(l4.offset..l4.offset + span)?);
        Some(sum.is_intact())
    }

    /// Whether the TCP or UDP header carries a checksum: UDP may leave it out by a zero (RFC 768).
    /// `None` for other transports.
    pub fn l4_has_checksum(&self, bytes: &[u8]) -> Option<bool> {
        let l4 = self.l4?;
        let field = word(bytes, l4.offset + l4.kind.checksum_offset()?)?;
        Some(l4.kind != L4Kind::Udp || field != 0)
    }
}

fn byte(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let two: [u8; 2] = *bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(two))
}

/// RFC 791 §3.1. Also returns the protocol whose header follows.
fn ipv4(bytes: &[u8], offset: usize) -> Option<(L3, Option<u8>)> {
    let first = byte(bytes, offset)?;
    let len = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || len < 20 || bytes.len() < offset + len {
        return None;
    }
    let place = word(bytes, offset + 6)?;
    let fragment = match (place & 0x1fff, place & 0x2000) {
        (0, 0) => Fragment::Whole,
        (0, _) => Fragment::First,
        _ => Fragment::Later,
    };
    let l3 = L3 {
        kind: L3Kind::V4,
        offset,
        len,
        total: word(bytes, offset + 2)?.into(),
        fragment,
    };
    let protocol = byte(bytes, offset + 9)?;
    Some((l3, (fragment != Fragment::Later).then_some(protocol)))
}

/// RFC 8200 §3 and §4. Also returns the protocol whose header follows, if the walk got there.
fn ipv6(bytes: &[u8], offset: usize) -> Option<(L3, Option<u8>)> {
    if byte(bytes, offset)? >> 4 != 6 || bytes.len() < offset + 40 {
        return None;
    }
    let mut l3 = L3 {
        kind: L3Kind::V6,
        offset,
        len: 40,
        total: 40 + usize::from(word(bytes, offset + 4)?),
        fragment: Fragment::Whole,
    };
    let mut next = byte(bytes, offset + 6)?;
    for _ in 0..MAX_EXTENSIONS {
        let at = offset + l3.len;
        let (Some(following), Some(units)) = (byte(bytes, at), byte(bytes, at + 1)) else {
            return Some((l3, None));
        };
        let len = match next {
            // Hop-by-hop, routing, destination options: units of 8 bytes beyond the first.
            0 | 43 | 60 => (usize::from(units) + 1) * 8,
            // Authentication: units of 4 bytes, less two (RFC 4302 §2.2).
            51 => (usize::from(units) + 2) * 4,
            44 => {
                let Some(place) = word(bytes, at + 2) else {
                    return Some((l3, None));
                };
                l3.fragment = match (place >> 3, place & 1) {
                    (0, 0) => l3.fragment,
                    (0, _) => Fragment::First,
                    _ => Fragment::Later,
                };
                8
            }
            // No next header.
            59 => return Some((l3, None)),
            protocol => return Some((l3, Some(protocol))),
        };
        if bytes.len() < at + len {
            return Some((l3, None));
        }
        l3.len += len;
        if l3.fragment == Fragment::Later {
            return Some((l3, None));
        }
        next = following;
    }
    Some((l3, None))
}

fn transport(bytes: &[u8], offset: usize, protocol: u8) -> Option<L4> {
    let (kind, len) = match protocol {
        TCP => {
            let len = usize::from(byte(bytes, offset + 12)? >> 4) * 4;
            if len < 20 {
                return None;
            }
            (L4Kind::Tcp, len)
        }
        UDP => (L4Kind::Udp, 8),
        other => (L4Kind::Other(other), 0),
    };
    (bytes.len() >= offset + len).then_some(L4 { kind, offset, len })
}

//! Headers that are always at the same places: whole TCP or UDP over IPv4 without options or tag.

use crate::layers::L4Kind;

/// Bytes of a frame up to the end of a TCP header without options.
pub const SIMPLE: usize = 54;

/// Ethernet type IPv4, then version 4 and a header of five words (RFC 791 §3.1).
const TYPE_AND_VERSION: [u8; 3] = [0x08, 0x00, 0x45];
const TYPE: usize = 12;
const IP: usize = 14;
const FRAGMENT: usize = IP + 6;
const PROTOCOL: usize = IP + 9;
const ADDRESSES: usize = IP + 12;
const L4: usize = IP + 20;
/// The fragment's offset, and the flag that more of them follow.
const PART: u16 = 0x3fff;
/// Words of the TCP header, in the upper half of a byte (RFC 9293 §3.1).
const TCP_WORDS: usize = L4 + 12;
const TCP: u8 = 6;
const TCP_HEADER: usize = 20;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

/// The first bytes of such a packet.
#[derive(Clone, Copy, Debug)]
pub struct SimpleV4<'h> {
    head: &'h [u8; SIMPLE],
    /// TCP or UDP.
    pub kind: L4Kind,
    /// Bytes of its header.
    pub l4_len: usize,
}

impl<'h> SimpleV4<'h> {
    /// Where the transport's header begins in the frame.
    pub const L4: usize = L4;
    /// Where the IPv4 addresses are, right before it: a checksum covers both.
    pub const ADDRESSES: usize = ADDRESSES;

    /// Of a frame of `len` bytes that begins so. `None`: it is something else, or not all of its headers are
    /// there.
    #[inline]
    pub fn of(head: &'h [u8; SIMPLE], len: usize) -> Option<SimpleV4<'h>> {
        let part = u16::from_be_bytes([head[FRAGMENT], head[FRAGMENT + 1]]) & PART;
        if part != 0 || head[TYPE..TYPE + 3] != TYPE_AND_VERSION {
            return None;
        }
        let (kind, l4_len) = match (head[PROTOCOL], usize::from(head[TCP_WORDS] >> 4) * 4) {
            (TCP, l4_len) if l4_len >= TCP_HEADER => (L4Kind::Tcp, l4_len),
            (UDP, _) => (L4Kind::Udp, UDP_HEADER),
            _ => return None,
        };
        (L4 + l4_len <= len).then_some(SimpleV4 { head, kind, l4_len })
    }

    /// The IPv4 header.
    #[inline]
    pub fn ip(&self) -> &'h [u8] {
        &self.head[IP..L4]
    }

    /// Bytes of transport header and payload, as the IPv4 header claims.
    #[inline]
    pub fn l4_span(&self) -> Option<usize> {
        let total = u16::from_be_bytes([self.head[IP + 2], self.head[IP + 3]]);
        usize::from(total).checked_sub(L4 - IP)
    }

    /// Source and destination.
    #[inline]
    pub fn addresses(&self) -> &'h [u8] {
        &self.head[ADDRESSES..L4]
    }

    /// Source and destination, then the ports of both.
    #[inline]
    pub fn addresses_and_ports(&self) -> &'h [u8] {
        &self.head[ADDRESSES..L4 + 4]
    }

    /// Whether it is UDP without a checksum (RFC 768).
    #[inline]
    pub fn is_unsummed(&self) -> bool {
        self.kind == L4Kind::Udp && self.head[L4 + 6..L4 + 8] == [0, 0]
    }
}

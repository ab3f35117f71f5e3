//! The headers of segments, from one copy that is patched from segment to segment.
//!
//! [`Segments::segment`] says what they are. A [`Template`] gives the same bytes in less time: what is the same in all
//! segments is copied and summed once, and a checksum is the sum of that and of the few words that differ.

use crate::checksum::folded;
use crate::layers::{L3Kind, L4Kind};
use crate::segment::{CWR, FIN, PSH, Segments};

/// Longest headers of a template: Ethernet with two tags, then IPv4 and TCP with all their options are 142 bytes.
pub const TEMPLATE: usize = 160;

/// The headers of the segments of one frame.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    bytes: [u8; TEMPLATE],
    len: usize,
    /// Where the lengths and the sum of the IP header are, and what is known of the sum.
    ip: Ip,
    tcp: usize,
    seq: u32,
    /// The word with the flags, in segments neither first nor last, in the first and in the last.
    flags: u16,
    of_first: u16,
    of_last: u16,
    /// Words that the checksum covers in every segment, and of these the pseudo-header's.
    covered: u64,
    addresses: u64,
    payload: usize,
    size: usize,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
enum Ip {
    /// Where the header is, the identification of the first, and the sum of what is the same in all.
    V4(usize, u16, u64),
    V6(usize),
}

impl Template {
    /// For these segments; `None` when their headers are longer than [`TEMPLATE`].
    pub fn new(segments: &Segments<'_>) -> Option<Template> {
        let headers = segments.headers;
        let (l3, l4) = (segments.l3, segments.l4);
        if l4.kind != L4Kind::Tcp {
            return None;
        }
        let mut bytes = [0; TEMPLATE];
        bytes.get_mut(..headers.len())?.copy_from_slice(headers);
        let tcp = l4.offset;
        let ip = match l3.kind {
            L3Kind::V4 => {
                let id = get(&bytes, l3.offset + 4);
                Ip::V4(l3.offset, id, segments.same.value().into())
            }
            L3Kind::V6 => Ip::V6(l3.offset),
        };
        let word = get(&bytes, tcp + 12);
        let [ends, begins] = [FIN | PSH, CWR].map(u16::from);
        let seq = u32::from(get(&bytes, tcp + 4)) << 16 | u32::from(get(&bytes, tcp + 6));
        // All of the TCP header that is neither number, flags nor checksum.
        let same = [tcp..tcp + 4, tcp + 8..tcp + 12, tcp + 14..tcp + 16];
        let options = std::iter::once(tcp + 18..headers.len());
        let same = same.into_iter().chain(options);
        let mut covered = segments.addresses;
        same.for_each(|part| covered.add(&bytes[part]));
        Some(Template {
            bytes,
            len: headers.len(),
            ip,
            tcp,
            seq,
            flags: word & !(ends | begins),
            of_first: word & begins,
            of_last: word & ends,
            covered: covered.value().into(),
            addresses: segments.addresses.value().into(),
            payload: segments.payload,
            size: segments.size,
            count: segments.count(),
        })
    }

    /// How many segments there are; at least one.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the headers of each.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.len
    }

    /// Bytes of payload that segment `index` carries.
    #[inline]
    pub fn payload_of(&self, index: usize) -> usize {
        if index + 1 < self.count {
            return self.size;
        }
        let before = self.size.saturating_mul(index);
        self.payload.saturating_sub(before)
    }

    /// The headers of segment `index`, which has so many bytes of payload ([`Template::payload_of`]) with this sum
    /// ([`crate::Sum::value`]).
    #[inline]
    pub fn segment(&mut self, index: usize, (payload, sum): (usize, u16)) -> &[u8] {
        self.patched(index, payload, Some(sum))
    }

    /// The same for a receiver that sums the payload itself: the checksum field has the sum over the pseudo-header, as
    /// [`Segments::segment`] leaves it.
    #[inline]
    pub fn unsummed(&mut self, index: usize, payload: usize) -> &[u8] {
        self.patched(index, payload, None)
    }

    /// The headers with what differs in segment `index`; the checksum is whole if there is a sum of its payload.
    #[inline(always)]
    fn patched(&mut self, index: usize, payload: usize, sum: Option<u16>) -> &[u8] {
        let len = self.len + payload;
        match self.ip {
            Ip::V4(at, id, same) => {
                let id = id.wrapping_add(index as u16);
                let datagram = (len - at) as u16;
                let ip_sum = folded(same + u64::from(datagram) + u64::from(id));
                if let Some(ip) = chunk::<12>(&mut self.bytes, at) {
                    [ip[2], ip[3]] = datagram.to_be_bytes();
                    [ip[4], ip[5]] = id.to_be_bytes();
                    [ip[10], ip[11]] = (!ip_sum).to_be_bytes();
                }
            }
            Ip::V6(at) => {
                if let Some(ip) = chunk::<6>(&mut self.bytes, at) {
                    [ip[4], ip[5]] = ((len - at - 40) as u16).to_be_bytes();
                }
            }
        }
        let seq = self.seq.wrapping_add((self.size * index) as u32);
        let mut flags = self.flags;
        if index == 0 {
            flags |= self.of_first;
        }
        if index + 1 == self.count {
            flags |= self.of_last;
        }
        let length = (len - self.tcp) as u16;
        let checksum = match sum {
            None => folded(self.addresses + u64::from(length)),
            Some(sum) => {
                let differs = [(seq >> 16) as u16, seq as u16, flags, length, sum];
                let differs: u64 = differs.into_iter().map(u64::from).sum();
                // 0 is sent as 0xFFFF, as all sums are.
                match !folded(self.covered + differs) {
                    0 => 0xffff,
                    other => other,
                }
            }
        };
        if let Some(tcp) = chunk::<18>(&mut self.bytes, self.tcp) {
            [tcp[4], tcp[5], tcp[6], tcp[7]] = seq.to_be_bytes();
            [tcp[12], tcp[13]] = flags.to_be_bytes();
            [tcp[16], tcp[17]] = checksum.to_be_bytes();
        }
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

#[inline]
fn get(bytes: &[u8; TEMPLATE], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn chunk<const N: usize>(bytes: &mut [u8; TEMPLATE], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

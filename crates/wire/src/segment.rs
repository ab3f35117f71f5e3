//! Cutting a large TCP or UDP frame into those that go on the wire.

use std::ops::Range;

use thiserror::Error;

use crate::checksum::Sum;
use crate::layers::{Fragment, L3, L3Kind, L4, L4Kind, Layers, MAX_HEADERS};
use crate::offload::Offload;

/// Most segments one frame is cut into: 64 KiB at the smallest MSS in earnest use, 536, are 123; a
/// sender that asks for thousands wants our time, not the network's.
pub const MAX_SEGMENTS: usize = 2048;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const CWR: u8 = 0x80;

/// Why a frame cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// The notes ask for no segmentation.
    #[error("no segmentation is asked for")]
    NotAsked,
    /// The MSS is zero.
    #[error("segments of zero bytes")]
    ZeroSize,
    /// The headers are not those noted, whole: TCP or UDP over IPv4 or IPv6; or they are a fragment's.
    #[error("headers are not those noted, of a whole TCP segment or UDP datagram")]
    Headers,
    /// The noted header length is shorter than the headers, or longer than the frame.
    #[error("header length in the notes does not fit the frame")]
    HeaderLength,
    /// The checksum note is missing or is not that of the TCP or UDP header.
    #[error("checksum note is missing or not that of the TCP or UDP header")]
    Checksum,
    /// More than [`MAX_SEGMENTS`].
    #[error("more than {MAX_SEGMENTS} segments")]
    TooMany,
    /// A segment would be longer than its IP header can say.
    #[error("segment longer than an IP datagram can be")]
    TooLong,
}

/// How a large frame is cut: for each segment the headers and the part of the payload.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'h> {
    pub(crate) headers: &'h [u8],
    pub(crate) l3: L3,
    pub(crate) l4: L4,
    /// Where the checksum field is, from the L4 header on.
    field: usize,
    pub(crate) payload: usize,
    pub(crate) size: usize,
    count: usize,
    /// Pseudo-header without the length.
    pub(crate) addresses: Sum,
    /// The IPv4 header without length, identification and checksum.
    pub(crate) same: Sum,
}

impl<'h> Segments<'h> {
    /// Plans the cut of a frame of `frame_len` bytes that begins with `headers`, a private copy of
    /// at least all its headers (more does no harm).
    ///
    /// The header length is the parsed one: senders may note a longer one as a mere hint (virtio
    /// 1.2 §5.1.6.2), which is checked to be within the frame, not believed. IP lengths and the
    /// seed in the checksum field are computed anew.
    pub fn new(headers: &'h [u8], frame_len: usize, notes: &Offload) -> Result<Self, SegmentError> {
        let (kind, transport) = notes.gso.headers().ok_or(SegmentError::NotAsked)?;
        let size = usize::from(notes.gso_size);
        if size == 0 {
            return Err(SegmentError::ZeroSize);
        }
        let layers = Layers::parse(headers).ok_or(SegmentError::Headers)?;
        let (Some(l3), Some(l4)) = (layers.l3, layers.l4) else {
            return Err(SegmentError::Headers);
        };
        if l3.kind != kind || l4.kind != transport || l3.fragment != Fragment::Whole {
            return Err(SegmentError::Headers);
        }
        let len = l4.offset + l4.len;
        let noted = usize::from(notes.hdr_len);
        if noted < len || noted > frame_len || len > MAX_HEADERS {
            return Err(SegmentError::HeaderLength);
        }
        let field = match notes.csum {
            Some(csum)
                if usize::from(csum.start) == l4.offset
                    && l4.kind.checksum_offset() == Some(csum.offset.into()) =>
            {
                usize::from(csum.offset)
            }
            _ => return Err(SegmentError::Checksum),
        };
        let payload = frame_len - len;
        let count = payload.div_ceil(size).max(1);
        if count > MAX_SEGMENTS {
            return Err(SegmentError::TooMany);
        }
        // The longest segment, without the fixed IPv6 header that its length does not count.
        let longest = len - l3.offset + size.min(payload);
        if longest - (if kind == L3Kind::V6 { 40 } else { 0 }) > 0xffff {
            return Err(SegmentError::TooLong);
        }
        let addresses = layers.pseudo_sum(headers, 0).ok_or(SegmentError::Headers)?;
        let mut same = Sum::ZERO;
        if kind == L3Kind::V4 {
            let header = &headers[l3.offset..l3.offset + l3.len];
            same.add(&header[..2]);
            same.add(&header[6..10]);
            same.add(&header[12..]);
        }
        Ok(Segments {
            headers: &headers[..len],
            l3,
            l4,
            field,
            payload,
            size,
            count,
            addresses,
            same,
        })
    }

    /// How many segments there are; at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the headers of each.
    pub fn header_len(&self) -> usize {
        self.headers.len()
    }

    /// Where the TCP or UDP header starts.
    pub fn l4_offset(&self) -> usize {
        self.l4.offset
    }

    /// Where its checksum field is in the frame.
    pub fn checksum_at(&self) -> usize {
        self.l4.offset + self.field
    }

    /// Writes the headers of segment `index` to the front of `out` and returns the part of the
    /// payload (counted from the first byte behind the headers) that follows them. `None` when
    /// there is no such segment or `out` is shorter than [`Segments::header_len`].
    ///
    /// Only the last keeps FIN and PSH, only the first CWR (RFC 3168 §6.1.2). The checksum
    /// field holds the pseudo-header sum, ready for the caller to add the payload.
    pub fn segment(&self, index: usize, out: &mut [u8]) -> Option<Range<usize>> {
        if index >= self.count {
            return None;
        }
        let out = out.get_mut(..self.headers.len())?;
        out.copy_from_slice(self.headers);
        let start = index * self.size;
        let end = (start + self.size).min(self.payload);
        let (l3, l4) = (self.l3.offset, self.l4.offset);
        let datagram = out.len() - l3 + (end - start);
        match self.l3.kind {
            L3Kind::V4 => {
                put(out, l3 + 2, datagram as u16);
                let id = get(out, l3 + 4).wrapping_add(index as u16);
                put(out, l3 + 4, id);
                let mut sum = self.same;
                sum.add_word(datagram as u16);
                sum.add_word(id);
                put(out, l3 + 10, sum.finish());
            }
            L3Kind::V6 => put(out, l3 + 4, (datagram - 40) as u16),
        }
        let span = (self.l4.len + (end - start)) as u16;
        if self.l4.kind == L4Kind::Udp {
            put(out, l4 + 4, span);
        } else {
            let seq = u32::from(get(out, l4 + 4)) << 16 | u32::from(get(out, l4 + 6));
            let seq = seq.wrapping_add(start as u32);
            put(out, l4 + 4, (seq >> 16) as u16);
            put(out, l4 + 6, seq as u16);
            if index + 1 != self.count {
                out[l4 + 13] &= !(FIN | PSH);
            }
            if index != 0 {
                out[l4 + 13] &= !CWR;
            }
        }
        let mut seed = self.addresses;
        seed.add_word(span);
        put(out, self.checksum_at(), seed.value());
        Some(start..end)
    }
}

fn get(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod proofs;

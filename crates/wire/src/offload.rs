//! Work that a frame still asks for, carried beside it instead of being done.
//!
//! The shape follows `struct virtio_net_hdr` (virtio 1.2 §5.1.6), which TAP devices and
//! virtio-net guests speak, so that a frame passes between such ends untouched.

use thiserror::Error;

use crate::layers::{L3Kind, L4Kind};

/// One checksum still to be written into the frame.
///
/// The 16 bits at `start + offset` hold the pseudo-header sum (not complemented). The NIC or kernel
/// that finishes the frame sums from `start` to its end and stores the complement there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Csum {
    /// Byte of the frame where the sum starts (the L4 header).
    pub start: u16,
    /// Byte of the checksum field, counted from `start`.
    pub offset: u16,
}

/// How a large frame is to be cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// Not at all: it is one frame on the wire.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4: each part of the payload is a datagram of its own.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

impl Gso {
    /// The headers of a frame that is cut so; `None` if it is not cut.
    #[inline]
    pub const fn headers(self) -> Option<(L3Kind, L4Kind)> {
        match self {
            Gso::None => None,
            Gso::Tcp4 => Some((L3Kind::V4, L4Kind::Tcp)),
            Gso::Tcp6 => Some((L3Kind::V6, L4Kind::Tcp)),
            Gso::Udp4 => Some((L3Kind::V4, L4Kind::Udp)),
            Gso::Udp6 => Some((L3Kind::V6, L4Kind::Udp)),
        }
    }
}

/// What a frame still needs, or what is already known of it.
///
/// For a segmented frame the headers describe the whole: IPv4 total length (or IPv6 payload
/// length), a correct IPv4 header checksum, and a pseudo-header sum over the whole L4 length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Checksum still to be written.
    pub csum: Option<Csum>,
    /// Segmentation still to be done; needs `csum` and `gso_size > 0`.
    pub gso: Gso,
    /// Payload bytes per segment (MSS) or datagram.
    pub gso_size: u16,
    /// Bytes of all headers, Ethernet to TCP options or UDP. A larger value, within the frame, is taken
    /// as the hint that Linux gives through TAP; the headers themselves decide.
    pub hdr_len: u16,
    /// TCP CWR is set and belongs to the first segment only.
    pub ecn: bool,
    /// The L4 checksum has been verified, or cannot be wrong because it never left memory.
    pub csum_valid: bool,
    /// 802.1Q tag control information carried beside the frame rather than in it.
    pub vlan: Option<u16>,
}

impl Offload {
    /// Nothing to do and nothing known.
    pub const NONE: Offload = Offload {
        csum: None,
        gso: Gso::None,
        gso_size: 0,
        hdr_len: 0,
        ecn: false,
        csum_valid: false,
        vlan: None,
    };

    /// Frames on the wire that a frame of `len` bytes with this note becomes; a contradictory note is one.
    #[inline]
    pub fn segments(&self, len: usize) -> usize {
        let (header, size) = (usize::from(self.hdr_len), usize::from(self.gso_size));
        match self.gso {
            Gso::None => 1,
            _ if size == 0 || len <= header => 1,
            _ => (len - header).div_ceil(size),
        }
    }

    /// Whether the bytes of the frame are already what goes on the wire.
    pub fn is_plain(&self) -> bool {
        self.csum.is_none() && self.gso == Gso::None && self.vlan.is_none()
    }

    /// Whether the notes make sense for a frame of `frame_len` bytes. The first consumer of a guest's
    /// frame checks them once, so that code behind it can rely on them.
    pub fn check(&self, frame_len: usize) -> Result<(), NotesError> {
        if let Some(csum) = self.csum
            && usize::from(csum.start) + usize::from(csum.offset) + 2 > frame_len
        {
            return Err(NotesError::CsumOutside);
        }
        if self.gso != Gso::None {
            let csum = self.csum.ok_or(NotesError::GsoWithoutCsum)?;
            if self.gso_size == 0 {
                return Err(NotesError::GsoSizeZero);
            }
            let field_end = usize::from(csum.start) + usize::from(csum.offset) + 2;
            let hdr_len = usize::from(self.hdr_len);
            if hdr_len < field_end || hdr_len > frame_len {
                return Err(NotesError::HeaderLength);
            }
        }
        Ok(())
    }
}

/// Why notes cannot be true of their frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotesError {
    /// The checksum field is not inside the frame.
    #[error("checksum field outside of the frame")]
    CsumOutside,
    /// Segmentation without a checksum to be written.
    #[error("segmentation asked for without a checksum")]
    GsoWithoutCsum,
    /// Segments of no bytes.
    #[error("segments of zero bytes")]
    GsoSizeZero,
    /// The headers end before the checksum field or after the frame.
    #[error("header length does not fit the frame")]
    HeaderLength,
}

//! The headers of a frame, in a copy that the guest cannot change.

use frame::Frame;
use wire::{L3Kind, L4Kind, Layers};

/// Bytes of a frame in which headers are looked for.
pub(crate) const HEADERS: usize = 256;

/// IP's number of SCTP.
const SCTP: u8 = 132;

/// The first bytes of a frame, copied once, and what is found in them.
pub(crate) struct Headers {
    copy: [u8; HEADERS],
    len: usize,
    pub layers: Option<Layers>,
}

impl Headers {
    pub(crate) fn of(frame: &Frame<'_>) -> Headers {
        let mut copy = [0; HEADERS];
        let len = frame.copy_to(0, &mut copy);
        Headers {
            layers: Layers::parse(&copy[..len]),
            copy,
            len,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.copy[..self.len]
    }

    /// IPv4's identification, in the order of the host.
    pub(crate) fn ip_id(&self) -> Option<u16> {
        let l3 = self.layers?.l3.filter(|l3| l3.kind == L3Kind::V4)?;
        let id = self.bytes().get(l3.offset + 4..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(*id))
    }
}

/// Whether a transport is SCTP.
pub(crate) fn is_sctp(kind: L4Kind) -> bool {
    kind == L4Kind::Other(SCTP)
}

//! The 12 bytes that every message begins with.

use super::request::Request;

/// Bytes of a [`Header`].
pub const HEADER_LEN: usize = 12;

/// Bytes that follow a header at most. The longest request, a memory table of 8 regions, has 264.
pub const MAX_PAYLOAD: usize = 4096;

const VERSION_MASK: u32 = 3;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// The header of every message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Raw number; see [`Request`].
    pub request: u32,
    /// Version in bits 1:0, reply in bit 2, need-reply in bit 3.
    pub flags: u32,
    /// Bytes that follow this header.
    pub size: u32,
}

impl Header {
    /// Reads a header from the first 12 bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes.first_chunk::<HEADER_LEN>()?;
        Some(Self {
            request: u32::from_ne_bytes([a, b, c, d]),
            flags: u32::from_ne_bytes([e, f, g, h]),
            size: u32::from_ne_bytes([i, j, k, l]),
        })
    }

    /// The 12 bytes of this header.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&self.request.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_ne_bytes());
        bytes
    }

    /// A request with `payload` bytes after the header.
    pub fn request(request: Request, payload: usize) -> Self {
        Self {
            request: request as u32,
            flags: VERSION,
            size: payload as u32,
        }
    }

    /// The same, to be answered in any case.
    #[must_use]
    pub fn wanting_reply(self) -> Self {
        Self {
            flags: self.flags | NEED_REPLY,
            ..self
        }
    }

    /// The reply to this request, with `payload` bytes after the header.
    #[must_use]
    pub fn reply(&self, payload: usize) -> Self {
        Self {
            request: self.request,
            flags: VERSION | REPLY,
            size: payload as u32,
        }
    }

    /// It has the version that this crate speaks.
    pub fn version_is_known(&self) -> bool {
        self.flags & VERSION_MASK == VERSION
    }

    /// This is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & REPLY != 0
    }

    /// The sender asks for a reply, whatever the request.
    pub fn needs_reply(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }
}

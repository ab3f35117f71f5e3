//! The one message of each side: what its ring is. Two descriptors come with it, its memory and the eventfd that wakes it.

use peer::stream::Framed;

use crate::config::good_bytes;

/// Bytes of the message.
pub const LEN: usize = 32;

const MAGIC: [u8; 8] = *b"hyperrng";
const VERSION: u32 = 1;

/// The message: the magic, the version, the bytes of the sender's ring, zeros. All little-endian.
#[derive(Clone, Copy)]
pub struct Hello([u8; LEN]);

impl Hello {
    /// Of a side whose ring has so many bytes.
    pub fn new(bytes: u32) -> Self {
        let mut hello = [0; LEN];
        hello[..8].copy_from_slice(&MAGIC);
        hello[8..12].copy_from_slice(&VERSION.to_le_bytes());
        hello[12..16].copy_from_slice(&bytes.to_le_bytes());
        Self(hello)
    }

    /// Bytes of the sender's ring; `None` if it is no greeting of ours.
    pub fn ring(&self) -> Option<u32> {
        let bytes = u32::from_le_bytes([12, 13, 14, 15].map(|at| self.0[at]));
        let bytes = good_bytes(bytes.try_into().ok()?)?;
        (self.0 == Self::new(bytes).0).then_some(bytes)
    }
}

impl Framed for Hello {
    const LEN: usize = LEN;
    type Bytes = [u8; LEN];

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self(*bytes.first_chunk()?))
    }

    fn message_len(&self) -> usize {
        LEN
    }

    fn bytes(&self) -> [u8; LEN] {
        self.0
    }
}

//! A capability of the extended space as bytes.

/// A capability of the extended space, given as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtendedCapability {
    /// Extended capability id.
    pub id: u16,
    /// Version, 4 bits.
    pub version: u8,
    /// What follows the 4-byte header.
    pub body: Vec<u8>,
    /// Bits of `body` that software may write; empty for none.
    pub writable: Vec<u8>,
    /// Bits of `body` that a written one clears; empty for none.
    pub w1c: Vec<u8>,
}

impl ExtendedCapability {
    pub(crate) fn valid(&self) -> bool {
        self.version < 16
            && self.body.len() <= 4096 - 0x104
            && self.writable.len() <= self.body.len()
            && self.w1c.len() <= self.body.len()
    }

    /// A capability of `len` bytes, header included.
    pub(crate) fn zero(id: u16, len: usize) -> Self {
        Self {
            id,
            version: 1,
            body: vec![0; len - 4],
            writable: vec![0; len - 4],
            w1c: vec![0; len - 4],
        }
    }

    /// A 16-bit register at `at`, an offset from the header.
    pub(crate) fn u16(&mut self, at: usize, value: u16, writable: u16) {
        self.body[at - 4..at - 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at - 4..at - 2].copy_from_slice(&writable.to_le_bytes());
    }

    /// A 32-bit register at `at`, an offset from the header.
    pub(crate) fn u32(&mut self, at: usize, value: u32, writable: u32) {
        self.body[at - 4..at].copy_from_slice(&value.to_le_bytes());
        self.writable[at - 4..at].copy_from_slice(&writable.to_le_bytes());
    }

    pub(crate) fn clears(&mut self, at: usize, bits: u32) {
        self.w1c[at - 4..at].copy_from_slice(&bits.to_le_bytes());
    }
}

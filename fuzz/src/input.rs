//! The fuzzer's bytes, read as a program.

/// Whether what costs more than the rest of a run is done with this input: always, but in the long
/// runs (feature `sample`) with every sixteenth, which the input itself decides. An input that
/// fails there fails everywhere.
pub(crate) fn seldom(data: &[u8]) -> bool {
    !cfg!(feature = "sample") || crc32fast::hash(data).is_multiple_of(16)
}

/// Reads from the front. Behind the end there are zeros, and programs end.
pub(crate) struct Input<'d> {
    rest: &'d [u8],
}

impl<'d> Input<'d> {
    pub fn new(data: &'d [u8]) -> Self {
        Self { rest: data }
    }

    /// The next operation; `None` at the end.
    pub fn op(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub fn u8(&mut self) -> u8 {
        self.op().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// The next bytes, `len` at most.
    pub fn bytes(&mut self, len: usize) -> &'d [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    pub fn rest(&mut self) -> &'d [u8] {
        std::mem::take(&mut self.rest)
    }

    /// A value that means something somewhere, or any.
    pub fn value(&mut self) -> u32 {
        const KNOWN: [u32; 16] = [
            0,
            1,
            2,
            8,
            0x40,
            0x7f,
            0x80,
            0x800,
            0x1000,
            0xfff0,
            0xffff,
            0x1_0000,
            0xf_ff80,
            0x8000_0000,
            0xffff_fff0,
            u32::MAX,
        ];
        let first = self.u8();
        match first {
            0..=63 => KNOWN[usize::from(first) % KNOWN.len()],
            64..=95 => 1 << (first & 31),
            96..=127 => u32::from(self.u8()),
            128..=159 => u32::from(self.u16()),
            _ => self.u32(),
        }
    }
}

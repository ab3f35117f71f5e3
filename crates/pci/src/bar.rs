//! Base address registers (PCI Local Bus 3.0 §6.2.5.1).

/// Where a BAR decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// I/O ports.
    Io,
    /// Memory below 4 GiB.
    Memory32,
    /// Memory anywhere; takes this slot and the next.
    Memory64,
}

/// One base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub(crate) kind: BarKind,
    pub(crate) prefetchable: bool,
    pub(crate) size: u64,
}

impl Bar {
    /// An I/O BAR of `size` bytes: a power of two from 4 to 64 KiB.
    pub const fn io(size: u64) -> Self {
        Self {
            kind: BarKind::Io,
            prefetchable: false,
            size,
        }
    }

    /// A 32-bit memory BAR of `size` bytes: a power of two from 16 bytes to 2 GiB.
    pub const fn memory32(size: u64) -> Self {
        Self {
            kind: BarKind::Memory32,
            prefetchable: false,
            size,
        }
    }

    /// A 64-bit memory BAR of `size` bytes: a power of two of at least 16 bytes.
    pub const fn memory64(size: u64) -> Self {
        Self {
            kind: BarKind::Memory64,
            prefetchable: false,
            size,
        }
    }

    /// Marks a memory BAR as free of read side effects.
    #[must_use]
    pub const fn prefetchable(mut self) -> Self {
        self.prefetchable = true;
        self
    }

    /// Bytes decoded.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Where it decodes.
    pub const fn kind(&self) -> BarKind {
        self.kind
    }

    /// The read-only type bits at the bottom of the register.
    pub(crate) fn type_bits(&self) -> u8 {
        match self.kind {
            BarKind::Io => 0x01,
            BarKind::Memory32 => (self.prefetchable as u8) << 3,
            BarKind::Memory64 => 0x04 | (self.prefetchable as u8) << 3,
        }
    }

    /// Writable bits of the register pair; the high half is only used by 64-bit BARs.
    pub(crate) fn mask(&self) -> u64 {
        let low = match self.kind {
            BarKind::Io => 0x3,
            _ => 0xf,
        };
        !(self.size - 1) & !low
    }

    pub(crate) fn valid(&self) -> bool {
        let (min, max) = match self.kind {
            BarKind::Io => (4, 64 << 10),
            BarKind::Memory32 => (16, 2 << 30),
            BarKind::Memory64 => (16, 1 << 62),
        };
        self.size.is_power_of_two() && (min..=max).contains(&self.size)
    }
}

//! One register: where it is, what accesses do, and how much of it there is.

/// A register's place in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u16);

impl Id {
    /// The register at `index` of the table.
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// Its place in the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Another address of a register, or of the first elements of an array: the same bits, with the
/// same side effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Its name.
    pub name: &'static str,
    /// Byte offset of the (first) register; a multiple of 4.
    pub offset: u32,
    /// So many elements, from the first on, answer there.
    pub count: u32,
    /// Bytes from one to the next.
    pub stride: u32,
    /// The register it is.
    pub of: Id,
}

/// What reading and writing a register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes are ignored.
    ReadOnly,
    /// Reads give what was written, within the mask.
    ReadWrite,
    /// Reads give 0; a write acts.
    WriteOnly,
    /// A read clears it.
    ReadClear,
    /// A read clears it; writing 1 clears that bit.
    ReadClearWrite1Clear,
    /// Reads give what the device has set; writing 1 clears that bit.
    ReadWrite1Clear,
    /// Writing 1 sets that bit, writing 0 does nothing.
    Write1Set,
    /// Writing 1 clears that bit of another register; reads give 0.
    Write1Clear,
    /// A write of a command acts and the register then holds its result.
    Command,
    /// Plain memory that the model keeps elsewhere; a [`File`] has no words for it.
    Memory,
}

impl Access {
    /// The short form used on register pages.
    pub const fn short(self) -> &'static str {
        match self {
            Access::ReadOnly => "RO",
            Access::ReadWrite => "RW",
            Access::WriteOnly => "WO",
            Access::ReadClear => "RC",
            Access::ReadClearWrite1Clear => "RC/W1C",
            Access::ReadWrite1Clear => "RW1C",
            Access::Write1Set => "RW1S",
            Access::Write1Clear => "W1C",
            Access::Command => "RW (command)",
            Access::Memory => "RW (memory)",
        }
    }
}

/// How much of a register's function there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It does what the manual says.
    Implemented,
    /// It keeps what is written and has no effect, for this reason.
    Stored(&'static str),
    /// It reads 0 and ignores writes, for this reason.
    Absent(&'static str),
}

/// One register, or an array of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The manual's name.
    pub name: &'static str,
    /// Byte offset of the (first) register; a multiple of 4.
    pub offset: u32,
    /// Elements of the array; 1 for a single register.
    pub count: u32,
    /// Bytes from one element to the next.
    pub stride: u32,
    /// What reads and writes do.
    pub access: Access,
    /// Value after reset.
    pub reset: u32,
    /// Bits that keep what is written.
    pub mask: u32,
    /// Section of the manual.
    pub section: &'static str,
    /// How much of it there is.
    pub status: Status,
}

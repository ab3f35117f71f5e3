//! Where a ring is, how it is used, and what breaks it.

/// Largest ring.
pub const MAX_SIZE: u16 = 1024;

/// Where a ring is, as the driver or a VMM says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Entries.
    pub size: u16,
    /// The descriptor area.
    pub desc: u64,
    /// The driver area: what is available.
    pub driver: u64,
    /// The device area: what is used.
    pub device: u64,
}

/// How the driver uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// It may use indirect tables.
    pub indirect: bool,
    /// Both sides say from which entry on they want to be told.
    pub event_idx: bool,
}

/// Where both sides are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Entry that is taken next.
    pub next: u16,
    /// Entry that is used next.
    pub used: u16,
    /// What `used` was when it was last decided whether to call the driver.
    pub told: u16,
}

/// Why a ring is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// 0, not a power of two, or too large.
    Size,
    /// An area is not aligned, or wraps.
    Address,
}

/// Why a ring is not followed any more: the driver has broken a rule that holds it together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// More entries are available than the ring has.
    AvailIndex,
    /// A chain begins behind the table.
    Head,
    /// A chain goes on behind the table.
    Next,
    /// A chain is longer than its table: it goes in a circle.
    Loop,
    /// An indirect table without the feature.
    NoIndirect,
    /// An indirect descriptor that has a next one.
    IndirectNext,
    /// An indirect table in an indirect table.
    Nested,
    /// An indirect table that is empty, has half an entry, is longer than the ring, or wraps.
    IndirectLength,
    /// A part to read behind a part to write.
    Order,
    /// A part of the ring, or a buffer, is not mapped.
    Unmapped,
    /// A buffer that goes the wrong way, or leaves no room for the answer.
    Direction,
}

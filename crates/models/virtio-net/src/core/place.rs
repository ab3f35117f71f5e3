//! Where a ring is, how it is used, and what breaks it.

use guest_mem::Fault;

use crate::core::chain::OutOfOrder;
use crate::regs::feature;

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
    /// It is packed, not split.
    pub packed: bool,
    /// Buffers are used in the order in which they were given, so that one used element stands for several.
    pub in_order: bool,
}

impl Format {
    /// How rings are used by what was agreed upon.
    pub fn of(features: u64) -> Self {
        Self {
            indirect: features & feature::INDIRECT_DESC != 0,
            event_idx: features & feature::EVENT_IDX != 0,
            packed: features & feature::PACKED != 0,
            in_order: features & feature::IN_ORDER != 0,
        }
    }
}

/// Where both sides are. In a packed ring bit 15 of each is the wrap counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Entry that is taken next.
    pub next: u16,
    /// Entry that is used next.
    pub used: u16,
    /// What `used` was when it was last decided whether to call the driver.
    pub told: u16,
    /// It has been used before: its driver is called once, whatever that asked for, for the call before may have been lost.
    pub resumed: bool,
}

impl Position {
    /// Where a ring of this format begins.
    pub fn start(format: Format) -> Self {
        let at = if format.packed { 1 << 15 } else { 0 };
        Self {
            next: at,
            used: at,
            told: at,
            resumed: false,
        }
    }
}

/// Why a ring is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// 0, too large, or not a power of two though the ring is split.
    Size,
    /// An area is not aligned, or wraps.
    Address,
    /// Such a ring cannot have come there.
    Position,
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
    /// The buffers of one frame have more parts than two rings have entries.
    Parts,
    /// A part to read behind a part to write.
    Order,
    /// A part of the ring, or a buffer, is not mapped.
    Unmapped,
    /// A buffer that goes the wrong way, or leaves no room for the answer.
    Direction,
}

impl From<Fault> for Broken {
    fn from(_: Fault) -> Self {
        Broken::Unmapped
    }
}

impl From<OutOfOrder> for Broken {
    fn from(_: OutOfOrder) -> Self {
        Broken::Order
    }
}

/// Whether an index that went from `old` to `new` has passed `event` (§2.7.10).
pub(crate) fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod proofs;

//! A ring, whatever its format.

use guest_mem::{Fault, View};

use crate::core::chain::{Chain, OutOfOrder};
use crate::core::packed::Packed;
use crate::core::split::Split;
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
}

impl Format {
    /// How rings are used by what was agreed upon.
    pub fn of(features: u64) -> Self {
        Self {
            indirect: features & feature::INDIRECT_DESC != 0,
            event_idx: features & feature::EVENT_IDX != 0,
            packed: features & feature::PACKED != 0,
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

/// A ring of either format.
#[derive(Debug)]
pub enum Ring {
    /// Split (§2.7).
    Split(Split),
    /// Packed (§2.8).
    Packed(Packed),
}

/// Asks the ring, whatever its format.
macro_rules! of {
    ($ring:expr, $inner:ident => $what:expr) => {
        match $ring {
            Ring::Split($inner) => $what,
            Ring::Packed($inner) => $what,
        }
    };
}

impl Ring {
    /// A ring at this place.
    ///
    /// # Errors
    /// When no ring can be there.
    pub fn new(place: Place, format: Format, position: Position) -> Result<Ring, Refused> {
        if format.packed {
            Packed::new(place, format, position).map(Ring::Packed)
        } else {
            Split::new(place, format, position).map(Ring::Split)
        }
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        of!(self, ring => ring.place().size)
    }

    /// Where both sides are.
    pub fn position(&self) -> Position {
        of!(self, ring => ring.position())
    }

    /// Takes the next buffer that is available into `chain`; `false` when there is none.
    ///
    /// # Errors
    /// The ring is broken.
    #[inline]
    pub fn take(&mut self, view: &View<'_>, chain: &mut Chain) -> Result<bool, Broken> {
        of!(self, ring => ring.take(view, chain))
    }

    /// Gives the last `chains` that were taken back untouched: they are taken again.
    #[inline]
    pub fn give_back(&mut self, chains: u16) {
        of!(self, ring => ring.give_back(chains));
    }

    /// Takes back the last `chains` that were marked as used and not published.
    #[inline]
    pub fn unused(&mut self, chains: u16) {
        of!(self, ring => ring.unused(chains));
    }

    /// Buffers that are known to be available.
    pub fn known(&self) -> u16 {
        of!(self, ring => ring.known())
    }

    /// Marks a buffer as used, with `len` bytes written. The driver sees it at [`Ring::publish`].
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn used(&mut self, view: &View<'_>, id: u16, len: u32) -> Result<(), Broken> {
        match self {
            Ring::Split(ring) => ring.used(view, id, len),
            Ring::Packed(ring) => {
                ring.used(id, len);
                Ok(())
            }
        }
    }

    /// Shows the driver what was used. Returns whether it wants to be called for it.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn publish(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        of!(self, ring => ring.publish(view))
    }

    /// Asks the driver to tell of buffers behind those that are known. Returns whether there are some already.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn want_kick(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        of!(self, ring => ring.want_kick(view))
    }

    /// Tells the driver that it need not tell of buffers.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    pub fn no_kick(&mut self, view: &View<'_>) -> Result<(), Broken> {
        of!(self, ring => ring.no_kick(view))
    }

    /// Descriptors read since the last call.
    pub fn take_read(&mut self) -> u32 {
        of!(self, ring => ring.take_read())
    }
}

/// Whether an index that went from `old` to `new` has passed `event` (§2.7.10).
pub(crate) fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

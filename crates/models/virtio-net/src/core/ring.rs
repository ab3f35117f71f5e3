//! A ring, whatever its format.

use guest_mem::View;

use crate::core::chain::Chain;
use crate::core::split::Split;

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

/// A ring. A packed one will be another variant.
#[derive(Debug)]
pub enum Ring {
    /// Split (§2.7).
    Split(Split),
}

impl Ring {
    /// A ring at this place.
    ///
    /// # Errors
    /// When no ring can be there.
    pub fn new(place: Place, format: Format, position: Position) -> Result<Ring, Refused> {
        Split::new(place, format, position).map(Ring::Split)
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        let Ring::Split(ring) = self;
        ring.place().size
    }

    /// Where both sides are.
    pub fn position(&self) -> Position {
        let Ring::Split(ring) = self;
        ring.position()
    }

    /// Takes the next buffer that is available into `chain`; `false` when there is none.
    ///
    /// # Errors
    /// The ring is broken.
    #[inline]
    pub fn take(&mut self, view: &View<'_>, chain: &mut Chain) -> Result<bool, Broken> {
        let Ring::Split(ring) = self;
        ring.take(view, chain)
    }

    /// Gives the last `chains` that were taken back untouched: they are taken again.
    #[inline]
    pub fn give_back(&mut self, chains: u16) {
        let Ring::Split(ring) = self;
        ring.give_back(chains);
    }

    /// Takes back the last `chains` that were marked as used and not published.
    #[inline]
    pub fn unused(&mut self, chains: u16) {
        let Ring::Split(ring) = self;
        ring.unused(chains);
    }

    /// Buffers that are known to be available.
    pub fn known(&self) -> u16 {
        let Ring::Split(ring) = self;
        ring.known()
    }

    /// Marks a buffer as used, with `len` bytes written. The driver sees it at [`Ring::publish`].
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn used(&mut self, view: &View<'_>, id: u16, len: u32) -> Result<(), Broken> {
        let Ring::Split(ring) = self;
        ring.used(view, id, len)
    }

    /// Shows the driver what was used. Returns whether it wants to be called for it.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn publish(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let Ring::Split(ring) = self;
        ring.publish(view)
    }

    /// Asks the driver to tell of buffers behind those that are known. Returns whether there are some already.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn want_kick(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        let Ring::Split(ring) = self;
        ring.want_kick(view)
    }

    /// Tells the driver that it need not tell of buffers.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    pub fn no_kick(&mut self, view: &View<'_>) -> Result<(), Broken> {
        let Ring::Split(ring) = self;
        ring.no_kick(view)
    }

    /// Descriptors read since the last call.
    pub fn take_read(&mut self) -> u32 {
        let Ring::Split(ring) = self;
        ring.take_read()
    }
}

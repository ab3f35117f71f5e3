//! A ring, whatever its format.

use guest_mem::View;

use crate::core::chain::Chain;
use crate::core::packed::Packed;
pub use crate::core::place::{Broken, Format, MAX_SIZE, Place, Position, Refused};
use crate::core::split::Split;

/// A ring.
#[derive(Debug)]
pub enum Ring {
    /// Split (§2.7).
    Split(Split),
    /// Packed (§2.8).
    Packed(Packed),
}

impl Ring {
    /// A ring at this place.
    ///
    /// # Errors
    /// When no ring can be there.
    pub fn new(place: Place, format: Format, position: Position) -> Result<Ring, Refused> {
        if format.packed {
            return Packed::new(place, format, position).map(Ring::Packed);
        }
        Split::new(place, format, position).map(Ring::Split)
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        match self {
            Ring::Split(ring) => ring.place().size,
            Ring::Packed(ring) => ring.place().size,
        }
    }

    /// Where both sides are.
    pub fn position(&self) -> Position {
        match self {
            Ring::Split(ring) => ring.position(),
            Ring::Packed(ring) => ring.position(),
        }
    }

    /// Takes the next buffer that is available into `chain`; `false` when there is none.
    ///
    /// # Errors
    /// The ring is broken.
    #[inline]
    pub fn take(&mut self, view: &View<'_>, chain: &mut Chain) -> Result<bool, Broken> {
        match self {
            Ring::Split(ring) => ring.take(view, chain),
            Ring::Packed(ring) => ring.take(view, chain),
        }
    }

    /// Gives the last `chains` that were taken back untouched: they are taken again.
    #[inline]
    pub fn give_back(&mut self, chains: u16) {
        match self {
            Ring::Split(ring) => ring.give_back(chains),
            Ring::Packed(ring) => ring.give_back(chains),
        }
    }

    /// Takes back the last `chains` that were marked as used and not published.
    #[inline]
    pub fn unused(&mut self, chains: u16) {
        match self {
            Ring::Split(ring) => ring.unused(chains),
            Ring::Packed(ring) => ring.unused(chains),
        }
    }

    /// All of it is known to be available.
    pub fn is_full(&self) -> bool {
        match self {
            Ring::Split(ring) => ring.is_full(),
            Ring::Packed(ring) => ring.is_full(),
        }
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
        match self {
            Ring::Split(ring) => ring.publish(view),
            Ring::Packed(ring) => ring.publish(view),
        }
    }

    /// Asks the driver to tell of buffers behind those that are known. Returns whether there are some already.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn want_kick(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        match self {
            Ring::Split(ring) => ring.want_kick(view),
            Ring::Packed(ring) => ring.want_kick(view),
        }
    }

    /// Tells the driver that it need not tell of buffers.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    pub fn no_kick(&mut self, view: &View<'_>) -> Result<(), Broken> {
        match self {
            Ring::Split(ring) => ring.no_kick(view),
            Ring::Packed(ring) => ring.no_kick(view),
        }
    }

    /// Descriptors read since the last call.
    pub fn take_read(&mut self) -> u32 {
        match self {
            Ring::Split(ring) => ring.take_read(),
            Ring::Packed(ring) => ring.take_read(),
        }
    }
}

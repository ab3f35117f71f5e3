//! A ring, whatever its format.

use guest_mem::View;

use crate::core::chain::{self, Chain, One};
use crate::core::kept::KeptRing;
use crate::core::packed::Packed;
pub use crate::core::place::{Broken, Format, MAX_SIZE, Place, Position, Refused};
use crate::core::split::Split;

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

    /// Where a ring at this place has come to whose process died. `None`: its word is none that a ring leaves, or it is not mapped.
    pub fn found(
        view: &View<'_>,
        place: Place,
        format: Format,
        kept: &KeptRing,
    ) -> Option<Position> {
        if format.packed {
            Packed::found(view, place, kept)
        } else {
            Split::found(view, place)
        }
    }

    /// From now on keeps in `kept` what another process must know that goes on.
    pub fn keep(&mut self, kept: KeptRing) {
        of!(self, ring => ring.keep(kept));
    }

    /// What was taken is delivered next: should the process die, it is not delivered again. To be said again when some of it was
    /// given back.
    #[inline]
    pub fn delivers(&self) {
        of!(self, ring => ring.delivers());
    }

    /// The last `buffers` that were marked as used hold one frame.
    #[inline]
    pub fn one_frame(&mut self, buffers: u16) {
        if let Ring::Packed(ring) = self {
            ring.one_frame(buffers);
        }
    }

    /// Gives back what was perhaps delivered before its process died: all up to the place `end`. Returns how many frames `frames` says
    /// that were.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn pass_over(
        &mut self,
        view: &View<'_>,
        end: u16,
        frames: impl Fn(&Chain) -> u64,
    ) -> Result<u64, Broken> {
        let mut chain = Chain::default();
        let mut passed = 0;
        while of!(self, ring => ring.until(end)) > 0 && self.take_to_read(view, &mut chain)? {
            passed += frames(&chain);
            self.used(view, chain.id, 0)?;
        }
        self.show(view)?;
        Ok(passed)
    }

    /// Gives the driver the rest of a frame of which it was given some buffers before the process died.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn finish_frame(&mut self, view: &View<'_>) -> Result<(), Broken> {
        let mut chain = Chain::default();
        let left = |ring: &Ring| match ring {
            Ring::Packed(ring) => ring.left_of_frame(),
            Ring::Split(_) => None,
        };
        while let Some(last) = left(self) {
            if !self.take(view, &mut chain)? {
                break;
            }
            let all = chain::len(chain.writable());
            let all = u32::try_from(all).unwrap_or(u32::MAX);
            // All but the last are full.
            let len = if left(self).is_some() { all } else { last };
            self.used(view, chain.id, len)?;
        }
        self.show(view)?;
        Ok(())
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

    /// The same of a queue whose buffers are only read. What a table of a packed ring says to be written is read there too.
    ///
    /// # Errors
    /// The ring is broken.
    #[inline]
    pub fn take_to_read(&mut self, view: &View<'_>, chain: &mut Chain) -> Result<bool, Broken> {
        match self {
            Ring::Split(ring) => ring.take(view, chain),
            Ring::Packed(ring) => ring.take_to_read(view, chain),
        }
    }

    /// Takes buffers of one part each, all to be written or all to be read, from the next on: as many as `out` has room for,
    /// up to the first that is not so or breaks the ring, or the end of the ring. Returns how many, and whether the next is
    /// available.
    ///
    /// # Errors
    /// The ring is broken.
    #[inline]
    pub fn take_ones(
        &mut self,
        view: &View<'_>,
        write: bool,
        out: &mut [One],
    ) -> Result<(usize, bool), Broken> {
        of!(self, ring => ring.take_ones(view, write, out))
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

    /// Whether buffers may be available although [`Ring::take_ones`] saw none: some are known, or it came to the end of the ring.
    #[inline]
    pub fn may_have_more(&self) -> bool {
        match self {
            Ring::Split(ring) => ring.known() > 0,
            Ring::Packed(ring) => ring.known() > 0 || ring.is_at_start(),
        }
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

    /// The same for several.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn used_ones(&mut self, view: &View<'_>, ones: &[One], len: u32) -> Result<(), Broken> {
        match self {
            Ring::Split(ring) => ring.used_ones(view, ones, len),
            Ring::Packed(ring) => {
                ring.used_ones(ones, len);
                Ok(())
            }
        }
    }

    /// Shows the driver what was used. Returns how many buffers were.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn show(&mut self, view: &View<'_>) -> Result<u32, Broken> {
        of!(self, ring => ring.show(view))
    }

    /// The next decision is to call, whatever the driver asked for.
    #[inline]
    pub fn owes_call(&self) -> bool {
        of!(self, ring => ring.owes_call())
    }

    /// Whether the driver wants to be called for what it was shown since this was last decided.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn decide(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        of!(self, ring => ring.decide(view))
    }

    /// What [`Ring::decide`] would say now, but that it owes a call.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn wants_call(&self, view: &View<'_>) -> Result<bool, Broken> {
        of!(self, ring => ring.wants_call(view))
    }

    /// Whether the driver says from which buffer on it is to be called.
    #[inline]
    pub fn has_events(&self) -> bool {
        of!(self, ring => ring.format().event_idx)
    }

    /// Both.
    ///
    /// # Errors
    /// The ring is not mapped any more.
    #[inline]
    pub fn publish(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        self.show(view)?;
        self.decide(view)
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

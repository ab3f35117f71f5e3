//! The driver's end of a ring, split or packed. The back end can write anywhere at any time: what it says is read once
//! and believed only as far as it can be.

mod layout;
mod packed;
#[cfg(test)]
mod same;
mod split;

use guest_mem::View;
use layout::Places;
pub use layout::{BUFFER, Broken, Format, LEN, SIZE, Used};
use packed::Packed;
use split::Split;

/// A ring.
pub struct Ring {
    places: Places,
    kind: Kind,
}

enum Kind {
    Split(Split),
    Packed(Packed),
}

/// The same of either kind.
macro_rules! either {
    ($self:ident, $ring:ident => $what:expr) => {
        match &$self.kind {
            Kind::Split($ring) => $what,
            Kind::Packed($ring) => $what,
        }
    };
    (mut $self:ident, $ring:ident => $what:expr) => {
        match &mut $self.kind {
            Kind::Split($ring) => $what,
            Kind::Packed($ring) => $what,
        }
    };
}

impl Ring {
    /// A ring in zeroed memory.
    pub fn new(at: u64, format: Format) -> Self {
        let places = Places(at);
        let kind = if format.packed {
            Kind::Packed(Packed::new(places, format))
        } else {
            Kind::Split(Split::new(places, format.event_idx))
        };
        Self { places, kind }
    }

    pub fn descriptors(&self) -> u64 {
        self.places.descriptors()
    }

    pub fn driver(&self) -> u64 {
        self.places.driver()
    }

    pub fn device(&self) -> u64 {
        self.places.device()
    }

    /// Where it begins, as a back end is told it.
    pub fn base(&self) -> u32 {
        match self.kind {
            Kind::Split(_) => 0,
            // Slot 0 of the first lap, of what comes next and of what is used.
            Kind::Packed(_) => 0x8000_8000,
        }
    }

    /// Where buffer `n` is.
    pub fn buffer(&self, n: u16) -> u64 {
        self.places.buffer(n)
    }

    /// Chains that the device has.
    pub fn chains(&self) -> u16 {
        either!(self, ring => ring.chains())
    }

    /// Makes a chain of these buffers available, the last of which has `last` bytes. The device sees it when it is
    /// [published](Self::publish).
    pub fn offer(
        &mut self,
        view: &View<'_>,
        buffers: &[u16],
        last: u32,
        written: bool,
    ) -> Result<(), Broken> {
        either!(mut self, ring => ring.offer(view, buffers, last, written))
    }

    /// Shows the device what is available. `true`: it wants to be kicked.
    pub fn publish(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        either!(mut self, ring => ring.publish(view))
    }

    /// The next chain that the device has used. Its buffers are ours again.
    pub fn take(&mut self, view: &View<'_>) -> Result<Option<Used>, Broken> {
        either!(mut self, ring => ring.take(view))
    }

    /// The buffers of a chain that was taken, in order.
    pub fn chain(&self, used: Used, visit: impl FnMut(u16)) {
        either!(self, ring => ring.chain(used, visit));
    }

    /// Has the device call when it has used more. `true`: it has already.
    pub fn want_call(&mut self, view: &View<'_>) -> Result<bool, Broken> {
        either!(mut self, ring => ring.want_call(view))
    }

    /// Tells the device that it need not call.
    pub fn no_call(&mut self, view: &View<'_>) -> Result<(), Broken> {
        either!(mut self, ring => ring.no_call(view))
    }
}

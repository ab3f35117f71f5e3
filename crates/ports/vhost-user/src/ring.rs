//! The driver's end of a ring, split or packed. The back end can write anywhere at any time: what it says is read once
//! and believed only as far as it can be.

mod packed;
#[cfg(test)]
mod same;
mod split;

use std::sync::atomic::Ordering;

use guest_mem::{Fault, View};
use packed::Packed;
use split::Split;

/// Descriptors, and buffers: the first buffer of a chain is the chain's name.
pub const SIZE: u16 = 1024;
/// Bytes of a buffer.
pub const BUFFER: u64 = 2048;

/// Bytes of a descriptor.
const DESC: u64 = 16;
const ENTRIES: u64 = SIZE as u64;
/// Bytes of the areas of a ring, each of which begins a page.
const DESCS: u64 = DESC * ENTRIES;
const DRIVER: u64 = 4096;
const DEVICE: u64 = 12288;
/// Bytes of a ring with its buffers.
pub const LEN: u64 = DESCS + DRIVER + DEVICE + BUFFER * ENTRIES;

/// Another descriptor follows.
const NEXT: u16 = 1;
/// The device writes.
const WRITE: u16 = 2;
/// Want no call, or no kick.
const QUIET: u32 = 1;

/// The back end has broken the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl From<Fault> for Broken {
    fn from(_: Fault) -> Self {
        Broken
    }
}

/// A chain that the device has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Its first buffer.
    pub head: u16,
    /// How many it has.
    pub buffers: u16,
    /// The bytes that the device says to have written.
    pub len: u32,
}

/// What was agreed upon of rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    pub event_idx: bool,
    pub packed: bool,
    /// The device uses chains in the order in which it was given them, and may name the last of several only. Of packed
    /// rings.
    pub in_order: bool,
}

/// Where the parts of a ring that begins here are.
#[derive(Clone, Copy)]
struct Places(u64);

impl Places {
    fn descriptors(self) -> u64 {
        self.0
    }

    fn driver(self) -> u64 {
        self.0 + DESCS
    }

    fn device(self) -> u64 {
        self.0 + DESCS + DRIVER
    }

    fn buffer(self, n: u16) -> u64 {
        self.0 + DESCS + DRIVER + DEVICE + BUFFER * u64::from(n)
    }
}

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

fn load(view: &View<'_>, at: u64) -> Result<u32, Broken> {
    let words = view.words(at, 4).ok_or(Broken)?;
    Ok(words.load(0, Ordering::Acquire))
}

fn store(view: &View<'_>, at: u64, value: u32, order: Ordering) -> Result<(), Broken> {
    let words = view.words(at, 4).ok_or(Broken)?;
    words.store(0, value, order);
    Ok(())
}

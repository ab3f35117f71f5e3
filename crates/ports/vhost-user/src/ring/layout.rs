//! What rings of either kind have: where their parts are, what their words mean.

use std::sync::atomic::Ordering;

use guest_mem::{Fault, View};

/// Descriptors, and buffers: the first buffer of a chain is the chain's name.
pub const SIZE: u16 = 1024;
/// Bytes of a buffer.
pub const BUFFER: u64 = 2048;

/// Bytes of a descriptor.
pub(super) const DESC: u64 = 16;
pub(super) const ENTRIES: u64 = SIZE as u64;
/// Bytes of the areas of a ring, each of which begins a page.
pub(super) const DESCS: u64 = DESC * ENTRIES;
pub(super) const DRIVER: u64 = 4096;
pub(super) const DEVICE: u64 = 12288;
/// Bytes of a ring with its buffers.
pub const LEN: u64 = DESCS + DRIVER + DEVICE + BUFFER * ENTRIES;

/// Another descriptor follows.
pub(super) const NEXT: u16 = 1;
/// The device writes.
pub(super) const WRITE: u16 = 2;
/// Want no call, or no kick.
pub(super) const QUIET: u32 = 1;

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
pub(super) struct Places(pub(super) u64);

impl Places {
    pub(super) fn descriptors(self) -> u64 {
        self.0
    }

    pub(super) fn driver(self) -> u64 {
        self.0 + DESCS
    }

    pub(super) fn device(self) -> u64 {
        self.0 + DESCS + DRIVER
    }

    pub(super) fn buffer(self, n: u16) -> u64 {
        self.0 + DESCS + DRIVER + DEVICE + BUFFER * u64::from(n)
    }
}

pub(super) fn load(view: &View<'_>, at: u64) -> Result<u32, Broken> {
    let words = view.words(at, 4).ok_or(Broken)?;
    Ok(words.load(0, Ordering::Acquire))
}

pub(super) fn store(view: &View<'_>, at: u64, value: u32, order: Ordering) -> Result<(), Broken> {
    let words = view.words(at, 4).ok_or(Broken)?;
    words.store(0, value, order);
    Ok(())
}

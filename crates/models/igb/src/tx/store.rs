//! What a turn of a queue remembers of the packets it has gathered.

use intel::{Fetcher, Ring};

use crate::core::queue::TxMemory;

/// Storage of a turn, kept from call to call.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub fetcher: Fetcher,
    pub marks: Vec<Mark>,
    /// What marks remember, the first from before the turn.
    pub memories: Vec<TxMemory>,
    /// Descriptors to be written back.
    pub written: Vec<u32>,
}

/// A place up to which the ring is done once `frames` of the batch are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub frames: u32,
    /// The next descriptor.
    pub next: u32,
    /// What the walk carried there, in the list of memories.
    pub memory: u32,
    /// Descriptors to write back up to here, in the list of them.
    pub written: u32,
    /// A descriptor to be reported was passed.
    pub report: bool,
    /// A packet with segmentation ends here.
    pub tso: Option<Tso>,
    /// The time at which the packet that ends here leaves is wanted.
    pub stamp: bool,
    /// It ends so many packets of one descriptor and one frame each, without marks of their own; what
    /// was there before the first of them.
    pub run: u32,
    pub before: Before,
}

/// What a run of packets begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    pub written: u32,
    pub report: bool,
}

impl Mark {
    /// The place inside of the run where `taken` frames are through.
    pub(crate) fn cut(&self, taken: usize, ring: &Ring, written: &[u32]) -> Option<Mark> {
        let back = self.frames.checked_sub(taken as u32)?;
        if back >= self.run {
            return None;
        }
        let next = ring.before(self.next, back);
        let behind = |index: u32| ring.distance(next, index) < back;
        let left = written.get(..self.written as usize).unwrap_or(&[]);
        let own = left.get(self.before.written as usize..).unwrap_or(&[]);
        let gone = own.iter().filter(|index| behind(**index)).count() as u32;
        let written = self.written - gone;
        Some(Mark {
            frames: taken as u32,
            next,
            written,
            report: self.before.report || written > self.before.written,
            run: self.run - back,
            ..*self
        })
    }
}

/// How a packet with segmentation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tso {
    Sent,
    /// Its length was not the one announced, or it could not be cut.
    Failed,
}

//! What belongs to the queues of each direction.

use std::sync::atomic::{AtomicBool, AtomicU16};

use datapath::Habit;
use frame::{Finisher, MAX_BATCH};
use guest_mem::Head;
use model::Nanos;
use parking_lot::Mutex;

use crate::core::chain::{Chain, One};
use crate::core::coalesce::Calls;
use crate::core::fate::Fate;
use crate::core::ring::Ring;
use crate::core::station::Station;
use crate::core::stats::{RxStats, Tally, TxStats};
use crate::core::steering::Steering;
use crate::core::write_log::Writes;

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It receives, for this pair.
    Rx(usize),
    /// It transmits, for this pair.
    Tx(usize),
    /// It takes commands.
    Ctrl,
}

/// The transmit queues with their storage.
pub struct TxQueues {
    /// Their rings, by pair, while they are enabled and not broken.
    pub rings: Vec<Option<Ring>>,
    /// When their drivers are called.
    pub calls: Calls,
    /// What they have done.
    pub stats: Vec<TxStats>,
    /// The pair that is served first.
    pub first: usize,
    /// Whether runs are tried.
    pub runs: Habit,
    /// Storage.
    pub alike: Alike,
    /// Storage.
    pub chain: Chain,
    /// Packets of the batch and between them, in order.
    pub taken: Vec<(u16, Fate)>,
    /// How those of them begin that are dropped, in order, while somebody looks.
    pub unsent: Vec<Vec<u8>>,
    /// Some of them are to be cut here.
    pub narrow: bool,
    /// Cuts what the sink does not take whole.
    pub finisher: Finisher,
    /// What is told of writes.
    pub writes: Writes,
    /// Queues whose packets go nowhere, a bit for each pair.
    pub discarded: u32,
}

/// Receive buffers that are taken before the first of them is filled.
pub const ROOM: usize = 64;

/// Storage for packets that go the short way.
pub struct Alike {
    /// Their buffers.
    pub ones: Box<[One]>,
    /// Where their frames are.
    pub at: Box<[u64]>,
    /// Their lengths, where they differ.
    pub lens: Box<[u16]>,
    /// How these begin.
    pub heads: Box<[Head]>,
    /// The last ones differed, so the next are taken for such at once.
    pub mixed: bool,
}

impl Default for Alike {
    fn default() -> Self {
        Self {
            ones: vec![One::default(); MAX_BATCH].into(),
            at: vec![0; MAX_BATCH].into(),
            lens: vec![0; MAX_BATCH].into(),
            heads: vec![Head::default(); MAX_BATCH].into(),
            mixed: false,
        }
    }
}

/// The receive queues with their storage.
pub struct RxQueues {
    /// Their rings, by pair, while they are enabled and not broken.
    pub rings: Vec<Option<Ring>>,
    /// When their drivers are called.
    pub calls: Calls,
    /// What they have done.
    pub stats: Vec<RxStats>,
    /// Since when they have no buffers.
    pub full_since: Vec<Option<Nanos>>,
    /// What is received.
    pub station: Station,
    /// By which of them.
    pub steering: Steering,
    /// Storage.
    pub scratch: RxScratch,
}

/// What the placing of a frame needs.
#[derive(Default)]
pub struct RxScratch {
    /// Storage.
    pub chain: Chain,
    /// Storage: the buffers it takes, and their bytes.
    pub buffers: Vec<(u16, u32)>,
    /// Storage.
    pub room: Box<Room>,
    /// What is told of writes.
    pub writes: Writes,
}

/// Storage for buffers that take frames in the short way.
#[derive(Debug)]
pub struct Room {
    ones: [One; ROOM],
    places: [u64; ROOM],
}

impl Room {
    /// Room for the buffers of so many frames, and for where they are.
    #[inline(always)]
    pub fn of(&mut self, frames: usize) -> (&mut [One], &mut [u64]) {
        let most = frames.min(ROOM);
        (&mut self.ones[..most], &mut self.places[..most])
    }
}

impl Default for Room {
    fn default() -> Self {
        Self {
            ones: [One::default(); ROOM],
            places: [0; ROOM],
        }
    }
}

/// The control queue.
#[derive(Default)]
pub struct CtrlQueue {
    /// The ring, while it is enabled and not broken.
    pub ring: Option<Ring>,
    /// Storage.
    pub chain: Chain,
    /// Storage: the command.
    pub command: Vec<u8>,
    /// Storage: what is behind its answer.
    pub reply: Vec<u8>,
    /// Commands, and those that were done.
    pub commands: (u64, u64),
}

/// How interrupts reach the driver.
#[derive(Debug)]
pub struct Lines {
    /// By message, not by line.
    pub msix: AtomicBool,
    /// The interrupt status. Held while the line follows it.
    pub isr: Mutex<u8>,
    /// Vector of the configuration.
    pub config: AtomicU16,
    /// Vectors of the queues.
    pub queues: Box<[AtomicU16]>,
    /// How often queues were notified, and their drivers called.
    pub tallies: Box<[Tally]>,
}

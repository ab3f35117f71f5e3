//! The transmit queue: its ring, and what the transmitter remembers from call to call.

use std::cell::Cell;

use frame::MAX_BATCH;
use intel::tx::{Borrowed, FanOut, Habit, Position, Store};

use intel::{Planned, RingIds, RingPlace};

use crate::core::context::Contexts;
use crate::core::csb::TxCsb;
use crate::regs as r;

/// The registers of the ring.
pub(crate) const RING: RingIds = RingIds {
    base_low: r::TDBAL,
    base_high: r::TDBAH,
    len: r::TDLEN,
    head: r::TDH,
    tail: r::TDT,
};

/// Fewest frames gathered at once for a sink that was short of room.
const FEWEST: usize = 16;

thread_local! {
    /// Storage of batches, between calls.
    pub(crate) static SHELF: Cell<Option<Box<Store<Contexts>>>> = const { Cell::new(None) };
}

/// What the transmitter remembers from call to call.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct TxState {
    pub(crate) plan: Planned<TxPlan>,
    pub(crate) stride: Stride,
    pub(crate) fan_out: FanOut,
    pub(crate) store: Borrowed<Contexts>,
    pub(crate) runs: Habit,
    /// The last run ended before its work did: it is owed another.
    pub(crate) unfinished: bool,
    /// With the contexts behind what each run looks at.
    pub(crate) position: Position<Contexts>,
    /// The guest's CSB.
    pub(crate) csb: TxCsb,
}

/// What the registers say, as long as the set-up is the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TxPlan {
    /// The transmitter may send.
    pub(crate) on: bool,
    /// What it sends comes straight back.
    pub(crate) loopback: bool,
    /// TCTL.PSP.
    pub(crate) pad: bool,
    /// The type of tags that descriptors may ask for.
    pub(crate) vlan: Option<u16>,
    pub(crate) place: RingPlace,
    /// Descriptors left at which an interrupt says so (TXDCTL.LWTHRESH).
    pub(crate) low: u32,
}

/// How many frames are gathered at once: what a sink has no room for is gathered again later, so it is
/// offered at most about twice what it had room for last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride {
    pub(crate) frames: usize,
    /// Taken since the run began.
    pub(crate) taken: usize,
}

impl Default for Stride {
    fn default() -> Self {
        Stride {
            frames: MAX_BATCH,
            taken: 0,
        }
    }
}

impl Stride {
    /// So many of `offered` frames were taken.
    pub(crate) fn learn(&mut self, taken: usize, offered: usize) {
        self.taken += taken;
        if taken < offered {
            self.frames = (2 * self.taken).clamp(FEWEST, MAX_BATCH);
        } else if offered >= self.frames {
            self.frames = (2 * self.frames).min(MAX_BATCH);
        }
    }
}

impl TxState {
    pub(crate) fn reset(&mut self) {
        self.position = Position::default();
        self.unfinished = false;
        self.csb.reset();
    }
}

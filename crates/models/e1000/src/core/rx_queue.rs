//! The receive queue: its ring, and what the receiver remembers from call to call.

use datapath::MIN_FRAME;
use intel::rx::RunPlan;
use intel::{Ring, RingIds, RingPlace};
use lease::{Guard, Lessor};

use crate::core::csb::RxCsb;
use crate::core::fifo::Fifo;
use crate::core::stats::{Group, Tally};
use crate::regs as r;

pub(crate) const RING: RingIds = RingIds {
    base_low: r::RDBAL,
    base_high: r::RDBAH,
    len: r::RDLEN,
    head: r::RDH,
    tail: r::RDT,
};

/// How the frames of a run are received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunWay {
    /// The second word of a done descriptor, but for the length, and for the verdict if there is one.
    pub(crate) word: u64,
    pub(crate) place: RingPlace,
    /// RXCSUM, by which checksums are judged; `None`: these frames have none.
    pub(crate) judged: Option<u32>,
    pub(crate) group: Group,
    /// Bytes of the FCS that are in a buffer.
    pub(crate) fcs: u8,
    /// RSRPD: those that are no longer in a buffer are small.
    pub(crate) small: u16,
    pub(crate) rctl: u32,
    /// RDTR and RADV.
    pub(crate) delays: (u32, u32),
}

impl RunWay {
    /// Bytes that a frame of `len` has in its buffer.
    #[inline]
    pub(crate) fn in_buffer(&self, len: usize) -> usize {
        len.max(MIN_FRAME) + self.fcs()
    }

    /// Bytes of the FCS that are in a buffer.
    #[inline]
    pub(crate) fn fcs(&self) -> usize {
        self.fcs.into()
    }

    /// Whether a frame with so many bytes in its buffer is a small one.
    #[inline]
    pub(crate) fn is_small(&self, in_buffer: usize) -> bool {
        in_buffer <= self.small.into()
    }
}

/// What the receiver remembers from call to call.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct RxState {
    /// What the registers say about runs.
    pub(crate) run: RunPlan<RunWay>,
    /// Frames that found no descriptor.
    pub(crate) fifo: Fifo,
    /// Descriptors from RDH on that are given out and not written back.
    pub(crate) leased: u32,
    /// Lists for those who wait with what they have to write back.
    pub(crate) spare: Vec<Vec<u64>>,
    /// The guest's CSB.
    pub(crate) csb: RxCsb,
    /// What the registers say about segments of large frames.
    pub(crate) cut: RunPlan<RunWay>,
}

pub(crate) type RxLock = Lessor<RxState, Done>;
pub(crate) type RxGuard<'a> = Guard<'a, RxState, Done>;

impl RxState {
    pub(crate) fn reset(&mut self) {
        self.fifo.clear();
    }
}

/// Counts gathered under way, which become true with the frames they are about.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub tally: Tally,
    pub frames: u64,
    pub bytes: u64,
    pub missed: u64,
    /// Frames lost on the way into their buffers.
    pub filtered: u64,
    pub fetched: u64,
    /// A frame not longer than RSRPD came.
    pub small: bool,
}

/// Filled buffers that wait for older ones to be published.
#[derive(Debug)]
pub(crate) struct Done {
    /// From its head on.
    pub ring: Ring,
    /// The second words of its descriptors.
    pub words: Vec<u64>,
    pub rctl: u32,
    pub account: Account,
}

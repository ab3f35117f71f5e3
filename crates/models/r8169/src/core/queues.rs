//! The rings, and what each side remembers from call to call.

use std::sync::atomic::{Ordering, fence};

use datapath::Habit;
use datapath::csb::{RxCsb, TxCsb};
use frame::Finisher;
use guest_mem::{Fault, Head, View};
use wire::ETHERNET_HEADER;

use crate::core::stats::Stat;
use crate::regs::bits::desc;

/// Most descriptors of a ring. Where it ends is known only by EOR.
pub(crate) const MOST: u32 = 1024;
/// Bytes of a descriptor.
const SIZE: u64 = 16;

/// A descriptor, copied once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Desc {
    pub index: u32,
    pub opts1: u32,
    pub opts2: u32,
    pub addr: u64,
}

impl Desc {
    pub fn is(&self, bit: u32) -> bool {
        self.opts1 & bit != 0
    }

    /// What its words say, if it is the chip's.
    #[inline]
    fn of(index: u32, words: u64, addr: u64) -> Option<Desc> {
        let (opts1, opts2) = (words as u32, (words >> 32) as u32);
        (opts1 & desc::OWN != 0).then_some(Desc {
            index,
            opts1,
            opts2,
            addr,
        })
    }

    /// The index of the one behind it.
    pub fn next(&self) -> u32 {
        if self.is(desc::EOR) || self.index + 1 >= MOST {
            0
        } else {
            self.index + 1
        }
    }
}

/// Where a descriptor is.
pub(crate) fn place(base: u64, index: u32) -> u64 {
    base.wrapping_add(u64::from(index) * SIZE)
}

/// The descriptor at `index`, if it is the chip's.
///
/// # Errors
/// It is not in memory.
#[inline]
pub(crate) fn fetch(view: &View<'_>, base: u64, index: u32) -> Result<Option<Desc>, Fault> {
    let at = place(base, index);
    // Most rings lie in one region, and the last one used.
    let Some(slice) = view.read_run(at, SIZE) else {
        return fetch_anywhere(view, at, index);
    };
    let [words, _] = slice.pairs().next().unwrap_or_default();
    // Written before OWN was, so read behind it.
    fence(Ordering::Acquire);
    let [_, addr] = slice.pairs().next().unwrap_or_default();
    Ok(Desc::of(index, words, addr))
}

/// The same wherever it is.
#[cold]
fn fetch_anywhere(view: &View<'_>, at: u64, index: u32) -> Result<Option<Desc>, Fault> {
    // Both words at one moment: fewer bytes would be read one by one, and OWN is the last that the driver writes.
    let mut words = [0; 8];
    view.read_acquire(at, &mut words)?;
    let words = u64::from_le_bytes(words);
    if words as u32 & desc::OWN == 0 {
        return Ok(None);
    }
    let mut addr = [0; 8];
    view.read(at + 8, &mut addr)?;
    Ok(Desc::of(index, words, u64::from_le_bytes(addr)))
}

/// What becomes of a packet that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is the next frame of the batch, of so many bytes. `segments`: it is that many frames on the wire. `narrow`: they
    /// are too short for a sink to be burdened with the cutting.
    Frame {
        len: u32,
        segments: u32,
        narrow: bool,
    },
    /// It is dropped.
    Dropped(Bad),
}

/// Why a packet is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    Runt,
    TooLong,
    Chain,
    Gso,
    Fault,
}

/// Storage for packets that ask for nothing: where their frames are, how long they are, how they begin, and what becomes of their
/// descriptors' first words.
#[derive(Debug, Default)]
pub(crate) struct Alike {
    pub at: Vec<u64>,
    pub lens: Vec<u16>,
    pub heads: Vec<Head>,
    pub words: Vec<u64>,
}

/// The transmit ring with its storage.
#[derive(Debug, Default)]
pub(crate) struct TxState {
    /// The descriptor that is looked at next.
    pub next: u32,
    /// Packets of the batch and between them, in order: how many descriptors each has.
    pub taken: Vec<(u32, Fate)>,
    /// Their descriptors.
    pub descs: Vec<Desc>,
    /// Some of them are to be cut here.
    pub narrow: bool,
    pub finisher: Finisher,
    /// Whether runs are tried.
    pub runs: Habit,
    pub alike: Alike,
    /// The last run ended before its work did.
    pub unfinished: bool,
    /// Descriptors of the ring; 0 until EOR was seen.
    ring: u32,
    /// Descriptors given back in this run.
    pub given: u32,
    pub csb: TxCsb,
}

impl TxState {
    pub fn reset(&mut self) {
        self.next = 0;
        self.unfinished = false;
        self.ring = 0;
        self.csb.reset();
    }

    /// Descriptors that the ring has, or could have.
    pub fn ring(&self) -> u32 {
        if self.ring == 0 { MOST } else { self.ring }
    }

    /// The turn has found that it has so many, or nothing.
    pub fn learn_ring(&mut self, descs: u32) {
        if descs < MOST {
            self.ring = descs;
        }
    }
}

/// How frames that begin alike are received, if nothing else decides: where the ring is, their group, what all descriptors say but for the
/// length, most bytes with FCS, and whether headers and checksums are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunWay {
    pub base: u64,
    pub group: Group,
    pub word: u64,
    pub most: usize,
    pub judge: bool,
}

/// What a set-up says about frames with a header, as long as it is the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunPlan {
    pub generation: u32,
    pub header: [u8; ETHERNET_HEADER],
    /// `None`: they take the general way.
    pub way: Option<RunWay>,
}

/// The receive ring with its storage.
#[derive(Debug, Default)]
pub(crate) struct RxState {
    /// The descriptor that is looked at next.
    pub next: u32,
    /// Filled descriptors of the frames under way: index, and the two words to be written.
    pub filled: Vec<(u32, u32, u32)>,
    /// The same as they are kept, if they are.
    pub words: Vec<u64>,
    /// Descriptors of one frame.
    pub descs: Vec<Desc>,
    pub tally: RxTally,
    pub plan: RunPlan,
    /// Descriptors of the ring; 0: it was not walked for its end yet.
    pub ring: u32,
    pub csb: RxCsb,
    /// With a CSB: looks at the ring in vain since the last frame.
    pub vain: u32,
    /// Where the oldest lease begins, if one is out: what is from there on has OWN, and is somebody's.
    pub fence: Option<u32>,
}

impl RxState {
    pub fn reset(&mut self) {
        self.next = 0;
        self.ring = 0;
        self.vain = 0;
        self.fence = None;
    }
}

/// Counts of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RxTally {
    pub frames: u32,
    pub bytes: u64,
    /// Descriptors filled.
    pub buffers: u32,
    pub groups: [u64; 3],
    /// Frames that the filter refused.
    pub filtered: u32,
    /// Buffers of 0 bytes that were met.
    pub empty: u32,
    pub errors: u32,
    pub fault: bool,
}

impl RxTally {
    /// Both together.
    pub fn add(&mut self, other: &RxTally) {
        let RxTally {
            frames,
            bytes,
            buffers,
            groups,
            filtered,
            empty,
            errors,
            fault,
        } = other;
        self.frames += frames;
        self.bytes += bytes;
        self.buffers += buffers;
        for (sum, n) in self.groups.iter_mut().zip(groups) {
            *sum += n;
        }
        self.filtered += filtered;
        self.empty += empty;
        self.errors += errors;
        self.fault |= fault;
    }
}

/// To whom a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Station,
    Broadcast,
    Multicast,
}

impl Group {
    pub fn of(dst: [u8; 6]) -> Self {
        match dst {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Group::Broadcast,
            [first, ..] if first & 1 != 0 => Group::Multicast,
            _ => Group::Station,
        }
    }

    pub const fn stat(self) -> Stat {
        match self {
            Group::Station => Stat::RxUnicast,
            Group::Broadcast => Stat::RxBroadcast,
            Group::Multicast => Stat::RxMulticast,
        }
    }

    pub const ALL: [Group; 3] = [Group::Station, Group::Broadcast, Group::Multicast];
}

#[cfg(test)]
mod proofs;

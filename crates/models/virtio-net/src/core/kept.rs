//! What of the device is in memory that outlives its process ([`model::Kept`]).
//!
//! Most of it is in the guest's memory already. The index of a split ring's used elements says what the driver was given: all of a
//! batch or nothing. In a packed ring each used descriptor says whether it is of this lap, so that from any place not more than a lap
//! back the end of what was given is found, if it is written in order and is one slot after the other. So a word of a ring says only
//! what the ring does not: up to where packets were perhaps sent, where a packed ring was last, and a used descriptor that stands for
//! several slots. Another says which frame is being given to the driver in several buffers.

pub(crate) use datapath::kept::put;
use model::Kept;

/// Where a test lets the process die.
#[cfg(test)]
pub(crate) use crate::kept_tests::Steps;
#[cfg(not(test))]
pub(crate) type Steps = ();

/// In the word of a ring: where what was taken ends, and how many slots the used descriptor has that is being written.
const END_AT: u32 = 16;
const SLOTS_AT: u32 = 32;

/// Where a ring is, by its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stand {
    /// What is used ends there, or further on.
    pub from: u16,
    /// What was taken ends there.
    pub end: u16,
    /// A used descriptor for so many slots is being written at `from`; 0: none for more than one.
    pub slots: u16,
}

/// A frame that is given to the driver in several buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Where they begin.
    pub from: u16,
    /// Where they end.
    pub end: u16,
    /// Bytes in the last of them; the others are full.
    pub last: u32,
}

/// The words of a ring.
#[derive(Clone, Debug)]
pub struct KeptRing {
    kept: Kept,
    at: usize,
}

impl KeptRing {
    /// Those of the ring of this queue.
    pub fn new(kept: &Kept, queue: usize) -> Self {
        Self {
            kept: kept.clone(),
            at: 2 * queue,
        }
    }

    /// What the first says.
    pub(crate) fn stand(&self) -> Stand {
        let word = self.kept.get(self.at);
        let part = |at: u32| (word >> at) as u16;
        Stand {
            from: part(0),
            end: part(END_AT),
            slots: part(SLOTS_AT),
        }
    }

    /// Stores it.
    #[inline]
    pub(crate) fn put(&self, Stand { from, end, slots }: Stand) {
        let word = u64::from(from) | u64::from(end) << END_AT | u64::from(slots) << SLOTS_AT;
        put::<Steps>(&self.kept, self.at, word);
    }

    /// What the second says.
    pub(crate) fn pieces(&self) -> Pieces {
        let word = self.kept.get(self.at + 1);
        Pieces {
            from: word as u16,
            end: (word >> END_AT) as u16,
            last: (word >> SLOTS_AT) as u32,
        }
    }

    /// Stores it. By default there is no such frame.
    pub(crate) fn put_pieces(&self, Pieces { from, end, last }: Pieces) {
        let word = u64::from(from) | u64::from(end) << END_AT | u64::from(last) << SLOTS_AT;
        put::<Steps>(&self.kept, self.at + 1, word);
    }
}

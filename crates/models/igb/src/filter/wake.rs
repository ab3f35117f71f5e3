//! Wake-up (§5.6, §8.20): the 82576's registers for what all chips have in common.

use intel::wake::{Ids, Parts, REACH, Wakes};

use crate::core::function::Function;
use crate::filter::address::FILTERS;
use crate::regs as r;

static IDS: Ids = intel::wake_ids!(r);

/// Words of a flexible filter, and which of them has its length.
const FILTER: usize = 64;
const LENGTH: usize = 63;

/// Of a PF only: the registers are its table's.
impl Wakes for Function {
    fn parts(&self) -> Parts<'_> {
        Parts {
            file: &self.file,
            ids: &IDS,
            filters: &FILTERS,
            wake: &self.wake,
            count: &self.counters.wake_ups,
        }
    }

    /// Eight bytes, and a mask of as many bits, in each four words (§8.20.13).
    fn flexible(&self, n: u32, bytes: &[u8]) -> bool {
        let word = |at: usize| self.file.get_at(r::FHFT, (n as usize * FILTER + at) as u32);
        let len = (word(LENGTH) & 0xff) as usize;
        if len == 0 || len > REACH || len > bytes.len() {
            return false;
        }
        bytes[..len].iter().enumerate().all(|(i, byte)| {
            let row = i / 8 * 4;
            let compared = word(row + 2) >> (i % 8) & 1 == 1;
            let wanted = word(row + i % 8 / 4).to_le_bytes()[i % 4];
            !compared || *byte == wanted
        })
    }
}

//! Wake-up (§5.6, §8.20): the 82576's registers for what all chips have in common.

use intel::wake::{Ids, Parts, REACH, Wakes};

use crate::core::function::Function;
use crate::filter::address::FILTERS;
use crate::regs as r;
use crate::regs::bits::fhft;

static IDS: Ids = intel::wake_ids!(r);

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

    fn flexible(&self, n: u32, bytes: &[u8]) -> bool {
        let word = |at: usize| {
            let at = n as usize * fhft::FILTER + at;
            self.file.get_at(r::FHFT, at as u32)
        };
        let len = (word(fhft::LENGTH_WORD) & fhft::LENGTH) as usize;
        if len == 0 || len > REACH || len > bytes.len() {
            return false;
        }
        bytes[..len].iter().enumerate().all(|(i, byte)| {
            let (row, column) = (i / fhft::BYTES * fhft::ROW, i % fhft::BYTES);
            let compared = word(row + fhft::MASK) >> column & 1 == 1;
            let wanted = word(row + column / 4).to_le_bytes()[column % 4];
            !compared || *byte == wanted
        })
    }
}

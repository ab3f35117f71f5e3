//! Wake-up (manual §6.4, §13.6): the 82540EM's registers for what all chips have in common.

use intel::wake::{Ids, Parts, REACH, Wakes};

use crate::core::chip::Chip;
use crate::filter::address::FILTERS;
use crate::regs as r;

static IDS: Ids = intel::wake_ids!(r);

impl Wakes for Chip {
    fn parts(&self) -> Parts<'_> {
        Parts {
            file: &self.file,
            ids: &IDS,
            filters: &FILTERS,
            wake: &self.wake,
            count: &self.counters.wake_ups,
        }
    }

    /// The bytes under the mask are those of the table, over the whole length of the filter.
    fn flexible(&self, n: u32, bytes: &[u8]) -> bool {
        let len = self.file.get_at(r::FFLT, n) as usize;
        if len == 0 || len > REACH || len > bytes.len() {
            return false;
        }
        (0..).zip(&bytes[..len]).all(|(i, byte)| {
            let compared = self.file.get_at(r::FFMT, i) >> n & 1 == 1;
            let wanted = (self.file.get_at(r::FFVT, i) >> (8 * n)) as u8;
            !compared || *byte == wanted
        })
    }
}

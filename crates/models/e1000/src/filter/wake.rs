//! Wake-up (manual §6.4, §13.6): what the 82540EM's registers say to what all chips have in common.

use std::sync::atomic::AtomicU64;

use intel::wake::{Ids, REACH, Sieve, WakeUp, Wakes};
use regs::File;

use crate::core::chip::Chip;
use crate::filter::address as filter;
use crate::regs as r;
use crate::regs::bits::rctl;

static IDS: Ids = intel::wake_ids!(r);

/// What is ours, as the registers say.
struct Ours<'a>(&'a File);

impl Sieve for Ours<'_> {
    fn address(&self, dst: [u8; 6]) -> bool {
        filter::address(self.0, self.0.get(r::RCTL), dst)
    }

    fn exact(&self, dst: [u8; 6]) -> bool {
        filter::exact(self.0, dst)
    }

    fn group(&self, dst: [u8; 6]) -> bool {
        let rctl = self.0.get(r::RCTL);
        rctl & rctl::MPE != 0 || filter::hashed(self.0, rctl, dst)
    }

    fn tag(&self) -> u16 {
        self.0.get(r::VET) as u16
    }

    /// The bytes under the mask are those of the table, over the whole length of the filter.
    fn flexible(&self, n: u32, bytes: &[u8]) -> bool {
        let len = self.0.get_at(r::FFLT, n) as usize;
        if len == 0 || len > REACH || len > bytes.len() {
            return false;
        }
        (0..).zip(&bytes[..len]).all(|(i, byte)| {
            let compared = self.0.get_at(r::FFMT, i) >> n & 1 == 1;
            let wanted = (self.0.get_at(r::FFVT, i) >> (8 * n)) as u8;
            !compared || *byte == wanted
        })
    }
}

impl Wakes for Chip {
    fn file(&self) -> &File {
        &self.file
    }

    fn wake_ids(&self) -> &'static Ids {
        &IDS
    }

    fn wake_up(&self) -> &WakeUp {
        &self.wake
    }

    fn sieve(&self) -> impl Sieve + '_ {
        Ours(&self.file)
    }

    fn wake_ups(&self) -> &AtomicU64 {
        &self.counters.wake_ups
    }
}

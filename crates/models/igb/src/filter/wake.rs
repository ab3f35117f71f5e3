//! Wake-up (§5.6, §8.20): what the 82576's registers say to what all chips have in common.

use std::sync::atomic::AtomicU64;

use intel::wake::{Ids, REACH, Sieve, WakeUp, Wakes};
use regs::File;

use crate::core::function::Function;
use crate::filter::address as filter;
use crate::regs as r;
use crate::regs::bits::rctl;

static IDS: Ids = intel::wake_ids!(r);

/// Words of a flexible filter, and which of them has its length.
const FILTER: usize = 64;
const LENGTH: usize = 63;

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
        rctl & rctl::MPE != 0 || filter::hashed(self.0, r::MTA, rctl, dst)
    }

    fn tag(&self) -> u16 {
        self.0.get(r::VET) as u16
    }

    /// Eight bytes, and a mask of as many bits, in each four words (§8.20.13).
    fn flexible(&self, n: u32, bytes: &[u8]) -> bool {
        let word = |at: usize| self.0.get_at(r::FHFT, (n as usize * FILTER + at) as u32);
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

/// Of a PF only: the registers are its table's.
impl Wakes for Function {
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

//! The statistics that a driver has written to memory (DTCCR).

use std::sync::atomic::{AtomicU64, Ordering};

use datapath::counters::{count, count_alone};

/// Bytes in memory.
pub(crate) const BYTES: usize = 64;

/// What is counted, in the order in which it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    TxOk,
    RxOk,
    TxError,
    RxError,
    Missed,
    RxUnicast,
    RxBroadcast,
    RxMulticast,
}

/// How many there are.
pub(crate) const STATS: usize = 8;

/// Those of each side are added to under that side's lock, and never taken back: a reset, which comes from another side,
/// remembers what there was.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    counted: [AtomicU64; STATS],
    before: [AtomicU64; STATS],
}

impl Stats {
    #[inline]
    pub fn add(&self, stat: Stat, n: u64) {
        count_alone(&self.counted[stat as usize], n);
    }

    /// As [`Stats::add`], without a lock.
    pub fn add_shared(&self, stat: Stat, n: u64) {
        count(&self.counted[stat as usize], n);
    }

    fn forget(&self, stat: usize) {
        let now = self.counted[stat].load(Ordering::Relaxed);
        self.before[stat].store(now, Ordering::Relaxed);
    }

    /// RX_MISSED was written.
    pub fn clear_missed(&self) {
        self.forget(Stat::Missed as usize);
    }

    pub fn reset(&self) {
        (0..STATS).for_each(|stat| self.forget(stat));
    }

    pub fn get(&self) -> [u64; STATS] {
        std::array::from_fn(|stat| {
            let before = self.before[stat].load(Ordering::Relaxed);
            self.counted[stat]
                .load(Ordering::Relaxed)
                .wrapping_sub(before)
        })
    }

    /// As they were saved. Nothing is counted meanwhile.
    pub fn set(&self, values: [u64; STATS]) {
        for (stat, value) in values.into_iter().enumerate() {
            self.counted[stat].store(value, Ordering::Relaxed);
            self.before[stat].store(0, Ordering::Relaxed);
        }
    }

    /// As they go to memory. There are no collisions, misalignments, aborts or underruns.
    pub fn dump(&self) -> [u8; BYTES] {
        let all = self.get();
        let of = |stat: Stat| all[stat as usize];
        let mut bytes = [0; BYTES];
        let mut put = |at: usize, value: u64, len: usize| {
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        put(0, of(Stat::TxOk), 8);
        put(8, of(Stat::RxOk), 8);
        put(16, of(Stat::TxError), 8);
        put(24, of(Stat::RxError), 4);
        put(28, of(Stat::Missed), 2);
        put(40, of(Stat::RxUnicast), 8);
        put(48, of(Stat::RxBroadcast), 8);
        put(56, of(Stat::RxMulticast), 4);
        bytes
    }
}

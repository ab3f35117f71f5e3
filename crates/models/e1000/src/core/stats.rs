//! The statistics registers (manual §13.7): read to clear, sticking at their maximum.
//!
//! Those of the receive side are added to under the lock of that side, those of the transmit side
//! under the other: one writer at a time, so adding needs no locked instruction.

pub(crate) use intel::stats::{Group, Many, Stat, Tally};
use intel::stats::{StatRegs, Tables};
use parking_lot::Mutex;
use regs::Id;

use crate::regs as r;

/// Which register shows what.
pub(crate) static TABLES: Tables = Tables {
    single: intel::single_stats!(r, (r::TSCTFC, Stat::Tsctfc)),
    pairs: intel::paired_stats!(r),
};

/// The counters, written by the data path and read by the register side.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stats {
    pub(crate) counts: intel::stats::Stats,
    pub(crate) reading: Mutex<StatRegs>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            counts: Default::default(),
            reading: Mutex::new(StatRegs::new(&TABLES)),
        }
    }
}

impl Stats {
    /// Adds what a batch counted. Under the lock of the side it is of.
    pub(crate) fn add(&self, tally: &Tally) {
        self.counts.add_alone(tally);
    }

    /// Counts `n` good frames received, each of `len` bytes with FCS. Under the lock of that side.
    #[inline]
    pub(crate) fn received(&self, n: u64, len: usize, group: Group) {
        self.counts.received_alone(n, len, group);
    }

    /// The same of frames sent.
    #[inline]
    pub(crate) fn sent(&self, n: u64, len: usize, group: Group) {
        self.counts.sent_alone(n, len, group);
    }

    pub(crate) fn clear(&self) {
        self.reading.lock().clear(|stat| self.counts.total(stat));
    }

    /// Reads a statistics register, with the clearing that belongs to it. `None` for registers
    /// that nothing counts into.
    pub(crate) fn read(&self, id: Id) -> Option<u32> {
        let mut reading = self.reading.lock();
        reading.read(|stat| self.counts.total(stat), id)
    }

    /// The same without the clearing.
    pub(crate) fn peek(&self, id: Id) -> Option<u32> {
        let reading = self.reading.lock();
        reading.peek(|stat| self.counts.total(stat), id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_registers_clear_on_read_and_stick_at_their_maximum() {
        let stats = Stats::default();
        let mut tally = Tally::default();
        tally.add(Stat::Gprc, u64::from(u32::MAX) + 7);
        tally.add(Stat::Ruc, 3);
        stats.add(&tally);
        assert_eq!(stats.read(r::GPRC), Some(u32::MAX));
        assert_eq!(stats.read(r::GPRC), Some(0));
        assert_eq!(stats.read(r::RUC), Some(3));
        assert_eq!(stats.read(r::CTRL), None);
    }

    #[test]
    fn pairs_clear_when_the_high_half_is_read_and_lose_nothing() {
        let stats = Stats::default();
        let mut tally = Tally::default();
        tally.add(Stat::Tor, (7 << 32) + 5);
        stats.add(&tally);
        assert_eq!(stats.read(r::TORL), Some(5));
        assert_eq!(stats.read(r::TORL), Some(5));
        let mut late = Tally::default();
        late.add(Stat::Tor, 9);
        stats.add(&late);
        assert_eq!(stats.read(r::TORH), Some(7));
        assert_eq!(stats.read(r::TORL), Some(9));
        assert_eq!(stats.read(r::TORH), Some(0));
        assert_eq!(stats.read(r::TORL), Some(0));
        assert_eq!(stats.read(r::TORH), Some(0));
    }

    #[test]
    fn frames_alike_count_as_they_would_one_by_one() {
        for len in [64, 65, 127, 128, 255, 256, 511, 512, 1023, 1024, 9000] {
            let (mut one, mut many) = (Tally::default(), Tally::default());
            for _ in 0..7 {
                one.sent(1, len, [2, 0, 0, 0, 0, 1]);
            }
            many.sent(7, len, [0; 6]);
            many.sent(0, 99, [0; 6]);
            let (a, b) = (Stats::default(), Stats::default());
            a.add(&one);
            b.add(&many);
            for &(id, _) in TABLES.single {
                assert_eq!(a.read(id), b.read(id), "{len} bytes");
            }
            for &(low, high, _) in TABLES.pairs {
                assert_eq!(a.read(low), b.read(low), "{len} bytes");
                assert_eq!(a.read(high), b.read(high), "{len} bytes");
            }
        }
    }

    #[test]
    fn frames_gathered_count_as_those_that_came_alone() {
        let (one, many) = (Stats::default(), Stats::default());
        let (mut tally, mut received) = (Tally::default(), Many::default());
        let dsts = [[2, 0, 0, 0, 0, 1], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]];
        let groups = [Group::Station, Group::Broadcast, Group::Multicast];
        for len in (60..=70)
            .chain(120..=130)
            .chain(250..=260)
            .chain(510..=514)
            .chain(1020..=1030)
        {
            let at = len % 3;
            tally.received(1, len, dsts[at]);
            received.add(len, groups[at]);
        }
        one.add(&tally);
        let mut tally = Tally::default();
        tally.received_many(&received);
        many.add(&tally);
        for &(id, _) in TABLES.single {
            assert_eq!(one.read(id), many.read(id), "{id:?}");
        }
        for &(low, high, _) in TABLES.pairs {
            assert_eq!(one.read(low), many.read(low));
            assert_eq!(one.read(high), many.read(high));
        }
    }

    #[test]
    fn sizes_and_groups_fall_into_their_bins() {
        let stats = Stats::default();
        let mut tally = Tally::default();
        for len in [64, 65, 127, 128, 256, 512, 1023, 1024, 9000] {
            tally.received(1, len, [2, 0, 0, 0, 0, 1]);
        }
        tally.received(1, 64, [0xff; 6]);
        tally.received(1, 64, [1, 0, 0x5e, 0, 0, 1]);
        stats.add(&tally);
        let ids = [
            r::PRC64,
            r::PRC127,
            r::PRC255,
            r::PRC511,
            r::PRC1023,
            r::PRC1522,
        ];
        let bins = ids.map(|id| stats.read(id).expect("counted"));
        assert_eq!(bins, [3, 2, 1, 1, 2, 2]);
        assert_eq!(stats.read(r::BPRC), Some(1));
        assert_eq!(stats.read(r::MPRC), Some(1));
        assert_eq!(stats.read(r::GPRC), Some(11));
    }
}

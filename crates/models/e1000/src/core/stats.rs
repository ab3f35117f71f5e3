//! The statistics registers (manual §13.7): read to clear, sticking at their maximum.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use regs::Id;

use crate::regs as r;
use datapath::counters::count_alone;

/// What is counted; each maps to one register or one 64-bit pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Stat {
    Mpc,
    Prc64,
    Prc127,
    Prc255,
    Prc511,
    Prc1023,
    Prc1522,
    Gprc,
    Bprc,
    Mprc,
    Gptc,
    Gorc,
    Gotc,
    Rnbc,
    Ruc,
    Roc,
    Rlec,
    Xonrxc,
    Xontxc,
    Xoffrxc,
    Xofftxc,
    Fcruc,
    Tor,
    Tot,
    Tpr,
    Tpt,
    Ptc64,
    Ptc127,
    Ptc255,
    Ptc511,
    Ptc1023,
    Ptc1522,
    Mptc,
    Bptc,
    Tsctc,
    Tsctfc,
}

pub(crate) const COUNT: usize = Stat::Tsctfc as usize + 1;

pub(crate) const SINGLE: [(Id, Stat); 32] = [
    (r::MPC, Stat::Mpc),
    (r::PRC64, Stat::Prc64),
    (r::PRC127, Stat::Prc127),
    (r::PRC255, Stat::Prc255),
    (r::PRC511, Stat::Prc511),
    (r::PRC1023, Stat::Prc1023),
    (r::PRC1522, Stat::Prc1522),
    (r::GPRC, Stat::Gprc),
    (r::BPRC, Stat::Bprc),
    (r::MPRC, Stat::Mprc),
    (r::GPTC, Stat::Gptc),
    (r::RNBC, Stat::Rnbc),
    (r::RUC, Stat::Ruc),
    (r::ROC, Stat::Roc),
    (r::RLEC, Stat::Rlec),
    (r::XONRXC, Stat::Xonrxc),
    (r::XONTXC, Stat::Xontxc),
    (r::XOFFRXC, Stat::Xoffrxc),
    (r::XOFFTXC, Stat::Xofftxc),
    (r::FCRUC, Stat::Fcruc),
    (r::TPR, Stat::Tpr),
    (r::TPT, Stat::Tpt),
    (r::PTC64, Stat::Ptc64),
    (r::PTC127, Stat::Ptc127),
    (r::PTC255, Stat::Ptc255),
    (r::PTC511, Stat::Ptc511),
    (r::PTC1023, Stat::Ptc1023),
    (r::PTC1522, Stat::Ptc1522),
    (r::MPTC, Stat::Mptc),
    (r::BPTC, Stat::Bptc),
    (r::TSCTC, Stat::Tsctc),
    (r::TSCTFC, Stat::Tsctfc),
];

/// Low register, high register.
pub(crate) const PAIRS: [(Id, Id, Stat); 4] = [
    (r::GORCL, r::GORCH, Stat::Gorc),
    (r::GOTCL, r::GOTCH, Stat::Gotc),
    (r::TORL, r::TORH, Stat::Tor),
    (r::TOTL, r::TOTH, Stat::Tot),
];

/// Counts gathered over one batch, added to the chip ones at its end.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: [u64; COUNT],
    /// Which of them may not be 0, bit by bit.
    touched: u64,
}

const _: () = assert!(COUNT <= 64);

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: [0; COUNT],
            touched: 0,
        }
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[inline]
    pub(crate) fn add(&mut self, stat: Stat, n: u64) {
        self.counts[stat as usize] += n;
        self.touched |= 1 << stat as usize;
    }

    /// A frame came, whatever becomes of it; `len` with FCS.
    pub(crate) fn total(&mut self, len: u64) {
        self.add(Stat::Tpr, 1);
        self.add(Stat::Tor, len);
    }

    /// A frame came and found the packet FIFO full (manual §13.7.5).
    pub(crate) fn missed(&mut self, len: u64) {
        self.add(Stat::Mpc, 1);
        self.total(len);
    }

    /// A good frame received; `len` with FCS.
    pub(crate) fn received(&mut self, len: u64, dst: &[u8]) {
        self.total(len);
        self.add(Stat::Gprc, 1);
        self.add(Stat::Gorc, len);
        self.by_size(Stat::Prc64, len);
        self.by_group(dst, Stat::Bprc, Stat::Mprc);
    }

    /// A frame sent; `len` with FCS.
    pub(crate) fn sent(&mut self, len: u64, dst: &[u8]) {
        self.add(Stat::Tpt, 1);
        self.add(Stat::Tot, len);
        self.add(Stat::Gptc, 1);
        self.add(Stat::Gotc, len);
        self.by_size(Stat::Ptc64, len);
        self.by_group(dst, Stat::Bptc, Stat::Mptc);
    }

    /// `n` frames of one length sent, each to one station; `len` with FCS.
    pub(crate) fn sent_alike(&mut self, n: u64, len: u64) {
        if n == 0 {
            return;
        }
        const BINS: [(u64, Stat); 5] = [
            (1023, Stat::Ptc1522),
            (511, Stat::Ptc1023),
            (255, Stat::Ptc511),
            (127, Stat::Ptc255),
            (64, Stat::Ptc127),
        ];
        self.sent(len, &[0; 6]);
        let beyond = BINS.iter().find(|(size, _)| len > *size);
        self.add(beyond.map_or(Stat::Ptc64, |(_, stat)| *stat), n - 1);
        self.add(Stat::Tpt, n - 1);
        self.add(Stat::Gptc, n - 1);
        self.add(Stat::Tot, (n - 1) * len);
        self.add(Stat::Gotc, (n - 1) * len);
    }

    fn by_size(&mut self, first: Stat, len: u64) {
        let at = first as usize + bin(len);
        self.counts[at] += 1;
        self.touched |= 1 << at;
    }

    /// Good frames received, gathered by whoever saw many alike.
    pub(crate) fn received_many(&mut self, many: &Received) {
        let frames = many.bins.iter().sum();
        if frames == 0 {
            return;
        }
        self.add(Stat::Tpr, frames);
        self.add(Stat::Tor, many.bytes);
        self.add(Stat::Gprc, frames);
        self.add(Stat::Gorc, many.bytes);
        for (at, n) in (Stat::Prc64 as usize..).zip(many.bins) {
            self.counts[at] += n;
            self.touched |= u64::from(n > 0) << at;
        }
        self.add(Stat::Bprc, many.groups[Group::Broadcast as usize]);
        self.add(Stat::Mprc, many.groups[Group::Multicast as usize]);
    }

    fn by_group(&mut self, dst: &[u8], broadcast: Stat, multicast: Stat) {
        if dst == [0xff; 6] {
            self.add(broadcast, 1);
        } else if dst.first().is_some_and(|b| b & 1 == 1) {
            self.add(multicast, 1);
        }
    }
}

/// Whom a frame is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Group {
    #[default]
    Station,
    Multicast,
    Broadcast,
}

/// Good frames received, before they are spread over the registers.
#[derive(Debug, Default)]
pub(crate) struct Received {
    bins: [u64; 6],
    groups: [u64; 3],
    bytes: u64,
}

impl Received {
    /// One of `len` bytes with FCS.
    #[inline]
    pub(crate) fn add(&mut self, len: usize, group: Group) {
        self.add_alike(len, group, 1);
    }

    /// `n` of them.
    #[inline]
    pub(crate) fn add_alike(&mut self, len: usize, group: Group, n: u64) {
        self.bins[bin(len as u64)] += n;
        self.groups[group as usize] += n;
        self.bytes += n * len as u64;
    }
}

/// The register among six that counts frames of this length: to 64, 127, 255, 511, 1023, beyond.
#[inline]
fn bin(len: u64) -> usize {
    let power = (len | 64).ilog2().min(10) as usize;
    power - 5 - usize::from(len <= 64)
}

/// The counters, written by the data path and read by the register side.
///
/// Those of the receive side are added to under the lock of that side, those of the transmit side
/// under the other: one writer at a time, so adding needs no locked instruction. They only grow;
/// clearing is done on the side that reads.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) counts: [AtomicU64; COUNT],
    pub(crate) reading: Mutex<StatRegs>,
}

/// What the register side knows of the counters.
#[derive(Debug)]
pub(crate) struct StatRegs {
    /// What has been read and cleared of each.
    pub(crate) past: [u64; COUNT],
    /// Per pair: the value whose low half has been read and whose high half is still to be. The
    /// two reads then belong together and nothing counted between them is lost.
    pub(crate) latched: [Option<u64>; PAIRS.len()],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            reading: Mutex::new(StatRegs {
                past: [0; COUNT],
                latched: Default::default(),
            }),
        }
    }
}

impl Stats {
    /// Adds what a batch counted. Under the lock of the side it is of.
    pub(crate) fn add(&self, tally: &Tally) {
        let mut touched = tally.touched;
        while touched != 0 {
            let at = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            count_alone(&self.counts[at], tally.counts[at]);
        }
    }

    pub(crate) fn clear(&self) {
        let mut reading = self.reading.lock();
        for (past, count) in reading.past.iter_mut().zip(&self.counts) {
            *past = count.load(Ordering::Relaxed);
        }
        reading.latched = Default::default();
    }

    /// What a register would show, without clearing it.
    pub(crate) fn value(&self, reading: &StatRegs, stat: Stat) -> u64 {
        let at = stat as usize;
        let count = self.counts[at].load(Ordering::Relaxed);
        count.wrapping_sub(reading.past[at])
    }

    /// Has a register show `value`.
    pub(crate) fn put(&self, reading: &mut StatRegs, stat: Stat, value: u64) {
        let at = stat as usize;
        let count = self.counts[at].load(Ordering::Relaxed);
        reading.past[at] = count.wrapping_sub(value);
    }

    /// Reads a statistics register, with the clearing that belongs to it. `None` for registers
    /// that nothing counts into.
    pub(crate) fn read(&self, id: Id) -> Option<u32> {
        let mut reading = self.reading.lock();
        if let Some((_, stat)) = SINGLE.iter().find(|(reg, _)| *reg == id) {
            let value = self.value(&reading, *stat);
            reading.past[*stat as usize] = reading.past[*stat as usize].wrapping_add(value);
            return Some(u32::try_from(value).unwrap_or(u32::MAX));
        }
        let at = PAIRS.iter().position(|(l, h, _)| *l == id || *h == id)?;
        let (low, _, stat) = PAIRS[at];
        let now = self.value(&reading, stat);
        if id == low {
            reading.latched[at] = Some(now);
            Some(now as u32)
        } else {
            let value = reading.latched[at].take().unwrap_or(now);
            let past = &mut reading.past[stat as usize];
            *past = past.wrapping_add(value);
            Some((value >> 32) as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_registers_clear_on_read_and_stick_at_their_maximum() {
        let stats = Stats::default();
        let mut tally = Tally::new();
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
        let mut tally = Tally::new();
        tally.add(Stat::Tor, (7 << 32) + 5);
        stats.add(&tally);
        assert_eq!(stats.read(r::TORL), Some(5));
        assert_eq!(stats.read(r::TORL), Some(5));
        let mut late = Tally::new();
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
            let (mut one, mut many) = (Tally::new(), Tally::new());
            for _ in 0..7 {
                one.sent(len, &[2, 0, 0, 0, 0, 1]);
            }
            many.sent_alike(7, len);
            many.sent_alike(0, 99);
            let (a, b) = (Stats::default(), Stats::default());
            a.add(&one);
            b.add(&many);
            for (id, _) in SINGLE {
                assert_eq!(a.read(id), b.read(id), "{len} bytes");
            }
            for (low, high, _) in PAIRS {
                assert_eq!(a.read(low), b.read(low), "{len} bytes");
                assert_eq!(a.read(high), b.read(high), "{len} bytes");
            }
        }
    }

    #[test]
    fn frames_gathered_count_as_those_that_came_alone() {
        let (one, many) = (Stats::default(), Stats::default());
        let (mut tally, mut received) = (Tally::new(), Received::default());
        let dsts = [[2, 0, 0, 0, 0, 1], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]];
        let groups = [Group::Station, Group::Broadcast, Group::Multicast];
        for len in (60..=70)
            .chain(120..=130)
            .chain(250..=260)
            .chain(510..=514)
            .chain(1020..=1030)
        {
            let at = len % 3;
            tally.received(len as u64, &dsts[at]);
            received.add(len, groups[at]);
        }
        one.add(&tally);
        let mut tally = Tally::new();
        tally.received_many(&received);
        many.add(&tally);
        for (id, _) in SINGLE {
            assert_eq!(one.read(id), many.read(id), "{id:?}");
        }
        for (low, high, _) in PAIRS {
            assert_eq!(one.read(low), many.read(low));
            assert_eq!(one.read(high), many.read(high));
        }
    }

    #[test]
    fn sizes_and_groups_fall_into_their_bins() {
        let stats = Stats::default();
        let mut tally = Tally::new();
        for len in [64, 65, 127, 128, 256, 512, 1023, 1024, 9000] {
            tally.received(len, &[2, 0, 0, 0, 0, 1]);
        }
        tally.received(64, &[0xff; 6]);
        tally.received(64, &[1, 0, 0x5e, 0, 0, 1]);
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

//! The statistics registers (manual §13.7): read to clear, sticking at their maximum.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use regs::Id;

use crate::regs as r;

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

/// Counts gathered over one batch, added to the shared ones at its end.
pub(crate) struct Tally([u64; COUNT]);

impl Tally {
    pub(crate) fn new() -> Self {
        Self([0; COUNT])
    }

    pub(crate) fn add(&mut self, stat: Stat, n: u64) {
        self.0[stat as usize] += n;
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

    fn by_size(&mut self, first: Stat, len: u64) {
        let bin = match len {
            0..=64 => 0,
            65..=127 => 1,
            128..=255 => 2,
            256..=511 => 3,
            512..=1023 => 4,
            _ => 5,
        };
        self.0[first as usize + bin] += 1;
    }

    fn by_group(&mut self, dst: &[u8], broadcast: Stat, multicast: Stat) {
        if dst == [0xff; 6] {
            self.add(broadcast, 1);
        } else if dst.first().is_some_and(|b| b & 1 == 1) {
            self.add(multicast, 1);
        }
    }
}

/// The counters, written by the data path and read by the register side.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) counts: [AtomicU64; COUNT],
    /// Per pair: the value whose low half has been read and whose high half is still to be. The
    /// two reads then belong together and nothing counted between them is lost.
    pub(crate) latched: Mutex<[Option<u64>; PAIRS.len()]>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            latched: Mutex::default(),
        }
    }
}

impl Stats {
    pub(crate) fn add(&self, tally: &Tally) {
        for (count, &n) in self.counts.iter().zip(&tally.0) {
            if n > 0 {
                count.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn clear(&self) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
        *self.latched.lock() = Default::default();
    }

    /// Reads a statistics register, with the clearing that belongs to it. `None` for registers
    /// that nothing counts into.
    pub(crate) fn read(&self, id: Id) -> Option<u32> {
        if let Some((_, stat)) = SINGLE.iter().find(|(reg, _)| *reg == id) {
            let value = self.counts[*stat as usize].swap(0, Ordering::Relaxed);
            return Some(u32::try_from(value).unwrap_or(u32::MAX));
        }
        let at = PAIRS.iter().position(|(l, h, _)| *l == id || *h == id)?;
        let (low, _, stat) = PAIRS[at];
        let count = &self.counts[stat as usize];
        let mut latched = self.latched.lock();
        if id == low {
            let value = count.load(Ordering::Relaxed);
            latched[at] = Some(value);
            Some(value as u32)
        } else {
            let value = latched[at]
                .take()
                .unwrap_or_else(|| count.load(Ordering::Relaxed));
            count.fetch_sub(value, Ordering::Relaxed);
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

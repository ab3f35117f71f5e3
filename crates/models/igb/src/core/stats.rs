//! What the data path counts for the guest's statistics registers.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is counted, under the name of the register.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Stat { $($(#[$doc])* $name,)* }

        impl Stat {
            pub(crate) const ALL: [Stat; COUNT] = [$(Stat::$name),*];
        }

        pub(crate) const COUNT: usize = [$(Stat::$name),*].len();
    };
}

stats! {
    /// Frames that found no buffer, and were lost.
    Mpc,
    /// Good frames received, by length with FCS; the five others follow.
    Prc64,
    Prc127,
    Prc255,
    Prc511,
    Prc1023,
    Prc1522,
    Gprc,
    Bprc,
    Mprc,
    Gorc,
    /// Frames that had to wait for a buffer.
    Rnbc,
    /// Shorter and longer than allowed; either.
    Ruc,
    Roc,
    Rlec,
    /// All that came, good or bad.
    Tpr,
    Tor,
    /// Sent, by length with FCS; the five others follow.
    Ptc64,
    Ptc127,
    Ptc255,
    Ptc511,
    Ptc1023,
    Ptc1522,
    Gptc,
    Bptc,
    Mptc,
    Gotc,
    Tpt,
    Tot,
    /// Packets with segmentation; those of them that could not be cut.
    Tsctc,
    Tsctfc,
    /// Pause frames that came and were sent, with time or without; MAC control frames of another
    /// opcode.
    Xonrxc,
    Xontxc,
    Xoffrxc,
    Xofftxc,
    Fcruc,
}

/// Counts gathered over one batch.
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

/// Whether a frame counts as multicast: broadcasts are counted as such, and in no statistic as both.
pub(crate) fn for_group(dst: [u8; 6]) -> bool {
    dst[0] & 1 == 1 && dst != [0xff; 6]
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, stat: Stat, n: u64) {
        self.add_at(stat as usize, n);
    }

    #[inline]
    fn add_at(&mut self, at: usize, n: u64) {
        self.counts[at] += n;
        self.touched |= u64::from(n > 0) << at;
    }

    /// A frame came, whatever becomes of it; `len` with FCS.
    pub(crate) fn total(&mut self, len: usize) {
        self.add(Stat::Tpr, 1);
        self.add(Stat::Tor, len as u64);
    }

    /// `n` good frames received; `len` with FCS.
    pub(crate) fn received(&mut self, n: u64, len: usize, dst: [u8; 6]) {
        let bytes = n * len as u64;
        self.add(Stat::Tpr, n);
        self.add(Stat::Tor, bytes);
        self.add(Stat::Gprc, n);
        self.add(Stat::Gorc, bytes);
        self.add_at(Stat::Prc64 as usize + bin(len), n);
        self.by_group(n, dst, Stat::Bprc, Stat::Mprc);
    }

    /// `n` frames sent; `len` with FCS.
    pub(crate) fn sent(&mut self, n: u64, len: usize, dst: [u8; 6]) {
        let bytes = n * len as u64;
        self.add(Stat::Tpt, n);
        self.add(Stat::Tot, bytes);
        self.add(Stat::Gptc, n);
        self.add(Stat::Gotc, bytes);
        self.add_at(Stat::Ptc64 as usize + bin(len), n);
        self.by_group(n, dst, Stat::Bptc, Stat::Mptc);
    }

    fn by_group(&mut self, n: u64, dst: [u8; 6], broadcast: Stat, multicast: Stat) {
        if dst == [0xff; 6] {
            self.add(broadcast, n);
        } else if for_group(dst) {
            self.add(multicast, n);
        }
    }
}

/// The register among six that counts frames of this length: to 64, 127, 255, 511, 1023, beyond.
#[inline]
fn bin(len: usize) -> usize {
    let power = (len | 64).ilog2().min(10) as usize;
    power - 5 - usize::from(len <= 64)
}

/// The counters. They only grow; clearing is done on the side that reads.
#[derive(Debug)]
pub(crate) struct Stats {
    counts: [AtomicU64; COUNT],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Stats {
    /// Adds what a batch counted. Queues do so side by side.
    pub(crate) fn add(&self, tally: &Tally) {
        let mut touched = tally.touched;
        while touched != 0 {
            let at = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            self.counts[at].fetch_add(tally.counts[at], Ordering::Relaxed);
        }
    }

    /// All that was counted so far.
    pub(crate) fn total(&self, stat: Stat) -> u64 {
        self.counts[stat as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_counted_by_length_and_by_whom_it_is_for() {
        let mut tally = Tally::default();
        for (len, dst) in [(64, [2; 6]), (65, [0xff; 6]), (1518, [1, 0, 0, 0, 0, 1])] {
            tally.received(1, len, dst);
        }
        tally.sent(1, 1024, [2; 6]);
        let stats = Stats::default();
        stats.add(&tally);
        stats.add(&Tally::default());
        let of = |stat| stats.total(stat);
        assert_eq!([Stat::Prc64, Stat::Prc127, Stat::Prc1522].map(of), [1; 3]);
        assert_eq!([Stat::Bprc, Stat::Mprc, Stat::Ptc1522].map(of), [1; 3]);
        assert_eq!([Stat::Gorc, Stat::Tot].map(of), [64 + 65 + 1518, 1024]);
    }
}

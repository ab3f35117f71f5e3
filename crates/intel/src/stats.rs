//! The statistics registers: what the data path counts for them, and how they are read: cleared by it,
//! sticking at their maximum (8254x manual §13.7, 82576 datasheet §8.18).

use std::sync::atomic::{AtomicU64, Ordering};

use datapath::FCS;
use datapath::counters::count_alone;
use regs::{File, Id};
use snapshot::StateError;

use crate::saved::{Count, check, field};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is counted, under the name of the register.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        #[allow(missing_docs)] // the registers' names
        pub enum Stat { $($(#[$doc])* $name,)* }

        impl Stat {
            /// All of them.
            pub const ALL: [Stat; COUNT] = [$(Stat::$name),*];
        }

        /// How many there are.
        pub const COUNT: usize = [$(Stat::$name),*].len();
    };
}

// What each run counts is in one cache line for those sent, and in one for those received: the first eight, and the next.
stats! {
    /// Good frames sent, and their bytes.
    Gptc,
    Gotc,
    /// The same, by length with FCS; the five others follow.
    Ptc64,
    Ptc127,
    Ptc255,
    Ptc511,
    Ptc1023,
    Ptc1522,
    /// Good frames received, and their bytes.
    Gprc,
    Gorc,
    /// The same, by length with FCS; the five others follow.
    Prc64,
    Prc127,
    Prc255,
    Prc511,
    Prc1023,
    Prc1522,
    Bprc,
    Mprc,
    Bptc,
    Mptc,
    /// Frames that found no buffer, and were lost.
    Mpc,
    /// Frames that had to wait for a buffer.
    Rnbc,
    /// Shorter and longer than allowed; either.
    Ruc,
    Roc,
    Rlec,
    /// All that came, and all that was sent, good or bad. Only what is not good is counted for it: [`Stats::total`] adds the rest.
    Tpr,
    Tor,
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
pub struct Tally {
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
pub fn for_group(dst: [u8; 6]) -> bool {
    dst[0] & 1 == 1 && dst != [0xff; 6]
}

impl Tally {
    /// `n` more of them.
    #[inline]
    pub fn add(&mut self, stat: Stat, n: u64) {
        self.add_at(stat as usize, n);
    }

    #[inline]
    fn add_at(&mut self, at: usize, n: u64) {
        self.counts[at] += n;
        self.touched |= u64::from(n > 0) << at;
    }

    /// A frame came that is not a good one; `len` with FCS.
    pub fn total(&mut self, len: usize) {
        self.add(Stat::Tpr, 1);
        self.add(Stat::Tor, len as u64);
    }

    /// `n` good frames received; `len` with FCS.
    pub fn received(&mut self, n: u64, len: usize, dst: [u8; 6]) {
        self.add(Stat::Gprc, n);
        self.add(Stat::Gorc, n * len as u64);
        self.add_at(Stat::Prc64 as usize + bin(len), n);
        self.by_group(n, dst, Stat::Bprc, Stat::Mprc);
    }

    /// `n` frames sent; `len` with FCS.
    pub fn sent(&mut self, n: u64, len: usize, dst: [u8; 6]) {
        self.add(Stat::Gptc, n);
        self.add(Stat::Gotc, n * len as u64);
        self.add_at(Stat::Ptc64 as usize + bin(len), n);
        self.by_group(n, dst, Stat::Bptc, Stat::Mptc);
    }

    /// A frame came and found no room (manual of the 8254x §13.7.5); `len` with FCS.
    pub fn missed(&mut self, len: usize) {
        self.add(Stat::Mpc, 1);
        self.total(len);
    }

    /// Good frames received, gathered where many alike were seen.
    #[inline(never)]
    pub fn received_many(&mut self, many: &Many) {
        let frames = many.bins.iter().sum();
        if frames == 0 {
            return;
        }
        self.add(Stat::Gprc, frames);
        self.add(Stat::Gorc, many.bytes);
        for (at, n) in (Stat::Prc64 as usize..).zip(many.bins) {
            self.add_at(at, n);
        }
        self.add(Stat::Bprc, many.groups[Group::Broadcast as usize]);
        self.add(Stat::Mprc, many.groups[Group::Multicast as usize]);
    }

    fn by_group(&mut self, n: u64, dst: [u8; 6], broadcast: Stat, multicast: Stat) {
        if dst == [0xff; 6] {
            self.add(broadcast, n);
        } else if for_group(dst) {
            self.add(multicast, n);
        }
    }
}

/// Whom a frame is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Group {
    /// One station.
    #[default]
    Station,
    /// Some.
    Multicast,
    /// All.
    Broadcast,
}

impl Group {
    /// Of a frame's destination.
    #[inline]
    pub fn of(dst: [u8; 6]) -> Group {
        match dst {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Group::Broadcast,
            [first, ..] if first & 1 == 1 => Group::Multicast,
            _ => Group::Station,
        }
    }
}

/// Good frames on one side, before they are spread over the registers.
#[derive(Debug, Default)]
pub struct Many {
    bins: [u64; 6],
    groups: [u64; 3],
    bytes: u64,
}

impl Many {
    /// Frames of these lengths without FCS.
    #[inline]
    pub fn of(lens: &[u16], group: Group) -> Many {
        let mut many = Many::default();
        for len in lens {
            many.bins[bin(usize::from(*len) + FCS)] += 1;
            many.bytes += u64::from(*len);
        }
        many.groups[group as usize] = lens.len() as u64;
        many.bytes += (lens.len() * FCS) as u64;
        many
    }

    /// One of `len` bytes with FCS.
    #[inline]
    pub fn add(&mut self, len: usize, group: Group) {
        self.add_alike(len, group, 1);
    }

    /// `n` of them.
    #[inline]
    pub fn add_alike(&mut self, len: usize, group: Group, n: u64) {
        self.bins[bin(len)] += n;
        self.groups[group as usize] += n;
        self.bytes += n * len as u64;
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
#[repr(C, align(64))]
pub struct Stats {
    counts: [AtomicU64; COUNT],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// What a good frame counts as.
struct Direction {
    /// Frames, their bytes.
    frames: [Stat; 2],
    /// The first of six, by length.
    bins: Stat,
    multicast: Stat,
    broadcast: Stat,
}

const IN: Direction = Direction {
    frames: [Stat::Gprc, Stat::Gorc],
    bins: Stat::Prc64,
    multicast: Stat::Mprc,
    broadcast: Stat::Bprc,
};

const OUT: Direction = Direction {
    frames: [Stat::Gptc, Stat::Gotc],
    bins: Stat::Ptc64,
    multicast: Stat::Mptc,
    broadcast: Stat::Bptc,
};

impl Stats {
    /// Adds what a batch counted. Queues may do so side by side.
    pub fn add(&self, tally: &Tally) {
        self.each(tally, |count, n| {
            count.fetch_add(n, Ordering::Relaxed);
        });
    }

    /// As [`Stats::add`], where what is counted on the two sides differs and one lock keeps apart all
    /// who count on one.
    pub fn add_alone(&self, tally: &Tally) {
        self.each(tally, count_alone);
    }

    /// Counts `n` good frames received, each of `len` bytes with FCS. As [`Stats::add`].
    #[inline]
    pub fn received(&self, n: u64, len: usize, group: Group) {
        self.alike(&IN, (n, len, group), |count, n| {
            count.fetch_add(n, Ordering::Relaxed);
        });
    }

    /// The same of frames sent.
    #[inline]
    pub fn sent(&self, n: u64, len: usize, group: Group) {
        self.alike(&OUT, (n, len, group), |count, n| {
            count.fetch_add(n, Ordering::Relaxed);
        });
    }

    /// As [`Stats::received`], and as [`Stats::add_alone`].
    #[inline]
    pub fn received_alone(&self, n: u64, len: usize, group: Group) {
        self.alike(&IN, (n, len, group), count_alone);
    }

    /// As [`Stats::sent`], and as [`Stats::add_alone`].
    #[inline]
    pub fn sent_alone(&self, n: u64, len: usize, group: Group) {
        self.alike(&OUT, (n, len, group), count_alone);
    }

    /// Counts good frames received. As [`Stats::add`].
    #[inline(never)]
    pub fn received_many(&self, many: &Many) {
        self.many(&IN, many, |count, n| {
            count.fetch_add(n, Ordering::Relaxed);
        });
    }

    /// The same of frames sent.
    #[inline(never)]
    pub fn sent_many(&self, many: &Many) {
        self.many(&OUT, many, |count, n| {
            count.fetch_add(n, Ordering::Relaxed);
        });
    }

    /// As [`Stats::received_many`], and as [`Stats::add_alone`].
    #[inline(never)]
    pub fn received_many_alone(&self, many: &Many) {
        self.many(&IN, many, count_alone);
    }

    /// As [`Stats::sent_many`], and as [`Stats::add_alone`].
    #[inline(never)]
    pub fn sent_many_alone(&self, many: &Many) {
        self.many(&OUT, many, count_alone);
    }

    #[inline(always)]
    fn many(&self, of: &Direction, many: &Many, add: impl Fn(&AtomicU64, u64)) {
        let frames = many.bins.iter().sum();
        for (stat, n) in of.frames.iter().zip([frames, many.bytes]) {
            add(&self.counts[*stat as usize], n);
        }
        let bins = self.counts[of.bins as usize..].iter().zip(many.bins);
        let [_, multicast, broadcast] = many.groups;
        let groups = [(of.multicast, multicast), (of.broadcast, broadcast)];
        let groups = groups.map(|(stat, n)| (&self.counts[stat as usize], n));
        for (count, n) in bins.chain(groups).filter(|(_, n)| *n > 0) {
            add(count, n);
        }
    }

    #[inline(always)]
    fn alike(
        &self,
        of: &Direction,
        (n, len, group): (u64, usize, Group),
        add: impl Fn(&AtomicU64, u64),
    ) {
        for (stat, n) in of.frames.iter().zip([n, n * len as u64]) {
            add(&self.counts[*stat as usize], n);
        }
        add(&self.counts[of.bins as usize + bin(len)], n);
        match group {
            Group::Station => {}
            Group::Multicast => add(&self.counts[of.multicast as usize], n),
            Group::Broadcast => add(&self.counts[of.broadcast as usize], n),
        }
    }

    #[inline]
    fn each(&self, tally: &Tally, add: impl Fn(&AtomicU64, u64)) {
        let mut touched = tally.touched;
        while touched != 0 {
            let at = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            add(&self.counts[at], tally.counts[at]);
        }
    }

    /// All that was counted so far.
    pub fn total(&self, stat: Stat) -> u64 {
        let count = |stat: Stat| self.counts[stat as usize].load(Ordering::Relaxed);
        let good = match stat {
            Stat::Tpr => count(Stat::Gprc),
            Stat::Tor => count(Stat::Gorc),
            Stat::Tpt => count(Stat::Gptc),
            Stat::Tot => count(Stat::Gotc),
            _ => 0,
        };
        count(stat).wrapping_add(good)
    }
}

/// Which register shows what.
#[derive(Debug)]
pub struct Tables {
    /// Registers of 32 bits.
    pub single: &'static [(Id, Stat)],
    /// Those of 64 bits: low register, high register.
    pub pairs: &'static [(Id, Id, Stat)],
}

/// The registers of 32 bits that all chips have, in the module `$r`, and others.
#[macro_export]
macro_rules! single_stats {
    ($r:ident, $($more:expr),*) => {{
        use $crate::stats::Stat;
        &[
            ($r::MPC, Stat::Mpc),
            ($r::PRC64, Stat::Prc64),
            ($r::PRC127, Stat::Prc127),
            ($r::PRC255, Stat::Prc255),
            ($r::PRC511, Stat::Prc511),
            ($r::PRC1023, Stat::Prc1023),
            ($r::PRC1522, Stat::Prc1522),
            ($r::GPRC, Stat::Gprc),
            ($r::BPRC, Stat::Bprc),
            ($r::MPRC, Stat::Mprc),
            ($r::GPTC, Stat::Gptc),
            ($r::RNBC, Stat::Rnbc),
            ($r::RUC, Stat::Ruc),
            ($r::ROC, Stat::Roc),
            ($r::RLEC, Stat::Rlec),
            ($r::XONRXC, Stat::Xonrxc),
            ($r::XONTXC, Stat::Xontxc),
            ($r::XOFFRXC, Stat::Xoffrxc),
            ($r::XOFFTXC, Stat::Xofftxc),
            ($r::FCRUC, Stat::Fcruc),
            ($r::TPR, Stat::Tpr),
            ($r::TPT, Stat::Tpt),
            ($r::PTC64, Stat::Ptc64),
            ($r::PTC127, Stat::Ptc127),
            ($r::PTC255, Stat::Ptc255),
            ($r::PTC511, Stat::Ptc511),
            ($r::PTC1023, Stat::Ptc1023),
            ($r::PTC1522, Stat::Ptc1522),
            ($r::MPTC, Stat::Mptc),
            ($r::BPTC, Stat::Bptc),
            ($r::TSCTC, Stat::Tsctc),
            $($more),*
        ]
    }};
}

/// The same for those of 64 bits.
#[macro_export]
macro_rules! paired_stats {
    ($r:ident $(, $more:expr)*) => {{
        use $crate::stats::Stat;
        &[
            ($r::GORCL, $r::GORCH, Stat::Gorc),
            ($r::GOTCL, $r::GOTCH, Stat::Gotc),
            ($r::TORL, $r::TORH, Stat::Tor),
            ($r::TOTL, $r::TOTH, Stat::Tot),
            $($more),*
        ]
    }};
}

/// What the register side knows of the counters, which only grow.
#[derive(Clone, Debug)]
pub struct StatRegs {
    tables: &'static Tables,
    /// What has been read and cleared of each.
    single: Box<[u64]>,
    pairs: Box<[u64]>,
    /// Per pair: the value whose low half has been read and whose high half is still to be. The
    /// two reads then belong together and nothing counted between them is lost.
    latched: Box<[Option<u64>]>,
}

impl StatRegs {
    /// Nothing was read yet.
    pub fn new(tables: &'static Tables) -> Self {
        Self {
            tables,
            single: vec![0; tables.single.len()].into(),
            pairs: vec![0; tables.pairs.len()].into(),
            latched: vec![None; tables.pairs.len()].into(),
        }
    }

    /// CTRL.RST: everything shows 0.
    pub fn clear(&mut self, total: impl Fn(Stat) -> u64) {
        for (past, (_, stat)) in self.single.iter_mut().zip(self.tables.single) {
            *past = total(*stat);
        }
        for (past, (_, _, stat)) in self.pairs.iter_mut().zip(self.tables.pairs) {
            *past = total(*stat);
        }
        self.latched.fill(None);
    }

    /// Reads a statistics register, with the clearing that belongs to it. `None` for registers that
    /// nothing counts into.
    pub fn read(&mut self, total: impl Fn(Stat) -> u64, id: Id) -> Option<u32> {
        let Tables { single, pairs } = self.tables;
        if let Some(at) = single.iter().position(|(reg, _)| *reg == id) {
            let now = total(single[at].1);
            let value = now.wrapping_sub(std::mem::replace(&mut self.single[at], now));
            return Some(u32::try_from(value).unwrap_or(u32::MAX));
        }
        let at = pairs.iter().position(|(l, h, _)| *l == id || *h == id)?;
        let (low, _, stat) = pairs[at];
        let now = total(stat).wrapping_sub(self.pairs[at]);
        Some(if id == low {
            self.latched[at] = Some(now);
            now as u32
        } else {
            let value = self.latched[at].take().unwrap_or(now);
            self.pairs[at] = self.pairs[at].wrapping_add(value);
            (value >> 32) as u32
        })
    }

    /// The same without the clearing.
    pub fn peek(&self, total: impl Fn(Stat) -> u64, id: Id) -> Option<u32> {
        self.clone().read(total, id)
    }

    /// Counters that are not 0, and values latched between the two reads of a pair.
    pub fn save(&self, file: &File, total: impl Fn(Stat) -> u64) -> (Vec<Count>, Vec<Count>) {
        let StatRegs {
            tables,
            single,
            pairs,
            latched,
        } = self;
        let shown = |id, stat, past: &u64| Count {
            offset: offset(file, id),
            value: total(stat).wrapping_sub(*past),
        };
        let one = tables.single.iter().zip(single);
        let one = one.map(|((id, stat), past)| shown(*id, *stat, past));
        let two = tables.pairs.iter().zip(pairs);
        let two = two.map(|((id, _, stat), past)| shown(*id, *stat, past));
        let mut all: Vec<_> = one.chain(two).filter(|count| count.value != 0).collect();
        all.sort_by_key(|count| count.offset);
        let held = tables.pairs.iter().zip(latched);
        let held = held.filter_map(|((id, _, _), v)| {
            Some(Count {
                offset: offset(file, *id),
                value: (*v)?,
            })
        });
        (all, held.collect())
    }
}

/// Statistics that were checked.
#[derive(Debug)]
pub struct Checked {
    tables: &'static Tables,
    single: Box<[u64]>,
    pairs: Box<[u64]>,
    latched: Box<[Option<u64>]>,
}

fn offset(file: &File, id: Id) -> u32 {
    file.table().register(id).offset
}

impl Checked {
    /// What was saved; no counter shows more than `most`.
    ///
    /// # Errors
    /// It is not what the registers of `file` can show.
    pub fn new(
        tables: &'static Tables,
        file: &File,
        (statistics, latched): (&[Count], &[Count]),
        most: u64,
    ) -> Result<Checked, StateError> {
        let StatRegs {
            single,
            pairs,
            latched: none,
            ..
        } = StatRegs::new(tables);
        let mut checked = Checked {
            tables,
            single,
            pairs,
            latched: none,
        };
        let pair = |at: u32| {
            let mut all = tables.pairs.iter();
            all.position(|(id, _, _)| offset(file, *id) == at)
        };
        let mut last = None;
        for Count { offset: at, value } in statistics {
            check(
                last.is_none_or(|last| last < *at),
                "statistics.offset",
                *at,
                "not in order",
            )?;
            last = Some(*at);
            check(
                *value <= most,
                "statistics.value",
                *value,
                "more than is ever counted",
            )?;
            let mut all = tables.single.iter();
            match (all.position(|(id, _)| offset(file, *id) == *at), pair(*at)) {
                (Some(i), _) => checked.single[i] = *value,
                (None, Some(i)) => checked.pairs[i] = *value,
                (None, None) => {
                    return Err(field("statistics.offset", *at, "nothing is counted there"));
                }
            }
        }
        for Count { offset: at, value } in latched {
            let i = pair(*at)
                .ok_or_else(|| field("latched.offset", *at, "no pair of registers is there"))?;
            check(
                *value <= checked.pairs[i] && checked.latched[i].is_none(),
                "latched.value",
                *value,
                "more than was counted",
            )?;
            checked.latched[i] = Some(*value);
        }
        Ok(checked)
    }

    /// What shows these values, after `total` was counted.
    pub fn put(self, total: impl Fn(Stat) -> u64) -> StatRegs {
        let Checked {
            tables,
            mut single,
            mut pairs,
            latched,
        } = self;
        for (value, (_, stat)) in single.iter_mut().zip(tables.single) {
            *value = total(*stat).wrapping_sub(*value);
        }
        for (value, (_, _, stat)) in pairs.iter_mut().zip(tables.pairs) {
            *value = total(*stat).wrapping_sub(*value);
        }
        StatRegs {
            tables,
            single,
            pairs,
            latched,
        }
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

//! Guards: what a port may do on a wire it shares with others.
//!
//! All are off by default, and then cost a branch for each batch. None is ever a reason to hold up
//! another port: who sends too much waits itself (or, where it cannot wait, loses what is too much);
//! who receives too much is to its senders like any other full receiver.

mod bucket;
mod vlans;
mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use wire::{Gso, Offload};

use crate::Nanos;
pub(crate) use bucket::Bucket;
use bucket::Limit;
pub use vlans::{BadVlan, VlanSet};
pub(crate) use vlans::{tag_of, vlan_of};
pub(crate) use windows::WindowMeter;
pub use windows::{Window, Windows};

/// How long a silence is made up for at once, where nothing else is said: long enough for a batch
/// at any rate worth limiting, short enough for shallow queues behind.
pub const DEFAULT_BURST_MS: u64 = 10;

/// Least that may come at once: one large frame.
const LEAST_BURST_BITS: u64 = 9018 * 8;

/// A rate limit. Bits are those of the frames, without preamble, gap and FCS; a frame that is to
/// be segmented counts as its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Most bits a second; `None` for any number.
    pub bits: Option<u64>,
    /// Most frames a second; `None` for any number.
    pub packets: Option<u64>,
    /// How long a silence is made up for, in milliseconds.
    pub burst_ms: u64,
}

/// Most flooded frames a second that may come from a port, each kind for itself. More are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storm {
    /// For everybody.
    pub broadcast: Option<u64>,
    /// For a group.
    pub multicast: Option<u64>,
    /// For an address nobody has been seen with.
    pub unknown: Option<u64>,
}

/// What the port's frames cost of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    bits: u64,
    packets: u64,
}

impl Cost {
    /// Of one frame.
    pub(crate) fn of(len: usize, notes: &Offload) -> Cost {
        let (header, size) = (usize::from(notes.hdr_len), usize::from(notes.gso_size));
        let mut cost = Cost {
            bits: len as u64 * 8,
            packets: 1,
        };
        if notes.gso != Gso::None && size > 0 && len > header {
            let segments = (len - header).div_ceil(size) as u64;
            cost.packets = segments;
            cost.bits += (segments - 1) * header as u64 * 8;
        }
        cost
    }

    fn add(&mut self, other: Cost) {
        self.bits = self.bits.saturating_add(other.bits);
        self.packets = self.packets.saturating_add(other.packets);
    }
}

/// A [`Rate`] at work.
#[derive(Debug)]
pub(crate) struct Meter(Mutex<Buckets>);

#[derive(Debug)]
struct Buckets {
    bits: Option<Bucket>,
    packets: Option<Bucket>,
}

fn limit(per_second: u64, burst_ms: u64, least: u64) -> Limit {
    let per_second = per_second.max(1);
    let burst = u128::from(per_second) * u128::from(burst_ms) / 1000;
    Limit {
        per_second,
        burst: u64::try_from(burst).unwrap_or(u64::MAX).max(least),
    }
}

impl Meter {
    /// `None` where nothing is limited.
    pub(crate) fn new(rate: Option<Rate>, now: Nanos) -> Option<Meter> {
        let rate = rate.filter(|rate| rate.bits.is_some() || rate.packets.is_some())?;
        let bucket = |per_second: Option<u64>, least| {
            per_second.map(|n| Bucket::new(limit(n, rate.burst_ms, least), now))
        };
        Some(Meter(Mutex::new(Buckets {
            bits: bucket(rate.bits, LEAST_BURST_BITS),
            packets: bucket(rate.packets, 1),
        })))
    }

    /// Charges frames of these costs, in their order, until one is too much. Returns how many
    /// were charged, and what for.
    pub(crate) fn admit(
        &self,
        now: Nanos,
        costs: impl Iterator<Item = Cost> + Clone,
    ) -> (usize, Cost) {
        let mut buckets = self.0.lock();
        let Buckets { bits, packets } = &mut *buckets;
        let mut all = (0, Cost::default());
        for cost in costs.clone() {
            all.0 += 1;
            all.1.add(cost);
        }
        let mut covered = true;
        if let Some(bucket) = bits {
            bucket.refill(now);
            covered &= bucket.covers(all.1.bits);
        }
        if let Some(bucket) = packets {
            bucket.refill(now);
            covered &= bucket.covers(all.1.packets);
        }
        if covered {
            buckets.charge(all.1);
            return all;
        }
        let mut some = (0, Cost::default());
        for cost in costs {
            let open = |bucket: &Option<Bucket>| bucket.as_ref().is_none_or(Bucket::is_open);
            if !open(&buckets.bits) || !open(&buckets.packets) {
                break;
            }
            buckets.charge(cost);
            some.0 += 1;
            some.1.add(cost);
        }
        some
    }

    /// Gives back what was charged for frames that did not go after all.
    pub(crate) fn refund(&self, charged: Cost, used: Cost) {
        let mut buckets = self.0.lock();
        let Buckets { bits, packets } = &mut *buckets;
        if let Some(bucket) = bits {
            bucket.give_back(charged.bits.saturating_sub(used.bits));
        }
        if let Some(bucket) = packets {
            bucket.give_back(charged.packets.saturating_sub(used.packets));
        }
    }

    /// Whether another frame may pass, as of the last charge.
    pub(crate) fn is_open(&self) -> bool {
        let buckets = self.0.lock();
        let open = |bucket: &Option<Bucket>| bucket.as_ref().is_none_or(Bucket::is_open);
        open(&buckets.bits) && open(&buckets.packets)
    }

    /// When it is worth coming again.
    pub(crate) fn worthwhile_at(&self) -> Nanos {
        let buckets = self.0.lock();
        let at = |bucket: &Option<Bucket>| bucket.as_ref().map_or(0, Bucket::worthwhile_at);
        at(&buckets.bits).max(at(&buckets.packets))
    }
}

impl Buckets {
    fn charge(&mut self, cost: Cost) {
        if let Some(bucket) = &mut self.bits {
            bucket.charge(cost.bits);
        }
        if let Some(bucket) = &mut self.packets {
            bucket.charge(cost.packets);
        }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        let mut sum = Cost::default();
        costs.for_each(|cost| sum.add(cost));
        sum
    }
}

/// Which kind of flooding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unknown,
    Multicast,
    Broadcast,
}

/// A [`Storm`] limit at work. Belongs to the one delivery at a time into its port.
#[derive(Debug)]
pub(crate) struct StormMeter(Mutex<[Option<Bucket>; 3]>);

impl StormMeter {
    /// `None` where nothing is limited.
    pub(crate) fn new(storm: Storm, now: Nanos) -> Option<StormMeter> {
        let limits = [storm.unknown, storm.multicast, storm.broadcast];
        if limits == [None; 3] {
            return None;
        }
        // A second's worth may come at once: groups and neighbours are asked for in bursts, and
        // then not for long.
        let bucket = |n: u64| Bucket::new(limit(n, 1000, 1), now);
        Some(StormMeter(Mutex::new(limits.map(|n| n.map(bucket)))))
    }

    /// Adds what has come since the last call.
    pub(crate) fn refill(&self, now: Nanos) {
        for bucket in self.0.lock().iter_mut().flatten() {
            bucket.refill(now);
        }
    }

    /// Whether one more of this kind may pass; it is charged.
    pub(crate) fn admit(&self, kind: Kind) -> bool {
        match &mut self.0.lock()[kind as usize] {
            Some(bucket) if !bucket.is_open() => false,
            Some(bucket) => {
                bucket.charge(1);
                true
            }
            None => true,
        }
    }

    /// One that was admitted will come again.
    pub(crate) fn refund(&self, kind: Kind) {
        if let Some(bucket) = &mut self.0.lock()[kind as usize] {
            bucket.give_back(1);
        }
    }
}

/// What bounds what comes into a port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bound {
    pub(crate) rate: Option<Arc<Meter>>,
    pub(crate) storm: Option<Arc<StormMeter>>,
    pub(crate) windows: Option<Arc<WindowMeter>>,
}

impl Bound {
    /// Whether floods are bounded.
    pub(crate) fn floods(&self) -> bool {
        self.storm.is_some() || self.windows.is_some()
    }
}

/// A [`Bound`] that can be changed while frames come. A delivery keeps the one it has found.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// There is one, and it has a rate: what a port without either looks at.
    on: AtomicBool,
    rated: AtomicBool,
    bound: RwLock<Option<Arc<Bound>>>,
}

impl Bounds {
    pub(crate) fn new(rate: Option<Rate>, storm: Storm, now: Nanos) -> Bounds {
        let bounds = Bounds {
            on: AtomicBool::new(false),
            rated: AtomicBool::new(false),
            bound: RwLock::new(None),
        };
        bounds.set(rate, storm, now);
        bounds
    }

    /// Puts others in the place of rate and storm, full.
    pub(crate) fn set(&self, rate: Option<Rate>, storm: Storm, now: Nanos) {
        let rate = Meter::new(rate, now).map(Arc::new);
        let storm = StormMeter::new(storm, now).map(Arc::new);
        self.change(|bound| Bound {
            rate,
            storm,
            ..bound
        });
    }

    /// Puts others in the place of the windows, which begin now.
    pub(crate) fn set_windows(&self, windows: Windows, now: Nanos) {
        let windows = WindowMeter::new(windows, now).map(Arc::new);
        self.change(|bound| Bound { windows, ..bound });
    }

    fn change(&self, change: impl FnOnce(Bound) -> Bound) {
        let mut place = self.bound.write();
        let bound = change(place.as_deref().cloned().unwrap_or_default());
        let on = bound.rate.is_some() || bound.floods();
        self.rated.store(bound.rate.is_some(), Ordering::Release);
        self.on.store(on, Ordering::Release);
        *place = on.then(|| Arc::new(bound));
    }

    pub(crate) fn get(&self) -> Option<Arc<Bound>> {
        if !self.on.load(Ordering::Acquire) {
            return None;
        }
        self.bound.read().clone()
    }

    /// Whether there is a rate.
    pub(crate) fn is_rated(&self) -> bool {
        self.rated.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn costs(n: usize, len: usize) -> impl Iterator<Item = Cost> + Clone {
        std::iter::repeat_n(Cost::of(len, &Offload::NONE), n)
    }

    #[test]
    fn a_segmented_frame_costs_what_its_segments_do() {
        let notes = Offload {
            gso: Gso::Tcp4,
            gso_size: 1000,
            hdr_len: 54,
            ..Offload::NONE
        };
        let cost = Cost::of(54 + 2500, &notes);
        assert_eq!(cost.packets, 3);
        assert_eq!(cost.bits, 8 * (2500 + 3 * 54));
        assert_eq!(Cost::of(54, &notes).packets, 1);
        assert_eq!(Cost::of(1000, &Offload::NONE).bits, 8000);
    }

    #[test]
    fn the_tighter_limit_counts_and_nothing_is_charged_twice() {
        let rate = Rate {
            bits: Some(80_000_000),
            packets: Some(10_000),
            burst_ms: 10,
        };
        let meter = Meter::new(Some(rate), 0).expect("limited");
        // 100 frames and 100 kB at once: small frames end at the first, large ones at the second,
        // the last of them with a debt.
        let (n, cost) = meter.admit(0, costs(256, 60));
        assert_eq!((n, cost.packets), (100, 100));
        meter.refund(cost, Cost::default());
        let (n, all) = meter.admit(0, costs(256, 9000));
        assert_eq!(n, 12);
        // Half of them did not go.
        meter.refund(all, costs(6, 9000).sum());
        assert_eq!(meter.admit(0, costs(256, 9000)).0, 6);
        assert_eq!(meter.admit(0, costs(1, 9000)).0, 0);
        let again = meter.worthwhile_at();
        assert!(again > 2 * MS && again < 4 * MS, "{again}");
        assert!(meter.admit(again, costs(256, 60)).0 > 10);
        assert!(Meter::new(None, 0).is_none());
    }

    #[test]
    fn each_kind_of_storm_has_its_own_limit() {
        let storm = Storm {
            broadcast: Some(2),
            multicast: None,
            unknown: Some(1),
        };
        let meter = StormMeter::new(storm, 0).expect("limited");
        let passed = |kind| (0..10).filter(|_| meter.admit(kind)).count();
        assert_eq!(passed(Kind::Broadcast), 2);
        assert_eq!(passed(Kind::Unknown), 1);
        assert_eq!(passed(Kind::Multicast), 10);
        meter.refund(Kind::Unknown);
        assert_eq!(passed(Kind::Unknown), 1);
        meter.refill(501 * MS);
        assert_eq!(passed(Kind::Broadcast), 2, "begun ones count whole");
        assert!(StormMeter::new(Storm::default(), 0).is_none());
    }
}

//! A rate limit at work.

use eswitch::{Bucket, Limit, Rate};
use parking_lot::Mutex;
use wire::Offload;

use crate::config::Nanos;

/// Least that may come at once: one large frame.
const LEAST_BURST_BITS: u64 = 9018 * 8;

/// What the port's frames cost of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    bits: u64,
    packets: u64,
}

impl Cost {
    /// Of one frame.
    pub(crate) fn of(len: usize, notes: &Offload) -> Cost {
        let segments = notes.segments(len) as u64;
        let headers = (segments - 1) * u64::from(notes.hdr_len);
        Cost {
            bits: (len as u64 + headers) * 8,
            packets: segments,
        }
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

impl Meter {
    /// `None` where nothing is limited.
    pub(crate) fn new(rate: Option<Rate>, now: Nanos) -> Option<Meter> {
        let rate = rate.filter(|rate| rate.bits.is_some() || rate.packets.is_some())?;
        let bucket = |per_second: Option<u64>, least| {
            per_second.map(|n| Bucket::new(Limit::new(n, rate.burst_ms, least), now))
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

#[cfg(test)]
mod tests {
    use wire::Gso;

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
}

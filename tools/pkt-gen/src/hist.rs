//! A histogram of times: hdrhistogram's buckets, exact to 1 part in 100, in constant space.

use serde_json::{Value, json};

/// Digits that are exact: one part in 128 is what two need.
const DIGITS: u8 = 2;

/// Times in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = hdrhistogram::Histogram::new_with_bounds(1, u64::MAX, DIGITS);
        Self {
            buckets: buckets.expect("bounds that the crate takes"),
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts `times` of `value` ns.
    #[inline]
    pub fn add(&mut self, value: u64, times: u64) {
        self.buckets.saturating_record_n(value, times);
        self.sum += u128::from(value) * u128::from(times);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        let added = self.buckets.add(&other.buckets);
        added.expect("both have the same bounds");
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// The longest, in ns.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Mean in ns; 0 of none.
    pub fn mean(&self) -> u64 {
        u64::try_from(self.sum / u128::from(self.count().max(1))).unwrap_or(u64::MAX)
    }

    /// The value in ns that `share` (0 to 1) of all values do not exceed; 0 of none.
    pub fn quantile(&self, share: f64) -> u64 {
        if self.buckets.is_empty() {
            return 0;
        }
        let top = self.buckets.value_at_quantile(share);
        top.clamp(self.min, self.max)
    }

    /// For programs: the usual quantiles, and every bucket that is not empty as
    /// `[upper bound in ns, count]`.
    pub fn json(&self) -> Value {
        if self.buckets.is_empty() {
            return Value::Null;
        }
        let filled = self.buckets.iter_recorded();
        let buckets: Vec<Value> = filled
            .map(|b| json!([b.value_iterated_to(), b.count_at_value()]))
            .collect();
        json!({
            "count": self.count(),
            "min_ns": self.min,
            "mean_ns": self.mean(),
            "p50_ns": self.quantile(0.5),
            "p90_ns": self.quantile(0.9),
            "p99_ns": self.quantile(0.99),
            "p99_9_ns": self.quantile(0.999),
            "max_ns": self.max,
            "buckets": buckets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        for value in 1..=1000 {
            histogram.add(value, 1);
        }
        for (share, exact) in [(0.5, 500u64), (0.9, 900), (0.99, 990), (1.0, 1000)] {
            let got = histogram.quantile(share);
            assert!(
                got >= exact && got <= exact + exact / 64 + 1,
                "{share}: {got}"
            );
        }
        assert_eq!((histogram.mean(), histogram.max()), (500, 1000));
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_to_one_part_in_64(value in prop_oneof![0u64..200, any::<u64>()]) {
            let mut histogram = Histogram::default();
            histogram.add(value, 1);
            let upper = histogram.json()["buckets"][0][0].as_u64().unwrap();
            prop_assert!(upper >= value);
            prop_assert!(upper - value <= value / 64);
        }

        #[test]
        fn merging_is_adding(values in proptest::collection::vec(any::<u32>(), 1..50), cut in 0usize..50) {
            let (mut a, mut b, mut all) = <(Histogram, Histogram, Histogram)>::default();
            for (i, value) in values.iter().enumerate() {
                if i < cut { a.add((*value).into(), 1) } else { b.add((*value).into(), 1) }
                all.add((*value).into(), 1);
            }
            a.merge(&b);
            prop_assert_eq!(a.json(), all.json());
        }
    }
}

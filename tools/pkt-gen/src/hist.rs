//! A histogram of times: exact to 1 part in 64, in constant space.

use serde_json::{Value, json};

/// Buckets per power of two.
const SUB: usize = 64;
const SUB_BITS: u32 = SUB.trailing_zeros();
const ROWS: usize = 64 - SUB_BITS as usize + 1;

/// Times in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; ROWS * SUB].into(),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

/// Where a value is counted: values below 64 have a bucket each, every power of two above has 64.
#[inline]
fn bucket(value: u64) -> usize {
    let row = (64 - SUB_BITS).saturating_sub(value.leading_zeros()) as usize;
    if row == 0 {
        return value as usize;
    }
    (row << SUB_BITS) + ((value >> (row - 1)) as usize & (SUB - 1))
}

/// The largest value a bucket holds.
fn top(bucket: usize) -> u64 {
    let (row, sub) = (bucket >> SUB_BITS, (bucket & (SUB - 1)) as u64);
    if row == 0 {
        return sub;
    }
    let shift = row as u32 - 1;
    (SUB as u64 + sub) << shift | ((1 << shift) - 1)
}

impl Histogram {
    /// Counts `times` of `value` ns.
    #[inline]
    pub fn add(&mut self, value: u64, times: u64) {
        self.buckets[bucket(value)] += times;
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Self) {
        for (a, b) in self.buckets.iter_mut().zip(&other.buckets) {
            *a += b;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest, in ns.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Mean in ns; 0 of none.
    pub fn mean(&self) -> u64 {
        u64::try_from(self.sum / u128::from(self.count.max(1))).unwrap_or(u64::MAX)
    }

    /// The value in ns that `share` (0 to 1) of all values do not exceed; 0 of none.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (at, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return top(at).clamp(self.min, self.max);
            }
        }
        0
    }

    /// For programs: the usual quantiles, and every bucket that is not empty as
    /// `[upper bound in ns, count]`.
    pub fn json(&self) -> Value {
        if self.count == 0 {
            return Value::Null;
        }
        let filled = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        let buckets: Vec<Value> = filled.map(|(at, n)| json!([top(at), n])).collect();
        json!({
            "count": self.count,
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
            let upper = top(bucket(value));
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

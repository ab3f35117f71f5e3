//! Limits on what floods, in frames a second.

use eswitch::{Bucket, Limit, Storm};
use parking_lot::Mutex;

use crate::config::Nanos;

/// Which kind of flooding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
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
        let bucket = |n: u64| Bucket::new(Limit::new(n, 1000, 1), now);
        Some(StormMeter(Mutex::new(limits.map(|n| n.map(bucket)))))
    }

    /// Adds what has come since the last call.
    pub(crate) fn refill(&self, now: Nanos) {
        for bucket in self.0.lock().iter_mut().flatten() {
            bucket.refill(now);
        }
    }

    /// Whether one more of this kind may pass; it is charged, each of its segments as a frame.
    pub(crate) fn admit(&self, kind: Flood, segments: u32) -> bool {
        match &mut self.0.lock()[kind as usize] {
            Some(bucket) if !bucket.is_open() => false,
            Some(bucket) => {
                bucket.charge(segments.into());
                true
            }
            None => true,
        }
    }

    /// One that was admitted will come again.
    pub(crate) fn refund(&self, kind: Flood, segments: u32) {
        if let Some(bucket) = &mut self.0.lock()[kind as usize] {
            bucket.give_back(segments.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn each_kind_of_storm_has_its_own_limit() {
        let storm = Storm {
            broadcast: Some(2),
            multicast: None,
            unknown: Some(1),
        };
        let meter = StormMeter::new(storm, 0).expect("limited");
        let passed = |kind| (0..10).filter(|_| meter.admit(kind, 1)).count();
        assert_eq!(passed(Flood::Broadcast), 2);
        assert_eq!(passed(Flood::Unknown), 1);
        assert_eq!(passed(Flood::Multicast), 10);
        meter.refund(Flood::Unknown, 1);
        assert_eq!(passed(Flood::Unknown), 1);
        meter.refill(501 * MS);
        assert_eq!(passed(Flood::Broadcast), 2, "begun ones count whole");
        assert!(StormMeter::new(Storm::default(), 0).is_none());
    }

    #[test]
    fn segments_count_as_the_frames_they_become() {
        let storm = Storm {
            broadcast: Some(100),
            ..Storm::default()
        };
        let meter = StormMeter::new(storm, 0).expect("limited");
        assert!(meter.admit(Flood::Broadcast, 2000));
        meter.refill(500 * MS);
        assert!(!meter.admit(Flood::Broadcast, 1), "it is in debt");
        meter.refund(Flood::Broadcast, 2000);
        assert!(meter.admit(Flood::Broadcast, 1));
    }
}

//! What the switch's core and the guests' core did for the frames of a sample.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fabric;

/// The time of workers in turns that had something to do, from the daemon's own counters.
pub fn work_seconds(daemon: &BTreeMap<String, u64>) -> Option<f64> {
    daemon.get("worker.work_ns").map(|&ns| ns as f64 / 1e9)
}

/// Processor seconds of processes, at one moment.
pub struct Before(Vec<(u32, f64)>);

impl Before {
    /// Of these processes.
    pub fn of(ids: &[u32]) -> Self {
        Self(ids.iter().map(|&id| (id, fabric::cpu(id))).collect())
    }

    /// What each has used since.
    pub fn since(&self) -> Vec<f64> {
        let used = |&(id, had): &(u32, f64)| fabric::cpu(id) - had;
        self.0.iter().map(used).collect()
    }
}

/// What both cores did for some frames. What is not known is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cores {
    /// Frames that came through, and how long it took.
    pub frames: u64,
    /// Seconds.
    pub seconds: f64,
    /// Processor seconds of the switch.
    pub switch_cpu: f64,
    /// Of them, those in which it had something to do: looks that found nothing are not in it.
    pub switch_at_work: Option<f64>,
    /// Processor seconds of the guests.
    pub guests_cpu: f64,
    /// Part of the time, 0 to 1, that the guests' core had something to do.
    pub guests_at_work: Option<f64>,
    /// Part of the guests' looks for frames, 0 to 1, that found some.
    pub looks_with_frames: Option<f64>,
}

/// Names in a sample's raw data.
pub mod name {
    /// Nanoseconds of the switch's processor time for a frame.
    pub const SWITCH: &str = "switch_ns";
    /// Of them, those of work.
    pub const WORK: &str = "switch_work_ns";
    /// Millions of frames for a second of the switch's work.
    pub const ALONE: &str = "switch_alone_mpps";
    /// The guests' processor time over wall clock.
    pub const GUESTS: &str = "guests_cpu";
    /// Part of the time that the guests had something to do.
    pub const AT_WORK: &str = "guests_at_work";
    /// Part of their looks that found frames.
    pub const LOOKS: &str = "looks_with_frames";
}

impl Cores {
    /// Puts it into a sample's raw data.
    pub fn note(&self, raw: &mut Value) {
        let each = |seconds: f64| seconds * 1e9 / self.frames.max(1) as f64;
        let work = self.switch_at_work.map(each);
        for (name, value) in [
            (name::SWITCH, Some(each(self.switch_cpu))),
            (name::WORK, work),
            (name::ALONE, work.map(|ns| 1e3 / ns)),
            (name::GUESTS, Some(self.guests_cpu / self.seconds)),
            (name::AT_WORK, self.guests_at_work),
            (name::LOOKS, self.looks_with_frames),
        ] {
            raw[name] = value
                .filter(|v| v.is_finite())
                .map_or(Value::Null, |v| json!(v));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_a_figure() {
        let mut raw = json!({"frames": 2_000_000});
        let mut cores = Cores {
            frames: 2_000_000,
            seconds: 0.5,
            switch_cpu: 0.5,
            switch_at_work: Some(0.1),
            guests_cpu: 0.45,
            ..Cores::default()
        };
        cores.note(&mut raw);
        let of = |raw: &Value, name: &str| raw[name].as_f64().unwrap();
        assert_eq!(of(&raw, name::SWITCH), 250.0);
        assert_eq!(of(&raw, name::WORK), 50.0);
        assert_eq!(of(&raw, name::ALONE), 20.0);
        assert!((of(&raw, name::GUESTS) - 0.9).abs() < 1e-9);
        assert!(raw[name::AT_WORK].is_null() && raw[name::LOOKS].is_null());
        // A switch that had nothing to do has no rate.
        cores.switch_at_work = Some(0.0);
        cores.note(&mut raw);
        assert!(raw[name::ALONE].is_null());
        cores.switch_at_work = None;
        cores.note(&mut raw);
        assert!(raw[name::WORK].is_null() && raw[name::ALONE].is_null());
    }
}

//! What a run found, for people and for programs.

use std::fmt::Write as _;

use drivers::Costs;
use serde_json::{Value, json};

use crate::check::Verdict;
use crate::hist::Histogram;
use crate::plan::{Function, Plan};
use crate::station::Outcome;

/// The result of a run.
#[derive(Clone)]
pub struct Report {
    /// What was done.
    pub function: Function,
    /// Length of the whole run in ns.
    pub nanoseconds: u64,
    /// NIC by NIC: senders first.
    pub stations: Vec<Outcome>,
    /// Times on the way: of `ping` there and back.
    pub latency: Histogram,
}

/// A number as people read it: three digits and a unit.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = match value {
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$} {unit}")
}

/// Nanoseconds as people read them.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// `frames` and `bytes` in `ns`, as rates.
pub(super) fn rates(frames: u64, bytes: u64, ns: u64) -> String {
    let per_second = |n: u64| n as f64 * 1e9 / ns.max(1) as f64;
    format!(
        "{}pps {}bit/s",
        short(per_second(frames)),
        short(per_second(bytes) * 8.0)
    )
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        stations: Vec<Outcome>,
        latency: Histogram,
        nanoseconds: u64,
    ) -> Self {
        Self {
            function: plan.function,
            nanoseconds,
            stations,
            latency,
        }
    }

    /// The verdicts of all receivers together; none without receivers.
    pub fn verdict(&self) -> Option<Verdict> {
        let mut verdicts = self.stations.iter().filter_map(|s| s.verdict);
        let mut sum = verdicts.next()?;
        verdicts.for_each(|verdict| sum += verdict);
        Some(sum)
    }

    /// Sum of something over all NICs.
    pub fn total(&self, of: impl Fn(&Outcome) -> u64) -> u64 {
        self.stations.iter().map(of).sum()
    }

    /// Frames a second that were sent, from the first burst until the device had the last.
    pub fn tx_rate(&self) -> f64 {
        let rate = |s: &Outcome| match s.tx_nanoseconds {
            0 => 0.0,
            ns => s.tx_frames as f64 * 1e9 / ns as f64,
        };
        self.stations.iter().map(rate).sum()
    }

    /// Frames a second that were received, from the first to the last.
    pub fn rx_rate(&self) -> f64 {
        let rate = |s: &Outcome| match s.rx_nanoseconds {
            0 => 0.0,
            ns => s.rx_frames as f64 * 1e9 / ns as f64,
        };
        self.stations.iter().map(rate).sum()
    }

    /// What the words with the devices cost.
    pub fn costs(&self) -> Costs {
        let mut sum = Costs::default();
        for station in &self.stations {
            sum += station.costs;
        }
        sum
    }

    /// A table for people.
    pub fn human(&self) -> String {
        let mut text = String::new();
        for s in &self.stations {
            let _ = writeln!(text, "{}", s.name);
            if s.tx_frames > 0 || s.tx_nanoseconds > 0 {
                let rate = match s.tx_nanoseconds {
                    0 => String::new(),
                    ns => rates(s.tx_frames, s.tx_bytes, ns),
                };
                let _ = writeln!(text, "  sent        {:>14} frames  {rate}", s.tx_frames);
            }
            if s.bursts > 0 {
                let _ = writeln!(
                    text,
                    "  bursts      {:>14} of {:.1} frames; ring full {} times",
                    s.bursts,
                    s.tx_frames as f64 / s.bursts as f64,
                    s.full
                );
            }
            if s.rx_frames > 0 || s.verdict.is_some() {
                let rate = rates(s.rx_frames, s.rx_bytes, s.rx_nanoseconds);
                let rate = if s.rx_nanoseconds > 0 && s.rx_bytes > 0 {
                    rate
                } else {
                    String::new()
                };
                let _ = writeln!(text, "  received    {:>14} frames  {rate}", s.rx_frames);
            }
            if s.unanswered > 0 {
                let _ = writeln!(text, "  unanswered  {:>14}", s.unanswered);
            }
            let frames = (s.tx_frames + s.rx_frames).max(1) as f64;
            let c = s.costs;
            let _ = writeln!(
                text,
                "  per frame   {:.5} register writes, {:.5} reads, {:.5} messages, {:.5} \
                 interrupts, {:.5} system calls",
                c.writes as f64 / frames,
                c.reads as f64 / frames,
                c.messages as f64 / frames,
                c.interrupts as f64 / frames,
                c.syscalls as f64 / frames,
            );
        }
        if let Some(verdict) = self.verdict() {
            let seen = verdict.seen;
            let _ = writeln!(
                text,
                "checked       {:>14} frames of {} flows: {} lost, {} duplicates, {} reordered, {} \
                 too late, {} corrupt, {} with a wrong checksum; {} foreign",
                seen.frames,
                verdict.flows,
                seen.lost,
                seen.duplicates,
                seen.reordered,
                seen.stale,
                verdict.corrupt,
                verdict.bad_sums,
                verdict.foreign,
            );
        }
        if self.latency.count() > 0 {
            let h = &self.latency;
            let _ = writeln!(
                text,
                "{}  p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
                match self.function {
                    Function::Ping => "round trip    ",
                    _ => "one way       ",
                },
                time(h.quantile(0.5)),
                time(h.quantile(0.9)),
                time(h.quantile(0.99)),
                time(h.quantile(0.999)),
                time(h.max()),
            );
        }
        text
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let costs = |c: &Costs| {
            json!({
                "register_reads": c.reads,
                "register_writes": c.writes,
                "messages": c.messages,
                "interrupts": c.interrupts,
                "system_calls": c.syscalls,
            })
        };
        let station = |s: &Outcome| {
            json!({
                "socket": s.name,
                "tx_frames": s.tx_frames,
                "tx_bytes": s.tx_bytes,
                "tx_ns": s.tx_nanoseconds,
                "bursts": s.bursts,
                "ring_full": s.full,
                "unanswered": s.unanswered,
                "rx_frames": s.rx_frames,
                "rx_bytes": s.rx_bytes,
                "rx_ns": s.rx_nanoseconds,
                "verdict": s.verdict.map(|v| v.json()),
                "costs": costs(&s.costs),
            })
        };
        json!({
            "ns": self.nanoseconds,
            "tx_frames": self.total(|s| s.tx_frames),
            "rx_frames": self.total(|s| s.rx_frames),
            "tx_pps": self.tx_rate(),
            "rx_pps": self.rx_rate(),
            "verdict": self.verdict().map(|v| v.json()),
            "latency": self.latency.json(),
            "costs": costs(&self.costs()),
            "nics": self.stations.iter().map(station).collect::<Vec<_>>(),
        })
    }
}

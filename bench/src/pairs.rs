//! Scenarios run side by side, their records, and what they say about a target.

use std::time::Instant;

use rig::paired::{self, Comparison, Ratio, Side, percentile};
use serde_json::{Value, json};

use crate::bed::{Bed, Delta, End};
use crate::error::Result;
use crate::machine::Ticks;

/// What must hold of a ratio "ours over QEMU's".
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At least this (a rate).
    AtLeast(f64),
    /// At most this (a time).
    AtMost(f64),
}

/// One figure that a scenario yields.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// What it is.
    pub title: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// What must hold.
    pub target: Target,
}

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Pairs of each scenario.
    pub rounds: usize,
    /// Factor on what a single run takes; 1 for the full bench.
    pub scale: f64,
}

/// One measurement that is repeated on both ends.
pub struct Scenario {
    /// A short name, also in the raw data.
    pub id: &'static str,
    /// What is done, in a few words.
    pub title: &'static str,
    /// What one run yields.
    pub metrics: &'static [Metric],
    /// Seconds one run takes at scale 1.
    pub seconds: f64,
    /// Runs it once on an end; the figures are in the order of `metrics`.
    pub run: fn(&Bed, &End, Plan) -> Result<Outcome>,
}

/// What one run yields.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// A figure for each metric.
    pub values: Vec<f64>,
    /// Single samples behind them, where there are any worth keeping.
    pub samples: Vec<f64>,
}

/// One run with everything that was counted meanwhile.
pub struct Record {
    /// Which pair it belongs to.
    pub round: usize,
    /// Which candidate.
    pub side: Side,
    /// Its figures.
    pub outcome: Outcome,
    /// What happened meanwhile.
    pub delta: Delta,
    busy: f64,
    steal: f64,
}

/// All runs of a scenario.
pub struct Series {
    /// The scenario.
    pub scenario: &'static Scenario,
    /// Its runs, in the order they were made.
    pub records: Vec<Record>,
}

/// A metric's figures and what they say.
pub struct Judged {
    /// The metric.
    pub metric: Metric,
    /// Both sides' figures.
    pub comparison: Comparison,
    /// Ours over QEMU's.
    pub ratio: Ratio,
    /// The middle half of the pairs' ratios.
    pub quartiles: (f64, f64),
    /// QEMU's over QEMU's.
    pub control: Ratio,
}

/// Runs a scenario in pairs with a control, and says how it goes.
///
/// # Errors
/// The first run's that fails.
pub fn run(bed: &Bed, scenario: &'static Scenario, plan: Plan) -> Result<Series> {
    let mut records: Vec<Record> = Vec::new();
    eprint!("  {:<12}", scenario.id);
    paired::compare(plan.rounds, |side| {
        let end = &bed.ends[usize::from(side == Side::B)];
        let ticks = Ticks::now();
        let (outcome, delta) = bed.watch(end, || (scenario.run)(bed, end, plan))?;
        let used = Ticks::now().since(ticks);
        let round = records.len() / 3;
        let value = outcome.values.first().copied().unwrap_or(f64::NAN);
        records.push(Record {
            round,
            side,
            outcome,
            delta,
            busy: used.busy,
            steal: used.steal,
        });
        if records.len().is_multiple_of(3) {
            eprint!(".");
        }
        Ok::<_, crate::error::Error>(value)
    })?;
    let series = Series { scenario, records };
    for (i, judged) in series.judge().iter().enumerate() {
        let lead = if i == 0 { " " } else { "\n              " };
        eprint!("{lead}{}: {}", judged.metric.title, judged.line());
    }
    eprintln!();
    Ok(series)
}

impl Series {
    /// The runs of one side.
    pub fn of(&self, side: Side) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |r| r.side == side)
    }

    /// All samples of one side.
    pub fn samples(&self, side: Side) -> Vec<f64> {
        self.of(side)
            .flat_map(|r| r.outcome.samples.iter().copied())
            .collect()
    }

    /// Everything that was counted on one side, summed.
    pub fn sum(&self, side: Side) -> Delta {
        let mut sum = Delta::default();
        for Record { delta, .. } in self.of(side) {
            sum.frames = (sum.frames.0 + delta.frames.0, sum.frames.1 + delta.frames.1);
            sum.tap_frames = (
                sum.tap_frames.0 + delta.tap_frames.0,
                sum.tap_frames.1 + delta.tap_frames.1,
            );
            sum.tap_dropped += delta.tap_dropped;
            sum.interrupts += delta.interrupts;
            for (name, seconds) in &delta.cpu {
                *sum.cpu.entry(name.clone()).or_default() += seconds;
            }
            for (name, value) in &delta.counters {
                *sum.counters.entry(name.clone()).or_default() += value;
            }
        }
        sum
    }

    /// The verdict on each metric.
    pub fn judge(&self) -> Vec<Judged> {
        let metrics = self.scenario.metrics.iter().enumerate();
        metrics
            .filter_map(|(i, metric)| self.judge_one(i, *metric))
            .collect()
    }

    fn judge_one(&self, index: usize, metric: Metric) -> Option<Judged> {
        let column = |side| -> Vec<f64> {
            let mut runs: Vec<_> = self.of(side).collect();
            runs.sort_by_key(|r| r.round);
            runs.iter()
                .filter_map(|r| r.outcome.values.get(index).copied())
                .collect()
        };
        let comparison = Comparison {
            a: column(Side::A),
            b: column(Side::B),
            control: column(Side::Control),
        };
        let ratio = comparison.ratio()?;
        let control = comparison.control_ratio()?;
        let pairs: Vec<f64> = comparison
            .b
            .iter()
            .zip(&comparison.a)
            .map(|(b, a)| b / a)
            .collect();
        let quartiles = (percentile(&pairs, 25.0)?, percentile(&pairs, 75.0)?);
        Some(Judged {
            metric,
            comparison,
            ratio,
            quartiles,
            control,
        })
    }

    /// The raw figures.
    pub fn json(&self) -> Value {
        let side = |side: Side| match side {
            Side::A => "A",
            Side::B => "B",
            Side::Control => "A again",
        };
        let round = |v: f64| (v * 1000.0).round() / 1000.0;
        let records: Vec<Value> = self
            .records
            .iter()
            .map(|r| {
                let mut value = json!({
                    "round": r.round, "side": side(r.side),
                    "values": r.outcome.values.iter().map(|v| round(*v)).collect::<Vec<_>>(),
                    "host_busy": round(r.busy), "host_steal": round(r.steal),
                    "counted": r.delta.json(),
                });
                if !r.outcome.samples.is_empty() {
                    value["samples"] = json!(r.outcome.samples);
                }
                value
            })
            .collect();
        let judged: Vec<Value> = self.judge().iter().map(Judged::json).collect();
        json!({"id": self.scenario.id, "title": self.scenario.title, "metrics": judged, "runs": records})
    }

    /// The part of the machine's time that others took during these runs, at worst.
    pub fn worst_steal(&self) -> f64 {
        self.records.iter().map(|r| r.steal).fold(0.0, f64::max)
    }
}

impl Judged {
    /// Median of QEMU's figures (both sets of its runs).
    pub fn theirs(&self) -> f64 {
        let all: Vec<f64> = self
            .comparison
            .a
            .iter()
            .chain(&self.comparison.control)
            .copied()
            .collect();
        paired::median(&all).unwrap_or(f64::NAN)
    }

    /// Median of our figures.
    pub fn ours(&self) -> f64 {
        paired::median(&self.comparison.b).unwrap_or(f64::NAN)
    }

    /// By how much of the target it is missed; `None` when it is met.
    pub fn missed_by(&self) -> Option<f64> {
        let by = match self.metric.target {
            Target::AtLeast(target) => 1.0 - self.ratio.median / target,
            Target::AtMost(target) => self.ratio.median / target - 1.0,
        };
        (by > 0.0).then_some(by)
    }

    /// "met" or by how much not.
    pub fn verdict(&self) -> String {
        match self.missed_by() {
            None => "met".to_owned(),
            Some(by) => format!("missed by {:.1} %", (by * 100.0).max(0.1)),
        }
    }

    /// The target in words.
    pub fn target(&self) -> String {
        match self.metric.target {
            Target::AtLeast(t) => format!("≥ {t:.1}"),
            Target::AtMost(t) => format!("≤ {t:.1}"),
        }
    }

    fn line(&self) -> String {
        format!(
            "{:.0} and {:.0} {}, ratio {:.2} ({:.2}-{:.2}), control {:.2} ({:.2}-{:.2}): {}",
            self.theirs(),
            self.ours(),
            self.metric.unit,
            self.ratio.median,
            self.ratio.min,
            self.ratio.max,
            self.control.median,
            self.control.min,
            self.control.max,
            self.verdict()
        )
    }

    fn json(&self) -> Value {
        let ratio = |r: &Ratio| json!({"median": r.median, "min": r.min, "max": r.max});
        json!({
            "title": self.metric.title, "unit": self.metric.unit, "target": self.target(),
            "qemu": self.theirs(), "hypernic": self.ours(), "ratio": ratio(&self.ratio),
            "ratio_quartiles": [self.quartiles.0, self.quartiles.1],
            "control": ratio(&self.control), "verdict": self.verdict(),
        })
    }
}

/// Tells how long something took, for progress lines.
pub fn since(start: Instant) -> String {
    let seconds = start.elapsed().as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    static SCENARIO: Scenario = Scenario {
        id: "test",
        title: "test",
        metrics: &[
            Metric {
                title: "rate",
                unit: "1/s",
                target: Target::AtLeast(1.0),
            },
            Metric {
                title: "time",
                unit: "us",
                target: Target::AtMost(1.5),
            },
        ],
        seconds: 0.0,
        run: |_, _, _| Ok(Outcome::default()),
    };

    /// Three rounds in turning order; B's figures are those of A times the factors.
    fn series(rate: f64, time: f64) -> Series {
        let mut records = Vec::new();
        for round in 0..3 {
            let mut order = [Side::A, Side::B, Side::Control];
            if round % 2 == 1 {
                order.reverse();
            }
            for side in order {
                let own = 100.0 * (round + 1) as f64;
                let values = match side {
                    Side::B => vec![own * rate, own * time],
                    _ => vec![own, own],
                };
                let outcome = Outcome {
                    values,
                    samples: vec![own],
                };
                let delta = Delta {
                    frames: (1, 2),
                    ..Delta::default()
                };
                records.push(Record {
                    round,
                    side,
                    outcome,
                    delta,
                    busy: 0.0,
                    steal: 0.0,
                });
            }
        }
        Series {
            scenario: &SCENARIO,
            records,
        }
    }

    #[test]
    fn pairs_are_compared_within_their_round() {
        let judged = series(0.9, 1.8).judge();
        assert!((judged[0].ratio.median - 0.9).abs() < 1e-9 && judged[0].ratio.max < 0.91);
        assert!((judged[0].control.min, judged[0].control.max) == (1.0, 1.0));
        assert_eq!((judged[0].theirs(), judged[0].ours()), (200.0, 180.0));
    }

    #[test]
    fn a_missed_target_says_by_how_much() {
        let judged = series(0.9, 1.8).judge();
        assert_eq!(judged[0].verdict(), "missed by 10.0 %");
        assert_eq!(judged[1].verdict(), "missed by 20.0 %");
        let judged = series(1.0, 1.5).judge();
        assert!(judged.iter().all(|j| j.verdict() == "met"));
    }

    #[test]
    fn counts_are_summed_by_side_and_every_run_is_kept() {
        let series = series(1.0, 1.0);
        assert_eq!(series.sum(Side::B).frames, (3, 6));
        assert_eq!(series.samples(Side::Control), [100.0, 200.0, 300.0]);
        let data = series.json();
        assert_eq!(data["runs"].as_array().map(Vec::len), Some(9));
        assert_eq!(
            data["runs"][3]["side"], "A again",
            "the second round is turned"
        );
    }
}

//! Medians and spreads, and samples of several candidates taken in turns.

use rig::paired::{median, percentile};
use serde_json::{Value, json};

use crate::error::Result;
use crate::quiet::Quiet;

/// The middle and the spread of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// How many.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// A quarter is below.
    pub q1: f64,
    /// Half is below.
    pub median: f64,
    /// Three quarters are below.
    pub q3: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of all figures; `None` of nothing.
    pub fn of(figures: &[f64]) -> Option<Self> {
        Some(Self {
            count: figures.len(),
            min: percentile(figures, 0.0)?,
            q1: percentile(figures, 25.0)?,
            median: median(figures)?,
            q3: percentile(figures, 75.0)?,
            max: percentile(figures, 100.0)?,
        })
    }

    /// "median (min–max)".
    pub fn words(&self) -> String {
        format!(
            "**{}** ({}–{})",
            figure(self.median),
            figure(self.min),
            figure(self.max)
        )
    }

    /// As raw data.
    pub fn json(&self) -> Value {
        json!({"n": self.count, "min": self.min, "q1": self.q1, "median": self.median, "q3": self.q3, "max": self.max})
    }
}

/// Three significant digits where there are decimals at all.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => "–".to_owned(),
        v if v < 0.0005 => "0".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// One figure with what stands behind it.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The figure.
    pub value: f64,
    /// Everything else that was counted.
    pub raw: Value,
}

impl Reading {
    /// A figure alone.
    pub fn bare(value: f64) -> Self {
        Self {
            value,
            raw: Value::Null,
        }
    }
}

/// A candidate's readings, one for each round; `None` where no undisturbed one was to be had.
#[derive(Debug, Clone)]
pub struct Column {
    /// A short name, also in the raw data.
    pub id: String,
    readings: Vec<Option<Reading>>,
    foreign: Vec<Option<f64>>,
}

impl Column {
    /// An empty one.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            readings: Vec::new(),
            foreign: Vec::new(),
        }
    }

    /// The figures there are.
    pub fn values(&self) -> Vec<f64> {
        self.readings().map(|r| r.value).collect()
    }

    /// The readings there are.
    pub fn readings(&self) -> impl Iterator<Item = &Reading> {
        self.readings.iter().flatten()
    }

    /// Their middle and spread.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.values())
    }

    /// The median, or NaN.
    pub fn median(&self) -> f64 {
        self.summary().map_or(f64::NAN, |s| s.median)
    }

    /// "median (min–max)", or a dash.
    pub fn words(&self) -> String {
        self.summary().map_or("–".to_owned(), |s| s.words())
    }

    /// Another figure of the same samples, by its name in their raw data; missing where they have none.
    #[must_use]
    pub fn of(&self, name: &str) -> Self {
        let other = |reading: &Option<Reading>| {
            let value = reading.as_ref()?.raw[name].as_f64()?;
            Some(Reading::bare(value))
        };
        Self {
            id: self.id.clone(),
            readings: self.readings.iter().map(other).collect(),
            foreign: self.foreign.clone(),
        }
    }

    /// This over another, round by round, so that a machine that changes its speed changes both.
    pub fn over(&self, other: &Self) -> Option<Summary> {
        let ratios: Vec<f64> = self
            .readings
            .iter()
            .zip(&other.readings)
            .filter_map(|(a, b)| Some(a.as_ref()?.value / b.as_ref()?.value))
            .filter(|r| r.is_finite())
            .collect();
        Summary::of(&ratios)
    }

    /// [`Column::over`] in words; a dash for itself and for what is missing.
    pub fn ratio_words(&self, other: &Self) -> String {
        let ratio = (self.id != other.id).then(|| self.over(other)).flatten();
        ratio.map_or("–".to_owned(), |r| r.words())
    }

    /// As raw data: every reading is kept.
    pub fn json(&self) -> Value {
        let round = |v: f64| {
            if v.is_finite() {
                json!((v * 1e6).round() / 1e6)
            } else {
                Value::Null
            }
        };
        let rows: Vec<Value> = self
            .readings
            .iter()
            .zip(&self.foreign)
            .map(|(reading, foreign)| match reading {
                None => Value::Null,
                Some(r) => json!({
                    "value": round(r.value), "foreign_load": foreign.map(round), "counted": r.raw,
                }),
            })
            .collect();
        json!({"id": self.id, "summary": self.summary().map(|s| s.json()), "samples": rows})
    }
}

/// Fills columns in turns: round by round, every second one backwards, so that a drift favours no column. `run` is told
/// which column.
///
/// # Errors
/// The first of `run`.
pub fn in_turns(
    quiet: &mut Quiet,
    rounds: usize,
    columns: &mut [Column],
    mut run: impl FnMut(usize) -> Result<Reading>,
) -> Result<()> {
    for round in 0..rounds {
        let count = columns.len();
        for step in 0..count {
            let i = if round % 2 == 0 {
                step
            } else {
                count - 1 - step
            };
            let taken = quiet.take(|| run(i))?;
            columns[i].foreign.push(taken.as_ref().map(|t| t.foreign));
            columns[i].readings.push(taken.map(|t| t.value));
        }
        eprint!(".");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_its_quarters() {
        let summary = Summary::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((summary.min, summary.q1, summary.median), (1.0, 2.0, 3.0));
        assert_eq!((summary.q3, summary.max, summary.count), (4.0, 5.0, 5));
        assert_eq!(summary.words(), "**3.00** (1.00–5.00)");
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn figures_keep_three_digits() {
        let shown = [0.0, 0.12345, 2.34567, 23.4567, 234.567, f64::NAN].map(figure);
        assert_eq!(shown, ["0", "0.123", "2.35", "23.5", "235", "–"]);
    }

    #[test]
    fn turns_alternate_and_ratios_are_within_a_round() {
        let mut quiet = Quiet::new(true, 1);
        let mut columns = [Column::new("a"), Column::new("b")];
        let mut order = Vec::new();
        // The machine gets slower with every sample; b is twice as fast.
        let mut speed = 100.0;
        in_turns(&mut quiet, 4, &mut columns, |i| {
            order.push(i);
            speed *= 0.99;
            Ok(Reading::bare(speed * (1 + i) as f64))
        })
        .unwrap();
        assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0]);
        let ratio = columns[1].over(&columns[0]).unwrap();
        assert!((ratio.median - 2.0).abs() < 0.03, "{ratio:?}");
        assert_eq!(
            columns[0].json()["samples"].as_array().map(Vec::len),
            Some(4)
        );
    }

    #[test]
    fn another_figure_of_the_same_samples_keeps_their_rounds() {
        let reading = |raw| Some(Reading { value: 1.0, raw });
        let column = Column {
            id: "a".to_owned(),
            readings: vec![
                reading(json!({"ns": 20.0})),
                None,
                reading(json!({"ns": null})),
                reading(json!({"ns": 40.0})),
            ],
            foreign: vec![None; 4],
        };
        let ns = column.of("ns");
        assert_eq!((ns.values(), ns.readings.len()), (vec![20.0, 40.0], 4));
        assert!(ns.readings[1].is_none() && ns.readings[2].is_none());
        assert!(column.of("us").summary().is_none());
    }

    #[test]
    fn a_missing_sample_drops_its_pair_only() {
        let column = |id: &str, values: [Option<f64>; 3]| Column {
            id: id.to_owned(),
            readings: values.map(|v| v.map(Reading::bare)).to_vec(),
            foreign: vec![None; 3],
        };
        let a = column("a", [Some(1.0), None, Some(4.0)]);
        let b = column("b", [Some(2.0), Some(9.0), Some(4.0)]);
        let ratio = b.over(&a).unwrap();
        assert_eq!((ratio.count, ratio.min, ratio.max), (2, 1.0, 2.0));
        assert_eq!(a.json()["samples"][1], Value::Null);
    }
}

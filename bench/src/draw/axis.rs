//! Axes with round ends and round ticks, as plotters' coordinates.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// An axis: a range, whether it is logarithmic, and what is written at its ticks.
#[derive(Debug, Clone)]
pub struct Axis {
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis from 0 to a round number beyond `largest`.
    pub fn linear(largest: f64) -> Self {
        let step = round_up(largest.max(1e-9) / 6.0);
        let to = step * (largest / step).ceil().max(1.0);
        let ticks = (0..=(to / step).round() as usize).map(|i| i as f64 * step);
        Self {
            from: 0.0,
            to,
            log: false,
            ticks: ticks.map(|t| (t, number(t))).collect(),
        }
    }

    /// A logarithmic axis over a range.
    pub fn logarithmic(smallest: f64, largest: f64) -> Self {
        let decades = (-6..10).map(|d| 10_f64.powi(d));
        let all: Vec<f64> = decades
            .flat_map(|d| [1.0, 2.0, 5.0].map(|s| s * d))
            .collect();
        let from = all.iter().copied().rfind(|t| *t <= smallest);
        let to = all.iter().copied().find(|t| *t >= largest);
        let (from, mut to) = (from.unwrap_or(smallest), to.unwrap_or(largest));
        if to <= from {
            to = from * 10.0;
        }
        let ticks = all.into_iter().filter(|t| *t >= from && *t <= to);
        Self {
            from,
            to,
            log: true,
            ticks: ticks.map(|t| (t, number(t))).collect(),
        }
    }

    /// From 0 to 100.
    pub fn percent() -> Self {
        Self {
            to: 100.0,
            ticks: (0..=5)
                .map(|i| (f64::from(i) * 20.0, format!("{}", i * 20)))
                .collect(),
            ..Self::linear(100.0)
        }
    }

    /// Rows from top to bottom, each with its name at its middle: row `i` is around `len - i - 0.5`.
    pub fn rows(names: &[String]) -> Self {
        let count = names.len() as f64;
        let tick = |(i, name): (usize, &String)| (count - i as f64 - 0.5, name.clone());
        Self {
            from: 0.0,
            to: count,
            log: false,
            ticks: names.iter().enumerate().map(tick).collect(),
        }
    }

    /// Its ends.
    pub fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Where a value is on it, 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let at = if self.log {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        at.clamp(0.0, 1.0)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let length = f64::from(limit.1 - limit.0);
        limit.0 + (self.place(*value) * length).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|t| t.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|t| t.0 == *value);
        tick.map_or_else(|| number(*value), |t| t.1.clone())
    }
}

fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps
        .iter()
        .map(|s| s * decade)
        .find(|s| *s >= value)
        .unwrap_or(value)
}

fn number(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{}k", (value / 100.0).round() / 10.0)
    } else {
        format!("{}", (value * 1000.0).round() / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_numbers() {
        let axis = Axis::linear(43_000.0);
        assert_eq!((axis.to, axis.ticks.len()), (50_000.0, 6));
        let axis = Axis::logarithmic(130.0, 4_100.0);
        assert_eq!((axis.from, axis.to), (100.0, 5_000.0));
        assert!((axis.place(100.0), axis.place(5_000.0)) == (0.0, 1.0));
        assert!(axis.place(1.0) == 0.0 && axis.place(1e9) == 1.0);
    }
}

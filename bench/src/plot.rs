//! Plots as data: what is shown and whose it is. Raw data keeps them, so that `replot` draws them again.

use serde::{Deserialize, Deserializer, Serialize};

/// Whose figures they are, which decides their colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// hypernic's: shades of blue.
    Ours,
    /// A peer's or a paper's: shades of orange.
    Peer,
    /// A limit or a control: shades of grey.
    Bound,
}

impl Whose {
    /// Ours or a peer's.
    pub fn ours(yes: bool) -> Self {
        if yes { Self::Ours } else { Self::Peer }
    }
}

/// A plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Its file's name, without the ending.
    pub name: String,
    /// What it shows, in words.
    pub title: String,
    /// What is drawn.
    pub shape: Shape,
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Curves.
    Lines {
        /// The horizontal axis.
        x: Scale,
        /// The vertical one.
        y: Scale,
        /// The curves.
        sets: Vec<Set>,
    },
    /// Horizontal bars from zero, with whiskers over the spread.
    Bars {
        /// What they measure.
        unit: String,
        /// From top to bottom.
        rows: Vec<Bar>,
    },
    /// Ratios of pairs: a dot for the median, a line over all, thick over the middle half; the control below.
    Ratios {
        /// What is over what.
        unit: String,
        /// From top to bottom.
        rows: Vec<Row>,
    },
    /// What happens where, one after the other.
    Lanes {
        /// What the horizontal axis measures.
        unit: String,
        /// The places, from top to bottom.
        lanes: Vec<String>,
        /// From left to right.
        spans: Vec<Span>,
    },
}

/// Something that happens at a place for a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Written into it where there is room.
    pub name: String,
    /// Which lane it is in, from 0 at the top.
    pub lane: usize,
    /// Whose it is.
    pub whose: Whose,
    /// When it begins.
    pub from: f64,
    /// When it ends.
    pub to: f64,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// What it measures.
    pub title: String,
    /// Whether it is logarithmic; otherwise it begins at zero.
    pub log: bool,
}

impl Scale {
    /// A linear one, from zero.
    pub fn linear(title: &str) -> Self {
        let title = title.to_owned();
        Self { title, log: false }
    }

    /// A logarithmic one.
    pub fn log(title: &str) -> Self {
        let title = title.to_owned();
        Self { title, log: true }
    }
}

/// One curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Set {
    /// What it is; written beside it.
    #[serde(deserialize_with = "name_of_today")]
    pub name: String,
    /// Whose it is.
    pub whose: Whose,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether each point is marked with a dot.
    pub dots: bool,
}

/// Raw data of November 2026 and before calls receive throttling *portions*.
fn name_of_today<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    Ok(match name.as_str() {
        "portions" => "receive-throttling".to_owned(),
        _ => name,
    })
}

/// One bar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// What it is; written before it.
    pub name: String,
    /// Whose it is.
    pub whose: Whose,
    /// Its length.
    pub median: f64,
    /// The smallest and the largest measured.
    pub spread: (f64, f64),
}

/// A row of a plot of ratios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub title: String,
    /// Minimum, lower quartile, median, upper quartile, maximum.
    pub ours: (f64, f64, f64, f64, f64),
    /// Minimum, median, maximum of the control.
    pub control: (f64, f64, f64),
    /// The ratio to reach.
    pub target: f64,
}

/// Points of a distribution that are kept.
const KEPT: usize = 350;

/// A curve with a dot at each point. What is no number is left out.
pub fn set(name: &str, whose: Whose, points: impl IntoIterator<Item = (f64, f64)>) -> Set {
    let real = |p: &(f64, f64)| p.0.is_finite() && p.1.is_finite();
    Set {
        name: name.to_owned(),
        whose,
        points: points.into_iter().filter(real).collect(),
        dots: true,
    }
}

/// Curves.
pub fn lines(name: &str, title: &str, x: Scale, y: Scale, sets: Vec<Set>) -> Plot {
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        shape: Shape::Lines { x, y, sets },
    }
}

/// Cumulative distributions of times.
pub fn distributions(
    name: &str,
    title: &str,
    unit: &str,
    sets: &[(String, Whose, Vec<f64>)],
) -> Plot {
    let curve = |(name, whose, times): &(String, Whose, Vec<f64>)| {
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let share = |k: usize| (k + 1) as f64 / sorted.len() as f64 * 100.0;
        // More points than the picture has columns are of no use.
        let step = sorted.len().div_ceil(KEPT).max(1);
        let points = (0..sorted.len())
            .step_by(step)
            .map(|k| (sorted[k], share(k)));
        let last = sorted.last().map(|t| (*t, 100.0));
        Set {
            dots: false,
            ..set(name, *whose, points.chain(last))
        }
    };
    let sets = sets.iter().map(curve).collect();
    lines(
        name,
        title,
        Scale::log(unit),
        Scale::linear("% not slower"),
        sets,
    )
}

/// Horizontal bars.
pub fn bars(name: &str, title: &str, unit: &str, rows: Vec<Bar>) -> Plot {
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        shape: Shape::Bars {
            unit: unit.to_owned(),
            rows,
        },
    }
}

/// A timeline.
pub fn lanes(name: &str, title: &str, unit: &str, lanes: &[&str], spans: Vec<Span>) -> Plot {
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        shape: Shape::Lanes {
            unit: unit.to_owned(),
            lanes: lanes.iter().map(|lane| (*lane).to_owned()).collect(),
            spans,
        },
    }
}

/// Ratios with their spread.
pub fn ratios(name: &str, title: &str, unit: &str, rows: Vec<Row>) -> Plot {
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        shape: Shape::Ratios {
            unit: unit.to_owned(),
            rows,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_its_ends_and_not_all_between() {
        let times: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let sets = [("alone".to_owned(), Whose::Ours, times)];
        let Shape::Lines { sets, .. } = distributions("d", "t", "us", &sets).shape else {
            panic!("no curves");
        };
        assert!(sets[0].points.len() <= KEPT + 1);
        assert_eq!(sets[0].points[0].0, 1.0);
        assert_eq!(sets[0].points.last(), Some(&(100_000.0, 100.0)));
    }

    #[test]
    fn raw_data_keeps_a_plot_whole() {
        let row = Row {
            title: "ping".to_owned(),
            ours: (0.8, 0.9, 1.0, 1.1, 1.2),
            control: (0.9, 1.0, 1.1),
            target: 1.5,
        };
        let plot = ratios("r", "t", "ours / theirs", vec![row]);
        let kept = serde_json::to_string(&plot).unwrap();
        assert_eq!(serde_json::from_str::<Plot>(&kept).unwrap(), plot);
    }
}

//! Plots of any number of sets: curves, bars and cumulative distributions.

use crate::plot::{Anchor, Axis, BOTTOM, INK, LEFT, Mark, Plot, RIGHT, TOP};

/// Colours that are told apart, the first for ours.
const PALETTE: [[u8; 3]; 8] = [
    [0x0b, 0x62, 0xc4],
    [0xd0, 0x6a, 0x10],
    [0x2e, 0x8b, 0x57],
    [0x80, 0x80, 0x80],
    [0xa0, 0x30, 0xa0],
    [0xc0, 0x30, 0x20],
    [0x10, 0x9a, 0xa8],
    [0x7a, 0x5c, 0x20],
];

/// One curve.
#[derive(Debug, Clone)]
pub struct Set {
    /// What it is.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A curve plot's axes.
#[derive(Debug, Clone, Copy)]
pub struct Scales<'a> {
    /// Title of the horizontal one, and whether it is logarithmic.
    pub x: (&'a str, bool),
    /// Title of the vertical one, and whether it is logarithmic.
    pub y: (&'a str, bool),
}

fn axis((title, log): (&str, bool), values: &[f64]) -> Axis {
    let values = values.iter().copied().filter(|v| v.is_finite());
    let large = values.clone().fold(f64::MIN_POSITIVE, f64::max);
    if log {
        let small = values.filter(|v| *v > 0.0).fold(large, f64::min);
        Axis::logarithmic(title, small, large)
    } else {
        Axis::linear(title, large)
    }
}

fn colour(i: usize) -> [u8; 3] {
    PALETTE[i % PALETTE.len()]
}

fn legend(plot: &mut Plot, names: impl Iterator<Item = String>, x: f64, top: f64) {
    for (i, name) in names.enumerate() {
        let y = top + 17.0 * i as f64;
        plot.line(vec![(x, y - 4.0), (x + 22.0, y - 4.0)], 3.0, colour(i));
        plot.words((x + 28.0, y), &name, Anchor::Start, INK);
    }
}

/// Curves with a dot at each point.
pub fn lines(name: &str, title: &str, scales: Scales<'_>, sets: &[Set]) -> Plot {
    let mut plot = Plot::new(name, title);
    let all = |pick: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        sets.iter()
            .flat_map(|s| s.points.iter().map(pick))
            .collect()
    };
    let (x, y) = (axis(scales.x, &all(|p| p.0)), axis(scales.y, &all(|p| p.1)));
    plot.axes(&x, &y);
    for (i, set) in sets.iter().enumerate() {
        let points: Vec<_> = set
            .points
            .iter()
            .filter(|p| p.0.is_finite() && p.1.is_finite())
            .map(|&(a, b)| {
                (
                    LEFT + x.place(a) * (RIGHT - LEFT),
                    BOTTOM - y.place(b) * (BOTTOM - TOP),
                )
            })
            .collect();
        for &at in &points {
            plot.dot(at, 3.0, colour(i));
        }
        plot.line(points, 2.0, colour(i));
    }
    legend(
        &mut plot,
        sets.iter().map(|s| s.name.clone()),
        LEFT + 14.0,
        TOP + 18.0,
    );
    plot
}

/// Cumulative distributions of times.
pub fn distributions(name: &str, title: &str, unit: &str, sets: &[(String, Vec<f64>)]) -> Plot {
    let mut plot = Plot::new(name, title);
    let all: Vec<f64> = sets.iter().flat_map(|s| s.1.iter().copied()).collect();
    let x = axis((unit, true), &all);
    plot.axes(&x, &Axis::percent("% not slower"));
    for (i, (_, times)) in sets.iter().enumerate() {
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len().max(1) as f64;
        // More points than the picture has columns are of no use.
        let step = (sorted.len() / 700).max(1);
        let points = sorted
            .iter()
            .enumerate()
            .step_by(step)
            .map(|(k, v)| {
                (
                    LEFT + x.place(*v) * (RIGHT - LEFT),
                    BOTTOM - (k + 1) as f64 / count * (BOTTOM - TOP),
                )
            })
            .collect();
        plot.line(points, 2.0, colour(i));
    }
    let height = 17.0 * sets.len() as f64;
    legend(
        &mut plot,
        sets.iter().map(|s| s.0.clone()),
        RIGHT - 230.0,
        BOTTOM - height,
    );
    plot
}

/// One bar: what it is, its median, its smallest and largest.
pub type Bar = (String, f64, f64, f64);

/// Horizontal bars on a logarithmic scale, with whiskers over the spread. The first one stands out.
pub fn bars(name: &str, title: &str, unit: &str, rows: &[Bar]) -> Plot {
    bars_with(name, title, unit, rows, |i| i == 0)
}

/// The same where those stand out that `ours` names by their place.
pub fn bars_with(
    name: &str,
    title: &str,
    unit: &str,
    rows: &[Bar],
    ours: impl Fn(usize) -> bool,
) -> Plot {
    let mut plot = Plot::new(name, title);
    let all: Vec<f64> = rows.iter().flat_map(|r| [r.1, r.2, r.3]).collect();
    let x = axis((unit, true), &all);
    let longest = rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0);
    let left = (LEFT + 170.0).max(longest as f64 * 9.0 + 12.0);
    let place = |v: f64| left + x.place(v) * (RIGHT - left);
    for (tick, label) in x.labels() {
        let at = place(tick);
        plot.line(vec![(at, TOP), (at, BOTTOM)], 1.0, [0xdd, 0xdd, 0xdd]);
        plot.words((at, BOTTOM + 18.0), &label, Anchor::Middle, INK);
    }
    plot.words((RIGHT, BOTTOM + 40.0), unit, Anchor::End, INK);
    let height = (BOTTOM - TOP) / rows.len().max(1) as f64;
    for (i, (title, mid, min, max)) in rows.iter().enumerate() {
        let y = TOP + height * (i as f64 + 0.5);
        plot.words((left - 10.0, y + 4.0), title, Anchor::End, INK);
        let ink = colour(if ours(i) { 0 } else { 3 });
        plot.line(
            vec![(left, y), (place(*mid).max(left + 1.0), y)],
            (height * 0.5).min(18.0),
            ink,
        );
        plot.line(vec![(place(*min), y), (place(*max), y)], 1.5, INK);
    }
    plot
}

impl Plot {
    fn dot(&mut self, at: (f64, f64), radius: f64, colour: [u8; 3]) {
        self.add(Mark::Dot { at, radius, colour });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_drawn_in_a_colour_of_its_own() {
        let set = |name: &str, slope: f64| Set {
            name: name.to_owned(),
            points: (1..9)
                .map(|i| (f64::from(i), slope * f64::from(i)))
                .collect(),
        };
        let scales = Scales {
            x: ("offered", false),
            y: ("delivered", false),
        };
        let svg = lines("l", "t", scales, &[set("a", 1.0), set("b", 2.0)]).svg();
        assert_eq!(svg.matches("#0b62c4").count(), 10, "8 dots, curve, legend");
        assert_eq!(svg.matches("#d06a10").count(), 10);
    }

    #[test]
    fn a_figure_that_is_missing_leaves_a_gap() {
        let set = Set {
            name: "a".to_owned(),
            points: vec![(1.0, 1.0), (2.0, f64::NAN), (3.0, 2.0)],
        };
        let scales = Scales {
            x: ("x", true),
            y: ("y", true),
        };
        let svg = lines("l", "t", scales, &[set]).svg();
        assert!(!svg.contains("NaN") && svg.matches("<circle").count() == 2);
    }

    #[test]
    fn bars_and_distributions_name_their_rows() {
        let rows = [
            ("ours".to_owned(), 30.0, 28.0, 31.0),
            ("memif".to_owned(), 15.0, 9.0, 15.5),
        ];
        let svg = bars("b", "t", "Mpps", &rows).svg();
        assert!(svg.contains("ours") && svg.contains("memif"));
        let sets = [("alone".to_owned(), vec![1.0, 2.0, 3.0])];
        assert!(distributions("d", "t", "us", &sets).svg().contains("alone"));
    }
}

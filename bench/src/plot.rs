//! Plots: drawn once as lines, boxes and words, then written as SVG and as PNG.

use std::fmt::Write as _;

use crate::raster;

/// Width and height of every plot, in its own units (SVG pixels; the PNG has twice as many).
pub const SIZE: (f64, f64) = (760.0, 440.0);

pub const LEFT: f64 = 78.0;
pub const RIGHT: f64 = 738.0;
pub const TOP: f64 = 44.0;
pub const BOTTOM: f64 = 382.0;

/// QEMU's colour, and ours.
pub const COLOURS: [[u8; 3]; 2] = [[0x80, 0x80, 0x80], [0x0b, 0x62, 0xc4]];
pub const INK: [u8; 3] = [0x22, 0x22, 0x22];
const GRID: [u8; 3] = [0xdd, 0xdd, 0xdd];

/// Where words stand relative to their point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Anchor {
    /// The point is at their start.
    Start,
    /// In their middle.
    Middle,
    /// At their end.
    End,
}

/// Something drawn.
#[derive(Debug, Clone)]
pub enum Mark {
    /// A line through points.
    Line {
        points: Vec<(f64, f64)>,
        width: f64,
        colour: [u8; 3],
    },
    /// A disc.
    Dot {
        at: (f64, f64),
        radius: f64,
        colour: [u8; 3],
    },
    /// Words on one line; the point is on their base line.
    Words {
        at: (f64, f64),
        text: String,
        anchor: Anchor,
        colour: [u8; 3],
    },
}

/// A finished plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Its file's name, without the ending.
    pub name: String,
    /// What it shows, in words.
    pub title: String,
    marks: Vec<Mark>,
}

/// An axis: a range, and whether it is logarithmic.
#[derive(Debug, Clone)]
pub struct Axis {
    title: String,
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// A linear axis from 0 to a round number beyond `largest`.
    pub fn linear(title: &str, largest: f64) -> Self {
        let step = round_up(largest.max(1e-9) / 6.0);
        let to = step * (largest / step).ceil().max(1.0);
        let ticks = (0..=(to / step).round() as usize)
            .map(|i| i as f64 * step)
            .collect();
        Self {
            title: title.to_owned(),
            from: 0.0,
            to,
            log: false,
            ticks,
        }
    }

    /// A logarithmic axis over a range.
    pub fn logarithmic(title: &str, smallest: f64, largest: f64) -> Self {
        let mut ticks: Vec<f64> = Vec::new();
        for decade in -3..9 {
            for step in [1.0, 2.0, 5.0] {
                ticks.push(step * 10_f64.powi(decade));
            }
        }
        let from = ticks
            .iter()
            .copied()
            .rfind(|t| *t <= smallest)
            .unwrap_or(smallest);
        let to = ticks
            .iter()
            .copied()
            .find(|t| *t >= largest)
            .unwrap_or(largest);
        ticks.retain(|t| *t >= from && *t <= to);
        Self {
            title: title.to_owned(),
            from,
            to,
            log: true,
            ticks,
        }
    }

    /// From 0 to 100.
    pub fn percent(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            from: 0.0,
            to: 100.0,
            log: false,
            ticks: (0..=5).map(|i| f64::from(i) * 20.0).collect(),
        }
    }

    /// Where its grid is, and what is written there.
    pub fn labels(&self) -> impl Iterator<Item = (f64, String)> {
        self.ticks.iter().map(|t| (*t, number(*t)))
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
        format!("{}k", value / 1000.0)
    } else {
        format!("{}", (value * 1000.0).round() / 1000.0)
    }
}

impl Plot {
    /// One with nothing but its title.
    pub fn new(name: &str, title: &str) -> Self {
        let mut plot = Self {
            name: name.to_owned(),
            title: title.to_owned(),
            marks: Vec::new(),
        };
        plot.words((LEFT, 24.0), title, Anchor::Start, INK);
        plot
    }

    /// Adds a mark.
    pub fn add(&mut self, mark: Mark) {
        self.marks.push(mark);
    }

    /// Words on one line.
    pub fn words(&mut self, at: (f64, f64), text: &str, anchor: Anchor, colour: [u8; 3]) {
        self.marks.push(Mark::Words {
            at,
            text: text.to_owned(),
            anchor,
            colour,
        });
    }

    /// A line through points.
    pub fn line(&mut self, points: Vec<(f64, f64)>, width: f64, colour: [u8; 3]) {
        self.marks.push(Mark::Line {
            points,
            width,
            colour,
        });
    }

    /// Both axes with their grid.
    pub fn axes(&mut self, x: &Axis, y: &Axis) {
        self.across(x);
        for &tick in &y.ticks {
            let at = BOTTOM - y.place(tick) * (BOTTOM - TOP);
            self.line(vec![(LEFT, at), (RIGHT, at)], 1.0, GRID);
            self.words((LEFT - 8.0, at + 4.0), &number(tick), Anchor::End, INK);
        }
        self.words((LEFT, TOP - 6.0), &y.title, Anchor::Start, INK);
        self.line(vec![(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], 1.2, INK);
    }

    fn across(&mut self, x: &Axis) {
        for &tick in &x.ticks {
            let at = LEFT + x.place(tick) * (RIGHT - LEFT);
            self.line(vec![(at, TOP), (at, BOTTOM)], 1.0, GRID);
            self.words((at, BOTTOM + 18.0), &number(tick), Anchor::Middle, INK);
        }
        self.words((RIGHT, BOTTOM + 40.0), &x.title, Anchor::End, INK);
    }

    fn legend(&mut self, names: [&str; 2], at_bottom: bool) {
        for (i, name) in names.into_iter().enumerate() {
            let y = if at_bottom { BOTTOM - 40.0 } else { TOP + 20.0 } + 20.0 * i as f64;
            let x = if at_bottom {
                RIGHT - 150.0
            } else {
                LEFT + 16.0
            };
            self.line(vec![(x, y - 4.0), (x + 26.0, y - 4.0)], 2.5, COLOURS[i]);
            self.words((x + 34.0, y), name, Anchor::Start, INK);
        }
    }

    /// Cumulative distributions of two sets of times.
    pub fn distribution(
        name: &str,
        title: &str,
        unit: &str,
        names: [&str; 2],
        sets: [&[f64]; 2],
    ) -> Self {
        let mut plot = Self::new(name, title);
        let all = || sets.iter().flat_map(|s| s.iter().copied());
        let x = Axis::logarithmic(
            unit,
            all().fold(f64::MAX, f64::min),
            all().fold(1.0, f64::max),
        );
        plot.axes(&x, &Axis::percent("% of round trips"));
        for (set, colour) in sets.into_iter().zip(COLOURS) {
            let mut sorted = set.to_vec();
            sorted.sort_by(f64::total_cmp);
            let count = sorted.len().max(1) as f64;
            let place = |(i, v): (usize, &f64)| {
                (
                    LEFT + x.place(*v) * (RIGHT - LEFT),
                    BOTTOM - (i + 1) as f64 / count * (BOTTOM - TOP),
                )
            };
            // More points than the picture has columns are of no use.
            let step = (sorted.len() / 700).max(1);
            let points = sorted.iter().enumerate().step_by(step).map(place).collect();
            plot.line(points, 2.0, colour);
        }
        plot.legend(names, true);
        plot
    }

    /// Two curves over a common range; every point is drawn and the medians are joined.
    pub fn curves(
        name: &str,
        title: &str,
        axes: [&str; 2],
        names: [&str; 2],
        sets: [Vec<(f64, Vec<f64>)>; 2],
    ) -> Self {
        let mut plot = Self::new(name, title);
        let far = sets.iter().flatten().map(|p| p.0).fold(0.0, f64::max);
        let high = sets
            .iter()
            .flatten()
            .flat_map(|p| p.1.iter().copied())
            .fold(0.0, f64::max);
        let (x, y) = (Axis::linear(axes[0], far), Axis::linear(axes[1], high));
        plot.axes(&x, &y);
        let place = |at: f64, value: f64| {
            (
                LEFT + x.place(at) * (RIGHT - LEFT),
                BOTTOM - y.place(value) * (BOTTOM - TOP),
            )
        };
        for (set, colour) in sets.iter().zip(COLOURS) {
            let median = |v: &[f64]| rig::paired::median(v).unwrap_or(0.0);
            plot.line(
                set.iter().map(|(at, v)| place(*at, median(v))).collect(),
                2.0,
                colour,
            );
            for (at, values) in set {
                for value in values {
                    plot.marks.push(Mark::Dot {
                        at: place(*at, *value),
                        radius: 3.0,
                        colour,
                    });
                }
            }
        }
        plot.legend(names, false);
        plot
    }

    /// Ratios: a dot for the median, a line over all pairs, thick over the middle half; the control in grey below.
    pub fn ratios(name: &str, title: &str, rows: &[Row]) -> Self {
        let mut plot = Self::new(name, title);
        let ends = || {
            rows.iter()
                .flat_map(|r| [r.ours.0, r.ours.4, r.control.0, r.control.2])
        };
        let low = ends().fold(0.9, f64::min).max(0.1);
        let high = ends().fold(1.1, f64::max).min(10.0);
        let left = LEFT + 170.0;
        let x = Axis::logarithmic("hypernic / QEMU (log)", low, high);
        let place = |v: f64| left + x.place(v) * (RIGHT - left);
        for &tick in &x.ticks {
            plot.line(vec![(place(tick), TOP), (place(tick), BOTTOM)], 1.0, GRID);
            plot.words(
                (place(tick), BOTTOM + 18.0),
                &number(tick),
                Anchor::Middle,
                INK,
            );
        }
        plot.words((RIGHT, BOTTOM + 40.0), &x.title.clone(), Anchor::End, INK);
        plot.line(vec![(place(1.0), TOP), (place(1.0), BOTTOM)], 1.5, INK);
        let height = (BOTTOM - TOP) / rows.len().max(1) as f64;
        for (i, row) in rows.iter().enumerate() {
            let y = TOP + height * (i as f64 + 0.45);
            plot.words((left - 12.0, y + 4.0), &row.title, Anchor::End, INK);
            let (min, q1, mid, q3, max) = row.ours;
            plot.line(vec![(place(min), y), (place(max), y)], 1.2, COLOURS[1]);
            plot.line(vec![(place(q1), y), (place(q3), y)], 5.0, COLOURS[1]);
            plot.marks.push(Mark::Dot {
                at: (place(mid), y),
                radius: 5.0,
                colour: COLOURS[1],
            });
            let below = y + height * 0.28;
            let (min, mid, max) = row.control;
            plot.line(
                vec![(place(min), below), (place(max), below)],
                1.2,
                COLOURS[0],
            );
            plot.marks.push(Mark::Dot {
                at: (place(mid), below),
                radius: 3.0,
                colour: COLOURS[0],
            });
            let target = place(row.target);
            plot.line(
                vec![(target, y - 9.0), (target, y + 9.0)],
                2.0,
                [0xc0, 0x30, 0x20],
            );
        }
        plot
    }

    /// The plot as SVG.
    pub fn svg(&self) -> String {
        let (width, height) = SIZE;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
            escape(&self.title)
        );
        for mark in &self.marks {
            // Writing to a String cannot fail.
            let _ = match mark {
                Mark::Line {
                    points,
                    width,
                    colour,
                } => {
                    let points: Vec<_> = points
                        .iter()
                        .map(|(x, y)| format!("{x:.1},{y:.1}"))
                        .collect();
                    writeln!(
                        out,
                        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" points=\"{}\"/>",
                        hex(*colour),
                        points.join(" ")
                    )
                }
                Mark::Dot { at, radius, colour } => writeln!(
                    out,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{}\"/>",
                    at.0,
                    at.1,
                    hex(*colour)
                ),
                Mark::Words {
                    at,
                    text,
                    anchor,
                    colour,
                } => {
                    let anchor = match anchor {
                        Anchor::Start => "start",
                        Anchor::Middle => "middle",
                        Anchor::End => "end",
                    };
                    writeln!(
                        out,
                        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{}\">{}</text>",
                        at.0,
                        at.1,
                        hex(*colour),
                        escape(text)
                    )
                }
            };
        }
        out.push_str("</svg>\n");
        out
    }

    /// The plot as PNG, two pixels to a unit.
    pub fn png(&self) -> Vec<u8> {
        raster::draw(&self.marks, SIZE, 2.0)
    }
}

/// A row of a plot of ratios.
#[derive(Debug, Clone)]
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

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_numbers() {
        let axis = Axis::linear("x", 43_000.0);
        assert_eq!((axis.to, axis.ticks.len()), (50_000.0, 6));
        let axis = Axis::logarithmic("t", 130.0, 4_100.0);
        assert_eq!((axis.from, axis.to), (100.0, 5_000.0));
        assert!((axis.place(100.0), axis.place(5_000.0)) == (0.0, 1.0));
        assert!(axis.place(1.0) == 0.0 && axis.place(1e9) == 1.0);
    }

    #[test]
    fn both_forms_show_both_sets() {
        let (a, b): (Vec<f64>, Vec<f64>) = (
            (100..900).map(f64::from).collect(),
            vec![250.0, 300.0, 350.0],
        );
        let plot = Plot::distribution("rtt", "RTT <guest>", "us", ["QEMU", "hypernic"], [&a, &b]);
        let svg = plot.svg();
        assert!(
            svg.contains("&lt;guest&gt;") && svg.contains("#0b62c4") && svg.contains("#808080")
        );
        let png = plot.png();
        let decoder = png::Decoder::new(std::io::Cursor::new(&png));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        for colour in COLOURS {
            assert!(
                pixels.chunks(3).any(|p| p == colour),
                "{colour:?} is not in the picture"
            );
        }
    }
}

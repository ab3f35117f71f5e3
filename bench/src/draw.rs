//! Draws plots as SVG by plotters: names stand beside what they name, so that no legend is needed.

mod axis;
mod labels;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use self::axis::Axis;
use self::labels::{Area, Label};
use crate::plot::{Bar, Plot, Row, Scale, Set, Shape, Span, Whose};
use crate::stats::figure;

/// Width and height as shown.
const SIZE: (u32, u32) = (760, 440);
/// Drawn in parts of a pixel, since plotters' coordinates are whole numbers.
const FINE: u32 = 4;
/// Height of letters.
const LETTERS: u32 = 13;

const OURS: [RGBColor; 5] = [
    RGBColor(0x0b, 0x62, 0xc4),
    RGBColor(0x06, 0x2f, 0x66),
    RGBColor(0x3f, 0xa0, 0xf0),
    RGBColor(0x00, 0x7a, 0x8a),
    RGBColor(0x5b, 0x4f, 0xcf),
];
const PEERS: [RGBColor; 5] = [
    RGBColor(0xd9, 0x6a, 0x0c),
    RGBColor(0x8f, 0x3f, 0x05),
    RGBColor(0xe8, 0xa0, 0x1c),
    RGBColor(0xb8, 0x2e, 0x1f),
    RGBColor(0x8a, 0x6d, 0x1b),
];
const BOUNDS: [RGBColor; 3] = [
    RGBColor(0x77, 0x77, 0x77),
    RGBColor(0x44, 0x44, 0x44),
    RGBColor(0xa0, 0xa0, 0xa0),
];
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const TARGET: RGBColor = RGBColor(0xc0, 0x30, 0x20);

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A plot as SVG.
pub fn svg(plot: &Plot) -> String {
    let mut out = String::new();
    {
        let canvas = SVGBackend::with_string(&mut out, (SIZE.0 * FINE, SIZE.1 * FINE));
        let canvas = canvas.into_drawing_area();
        let drawn = canvas
            .fill(&WHITE)
            .and_then(|()| match &plot.shape {
                Shape::Lines { x, y, sets } => lines(&canvas, &plot.title, (x, y), sets),
                Shape::Bars { unit, rows } => bars(&canvas, &plot.title, unit, rows),
                Shape::Ratios { unit, rows } => ratios(&canvas, &plot.title, unit, rows),
                Shape::Lanes {
                    unit,
                    lanes: places,
                    spans,
                } => lanes(&canvas, &plot.title, unit, places, spans),
            })
            .and_then(|()| canvas.present());
        // Drawing into memory does not fail.
        drop(drawn);
    }
    let fine = format!("width=\"{}\" height=\"{}\"", SIZE.0 * FINE, SIZE.1 * FINE);
    let shown = format!("width=\"{}\" height=\"{}\"", SIZE.0, SIZE.1);
    out.replacen(&fine, &shown, 1)
}

fn fine(pixels: u32) -> u32 {
    pixels * FINE
}

fn letters(colour: RGBColor, at: Pos) -> TextStyle<'static> {
    let font = ("sans-serif", fine(LETTERS)).into_font();
    font.color(&colour).pos(at)
}

/// About how wide words are, in parts of a pixel.
fn width(words: &str) -> u32 {
    fine(words.chars().count() as u32 * 7)
}

fn pen(colour: RGBColor, tenths: u32) -> ShapeStyle {
    colour.stroke_width(tenths * FINE / 10)
}

/// Each one's colour: shades of the family of those whose it is.
fn colours(whose: impl Iterator<Item = Whose>) -> Vec<RGBColor> {
    let mut taken = [0; 3];
    whose
        .map(|whose| {
            let (at, family): (usize, &[RGBColor]) = match whose {
                Whose::Ours => (0, &OURS),
                Whose::Peer => (1, &PEERS),
                Whose::Bound => (2, &BOUNDS),
            };
            taken[at] += 1;
            family[(taken[at] - 1) % family.len()]
        })
        .collect()
}

/// The title, both axes and their grid; `left` is the room for what is written at the vertical axis.
fn chart<'a, 'b>(
    canvas: &'a Canvas<'b>,
    title: &str,
    axes: (Axis, Axis),
    titles: (&str, &str),
    left: u32,
) -> Result<Chart<'a, 'b>, DrawingAreaErrorKind<std::io::Error>> {
    let middle = Pos::new(HPos::Left, VPos::Center);
    canvas.draw(&Text::new(
        title.to_owned(),
        (fine(16) as i32, fine(18) as i32),
        letters(INK, middle),
    ))?;
    let mut chart = ChartBuilder::on(canvas)
        .margin_top(fine(38))
        .margin_right(fine(24))
        .margin_bottom(fine(6))
        .margin_left(fine(8))
        .x_label_area_size(fine(48))
        .y_label_area_size(left)
        .build_cartesian_2d(axes.0, axes.1)?;
    let style = letters(INK, Pos::new(HPos::Left, VPos::Top));
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(pen(GRID, 10))
        .light_line_style(TRANSPARENT)
        .axis_style(pen(INK, 12))
        .set_all_tick_mark_size(fine(3))
        .label_style(("sans-serif", fine(LETTERS)).into_font().color(&INK))
        .axis_desc_style(style.clone())
        .x_desc(titles.0)
        .x_labels(20)
        .y_labels(20);
    if titles.1.is_empty() {
        mesh.disable_y_mesh();
    } else {
        mesh.y_desc(titles.1);
    }
    mesh.draw()?;
    Ok(chart)
}

fn axis(scale: &Scale, values: impl Iterator<Item = f64>) -> Axis {
    let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    let large = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    if scale.log {
        let positive = values.into_iter().filter(|v| *v > 0.0);
        Axis::logarithmic(positive.fold(large, f64::min), large)
    } else if scale.title.starts_with('%') && large == 100.0 {
        Axis::percent()
    } else {
        Axis::linear(large)
    }
}

fn lines(canvas: &Canvas<'_>, title: &str, (x, y): (&Scale, &Scale), sets: &[Set]) -> Drawn {
    let all = || sets.iter().flat_map(|s| &s.points);
    let axes = (axis(x, all().map(|p| p.0)), axis(y, all().map(|p| p.1)));
    let mut chart = chart(canvas, title, axes, (&x.title, &y.title), fine(70))?;
    let inks = colours(sets.iter().map(|s| s.whose));
    for (set, ink) in sets.iter().zip(&inks) {
        let points = set.points.iter().copied();
        chart.draw_series(LineSeries::new(points.clone(), pen(*ink, 20)))?;
        if set.dots {
            chart.draw_series(points.map(|p| Circle::new(p, fine(3), ink.filled())))?;
        }
    }
    let curves: Vec<Vec<(i32, i32)>> = sets
        .iter()
        .map(|s| s.points.iter().map(|p| chart.backend_coord(p)).collect())
        .collect();
    let (across, down) = chart.plotting_area().get_pixel_range();
    let area = Area {
        left: across.start,
        right: across.end,
        top: down.start,
        bottom: down.end,
    };
    let names: Vec<(u32, u32)> = sets.iter().map(|s| (width(&s.name), fine(16))).collect();
    for (i, Label { at, leader }) in labels::place(&area, &curves, &names, fine(6) as i32) {
        let words = letters(inks[i], Pos::new(HPos::Left, VPos::Center));
        if let Some(from) = leader {
            let to = (at.0 - fine(3) as i32, at.1);
            canvas.draw(&PathElement::new([from, to], pen(inks[i], 7)))?;
        }
        canvas.draw(&Text::new(sets[i].name.clone(), at, words))?;
    }
    Ok(())
}

/// Room for the names of rows.
fn room<'a>(names: impl Iterator<Item = &'a str>) -> u32 {
    names.map(width).max().unwrap_or(0) + fine(24)
}

/// The middle of a row, counted from the bottom as its axis is.
fn middle(row: usize, of: usize) -> f64 {
    (of - row) as f64 - 0.5
}

fn bars(canvas: &Canvas<'_>, title: &str, unit: &str, rows: &[Bar]) -> Drawn {
    let names: Vec<String> = rows.iter().map(|r| r.name.clone()).collect();
    // Room for a bar's figure behind it.
    let largest = rows
        .iter()
        .map(|r| r.spread.1.max(r.median))
        .fold(0.0, f64::max)
        * 1.1;
    let axes = (Axis::linear(largest), Axis::rows(&names));
    let left = room(names.iter().map(String::as_str));
    let mut chart = chart(canvas, title, axes, (unit, ""), left)?;
    for (i, row) in rows.iter().enumerate() {
        let y = middle(i, rows.len());
        let ink = colours(std::iter::once(row.whose))[0];
        let bar = [(0.0, y - 0.3), (row.median, y + 0.3)];
        chart.draw_series([Rectangle::new(bar, ink.filled())])?;
        let (low, high) = row.spread;
        if high > low {
            chart.draw_series(LineSeries::new([(low, y), (high, y)], pen(INK, 15)))?;
        }
        let (x, y) = chart.backend_coord(&(high.max(row.median), y));
        let words = letters(INK, Pos::new(HPos::Left, VPos::Center));
        let at = (x + fine(6) as i32, y);
        canvas.draw(&Text::new(figure(row.median), at, words))?;
    }
    Ok(())
}

fn ratios(canvas: &Canvas<'_>, title: &str, unit: &str, rows: &[Row]) -> Drawn {
    let names: Vec<String> = rows.iter().map(|r| r.title.clone()).collect();
    let ends = || {
        rows.iter()
            .flat_map(|r| [r.ours.0, r.ours.4, r.control.0, r.control.2])
    };
    let low = ends().fold(0.9, f64::min).max(0.1);
    let high = ends().fold(1.1, f64::max).min(10.0);
    let axes = (Axis::logarithmic(low, high), Axis::rows(&names));
    let (from, to) = axes.0.ends();
    let left = room(names.iter().map(String::as_str));
    let mut chart = chart(canvas, title, axes, (unit, ""), left)?;
    let top = rows.len() as f64;
    chart.draw_series(LineSeries::new([(1.0, 0.0), (1.0, top)], pen(INK, 15)))?;
    for (i, row) in rows.iter().enumerate() {
        let y = middle(i, rows.len()) + 0.1;
        let inside = |v: f64| v.clamp(from, to);
        let mut across = |a: f64, b: f64, y: f64, style| {
            let points = [(inside(a), y), (inside(b), y)];
            chart
                .draw_series(LineSeries::new(points, style))
                .map(|_| ())
        };
        let (min, q1, median, q3, max) = row.ours;
        across(min, max, y, pen(OURS[0], 12))?;
        across(q1, q3, y, pen(OURS[0], 50))?;
        let below = y - 0.3;
        across(row.control.0, row.control.2, below, pen(BOUNDS[0], 12))?;
        let target = [(row.target, y - 0.2), (row.target, y + 0.2)];
        chart.draw_series(LineSeries::new(target, pen(TARGET, 20)))?;
        let dots = [
            (median, y, OURS[0], 5),
            (row.control.1, below, BOUNDS[0], 3),
        ];
        for (x, y, ink, radius) in dots {
            chart.draw_series([Circle::new((inside(x), y), fine(radius), ink.filled())])?;
        }
        if i == 0 {
            // Said once, beside the first of each kind.
            let marks = [
                (max.max(row.target), y, "ours", OURS[0]),
                (row.control.2, below, "control", BOUNDS[0]),
            ];
            for (x, y, words, ink) in marks {
                let (x, y) = chart.backend_coord(&(inside(x), y));
                let style = letters(ink, Pos::new(HPos::Left, VPos::Center));
                canvas.draw(&Text::new(words, (x + fine(6) as i32, y), style))?;
            }
            let (x, y) = chart.backend_coord(&(row.target, y + 0.2));
            let style = letters(TARGET, Pos::new(HPos::Center, VPos::Bottom));
            canvas.draw(&Text::new("target", (x, y - fine(1) as i32), style))?;
        }
    }
    Ok(())
}

/// A timeline: a lane for each place, a box for what happens there, with its name where there is room.
fn lanes(canvas: &Canvas<'_>, title: &str, unit: &str, lanes: &[String], spans: &[Span]) -> Drawn {
    let last = spans.iter().map(|span| span.to).fold(0.0, f64::max);
    let axes = (Axis::linear(last), Axis::rows(lanes));
    let left = room(lanes.iter().map(String::as_str));
    let mut chart = chart(canvas, title, axes, (unit, ""), left)?;
    let mut before: Option<(f64, f64)> = None;
    // Where the last name above a box of each lane ends.
    let mut above = vec![i32::MIN; lanes.len()];
    for span in spans {
        let y = middle(span.lane, lanes.len());
        let ink = colours(std::iter::once(span.whose))[0];
        let corners = [(span.from, y - 0.28), (span.to, y + 0.28)];
        chart.draw_series([Rectangle::new(corners, ink.filled())])?;
        // Where it goes on in another lane, a line leads there.
        if let Some((at, from)) = before.filter(|(_, from)| *from != y) {
            chart.draw_series(LineSeries::new([(at, from), (span.from, y)], pen(INK, 6)))?;
        }
        before = Some((span.to, y));
        let (begin, end) = (
            chart.backend_coord(&(span.from, y)),
            chart.backend_coord(&(span.to, y)),
        );
        if width(&span.name) as i32 <= end.0 - begin.0 {
            let words = letters(WHITE, Pos::new(HPos::Center, VPos::Center));
            let at = ((begin.0 + end.0) / 2, begin.1);
            canvas.draw(&Text::new(span.name.clone(), at, words))?;
            continue;
        }
        let (middle, half) = ((begin.0 + end.0) / 2, width(&span.name) as i32 / 2);
        let free = above
            .get_mut(span.lane)
            .filter(|free| **free < middle - half);
        if let Some(free) = free.filter(|_| end.0 - begin.0 >= fine(1) as i32) {
            *free = middle + half;
            let words = letters(INK, Pos::new(HPos::Center, VPos::Bottom));
            let top = chart.backend_coord(&(span.from, y + 0.3)).1;
            canvas.draw(&Text::new(span.name.clone(), (middle, top), words))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot;

    #[test]
    fn ours_and_a_peers_curve_have_colours_of_their_families_and_their_names_beside_them() {
        let curve = |name: &str, whose, slope: f64| {
            plot::set(
                name,
                whose,
                (1..9).map(|i| (f64::from(i), slope * f64::from(i))),
            )
        };
        let sets = vec![
            curve("a <b>", Whose::Ours, 1.0),
            curve("theirs", Whose::Peer, 2.0),
        ];
        let (x, y) = (Scale::linear("offered"), Scale::linear("delivered"));
        let svg = svg(&plot::lines("l", "t", x, y, sets));
        assert_eq!(svg.matches("#0B62C4").count(), 10, "8 dots, curve, name");
        assert_eq!(svg.matches("#D96A0C").count(), 10);
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("theirs"));
        assert!(svg.contains("width=\"760\" height=\"440\""));
    }

    #[test]
    fn a_figure_that_is_missing_leaves_a_gap() {
        let points = [(1.0, 1.0), (2.0, f64::NAN), (3.0, 2.0)];
        let sets = vec![plot::set("a", Whose::Ours, points)];
        let svg = svg(&plot::lines(
            "l",
            "t",
            Scale::log("x"),
            Scale::log("y"),
            sets,
        ));
        assert!(!svg.contains("NaN") && svg.matches("<circle").count() == 2);
    }

    #[test]
    fn bars_begin_at_zero_and_end_with_their_figure() {
        let bar = |name: &str, whose, median: f64| Bar {
            name: name.to_owned(),
            whose,
            median,
            spread: (median * 0.9, median * 1.1),
        };
        let rows = vec![
            bar("ours", Whose::Ours, 30.0),
            bar("memif", Whose::Peer, 15.0),
        ];
        let svg = svg(&plot::bars("b", "t", "Mpps", rows));
        assert!(svg.contains("ours") && svg.contains("memif") && svg.contains("30.0"));
        let width = |colour: &str| -> f64 {
            let bar = svg
                .lines()
                .find(|l| l.starts_with("<rect") && l.contains(colour));
            let words = bar.unwrap().split("width=\"").nth(1).unwrap();
            words.split('"').next().unwrap().parse().unwrap()
        };
        let ratio = width("#0B62C4") / width("#D96A0C");
        assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn nothing_at_all_is_drawn_without_fault() {
        for plot in [
            plot::lines("l", "t", Scale::log("x"), Scale::linear("y"), Vec::new()),
            plot::bars("b", "t", "x", Vec::new()),
            plot::ratios("r", "t", "x", Vec::new()),
        ] {
            assert!(svg(&plot).ends_with("</svg>\n"));
        }
    }

    #[test]
    fn each_span_is_a_box_in_its_lane_as_long_as_it_takes() {
        let span = |name: &str, lane, whose, from, to| Span {
            name: name.to_owned(),
            lane,
            whose,
            from,
            to,
        };
        let spans = vec![
            span("1", 0, Whose::Ours, 0.0, 10.0),
            span("2", 1, Whose::Peer, 10.0, 30.0),
        ];
        let svg = svg(&plot::lanes("l", "t", "us", &["worker", "guest"], spans));
        let corner = |colour: &str, word: &str| -> f64 {
            let line = svg
                .lines()
                .find(|l| l.starts_with("<rect") && l.contains(colour));
            let words = line.unwrap().split(&format!("{word}=\"")).nth(1).unwrap();
            words.split('"').next().unwrap().parse().unwrap()
        };
        let (ours, theirs) = ("#0B62C4", "#D96A0C");
        let ratio = corner(theirs, "width") / corner(ours, "width");
        assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
        assert!(corner(theirs, "y") > corner(ours, "y"), "below");
        assert!(svg.contains("worker") && svg.contains("guest"));
    }
}

//! A timeline: a lane for each place, a box for what happens there.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::{Canvas, Drawn, INK, chart, colours, fine, letters, middle, pen, room, width};
use crate::plot::Span;

/// Draws it. Boxes of one place in turn have their names, where there is room for them.
pub fn lanes(
    canvas: &Canvas<'_>,
    title: &str,
    unit: &str,
    lanes: &[String],
    spans: &[Span],
) -> Drawn {
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
    use crate::draw::svg;
    use crate::plot::{Span, Whose, lanes};

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
        let svg = svg(&lanes("l", "t", "us", &["worker", "guest"], spans));
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

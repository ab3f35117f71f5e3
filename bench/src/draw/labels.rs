//! Finds a place for each curve's name: beside the curve, away from other curves and names.

/// Where names may stand.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    /// Its left edge.
    pub left: i32,
    /// Its right edge.
    pub right: i32,
    /// Its upper edge.
    pub top: i32,
    /// Its lower edge.
    pub bottom: i32,
}

impl Area {
    fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn holds(&self, (x, y): (i32, i32)) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }
}

/// A name's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// The middle of its left edge.
    pub at: (i32, i32),
    /// Where its curve is, when that is so far away that a line must lead there.
    pub leader: Option<(i32, i32)>,
}

/// How far away, in gaps, a name may stand whose curve has no room beside it, and what that costs.
const FAR: [(i32, usize); 4] = [(8, 900), (16, 1000), (26, 1100), (36, 1200)];

/// Points along a curve, close together.
fn along(curve: &[(i32, i32)], step: i32) -> Vec<(i32, i32)> {
    let mut points: Vec<(i32, i32)> = curve.first().copied().into_iter().collect();
    for pair in curve.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let parts = (dx.abs().max(dy.abs()) / step.max(1)).clamp(1, 1000);
        points.extend((1..=parts).map(|k| (from.0 + dx * k / parts, from.1 + dy * k / parts)));
    }
    points
}

/// The place of each name of a size (width, height), with the curve's number; curves without points have none.
pub fn place(
    area: &Area,
    curves: &[Vec<(i32, i32)>],
    names: &[(u32, u32)],
    gap: i32,
) -> Vec<(usize, Label)> {
    let dense: Vec<Vec<(i32, i32)>> = curves.iter().map(|c| along(c, gap)).collect();
    let mut taken: Vec<Area> = Vec::new();
    let mut places = Vec::new();
    for (i, &(width, height)) in names.iter().enumerate() {
        let (width, half) = (width as i32, height as i32 / 2);
        let cost = |at: (i32, i32), nth: usize| {
            let around = Area {
                left: at.0,
                right: at.0 + width,
                top: at.1 - half,
                bottom: at.1 + half,
            };
            let inside =
                area.holds((around.left, around.top)) && area.holds((around.right, around.bottom));
            if !inside {
                return None;
            }
            let crossed = |c: usize| dense[c].iter().filter(|p| around.holds(**p)).count();
            let curves: usize = (0..dense.len())
                .map(|c| crossed(c) * if c == i { 30 } else { 40 })
                .sum();
            let names = taken.iter().filter(|t| t.meets(&around)).count();
            // Near the right end, where the eye is when it has followed the curve.
            Some((names * 100_000 + curves * 10 + nth, around))
        };
        let beside = |&(x, y): &(i32, i32)| {
            [
                (x + gap, y),
                (x - width - gap, y),
                (x - width / 2, y - half - gap),
                (x - width / 2, y + half + gap),
                (x - width, y - half - gap),
                (x - width, y + half + gap),
                (x, y - half - gap),
                (x, y + half + gap),
            ]
            .map(|at| (at, 0, None))
        };
        let far = |&(x, y): &(i32, i32)| {
            FAR.map(|(gaps, cost)| ((x + gaps * gap, y), cost, Some((x, y))))
        };
        let best = dense[i]
            .iter()
            .rev()
            .enumerate()
            .flat_map(|(nth, point)| {
                let places = beside(point).into_iter().chain(far(point));
                places.map(move |(at, more, leader)| (Label { at, leader }, nth + more))
            })
            .filter_map(|(label, nth)| {
                let (cost, around) = cost(label.at, nth)?;
                Some((cost, label, around))
            })
            .min_by_key(|(cost, _, _)| *cost);
        if let Some((_, label, around)) = best {
            taken.push(around);
            places.push((i, label));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_apart_even_where_curves_end_together() {
        let area = Area {
            left: 0,
            right: 1000,
            top: 0,
            bottom: 500,
        };
        let curves: Vec<Vec<(i32, i32)>> = (0..6)
            .map(|i| vec![(0, 100 + 40 * i), (1000, 10)])
            .collect();
        let sizes = [(120, 16); 6];
        let places = place(&area, &curves, &sizes, 6);
        assert_eq!(places.len(), 6);
        for (i, (_, a)) in places.iter().enumerate() {
            assert!(a.at.0 >= 0 && a.at.0 + 120 <= 1000);
            for (_, b) in &places[..i] {
                let apart = (a.at.0 - b.at.0).abs() >= 120 || (a.at.1 - b.at.1).abs() >= 16;
                assert!(apart, "{a:?} {b:?}");
            }
        }
        assert!(place(&area, &[Vec::new()], &[(10, 10)], 6).is_empty());
    }
}

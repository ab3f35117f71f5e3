//! Side-by-side figures on a noisy machine: the two candidates are run alternately and compared pair by pair,
//! and a control compares the first candidate with itself, which shows what the noise alone does.

use std::fmt;

/// Which candidate a run is for. The control is a second run of the first candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The first candidate, to which the other is compared.
    A,
    /// The second candidate.
    B,
    /// The first candidate again.
    Control,
}

/// The figures of a side-by-side run, one per round.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The first candidate's figures.
    pub a: Vec<f64>,
    /// The second candidate's figures.
    pub b: Vec<f64>,
    /// The first candidate's second figures.
    pub control: Vec<f64>,
}

/// Runs `rounds` rounds of A, B and the control. The order turns round by round (A B C, then C B A), so that a
/// steady drift of the machine's speed favours neither.
///
/// # Errors
/// The first error of `run` ends it.
pub fn compare<E>(
    rounds: usize,
    mut run: impl FnMut(Side) -> Result<f64, E>,
) -> Result<Comparison, E> {
    let mut result = Comparison {
        a: Vec::new(),
        b: Vec::new(),
        control: Vec::new(),
    };
    for round in 0..rounds {
        let mut order = [Side::A, Side::B, Side::Control];
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order {
            let figure = run(side)?;
            match side {
                Side::A => result.a.push(figure),
                Side::B => result.b.push(figure),
                Side::Control => result.control.push(figure),
            }
        }
    }
    Ok(result)
}

/// Ratios of pairs: their median and extremes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// The smallest pair's.
    pub min: f64,
    /// The largest pair's.
    pub max: f64,
}

impl Comparison {
    /// B over A, pair by pair; `None` without rounds.
    #[must_use]
    pub fn ratio(&self) -> Option<Ratio> {
        ratio(&self.b, &self.a)
    }

    /// The control over A, pair by pair: how far from 1 noise alone takes a ratio.
    #[must_use]
    pub fn control_ratio(&self) -> Option<Ratio> {
        ratio(&self.control, &self.a)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(a), Some(b), Some(ratio), Some(control)) = (
            median(&self.a),
            median(&self.b),
            self.ratio(),
            self.control_ratio(),
        ) else {
            return f.write_str("no rounds");
        };
        write!(
            f,
            "A {a:.1}, B {b:.1}, B/A {:.2} ({:.2}-{:.2}), control A/A {:.2} ({:.2}-{:.2}), {} rounds",
            ratio.median,
            ratio.min,
            ratio.max,
            control.median,
            control.min,
            control.max,
            self.a.len()
        )
    }
}

fn ratio(over: &[f64], under: &[f64]) -> Option<Ratio> {
    let ratios: Vec<f64> = over.iter().zip(under).map(|(o, u)| o / u).collect();
    Some(Ratio {
        median: median(&ratios)?,
        min: ratios.iter().copied().reduce(f64::min)?,
        max: ratios.iter().copied().reduce(f64::max)?,
    })
}

/// The median; the mean of the two middle figures when their number is even; `None` of nothing.
#[must_use]
pub fn median(figures: &[f64]) -> Option<f64> {
    percentile(figures, 50.0)
}

/// The percentile `p` (0 to 100) with linear interpolation between neighbours; `None` of nothing.
#[must_use]
pub fn percentile(figures: &[f64], p: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = (p.clamp(0.0, 100.0) / 100.0) * last as f64;
    let low = at.floor() as usize;
    let high = at.ceil() as usize;
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_and_noise_cancel() {
        // The machine slows down steadily; B is twice as fast as A.
        let mut speed = 100.0;
        let result = compare::<()>(9, |side| {
            speed *= 0.99;
            Ok(if side == Side::B { 2.0 * speed } else { speed })
        })
        .unwrap();
        assert_eq!(result.a.len(), 9);
        let ratio = result.ratio().unwrap();
        assert!((ratio.median - 2.0).abs() < 0.03, "{ratio:?}");
        let control = result.control_ratio().unwrap();
        assert!(control.min < 1.0 && control.max > 1.0);
        assert!(result.to_string().contains("9 rounds"));
    }

    #[test]
    fn an_error_ends_it() {
        let mut runs = 0;
        let result = compare(5, |_| {
            runs += 1;
            if runs == 4 { Err("stop") } else { Ok(1.0) }
        });
        assert_eq!(result, Err("stop"));
        assert_eq!(runs, 4);
    }

    #[test]
    fn percentiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 100.0), Some(3.0));
        assert_eq!(percentile(&[1.0, 3.0], 0.0), Some(1.0));
    }
}

//! The arithmetic behind the figures.

/// Buffers of an application: the paper's guests have 120 832 bytes of socket buffer (§IV.D).
pub const APPLICATION: u32 = 64;
/// By how much more often than the buffers ask for (§IV.D, r).
const SPARE: f64 = 1.2;
/// Least interrupts a second, for a bounded latency (§IV.D, lif; the paper gives no number).
const LEAST: f64 = 1000.0;

/// Interrupts a second by the paper's adaptive coalescing: before `pps` frames a second overflow the
/// smaller of the application's and the driver's buffers (§IV.D, equations 1 and 2: t·r = bufs/pps; as
/// printed, equation 3 would divide by r and overflow them).
pub fn adaptive(pps: f64, driver: u32) -> f64 {
    (pps * SPARE / f64::from(APPLICATION.min(driver))).max(LEAST)
}

/// So many interrupts a second as a gap in microseconds, as EITR has it.
pub fn gap(hertz: f64) -> u32 {
    (1e6 / hertz).round() as u32
}

/// How far the figures are apart, as a part of the largest: 0 when all are the same.
pub fn spread(figures: &[f64]) -> f64 {
    let large = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let small = figures.iter().copied().fold(f64::INFINITY, f64::min);
    if large > 0.0 {
        (large - small) / large
    } else {
        f64::NAN
    }
}

/// What one more costs: the slope of the least squares through the points.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let above: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let below: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_come_before_buffers_overflow() {
        // A gigabit of full frames, 64 buffers, a fifth more often.
        assert!((adaptive(81_274.0, 1024) - 1523.9).abs() < 0.1);
        assert_eq!(adaptive(100.0, 1024), LEAST, "no later than that");
        let hertz = adaptive(500_000.0, 48);
        assert!(500_000.0 / hertz < 48.0, "the driver has fewer");
        assert_eq!((gap(20_000.0), gap(2000.0), gap(1000.0)), (50, 500, 1000));
    }

    #[test]
    fn flat_is_no_spread() {
        assert_eq!(spread(&[5.0, 5.0, 5.0]), 0.0);
        assert!((spread(&[9.5, 10.0, 9.8]) - 0.05).abs() < 1e-12);
        assert!(spread(&[]).is_nan() && spread(&[0.0]).is_nan());
    }

    #[test]
    fn one_more_costs_what_the_line_rises() {
        let line: Vec<_> = [10.0, 20.0, 60.0].map(|x| (x, 7.0 + 0.4 * x)).to_vec();
        assert!((slope(&line) - 0.4).abs() < 1e-12);
        assert!(slope(&line[..1]).is_nan(), "one point has no slope");
    }
}

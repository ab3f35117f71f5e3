//! Sending no faster than asked.

use std::str::FromStr;

/// How fast to send.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Rate {
    /// As fast as the NIC takes it.
    #[default]
    Unlimited,
    /// Frames a second.
    Frames(f64),
    /// Bits a second, of frames without CRC and gap.
    Bits(f64),
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "\"{text}\" is no rate: write frames a second (100k, 1.5M) or bits a second \
                 (10Mbit, 1Gbit)"
            )
        };
        let lower = text.trim().to_ascii_lowercase();
        let (number, bits) = match lower.strip_suffix("bit") {
            Some(rest) => (rest, true),
            None => (lower.strip_suffix("pps").unwrap_or(&lower), false),
        };
        let number = number.trim();
        let (number, factor) = match number.char_indices().last() {
            Some((at, 'k')) => (&number[..at], 1e3),
            Some((at, 'm')) => (&number[..at], 1e6),
            Some((at, 'g')) => (&number[..at], 1e9),
            _ => (number, 1.0),
        };
        let value: f64 = number.trim().parse().map_err(|_| bad())?;
        if !value.is_finite() || value < 0.0 {
            return Err(bad());
        }
        let value = value * factor;
        Ok(match (value > 0.0, bits) {
            (false, _) => Self::Unlimited,
            (true, true) => Self::Bits(value),
            (true, false) => Self::Frames(value),
        })
    }
}

/// Says how many frames may go now.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Frames per nanosecond; none: without limit.
    rate: Option<f64>,
    burst: u32,
    credit: f64,
    last: u64,
}

/// What a sender that could not keep up may make good at once.
const BACKLOG_NS: f64 = 1e6;

impl Pacer {
    /// For bursts of `burst` frames of `mean` bytes, from `now` (ns) on.
    pub fn new(rate: Rate, burst: u32, mean: f64, now: u64) -> Self {
        let rate = match rate {
            Rate::Unlimited => None,
            Rate::Frames(n) => Some(n / 1e9),
            Rate::Bits(n) => Some(n / 1e9 / (8.0 * mean)),
        };
        Self {
            rate,
            burst,
            credit: f64::from(burst),
            last: now,
        }
    }

    /// Frames that may go at `now`: a burst or none.
    #[inline]
    pub fn due(&mut self, now: u64) -> u32 {
        let Some(rate) = self.rate else {
            return self.burst;
        };
        let burst = f64::from(self.burst);
        let most = burst + (rate * BACKLOG_NS).max(burst);
        self.credit = (self.credit + rate * now.saturating_sub(self.last) as f64).min(most);
        self.last = now;
        if self.credit >= burst { self.burst } else { 0 }
    }

    /// So many have gone.
    #[inline]
    pub fn gone(&mut self, frames: u32) {
        if self.rate.is_some() {
            self.credit -= f64::from(frames);
        }
    }

    /// Nanoseconds until the next burst, as of the last [`Pacer::due`].
    pub fn wait(&self) -> u64 {
        match self.rate {
            Some(rate) => ((f64::from(self.burst) - self.credit).max(0.0) / rate) as u64,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        assert_eq!("0".parse(), Ok(Rate::Unlimited));
        assert_eq!("250000".parse(), Ok(Rate::Frames(250e3)));
        assert_eq!("1.5M".parse(), Ok(Rate::Frames(1.5e6)));
        assert_eq!("10kpps".parse(), Ok(Rate::Frames(10e3)));
        assert_eq!("2 Gbit".parse(), Ok(Rate::Bits(2e9)));
        for text in ["fast", "-1", "1Gbyte", "", "inf"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_goes_follows_the_rate_however_seldom_one_looks() {
        for step in [100, 3_000, 70_000] {
            let mut pacer = Pacer::new(Rate::Frames(1e6), 32, 60.0, 0);
            let mut sent = 0;
            for now in (0..1_000_000_000).step_by(step) {
                loop {
                    let due = pacer.due(now);
                    if due == 0 {
                        break;
                    }
                    pacer.gone(due);
                    sent += due;
                }
            }
            assert!((999_900..=1_000_100).contains(&sent), "step {step}: {sent}");
        }
    }

    #[test]
    fn a_long_absence_is_not_made_good_in_one_flood() {
        let mut pacer = Pacer::new(Rate::Bits(8.0 * 60.0 * 1e6), 1, 60.0, 0);
        let mut sent = 0;
        loop {
            let due = pacer.due(10_000_000_000);
            if due == 0 {
                break;
            }
            pacer.gone(due);
            sent += due;
        }
        assert!(sent <= 1001, "{sent}");
        assert!(pacer.wait() <= 1000);
    }
}

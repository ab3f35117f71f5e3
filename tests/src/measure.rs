//! What ping and iperf3 say, as numbers.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{Error, Result};

/// The outcome of a ping run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ping {
    /// Requests sent.
    pub sent: u32,
    /// Answers received.
    pub received: u32,
    /// Shortest, mean and longest round trip in milliseconds; zero without an answer.
    pub min_avg_max: [f64; 3],
}

impl Ping {
    /// Reads what `ping` (iputils) prints.
    ///
    /// # Errors
    /// When there is no summary in it.
    pub fn parse(text: &str) -> Result<Self> {
        let fail = || Error::check(format!("no summary of ping in:\n{text}"));
        let line = text
            .lines()
            .find(|l| l.contains("packets transmitted"))
            .ok_or_else(fail)?;
        let number = |part: Option<&str>| part?.split_whitespace().next()?.parse().ok();
        let mut parts = line.split(", ");
        let sent = number(parts.next()).ok_or_else(fail)?;
        let received = number(parts.next()).ok_or_else(fail)?;
        let times = text
            .lines()
            .find_map(|l| l.strip_prefix("rtt min/avg/max/mdev = "));
        let mut times = times
            .unwrap_or_default()
            .split(['/', ' '])
            .map(|t| t.parse().unwrap_or(0.0));
        let mut next = || times.next().unwrap_or(0.0);
        Ok(Self {
            sent,
            received,
            min_avg_max: [next(), next(), next()],
        })
    }

    /// Lost requests in percent.
    #[must_use]
    pub fn loss(&self) -> f64 {
        100.0 * f64::from(self.sent - self.received.min(self.sent)) / f64::from(self.sent.max(1))
    }
}

/// How many of the first `count` requests have an answer in what `ping` printed.
#[must_use]
pub fn answered(text: &str, count: u32) -> u32 {
    let numbers: BTreeSet<u32> = text
        .lines()
        .filter(|line| line.contains(" bytes from "))
        .filter_map(|line| {
            line.split_once("icmp_seq=")?
                .1
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .filter(|number| (1..=count).contains(number))
        .collect();
    numbers.len() as u32
}

/// The rate at which an iperf3 run (`-J`) arrived at its receiver, in Mbit/s.
///
/// # Errors
/// When the run failed, with iperf3's reason.
pub fn iperf3_mbits(report: &str) -> Result<f64> {
    let fail = |why: &str| Error::check(format!("iperf3: {why}:\n{report}"));
    let value: Value = serde_json::from_str(report).map_err(|_| fail("no report"))?;
    if let Some(error) = value.get("error") {
        return Err(fail(error.as_str().unwrap_or("failed")));
    }
    let rate = value["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.filter(|r| *r > 0.0)
        .map(|r| r / 1e6)
        .ok_or_else(|| fail("nothing arrived"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_summaries() {
        let text = "PING 10.0.2.2\n64 bytes from\n\n--- 10.0.2.2 ping statistics ---\n\
                    20 packets transmitted, 19 received, 5% packet loss, time 19ms\n\
                    rtt min/avg/max/mdev = 0.250/0.412/1.031/0.1 ms\n";
        let ping = Ping::parse(text).unwrap();
        assert_eq!((ping.sent, ping.received), (20, 19));
        assert_eq!(ping.min_avg_max, [0.25, 0.412, 1.031]);
        assert!((ping.loss() - 5.0).abs() < 1e-9);
        let dead = "3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 4ms\n";
        assert!((Ping::parse(dead).unwrap().loss() - 100.0).abs() < 1e-9);
        assert!(Ping::parse("ping: bad address").is_err());
    }

    #[test]
    fn answers_count_once_and_further_requests_do_not() {
        let text = "64 bytes from 10.9.0.1: icmp_seq=1 ttl=64 time=9.1 ms\n\
                    64 bytes from 10.9.0.1: icmp_seq=1 ttl=64 time=9.2 ms (DUP!)\n\
                    From 10.9.0.2 icmp_seq=2 Destination Host Unreachable\n\
                    64 bytes from 10.9.0.1: icmp_seq=3 ttl=64 time=9 ms\n\
                    64 bytes from 10.9.0.1: icmp_seq=4 ttl=64 time=9 ms\n";
        assert_eq!(answered(text, 3), 2);
        assert_eq!(answered(text, 4), 3);
    }

    #[test]
    fn iperf3_reports() {
        let good = r#"{"end":{"sum_received":{"bits_per_second":2.5e8}}}"#;
        assert!((iperf3_mbits(good).unwrap() - 250.0).abs() < 1e-9);
        let bad = iperf3_mbits(r#"{"error":"unable to connect"}"#).unwrap_err();
        assert!(bad.to_string().contains("unable to connect"));
        assert!(iperf3_mbits("").is_err());
    }
}

//! What was to be reached, from the same measurements.

use super::found::Found;
use super::outcome::Outcomes;
use super::plan::{Experiment, Line, Stream};
use crate::page::Page;
use crate::stats::figure;

/// The figure of a target and what it must be.
struct Target {
    what: String,
    /// What it came to; `None` when it was not measured.
    value: Option<f64>,
    /// The most it may be, or the least where `at_least`.
    limit: f64,
    at_least: bool,
}

impl Target {
    fn row(&self) -> Vec<String> {
        let sign = if self.at_least { "≥" } else { "≤" };
        let verdict = match self.value {
            None => "not measured",
            Some(v) if (v >= self.limit) == self.at_least || v == self.limit => "met",
            Some(_) => "missed",
        };
        let shown = |v: f64| match v {
            v if v > 0.0 && v < 0.01 => format!("{v:.5}"),
            v => figure(v),
        };
        vec![
            self.what.clone(),
            format!("{sign} {}", shown(self.limit)),
            self.value
                .map_or("–".to_owned(), |v| format!("**{}**", shown(v))),
            verdict.to_owned(),
        ]
    }
}

/// The lines there are, by table, name and sender.
struct Lines<'a> {
    experiments: &'a [Experiment],
    outcomes: &'a Outcomes,
}

impl<'a> Lines<'a> {
    fn line(&self, id: &str, label: &str, fits: fn(Stream) -> bool) -> Option<&'a Line> {
        let experiment = self.experiments.iter().find(|e| e.id == id)?;
        experiment.lines.iter().find(|l| {
            let first = l.jobs.first();
            l.label == label && first.is_some_and(|j| j.vcpus == 1 && fits(j.stream))
        })
    }

    fn find(&self, id: &str, label: &str, fits: fn(Stream) -> bool) -> Option<Found<'a>> {
        Some(Found::of(self.line(id, label, fits)?, self.outcomes))
    }

    /// A count per packet at the highest rate of which nine tenths were received.
    fn sustained(&self, id: &str, label: &str, name: &str) -> Option<f64> {
        let points = self.line(id, label, any)?.jobs.iter().filter_map(|job| {
            let (Stream::Paced(offered) | Stream::Generated(offered)) = job.stream else {
                return None;
            };
            let outcome = self.outcomes.get(job)?;
            let kept = outcome.value()? * 1e3 >= 0.9 * f64::from(offered);
            kept.then_some((offered, outcome))
        });
        let (_, outcome) = points.max_by_key(|(offered, _)| *offered)?;
        outcome.field(&|r| r.raw["per"][name].as_f64())
    }

    /// What was received under [`OVERLOAD`] over the peak.
    fn overload(&self, label: &str) -> Option<Overload> {
        let line = self.line("a3", label, any)?;
        let points = line.jobs.iter().filter_map(|job| {
            let outcome = self.outcomes.get(job)?;
            Some(Point {
                offered: outcome.field(&|r| r.raw["offered_kpps"].as_f64())?,
                received: outcome.value()?,
                share: outcome
                    .field(&|r| Some(r.raw["vcpu_seconds"].as_f64()? / r.raw["seconds"].as_f64()?)),
            })
        });
        over(&points.collect::<Vec<_>>())
    }
}

/// How many times the peak is offered.
const OVERLOAD: f64 = 10.0;

/// A point of a curve: thousands a second, and the part of a processor that the guest had.
#[derive(Clone, Copy)]
struct Point {
    offered: f64,
    received: f64,
    share: Option<f64>,
}

/// A point over the peak.
#[derive(Debug, PartialEq)]
struct Overload {
    /// Offered over what was received at most.
    times: f64,
    /// Received over the same.
    rate: f64,
    /// The same for each second that the guest had a processor.
    work: Option<f64>,
}

/// The point nearest to [`OVERLOAD`].
fn over(points: &[Point]) -> Option<Overload> {
    let peak = *points
        .iter()
        .max_by(|a, b| a.received.total_cmp(&b.received))?;
    let far = |p: &Point| (p.offered / peak.received / OVERLOAD).ln().abs();
    let point = points.iter().min_by(|a, b| far(a).total_cmp(&far(b)))?;
    let rate = point.received / peak.received;
    let work = peak.share.zip(point.share).map(|(a, b)| rate * a / b);
    (peak.received > 0.0).then_some(Overload {
        times: point.offered / peak.received,
        rate,
        work: work.filter(|w| w.is_finite()),
    })
}

fn any(_: Stream) -> bool {
    true
}

fn kernel(stream: Stream) -> bool {
    stream == Stream::Kernel
}

/// Writes the table.
pub fn write(page: &mut Page, experiments: &[Experiment], outcomes: &Outcomes) {
    let rows: Vec<Vec<String>> = targets(&Lines {
        experiments,
        outcomes,
    })
    .iter()
    .map(Target::row)
    .collect();
    page.heading("Targets");
    page.text(
        "One VCPU; the sender of small packets is pktgen, the receiver's figures are those at its critical rate. Guest to guest compares \
         what the second guest's program received: ours on the switch, virtio-net over TAPs.",
    );
    page.table(&["", "target", "ours", ""], &rows);
}

fn most(what: &str, value: Option<f64>, limit: f64) -> Target {
    Target {
        what: what.to_owned(),
        value,
        limit,
        at_least: false,
    }
}

fn least(what: &str, value: Option<f64>, limit: f64) -> Target {
    Target {
        at_least: true,
        ..most(what, value, limit)
    }
}

fn targets(lines: &Lines<'_>) -> Vec<Target> {
    let mut all = of_packets(lines);
    all.extend(under_overload(lines));
    all
}

fn of_packets(lines: &Lines<'_>) -> Vec<Target> {
    let accesses = |f: &Option<Found<'_>>| {
        let f = f.as_ref()?;
        Some(f.count("reads")? + f.count("writes")?)
    };
    let count = |f: &Option<Found<'_>>, name: &str| f.as_ref()?.count(name);
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?).filter(|v| v.is_finite());
    let stock = lines.find("t3.1", "itr=0", kernel);
    let out = lines.find("t4.1", "mair=4000 CSB", kernel);
    let into = lines.find("t4.3", "mair=4000 CSB", any);
    let got = |id, label| lines.find(id, label, kernel)?.raw("received_kpps");
    let csb = got("a4.vale", "itr=0 CSB");
    let stock_across = lines.find("a4.vale", "itr=0", kernel);
    let csb_across = lines.find("a4.vale", "itr=0 CSB", kernel);
    vec![
        most(
            "Stock transmit without moderation: register accesses per packet (thesis: 6)",
            accesses(&stock),
            6.0,
        ),
        most(
            "CSB transmit: register accesses per packet (thesis: 0.009)",
            accesses(&out),
            0.01,
        ),
        most(
            "CSB receive: register accesses per packet (thesis: 0.036)",
            accesses(&into),
            0.01,
        ),
        most(
            "CSB transmit: notifications per packet",
            count(&out, "notifications"),
            0.002,
        ),
        most(
            "CSB receive: notifications per packet",
            count(&into, "notifications"),
            0.002,
        ),
        most(
            "The same at the highest rate of which nine tenths were received",
            lines.sustained("t4.3", "mair=4000 CSB", "notifications"),
            0.002,
        ),
        most(
            "CSB transmit: interrupts per packet",
            count(&out, "interrupts"),
            0.005,
        ),
        most(
            "CSB receive: interrupts per packet",
            count(&into, "interrupts"),
            0.012,
        ),
        least(
            "Guest to guest, CSB over stock",
            ratio(csb, got("a4.vale", "itr=0")),
            5.0,
        ),
        least(
            "Guest to guest, CSB over virtio-net",
            ratio(csb, got("a4.tap", "virtio")),
            1.0,
        ),
        least(
            "Request and response, guest to host: adaptive over no moderation",
            lines
                .find("a4.out", "adaptive over itr=0", any)
                .and_then(|f| f.value()),
            0.95,
        ),
        least(
            "In place of CSB over stock: register accesses per packet, stock over CSB",
            ratio(accesses(&stock_across), accesses(&csb_across)),
            5.0,
        ),
        least(
            "The same: messages per packet, stock over CSB",
            ratio(
                count(&stock_across, "messages"),
                count(&csb_across, "messages"),
            ),
            5.0,
        ),
    ]
}

fn under_overload(lines: &Lines<'_>) -> Vec<Target> {
    let mut all = Vec::new();
    for label in [
        "receive-throttling",
        "itr=0 CSB",
        "mair=4000 CSB",
        "itr=250",
        "itr=250 threaded",
    ] {
        let found = lines.overload(label);
        let times = found.as_ref().map_or(String::new(), |f| {
            format!(", at {} times the peak", figure(f.times))
        });
        all.push(least(
            &format!("Received under overload over the peak ({label}{times})"),
            found.as_ref().map(|f| f.rate),
            0.8,
        ));
        all.push(least(
            &format!("The same for each second that the guest had a processor ({label})"),
            found.and_then(|f| f.work),
            0.8,
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(value: Option<f64>, limit: f64, at_least: bool) -> String {
        let target = Target {
            what: "x".to_owned(),
            value,
            limit,
            at_least,
        };
        target.row()[3].clone()
    }

    #[test]
    fn limits_hold_from_their_side() {
        assert_eq!(verdict(Some(0.009), 0.01, false), "met");
        assert_eq!(verdict(Some(0.011), 0.01, false), "missed");
        assert_eq!(verdict(Some(5.1), 5.0, true), "met");
        assert_eq!(verdict(Some(4.9), 5.0, true), "missed");
        assert_eq!(verdict(Some(5.0), 5.0, true), "met");
        assert_eq!(verdict(Some(5.0), 5.0, false), "met");
        assert_eq!(verdict(None, 1.0, true), "not measured");
    }

    #[test]
    fn overload_is_ten_times_the_peak_and_counts_the_guests_own_time() {
        let point = |offered, received, share| Point {
            offered,
            received,
            share: Some(share),
        };
        let points = [
            point(20.0, 20.0, 0.5),
            point(60.0, 50.0, 1.0),
            point(450.0, 30.0, 0.75),
            point(2000.0, 1.0, 0.1),
        ];
        let found = over(&points).unwrap();
        assert!((found.times - 9.0).abs() < 1e-9 && (found.rate - 0.6).abs() < 1e-9);
        assert!((found.work.unwrap() - 0.8).abs() < 1e-9);
        assert_eq!(over(&[]), None);
    }

    #[test]
    fn every_target_has_lines_that_are_measured() {
        let outcomes = Outcomes::new();
        for quick in [true, false] {
            let experiments = super::super::plan::experiments(quick);
            let lines = Lines {
                experiments: &experiments,
                outcomes: &outcomes,
            };
            let there = [
                lines.line("t3.1", "itr=0", kernel),
                lines.line("t4.1", "mair=4000 CSB", kernel),
                lines.line("t4.3", "mair=4000 CSB", any),
                lines.line("a4.vale", "itr=0 CSB", kernel),
                lines.line("a4.vale", "itr=0", kernel),
                lines.line("a4.tap", "virtio", kernel),
                lines.line("a4.out", "adaptive over itr=0", any),
                lines.line("a3", "receive-throttling", any),
                lines.line("a3", "itr=250 threaded", any),
                lines.line("a3", "mair=4000 CSB", any),
                lines.line("a3", "itr=250", any),
                lines.line("a3", "itr=0 CSB", any),
            ];
            assert!(there.iter().all(Option::is_some), "{there:?}");
        }
    }
}

//! What happened between two looks.

use serde::Serialize;

use super::look::{Counts, Sample};
use crate::explain::{self, Class};
use crate::worker::histogram;

/// All that is shown.
#[derive(Debug, Default, Serialize)]
pub(crate) struct View {
    /// Between the looks.
    pub seconds: f64,
    pub nics: Vec<NicRow>,
    pub workers: Vec<WorkerRow>,
    pub switches: Vec<PortRow>,
    pub drops: Vec<LossRow>,
    pub vfs: Vec<VfRow>,
}

/// Of a NIC, a second, as its guest sees it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct NicRow {
    pub nic: String,
    pub model: String,
    /// `up`, `no VMM`, `no link` or `failed`.
    pub state: &'static str,
    pub received_packets: f64,
    pub received_bytes: f64,
    pub sent_packets: f64,
    pub sent_bytes: f64,
    pub dropped: f64,
    /// Register accesses and kicks.
    pub accesses: f64,
    pub interrupts: f64,
    /// Its part of a worker's time, 0 to 1.
    pub work: f64,
}

/// Of a worker.
#[derive(Debug, Default, Serialize)]
pub(crate) struct WorkerRow {
    pub worker: String,
    pub nics: u64,
    /// Time of turns with something to do, 0 to 1.
    pub work: f64,
    /// Time awake besides: a thread that polls looks busy and does nothing.
    pub looking: f64,
    pub turns: f64,
    pub sleeps: f64,
    pub replies: f64,
    /// 99 of 100 messages were answered within so many seconds; absent if there were none, or later than all bounds.
    pub replies_99_seconds: Option<f64>,
}

/// Of a port of a switch, a second.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PortRow {
    pub port: String,
    /// Into the switch.
    pub in_packets: f64,
    pub in_bytes: f64,
    /// Out of it.
    pub out_packets: f64,
    pub out_bytes: f64,
    pub flooded: f64,
    pub dropped: f64,
}

/// A reason for which something was lost, refused or broken.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LossRow {
    pub kind: String,
    pub name: String,
    pub reason: &'static str,
    pub class: &'static str,
    pub per_second: f64,
    pub all: u64,
    pub meaning: &'static str,
}

/// Of a virtual function.
#[derive(Debug, Default, Serialize)]
pub(crate) struct VfRow {
    pub nic: String,
    pub chip: String,
    pub index: u32,
    pub address: String,
    /// `ready`, `no driver`, or why it is down.
    pub state: String,
    pub received_packets: f64,
    pub sent_packets: f64,
    /// What it was refused, all together.
    pub refused: u64,
}

/// What one thing counted between the looks.
pub(super) struct Between<'a> {
    before: Option<&'a Counts>,
    now: Option<&'a Counts>,
    seconds: f64,
}

impl<'a> Between<'a> {
    pub fn of(before: &'a Sample, now: &'a Sample, kind: &str, name: &str) -> Self {
        Between {
            before: before.get(kind, name),
            now: now.get(kind, name),
            seconds: now.since(before),
        }
    }
}

impl Between<'_> {
    pub fn count(&self, counter: &str) -> u64 {
        let get = |counts: Option<&Counts>| counts.and_then(|c| c.get(counter)).copied();
        let (before, now) = (get(self.before).unwrap_or(0), get(self.now).unwrap_or(0));
        // One that was made anew counts from 0.
        now.checked_sub(before).unwrap_or(now)
    }

    fn rate(&self, counter: &str) -> f64 {
        self.count(counter) as f64 / self.seconds
    }

    fn rates(&self, counters: &[&str]) -> f64 {
        counters.iter().map(|counter| self.rate(counter)).sum()
    }

    /// Of nanoseconds: the part of the time.
    fn part(&self, counter: &str) -> f64 {
        self.rate(counter) / 1e9
    }

    fn dropped(&self, kind: &str) -> f64 {
        let counters = self.now.into_iter().flatten();
        let lost = counters.filter(|(name, _)| {
            explain::find(kind, name).is_some_and(|reason| reason.class == Class::Drop)
        });
        lost.map(|(name, _)| self.rate(name)).sum()
    }
}

impl View {
    pub fn between(before: &Sample, now: &Sample) -> Self {
        let of = |kind: &str, name: &str| Between::of(before, now, kind, name);
        let mut view = View {
            seconds: now.since(before),
            ..View::default()
        };
        for nic in &now.nics {
            let name = &nic.config.name;
            view.nics.push(nic_row(nic, &of("nic", name)));
        }
        for (name, counts) in now.of("worker") {
            view.workers
                .push(worker_row(name, counts, &of("worker", name)));
        }
        for (name, _) in now.of("switch-port") {
            view.switches.push(port_row(name, &of("switch-port", name)));
        }
        for kind in now.counts.keys() {
            for (name, counts) in now.of(kind) {
                let between = of(kind, name);
                let rows = counts.iter().filter_map(|(counter, all)| {
                    let reason = explain::find(kind, counter)?;
                    let row = LossRow {
                        kind: kind.clone(),
                        name: name.to_owned(),
                        reason: reason.name,
                        class: reason.class.name(),
                        per_second: between.rate(counter),
                        all: *all,
                        meaning: reason.meaning,
                    };
                    (reason.class.needs_cure() && *all > 0).then_some(row)
                });
                view.drops.extend(rows);
            }
        }
        // What goes on now first, then what went on for longest.
        view.drops.sort_by(|a, b| {
            let by_rate = b.per_second.total_cmp(&a.per_second);
            let then = by_rate.then(b.all.cmp(&a.all));
            then.then_with(|| (&a.name, a.reason).cmp(&(&b.name, b.reason)))
        });
        for vf in &now.vfs {
            let between = of("nic", &vf.nic);
            view.vfs.push(VfRow {
                nic: vf.nic.clone(),
                chip: vf.chip.clone(),
                index: vf.index,
                address: vf.address.clone(),
                state: match (&vf.down, vf.ready) {
                    (Some(why), _) => why.clone(),
                    (None, true) => "ready".into(),
                    (None, false) => "no driver".into(),
                },
                received_packets: between.rate("rx_frames"),
                sent_packets: between.rate("tx_frames"),
                refused: vf.refused.iter().map(|refusal| refusal.count).sum(),
            });
        }
        view
    }
}

fn nic_row(nic: &control::NicInfo, between: &Between<'_>) -> NicRow {
    NicRow {
        nic: nic.config.name.clone(),
        model: nic.config.model.clone().unwrap_or_default(),
        state: match (nic.failed, nic.connected, nic.link) {
            (true, ..) => "failed",
            (_, false, _) => "no VMM",
            (_, _, false) => "no link",
            _ => "up",
        },
        received_packets: between.rate("rx_frames"),
        received_bytes: between.rate("rx_bytes"),
        sent_packets: between.rate("tx_frames"),
        sent_bytes: between.rate("tx_bytes"),
        dropped: between.dropped("nic"),
        accesses: between.rates(&["reg_reads", "reg_writes", "kicks"]),
        interrupts: between.rates(&["irq_triggers", "calls"]),
        work: between.part("work_ns"),
    }
}

fn worker_row(name: &str, counts: &Counts, between: &Between<'_>) -> WorkerRow {
    let (bounds, later, _) = histogram();
    let replies: u64 = bounds.iter().map(|(_, name)| between.count(name)).sum();
    let replies = replies + between.count(later);
    let mut so_far = 0;
    let enough = bounds.iter().find(|(_, name)| {
        so_far += between.count(name);
        so_far * 100 >= replies * 99
    });
    WorkerRow {
        worker: name.to_owned(),
        nics: counts.get("tasks").copied().unwrap_or(0),
        work: between.part("work_ns"),
        looking: between.part("looking_ns"),
        turns: between.rate("turns"),
        sleeps: between.rate("sleeps"),
        replies: replies as f64 / between.seconds,
        replies_99_seconds: enough.filter(|_| replies > 0).map(|(bound, _)| *bound),
    }
}

fn port_row(name: &str, between: &Between<'_>) -> PortRow {
    PortRow {
        port: name.to_owned(),
        in_packets: between.rate("rx_frames"),
        in_bytes: between.rate("rx_bytes"),
        out_packets: between.rate("tx_frames"),
        out_bytes: between.rate("tx_bytes"),
        flooded: between.rate("tx_flooded"),
        dropped: between.dropped("switch-port"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::time::{Duration, Instant};

    use control::{NicConfig, NicInfo};

    use super::*;

    /// A look with a NIC `n0`, worker `0` and switch port `lan/n0`, after so many of everything.
    pub fn sample(at: Instant, n: u64) -> Sample {
        let counts = |pairs: &[(&str, u64)]| {
            let all = pairs.iter().filter(|(_, value)| *value > 0);
            all.map(|(name, value)| ((*name).to_owned(), *value))
                .collect()
        };
        let one = |kind: &str, name: &str, pairs: &[(&str, u64)]| {
            let of = BTreeMap::from([(name.to_owned(), counts(pairs))]);
            (kind.to_owned(), of)
        };
        let nic = [
            ("rx_frames", 1000 * n),
            ("rx_bytes", 60_000 * n),
            ("tx_frames", 10 * n),
            ("tx_bytes", 15_000 * n),
            ("reg_reads", n),
            ("reg_writes", 3 * n),
            ("irq_triggers", 5 * n),
            ("rx_missed", 7 * n),
            ("work_ns", 100_000_000 * n),
        ];
        let worker = [
            ("tasks", 1),
            ("work_ns", 250_000_000 * n),
            ("looking_ns", 500_000_000 * n),
            ("turns", 44 * n),
            ("replies_in_10us", 98 * n),
            ("replies_in_300us", 2 * n),
        ];
        let port = [
            ("rx_frames", 10 * n),
            ("tx_flooded", n),
            ("drop_no_room", n),
        ];
        Sample {
            at,
            nics: vec![NicInfo {
                config: NicConfig {
                    name: "n0".into(),
                    model: Some("e1000".into()),
                    ..NicConfig::default()
                },
                connected: true,
                link: true,
                ..NicInfo::default()
            }],
            vfs: Vec::new(),
            counts: HashMap::from([
                one("nic", "n0", &nic),
                one("worker", "0", &worker),
                one("switch-port", "lan/n0", &port),
            ]),
        }
    }

    pub fn two_seconds() -> View {
        let begin = Instant::now();
        let (before, now) = (sample(begin, 1), sample(begin + Duration::from_secs(2), 3));
        View::between(&before, &now)
    }

    #[test]
    fn rates_are_differences_by_time() {
        let view = two_seconds();
        let nic = &view.nics[0];
        assert_eq!(
            (nic.state, nic.received_packets, nic.sent_bytes),
            ("up", 1000.0, 15_000.0)
        );
        assert_eq!((nic.accesses, nic.interrupts, nic.dropped), (4.0, 5.0, 7.0));
        assert!((nic.work - 0.1).abs() < 1e-9);
        let worker = &view.workers[0];
        assert!((worker.work - 0.25).abs() < 1e-9 && (worker.looking - 0.5).abs() < 1e-9);
        assert_eq!(
            (worker.replies, worker.replies_99_seconds),
            (100.0, Some(0.0003))
        );
        assert_eq!(
            (view.switches[0].flooded, view.switches[0].dropped),
            (1.0, 1.0)
        );
        // The fastest first.
        let reasons: Vec<_> = view
            .drops
            .iter()
            .map(|loss| (loss.reason, loss.all))
            .collect();
        assert_eq!(reasons, [("rx_missed", 21), ("drop_no_room", 3)]);
    }

    #[test]
    fn what_was_made_anew_counts_from_zero() {
        let begin = Instant::now();
        let (before, now) = (sample(begin, 9), sample(begin + Duration::from_secs(1), 2));
        let view = View::between(&before, &now);
        assert_eq!(view.nics[0].received_packets, 2000.0);
        let mut gone = sample(begin, 1);
        gone.counts.clear();
        let view = View::between(&gone, &now);
        assert_eq!(view.workers[0].turns, 88.0);
    }
}

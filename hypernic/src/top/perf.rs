//! `hypernic perf`: where the time of workers goes.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use program::LogFormat;
use serde::Serialize;

use super::look::{Counts, Look, Sample};
use super::rates::Between;
use crate::client::{Place, Printed, seconds};
use crate::config::cells::MAIN;
use crate::error::Error;
use crate::worker::histogram;

/// `hypernic perf`.
#[derive(Args, Debug)]
pub struct PerfCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// Seconds between the two looks.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds(0.1))]
    delay: f64,
}

/// All that is told.
#[derive(Debug, Serialize)]
struct Perf {
    seconds: f64,
    workers: Vec<WorkerPerf>,
    nics: Vec<NicPerf>,
}

/// Of a worker, between the looks.
#[derive(Debug, Serialize)]
struct WorkerPerf {
    worker: String,
    work_ns: u64,
    looking_ns: u64,
    asleep_ns: u64,
    turns: u64,
    /// The longest since the worker began.
    longest_turn_ns: u64,
    /// How many messages were answered within so many seconds and not within the bound before; the last has no bound.
    replies: Vec<(Option<f64>, u64)>,
}

/// Of a NIC, between the looks.
#[derive(Debug, Serialize)]
struct NicPerf {
    nic: String,
    /// As above: `0` of the main process, `CELL/0` of a cell.
    worker: String,
    turns: u64,
    work_ns: u64,
}

impl PerfCommand {
    /// Looks twice. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let mut look = Look::connect(self.place)?;
        let before = look.look()?;
        std::thread::sleep(Duration::from_secs_f64(self.delay));
        let now = look.look()?;
        Ok(self.printed.show(format, &between(&before, &now), text))
    }
}

fn between(before: &Sample, now: &Sample) -> Perf {
    let seconds = now.since(before);
    let nanos = (seconds * 1e9) as u64;
    let of = |kind: &str, name: &str| Between::of(before, now, kind, name);
    let get = |counts: &Counts, name: &str| counts.get(name).copied().unwrap_or(0);
    let (bounds, later, _) = histogram();
    let worker = |(name, counts): (&str, &Counts)| {
        let between = of("worker", name);
        let since = |counter: &str| between.count(counter);
        let (work, looking) = (since("work_ns"), since("looking_ns"));
        let replies = bounds
            .iter()
            .map(|(bound, name)| (Some(*bound), since(name)));
        WorkerPerf {
            worker: name.to_owned(),
            work_ns: work,
            looking_ns: looking,
            asleep_ns: nanos.saturating_sub(work + looking),
            turns: since("turns"),
            longest_turn_ns: get(counts, "longest_turn_ns"),
            replies: replies.chain([(None, since(later))]).collect(),
        }
    };
    let nic = |(name, counts): (&str, &Counts)| NicPerf {
        nic: name.to_owned(),
        worker: worker_of(now, name, get(counts, "worker")),
        turns: of("nic", name).count("turns"),
        work_ns: of("nic", name).count("work_ns"),
    };
    let mut nics: Vec<_> = now.of("nic").map(nic).collect();
    nics.sort_by(|a, b| b.work_ns.cmp(&a.work_ns).then_with(|| a.nic.cmp(&b.nic)));
    Perf {
        seconds,
        workers: now.of("worker").map(worker).collect(),
        nics,
    }
}

/// The name of a NIC's worker, whose number is that in its process.
fn worker_of(now: &Sample, nic: &str, number: u64) -> String {
    let info = now.nics.iter().find(|info| info.config.name == nic);
    let cell = info.and_then(|info| info.config.cell.as_deref());
    match cell.filter(|cell| *cell != MAIN) {
        Some(cell) => format!("{cell}/{number}"),
        None => number.to_string(),
    }
}

fn text(perf: &Perf) -> String {
    let mut text = String::new();
    let part = |nanos: u64| nanos as f64 / perf.seconds / 1e7;
    let each = |nanos: u64, turns: u64| nanos as f64 / 1e3 / turns.max(1) as f64;
    // Writing to a String cannot fail.
    for worker in &perf.workers {
        let _ = writeln!(
            text,
            "worker {}: {:.1} % work, {:.1} % looking, {:.1} % asleep; {} turns, {:.1} us work each; longest ever {:.0} us",
            worker.worker,
            part(worker.work_ns),
            part(worker.looking_ns),
            part(worker.asleep_ns),
            worker.turns,
            each(worker.work_ns, worker.turns),
            worker.longest_turn_ns as f64 / 1e3
        );
        let all: u64 = worker.replies.iter().map(|(_, n)| n).sum();
        let mut so_far = 0;
        for (bound, n) in worker.replies.iter().filter(|(_, n)| *n > 0) {
            so_far += n;
            let share = 100.0 * so_far as f64 / all as f64;
            let _ = match bound {
                Some(bound) => writeln!(
                    text,
                    "  {n:>10} replies within {:>9.0} us  {share:6.2} %",
                    bound * 1e6
                ),
                None => writeln!(text, "  {n:>10} replies later            {share:6.2} %"),
            };
        }
    }
    let busy = perf.nics.iter().filter(|nic| nic.turns > 0);
    for nic in busy {
        let _ = writeln!(
            text,
            "{}: worker {}, {:.2} % work; {} turns, {:.1} us work each",
            nic.nic,
            nic.worker,
            part(nic.work_ns),
            nic.turns,
            each(nic.work_ns, nic.turns)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::rates::tests::sample;
    use super::*;

    #[test]
    fn a_workers_time_is_work_looking_and_sleep() {
        let begin = Instant::now();
        let (before, now) = (sample(begin, 1), sample(begin + Duration::from_secs(2), 3));
        let perf = between(&before, &now);
        let worker = &perf.workers[0];
        let times = (worker.work_ns, worker.looking_ns, worker.asleep_ns);
        assert_eq!(times, (500_000_000, 1_000_000_000, 500_000_000));
        assert_eq!((perf.nics[0].work_ns, worker.turns), (200_000_000, 88));
        assert_eq!(perf.nics[0].worker, "0");
        for (cell, named) in [("x", "x/0"), (MAIN, "0")] {
            let mut now = sample(begin, 3);
            now.nics[0].config.cell = Some(cell.into());
            let perf = between(&before, &now);
            assert_eq!(perf.nics[0].worker, named);
        }
        let text = text(&perf);
        assert!(
            text.contains("25.0 % work, 50.0 % looking, 25.0 % asleep; 88 turns"),
            "{text}"
        );
        assert!(
            text.contains("4 replies within       300 us  100.00 %"),
            "{text}"
        );
    }
}

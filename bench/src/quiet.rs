//! Refusing samples that other processes disturbed.
//!
//! What counts as ours is this process, its descendants, and the kernel's own softirq threads (which run for the
//! senders of packets). Everything else that was not idle, the hypervisor's steal included, is foreign.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::Result;

/// The part of the machine's time above which a sample is refused.
pub const LIMIT: f64 = 0.08;

/// Processor time of the machine and of ours, at one moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Instant,
    /// Seconds all processors together were idle.
    idle: f64,
    /// Seconds our processes have run.
    ours: f64,
}

/// One process as the kernel lists it (proc_pid_stat(5)).
#[derive(Debug, Clone, PartialEq)]
struct Process {
    id: u32,
    parent: u32,
    name: String,
    /// Ticks it and the children it has waited for have run.
    ticks: u64,
}

impl Process {
    fn parse(line: &str) -> Option<Self> {
        // The name is in brackets and may itself hold brackets and blanks.
        let (head, tail) = line.rsplit_once(')')?;
        let (id, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let tick = |i: usize| fields.get(i)?.parse::<u64>().ok();
        Some(Self {
            id: id.trim().parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            name: name.to_owned(),
            ticks: tick(11)? + tick(12)? + tick(13)? + tick(14)?,
        })
    }
}

/// Ticks of a process, all below it, and the softirq threads.
fn ours(processes: &[Process], me: u32) -> u64 {
    let mut children: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process);
    }
    let mut seen = BTreeSet::from([me]);
    let mut open = vec![me];
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.id) {
                open.push(child.id);
            }
        }
    }
    // Kernel threads are children of process 2.
    let softirq = |p: &Process| p.parent == 2 && p.name.starts_with("ksoftirqd/");
    processes
        .iter()
        .filter(|p| seen.contains(&p.id) || softirq(p))
        .map(|p| p.ticks)
        .sum()
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|e| {
            e.file_name()
                .to_str()
                .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
        })
        .filter_map(|e| Process::parse(&fs::read_to_string(e.path().join("stat")).ok()?))
        .collect()
}

impl Moment {
    fn now() -> Self {
        let per_second = rustix::param::clock_ticks_per_second().max(1) as f64;
        let mine = ours(&processes(), std::process::id());
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait ...
        let idle: u64 = line
            .split_whitespace()
            .skip(4)
            .take(2)
            .filter_map(|v| v.parse::<u64>().ok())
            .sum();
        Self {
            at: Instant::now(),
            idle: idle as f64 / per_second,
            ours: mine as f64 / per_second,
        }
    }

    fn foreign_since(self, earlier: Self, cpus: usize) -> f64 {
        foreign(
            (self.at - earlier.at).as_secs_f64(),
            cpus,
            self.idle - earlier.idle,
            self.ours - earlier.ours,
        )
    }
}

/// The part of the machine's time, 0 to 1, that was neither idle nor ours.
fn foreign(elapsed: f64, cpus: usize, idle: f64, ours: f64) -> f64 {
    let all = elapsed * cpus as f64;
    if all <= 0.0 {
        return 0.0;
    }
    ((all - idle - ours) / all).clamp(0.0, 1.0)
}

/// A sample that was taken.
#[derive(Debug, Clone)]
pub struct Taken<T> {
    /// What was measured.
    pub value: T,
    /// The foreign part of the machine's time meanwhile, 0 to 1.
    pub foreign: f64,
}

/// Takes samples, and takes them again when the machine was not ours.
#[derive(Debug)]
pub struct Quiet {
    cpus: usize,
    tries: usize,
    limit: f64,
    taken: usize,
    refused: usize,
    missing: usize,
    worst: f64,
}

impl Quiet {
    /// With `any_load`, samples are taken whatever else runs: to see that a module works, not to publish.
    pub fn new(any_load: bool, tries: usize) -> Self {
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            tries: tries.max(1),
            limit: if any_load { f64::INFINITY } else { LIMIT },
            taken: 0,
            refused: 0,
            missing: 0,
            worst: 0.0,
        }
    }

    /// Runs `sample` until one run was undisturbed; `None` when none was in as many tries as are allowed.
    ///
    /// # Errors
    /// The sample's.
    pub fn take<T>(&mut self, mut sample: impl FnMut() -> Result<T>) -> Result<Option<Taken<T>>> {
        let cpus = self.cpus;
        self.decide(|| {
            let before = Moment::now();
            let value = sample()?;
            Ok((value, Moment::now().foreign_since(before, cpus)))
        })
    }

    fn decide<T>(
        &mut self,
        mut sample: impl FnMut() -> Result<(T, f64)>,
    ) -> Result<Option<Taken<T>>> {
        for attempt in 0..self.tries {
            let (value, foreign) = sample()?;
            if foreign <= self.limit {
                self.taken += 1;
                self.worst = self.worst.max(foreign);
                return Ok(Some(Taken { value, foreign }));
            }
            self.refused += 1;
            if attempt + 1 < self.tries {
                // The other processes may be done in a moment.
                std::thread::sleep(Duration::from_millis(100 << attempt.min(3)));
            }
        }
        self.missing += 1;
        Ok(None)
    }

    /// Whether samples count whatever else runs.
    pub fn takes_any(&self) -> bool {
        self.limit.is_infinite()
    }

    /// How it went, in words.
    pub fn words(&self) -> String {
        let worst = self.worst * 100.0;
        if self.takes_any() {
            return format!(
                "**Taken whatever else ran** (`--any-load`), with up to {worst:.0} % of the machine's time used by others: \
                 not for publication."
            );
        }
        let missing = match self.missing {
            0 => String::new(),
            n => format!(
                " {n} could not be taken undisturbed in {} tries and are missing.",
                self.tries
            ),
        };
        format!(
            "{} samples taken, {} refused and taken again because others used more than {:.0} % of the machine's time \
             meanwhile; at most {worst:.1} % in those that count.{missing}",
            self.taken,
            self.refused,
            LIMIT * 100.0
        )
    }

    /// The same as raw data.
    pub fn json(&self) -> Value {
        json!({
            "limit": if self.takes_any() { Value::Null } else { json!(self.limit) },
            "taken": self.taken, "refused": self.refused, "missing": self.missing,
            "worst_foreign_load": (self.worst * 1e4).round() / 1e4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_ours_is_foreign() {
        // Two processors for a second: 0.5 idle, 1.2 ours, so 0.3 of 2 are foreign.
        assert!((foreign(1.0, 2, 0.5, 1.2) - 0.15).abs() < 1e-9);
        assert_eq!(foreign(1.0, 2, 1.0, 1.5), 0.0, "ticks round both ways");
        assert_eq!(foreign(0.0, 2, 0.0, 0.0), 0.0);
    }

    #[test]
    fn processes_are_read_whatever_their_name() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 55 0 0";
        let process = Process {
            id: 42,
            parent: 7,
            name: "a) b (c".to_owned(),
            ticks: 127,
        };
        assert_eq!(Process::parse(line), Some(process));
        assert_eq!(Process::parse("42 (cut"), None);
    }

    #[test]
    fn ours_are_our_descendants_and_the_softirq_threads() {
        let process = |id, parent, name: &str, ticks| Process {
            id,
            parent,
            name: name.to_owned(),
            ticks,
        };
        let all = [
            process(1, 0, "init", 1),
            process(2, 0, "kthreadd", 2),
            process(3, 2, "ksoftirqd/0", 4),
            process(4, 2, "kworker/0", 8),
            process(10, 1, "bench", 16),
            process(11, 10, "daemon", 32),
            process(12, 11, "daemon's", 64),
            process(13, 1, "ksoftirqd/0", 128),
        ];
        assert_eq!(ours(&all, 10), 4 + 16 + 32 + 64);
    }

    #[test]
    fn a_disturbed_sample_is_taken_again_and_counted() {
        let mut loads = [0.5, 0.09, 0.03, 0.9].into_iter();
        let mut quiet = Quiet::new(false, 3);
        let taken = quiet
            .decide(|| Ok((7, loads.next().unwrap())))
            .unwrap()
            .unwrap();
        assert_eq!((taken.value, taken.foreign), (7, 0.03));
        assert_eq!(
            (quiet.taken, quiet.refused, quiet.missing, quiet.worst),
            (1, 2, 0, 0.03)
        );
        let mut quiet = Quiet::new(false, 2);
        assert!(quiet.decide(|| Ok(((), 0.2))).unwrap().is_none());
        assert_eq!((quiet.taken, quiet.refused, quiet.missing), (0, 2, 1));
        assert!(quiet.words().contains("1 could not be taken"));
    }

    #[test]
    fn any_load_is_said_to_be_any_load() {
        let mut quiet = Quiet::new(true, 1);
        assert!(quiet.decide(|| Ok(((), 0.7))).unwrap().is_some());
        assert!(quiet.words().contains("not for publication"));
    }

    #[test]
    fn our_own_work_is_not_foreign() {
        let before = Moment::now();
        let until = Instant::now() + Duration::from_millis(60);
        while Instant::now() < until {}
        let after = Moment::now();
        assert!(after.ours > before.ours, "{before:?} {after:?}");
    }
}

//! The environment a figure was taken in, and how disturbed the machine was meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::thread::CpuSet;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::{Error, Result};

/// Processor time of the whole machine, in ticks (`/proc/stat`, proc(5)).
#[derive(Debug, Clone, Copy, Default)]
pub struct Ticks {
    total: u64,
    idle: u64,
    steal: u64,
}

/// What the processors did between two looks.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// Part of the time that was not idle, 0 to 1.
    pub busy: f64,
    /// Part of the time that the hypervisor below gave to others, 0 to 1.
    pub steal: f64,
}

impl Ticks {
    /// Reads the counters; zeros where there are none.
    pub fn now() -> Self {
        let text = read("/proc/stat");
        let line = text.lines().next().unwrap_or_default();
        let values: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|v| v.parse().ok())
            .collect();
        let at = |i: usize| values.get(i).copied().unwrap_or(0);
        // user nice system idle iowait irq softirq steal; guest time is part of user.
        Self {
            total: values.iter().take(8).sum(),
            idle: at(3) + at(4),
            steal: at(7),
        }
    }

    /// What happened since an earlier look.
    pub fn since(self, earlier: Self) -> Use {
        let total = (self.total - earlier.total).max(1) as f64;
        Use {
            busy: 1.0 - (self.idle - earlier.idle) as f64 / total,
            steal: (self.steal - earlier.steal) as f64 / total,
        }
    }
}

/// The average number of runnable tasks over the last minute.
pub fn load() -> f64 {
    let text = read("/proc/loadavg");
    text.split(' ')
        .next()
        .and_then(|v| v.parse().ok())
        .unwrap_or(f64::NAN)
}

/// What the host is.
pub fn host() -> Value {
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo
            .lines()
            .find(|l| l.split(':').next().is_some_and(|k| k.trim() == name));
        line.and_then(|l| l.split_once(':'))
            .map_or("", |p| p.1.trim())
            .to_owned()
    };
    let cpu = format!(
        "{} (family {} model {})",
        field("model name"),
        field("cpu family"),
        field("model")
    );
    let os = read("/etc/os-release");
    let os = os.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    let memory = read("/proc/meminfo");
    let memory = memory
        .lines()
        .next()
        .and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    json!({
        "cpu": cpu,
        "cpus": cpuinfo.lines().filter(|l| l.starts_with("processor")).count(),
        "virtual_machine": cpuinfo.contains(" hypervisor"),
        "memory_mib": memory.unwrap_or(0) / 1024,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "system": os.unwrap_or("").trim_matches('"'),
        "load_at_start": load(),
    })
}

/// The source the daemon was built from, as far as git tells.
pub fn revision() -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(["describe", "--always", "--dirty"])
        .output();
    match out {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// The processors this process may use, at most two of them: where the guests run, and where the switch does. The
/// same one twice where there is only one.
pub fn cores() -> (usize, usize) {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let mut may = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    let first = may.next().unwrap_or(0);
    (first, may.next().unwrap_or(first))
}

/// Where guests run whose switch shall be the limit: the first processor, and a third for the second guest where there is
/// one.
pub fn guest_cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let may: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect();
    apart(&may)
}

fn apart(may: &[usize]) -> Vec<usize> {
    match may {
        [first, _, third, ..] => vec![*first, *third],
        [first, ..] => vec![*first],
        [] => vec![0],
    }
}

/// Processor time of the calling thread in nanoseconds.
pub fn thread_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A folder that goes with what it returns.
///
/// # Errors
/// None can be made.
pub fn scratch() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("hypernic-bench-")
        .tempdir()
        .map_err(Error::io("make a scratch folder"))
}

/// Keeps the calling thread on one processor, where the kernel lets us.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Keeps another process' threads, present and future, on one processor.
pub fn pin_process(id: u32, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    allow(id, &set);
}

/// Lets another process' threads run wherever this one may.
pub fn pin_process_anywhere(id: u32) {
    allow(
        id,
        &rustix::thread::sched_getaffinity(None).unwrap_or_default(),
    );
}

fn allow(id: u32, set: &CpuSet) {
    let tasks = fs::read_dir(format!("/proc/{id}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let id = task.file_name().to_string_lossy().parse().ok();
        if let Some(id) = id.and_then(rustix::thread::Pid::from_raw) {
            let _ = rustix::thread::sched_setaffinity(Some(id), set);
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A thousand NICs have some ten thousand descriptors between both ends.
pub fn more_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it is refused, the module's own messages will say what did not come up.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guest_has_a_processor_where_there_are_three() {
        assert_eq!(apart(&[0, 1]), [0]);
        assert_eq!(apart(&[4, 5, 6, 7]), [4, 6]);
        assert_eq!(apart(&[]), [0]);
    }
}

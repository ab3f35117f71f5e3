//! The environment a figure was taken in, and how disturbed the machine was meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

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

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

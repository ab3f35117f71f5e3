//! What the kernel and the processor count of the daemon, where `perf` is there and allowed.

use std::collections::BTreeMap;
use std::time::Duration;

use rig::Daemon;

use crate::error::{Error, Result};

/// Events of the processor that say something of cache lines; user space only, so that ours is told from the kernel's.
pub const EVENTS: [&str; 4] = [
    "L1-dcache-load-misses:u",
    "cache-references:u",
    "cache-misses:u",
    "instructions:u",
];

/// System calls, counted by the kernel.
pub const CALLS: &str = "raw_syscalls:sys_enter";

/// `perf stat` of a process, where it is there and allowed.
pub struct Perf {
    running: Option<(Daemon, tempfile::TempDir)>,
}

impl Perf {
    /// Starts counting.
    ///
    /// # Errors
    /// No scratch folder.
    pub fn start(id: u32) -> Result<Self> {
        let dir = tempfile::tempdir().map_err(Error::io("make a scratch folder"))?;
        let mut perf = Daemon::command("perf");
        perf.args(["stat", "-x;", "-e", &EVENTS.join(",")]);
        perf.args(["-e", CALLS, "-p", &id.to_string(), "-o"]);
        perf.arg(dir.path().join("out"));
        let running = Daemon::start("perf", perf, dir.path().join("log")).ok();
        // It needs a moment to attach.
        std::thread::sleep(Duration::from_millis(300));
        Ok(Self {
            running: running.map(|r| (r, dir)),
        })
    }

    /// What it counted; what it does not support is left out.
    pub fn finish(self) -> BTreeMap<String, u64> {
        let Some((mut perf, dir)) = self.running else {
            return BTreeMap::new();
        };
        let ended = perf.signal(rustix::process::Signal::INT).is_ok()
            && perf.wait_exit(Duration::from_secs(10)).is_ok();
        let text = std::fs::read_to_string(dir.path().join("out")).unwrap_or_default();
        if ended {
            events(&text)
        } else {
            BTreeMap::new()
        }
    }
}

/// Lines of `perf stat -x;`: count, unit, event, ...
fn events(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(';');
            let count = fields.next()?.parse().ok()?;
            Some((fields.nth(1)?.to_owned(), count))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perf_does_not_support_is_left_out() {
        let text = "# started\n\n<not supported>;;cache-misses:u;0;100.00;;\n1234;;raw_syscalls:sys_enter;99;100.00;;\n";
        let found = events(text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[CALLS], 1234);
    }
}

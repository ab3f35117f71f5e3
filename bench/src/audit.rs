//! Counting what the timed runs cannot count without being disturbed: system calls by perf, register accesses by
//! QEMU's own traces, and what one register access costs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rig::{Boot, Daemon, GuestConfig, Nic, Rig, paired};
use serde_json::json;

use crate::bed::{Bed, Delta, End};
use crate::error::{Error, Result};
use crate::fabric::without_keeper;
use crate::machine;
use crate::pairs::{Plan, Scenario};

/// System calls of one process' threads during some work, by thread name, as the kernel counted them; `None` where
/// perf is not there or not allowed.
///
/// # Errors
/// The work's.
pub fn system_calls(
    bed: &Bed,
    process: u32,
    end: &End,
    scenario: &Scenario,
    plan: Plan,
) -> Result<Option<(BTreeMap<String, u64>, Delta)>> {
    let dir = tempfile::tempdir().map_err(Error::io("make a scratch folder"))?;
    let out = dir.path().join("perf");
    let mut perf = Daemon::command("perf");
    perf.args([
        "stat",
        "--per-thread",
        "-x;",
        "-e",
        "raw_syscalls:sys_enter",
        "-p",
        &process.to_string(),
        "-o",
    ]);
    perf.arg(&out);
    let Ok(mut perf) = Daemon::start("perf", perf, dir.path().join("log")) else {
        return Ok(None);
    };
    std::thread::sleep(Duration::from_millis(500));
    let (_, delta) = bed.watch(end, || (scenario.run)(bed, end, plan))?;
    if perf.signal(rustix::process::Signal::INT).is_err()
        || perf.wait_exit(Duration::from_secs(10)).is_err()
    {
        return Ok(None);
    }
    let mut calls = BTreeMap::new();
    // "nic n0-1234;5678;;raw_syscalls:sys_enter;..."
    for line in fs::read_to_string(&out).unwrap_or_default().lines() {
        let mut fields = line.split(';');
        if let (Some(thread), Some(count)) = (fields.next(), fields.next())
            && let (Some((name, _)), Ok(count)) = (thread.rsplit_once('-'), count.parse::<u64>())
        {
            *calls.entry(name.trim().to_owned()).or_default() += count;
        }
    }
    Ok((!calls.is_empty()).then_some((calls, delta)))
}

/// Register reads and writes of QEMU's own e1000 during some work, by QEMU's trace of memory regions. Tracing slows
/// the machine down, so how many accesses share a packet may differ a little from an undisturbed run.
///
/// # Errors
/// The work's, and QEMU's when it has no such trace.
pub fn register_accesses(
    bed: &Bed,
    end: &End,
    scenario: &Scenario,
    plan: Plan,
) -> Result<(u64, u64, Delta)> {
    let switch = |on: bool| -> Result<()> {
        for name in ["memory_region_ops_read", "memory_region_ops_write"] {
            bed.guest
                .qmp("trace-event-set-state", json!({"name": name, "enable": on}))?;
        }
        Ok(())
    };
    let file = bed.trace_file();
    let from = fs::metadata(&file).map_or(0, |m| m.len());
    switch(true)?;
    let outcome = bed.watch(end, || (scenario.run)(bed, end, plan));
    switch(false)?;
    let (_, delta) = outcome?;
    let (reads, writes) = count_accesses(&file, from)?;
    Ok((reads, writes, delta))
}

/// Accesses to QEMU's e1000 in its trace file from a place on: reads and writes.
///
/// # Errors
/// When the file cannot be read.
pub fn count_accesses(file: &Path, from: u64) -> Result<(u64, u64)> {
    use std::io::{BufRead, BufReader, Seek, SeekFrom};
    let what = || format!("read {}", file.display());
    let mut file = fs::File::open(file).map_err(Error::io(what()))?;
    file.seek(SeekFrom::Start(from))
        .map_err(Error::io(what()))?;
    let (mut reads, mut writes) = (0, 0);
    for line in BufReader::new(file).lines() {
        let line = line.map_err(Error::io(what()))?;
        if line.contains("e1000-mmio") {
            reads += u64::from(line.contains("memory_region_ops_read"));
            writes += u64::from(line.contains("memory_region_ops_write"));
        }
    }
    Ok((reads, writes))
}

/// What one register access costs QEMU, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct AccessCost {
    /// A read of STATUS (which waits for the answer).
    pub read: f64,
    /// A write of IMS with no bit set (posted where the protocol allows).
    pub write: f64,
}

/// Measures the cost of a register access of QEMU's own e1000 and of ours: QEMU without a processor, told over its
/// qtest socket to access the register. What the socket itself costs is measured on QEMU's own model and is in both.
///
/// # Errors
/// When a machine or daemon does not come up.
pub fn access_cost(
    rig: &Rig,
    hypernic: &Path,
    accesses: usize,
) -> Result<(AccessCost, AccessCost)> {
    let dir = machine::scratch()?;
    let socket = dir.path().join("n0.sock");
    let mut command = Daemon::command(hypernic);
    command
        .args([
            "--log-format",
            "json",
            "run",
            "--model",
            "e1000",
            "--port",
            "null",
            "--socket-path",
        ])
        .arg(&socket)
        .args(without_keeper(hypernic));
    let mut daemon = Daemon::start("hypernic", command, dir.path().join("hypernic.log"))?;
    daemon.expect("serving", Duration::from_secs(30))?;
    let config = GuestConfig::new("access")
        .boot(Boot::Qtest)
        .nic(Nic::qemu("q", "e1000", None).addr("5"))
        .nic(Nic::vfio_user("n0", &socket).addr("6"));
    let guest = rig.start(config)?;
    let mut machine = guest.qtest()?;
    let bases = [0xe000_0000_u64, 0xe002_0000];
    let io = |e| Error::Io {
        what: "qtest".to_owned(),
        source: e,
    };
    for (slot, base) in [5, 6].into_iter().zip(bases) {
        machine
            .pci_write(0, slot, 0, 0x10, base as u32)
            .map_err(io)?;
        machine.pci_write(0, slot, 0, 4, 6).map_err(io)?;
    }
    // Alternating blocks, so that both meet the same machine.
    let mut costs = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    let block = 50;
    for _ in 0..accesses.div_ceil(block) {
        for (i, base) in bases.into_iter().enumerate() {
            let start = Instant::now();
            for _ in 0..block {
                machine.load(base + 0x8, 4).map_err(io)?;
            }
            costs[i].push(start.elapsed().as_secs_f64() * 1e6 / block as f64);
            let start = Instant::now();
            for _ in 0..block {
                machine.store(base + 0xd0, 4, 0).map_err(io)?;
            }
            costs[2 + i].push(start.elapsed().as_secs_f64() * 1e6 / block as f64);
        }
    }
    let median = |i: usize| paired::median(&costs[i]).unwrap_or(f64::NAN);
    let cost = |i: usize| AccessCost {
        read: median(i),
        write: median(2 + i),
    };
    Ok((cost(0), cost(1)))
}

//! What a frame costs in things that can be counted: messages, system calls, interrupts, register accesses; cache
//! lines and copies, and misses where the processor's counters can be had.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drivers::e1000::poll::TxFrame;
use rig::Daemon;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fabric::{Ends, Stream, Traffic, delta, driver};
use crate::options::Options;
use crate::page::Page;
use crate::report::Report;
use crate::stats::{Column, Reading, Summary, figure, in_turns};

/// One thing that is counted.
struct Scene {
    title: &'static str,
    kind: Traffic,
    burst: u32,
    interrupts: bool,
}

const SCENES: [Scene; 7] = [
    Scene {
        title: "60 bytes, one by one",
        kind: Traffic::Plain(60),
        burst: 1,
        interrupts: false,
    },
    Scene {
        title: "60 bytes, bursts of 32",
        kind: Traffic::Plain(60),
        burst: 32,
        interrupts: false,
    },
    Scene {
        title: "60 bytes, bursts of 128",
        kind: Traffic::Plain(60),
        burst: 128,
        interrupts: false,
    },
    Scene {
        title: "60 bytes, bursts of 32, received by interrupt",
        kind: Traffic::Plain(60),
        burst: 32,
        interrupts: true,
    },
    Scene {
        title: "1514 bytes, bursts of 32",
        kind: Traffic::Plain(1514),
        burst: 32,
        interrupts: false,
    },
    Scene {
        title: "9014 bytes, bursts of 32",
        kind: Traffic::Plain(9014),
        burst: 32,
        interrupts: false,
    },
    Scene {
        title: "64 KiB of TCP for the NIC to cut (a frame is a segment)",
        kind: Traffic::Tso,
        burst: 4,
        interrupts: false,
    },
];

/// Events of the processor that say something of cache lines; user space only, so that ours is told from the kernel's.
const EVENTS: [&str; 4] = [
    "L1-dcache-load-misses:u",
    "cache-references:u",
    "cache-misses:u",
    "instructions:u",
];

/// System calls, counted by the kernel.
const CALLS: &str = "raw_syscalls:sys_enter";

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.4 } else { 1.0 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    // The end of it is under valgrind.
    80.0 + (SCENES.len() * options.rounds()) as f64 * (seconds(options) + 1.0)
}

/// Runs the module.
///
/// # Errors
/// When the daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("counts", "What a frame costs, counted");
    let mut ends = Vec::new();
    for scene in &SCENES {
        ends.push(Ends::start(
            &options.hypernic(),
            scene.kind,
            256,
            &options.daemon(),
        )?);
    }
    let mut quiet = options.quiet();
    let mut columns: Vec<Column> = SCENES.iter().map(|s| Column::new(s.title)).collect();
    eprint!("  {} scenes", SCENES.len());
    in_turns(&mut quiet, options.rounds(), &mut columns, |i| {
        sample(&mut ends[i], &SCENES[i], seconds(options))
    })?;
    eprintln!();
    write(&mut page, &columns);
    Ok(page.finish(&quiet))
}

fn sample(ends: &mut Ends, scene: &Scene, seconds: f64) -> Result<Reading> {
    let before = ends.fabric.counters()?;
    let costs = [ends.guests[0].costs(), ends.guests[1].costs()];
    let cpu = ends.fabric.cpu();
    let perf = Perf::start(ends.fabric.id())?;
    let stream = Stream {
        burst: scene.burst,
        both_ways: false,
        seconds,
    };
    let done = if scene.interrupts {
        by_interrupt(ends, stream)?
    } else {
        let done = ends.run(stream)?;
        (done.sent, done.received)
    };
    let counted = perf.finish()?;
    let cpu = ends.fabric.cpu() - cpu;
    let daemon = delta(&before, &ends.fabric.counters()?);
    // What the sink took after the end was sent as well.
    let frames = daemon.get("rx_frames").copied().unwrap_or(done.1).max(1);
    let per = |n: u64| n as f64 / frames as f64;
    let sum = |names: &[&str]| -> u64 { names.iter().filter_map(|n| daemon.get(*n)).sum() };
    let calls = daemon
        .iter()
        .filter(|(name, _)| {
            let name = name.rsplit('.').next().unwrap_or(name);
            name.ends_with("_calls") || ["syscalls", "irq_triggers", "inlet_sleeps"].contains(&name)
        })
        .map(|(_, n)| n)
        .sum();
    let [sender, receiver] = [0, 1].map(|i: usize| ends.guests[i].costs() - costs[i]);
    let mut raw = json!({
        "frames": frames, "sent": done.0, "seen_in_time": done.1,
        "messages": per(sum(&["messages"])), "daemon_calls": per(calls),
        "interrupts": per(sum(&["irq_triggers"])),
        "register_reads": per(sum(&["region_reads"])), "register_writes": per(sum(&["region_writes"])),
        "tx_descriptors": per(sum(&["tx_desc_fetched"])), "rx_descriptors": per(sum(&["rx_desc_fetched"])),
        "wake_ups": per(sum(&["wake_ups"])),
        "guest_calls": per(sender.syscalls + receiver.syscalls),
        "guest_messages": per(sender.messages + receiver.messages),
        "daemon_ns": cpu * 1e9 / frames as f64,
        "daemon": daemon,
    });
    for (event, n) in counted {
        raw["perf"][event] = json!(per(n));
    }
    Ok(Reading {
        value: cpu * 1e9 / frames as f64,
        raw,
    })
}

/// The receiver sleeps until the device says that something came.
fn by_interrupt(ends: &mut Ends, stream: Stream) -> Result<(u64, u64)> {
    let [a, b] = &mut ends.guests;
    let (mut sent, mut received) = (0, 0);
    let until = Instant::now() + Duration::from_secs_f64(stream.seconds);
    while Instant::now() < until {
        sent += u64::from(
            a.send(stream.burst, |_, _| TxFrame::plain(60))
                .map_err(driver)?,
        );
        b.wait(Duration::from_millis(20)).map_err(driver)?;
        loop {
            let came = b.receive(256, |_| {}).map_err(driver)?;
            if came == 0 {
                break;
            }
            received += u64::from(came);
        }
    }
    Ok((sent, received))
}

/// `perf stat` of a process, where it is there and allowed.
struct Perf {
    running: Option<(Daemon, tempfile::TempDir)>,
}

impl Perf {
    fn start(id: u32) -> Result<Self> {
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
    fn finish(self) -> Result<BTreeMap<String, u64>> {
        let Some((mut perf, dir)) = self.running else {
            return Ok(BTreeMap::new());
        };
        let ended = perf.signal(rustix::process::Signal::INT).is_ok()
            && perf.wait_exit(Duration::from_secs(10)).is_ok();
        let text = std::fs::read_to_string(dir.path().join("out")).unwrap_or_default();
        Ok(if ended {
            events(&text)
        } else {
            BTreeMap::new()
        })
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

fn write(page: &mut Page, columns: &[Column]) {
    page.text(
        "Two poll-mode guests of one daemon, one sends to the other; each figure is per frame that the receiver got (medians over \
         rounds). Messages, interrupts and register accesses are the daemon's own counters, a guest's system calls its driver's; the \
         kernel's count of the daemon's system calls (`perf stat -e raw_syscalls:sys_enter`) is in brackets where perf is there.",
    );
    let field = |column: &Column, pick: &dyn Fn(&Value) -> Option<f64>| -> Option<f64> {
        let values: Vec<f64> = column.readings().filter_map(|r| pick(&r.raw)).collect();
        Summary::of(&values).map(|s| s.median)
    };
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), figure);
    let mut rows = Vec::new();
    for column in columns {
        let of = |name: &str| shown(field(column, &|r| r[name].as_f64()));
        let kernel = field(column, &|r| r["perf"][CALLS].as_f64());
        rows.push(vec![
            column.id.clone(),
            of("messages"),
            format!(
                "{}{}",
                of("daemon_calls"),
                kernel.map_or(String::new(), |k| format!(" ({})", figure(k)))
            ),
            of("guest_calls"),
            of("interrupts"),
            of("register_reads"),
            of("register_writes"),
            of("tx_descriptors"),
            of("rx_descriptors"),
            of("daemon_ns"),
        ]);
    }
    page.table(
        &[
            "",
            "messages",
            "system calls, daemon",
            "guests' drivers",
            "interrupts",
            "register reads",
            "writes",
            "descriptors sent",
            "received",
            "daemon's processor time, ns",
        ],
        &rows,
    );
    page.heading("Cache lines and copies");
    crate::lines::write(page);
    let have = columns
        .iter()
        .any(|c| c.readings().any(|r| r.raw["perf"][EVENTS[0]].is_number()));
    if have {
        let rows: Vec<Vec<String>> = columns
            .iter()
            .map(|column| {
                let mut row = vec![column.id.clone()];
                row.extend(
                    EVENTS
                        .iter()
                        .map(|event| shown(field(column, &|r| r["perf"][*event].as_f64()))),
                );
                row
            })
            .collect();
        let mut head = vec!["per frame, user space"];
        head.extend(EVENTS);
        page.table(&head, &rows);
    } else {
        page.text(
            "Misses are not measured: this machine gives no hardware counters (`perf stat` says that they are not supported).",
        );
    }
    let data: Vec<Value> = columns.iter().map(Column::json).collect();
    page.data("scenes", data);
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

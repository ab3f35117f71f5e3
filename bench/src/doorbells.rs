//! Doorbells without messages: register accesses for each packet, how long it takes until the NIC answers, and what
//! it costs to look at the memory of one, a hundred and a thousand functions that are idle.
//!
//! All of it is counted at a daemon with 82576s whose other end is a driver of a few lines, so that nothing is
//! measured but the way from the tail register to the ring.

use std::time::{Duration, Instant};

use drivers::igb::Igb;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fabric::{Fabric, delta};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::report::Report;
use crate::stats::{Column, Reading, Summary, figure, in_turns};

/// How many functions are idle.
const COUNTS: [usize; 3] = [1, 100, 1000];
/// Frames rung for at once.
const BURSTS: [u32; 2] = [1, 32];
/// The ways a tail reaches the NIC.
const WAYS: [&str; 2] = ["trap", "page"];

/// Bytes of a frame.
const SIZE: usize = 60;
/// How long a frame may take to be sent.
const MOMENT: Duration = Duration::from_secs(10);

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.5 } else { 2.0 }
}

fn idle(options: &Options) -> f64 {
    if options.quick { 2.0 } else { 10.0 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let busy = (WAYS.len() * BURSTS.len() * options.rounds()) as f64 * (seconds(options) + 0.3);
    30.0 + busy + (WAYS.len() * COUNTS.len()) as f64 * (idle(options) + 2.0)
}

fn gone(error: drivers::BusError) -> Error {
    Error::Tool {
        tool: "the 82576's driver",
        what: error.to_string(),
    }
}

/// Rings once for `burst` frames and waits until the last has been sent.
fn send(igb: &mut Igb, burst: u32) -> Result<()> {
    igb.send(&[0xff; SIZE], burst).map_err(gone)?;
    let until = Instant::now() + MOMENT;
    while !igb.all_sent() {
        if Instant::now() > until {
            return Err(Error::Usage("a frame was never sent".into()));
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn connect(fabric: &Fabric, number: usize, way: &str) -> Result<Igb> {
    Igb::connect(fabric.socket(number), way == "page").map_err(gone)
}

fn fabric(options: &Options, way: &str, count: usize) -> Result<Fabric> {
    let mut words = options.daemon();
    for word in ["--model", "82576", "--doorbell", way, "--workers", "1"] {
        words.push(word.to_owned());
    }
    let core = machine::cores().1;
    Fabric::start(&options.hypernic(), count, "null", &words, Some(core))
}

/// Runs the module.
///
/// # Errors
/// When a daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    machine::more_files();
    let mut page = Page::new("doorbells", "Doorbells without messages");
    let mut quiet = options.quiet();
    let mut fleets = Vec::new();
    let mut columns = Vec::new();
    for way in WAYS {
        for burst in BURSTS {
            let fabric = fabric(options, way, 1)?;
            let igb = connect(&fabric, 0, way)?;
            fleets.push((fabric, igb, burst));
            columns.push(Column::new(format!("{way}, bursts of {burst}")));
        }
    }
    in_turns(&mut quiet, options.rounds(), &mut columns, |i| {
        let (fabric, igb, burst) = &mut fleets[i];
        busy(fabric, igb, *burst, seconds(options))
    })?;
    drop(fleets);
    let mut rest = Vec::new();
    for way in WAYS {
        for count in COUNTS {
            let mut column = Column::new(format!("{way}, {count}"));
            in_turns(&mut quiet, 1, std::slice::from_mut(&mut column), |_| {
                resting(options, way, count)
            })?;
            rest.push(column);
        }
    }
    write(&mut page, &columns, &rest);
    Ok(page.finish(&quiet))
}

fn busy(fabric: &Fabric, igb: &mut Igb, burst: u32, seconds: f64) -> Result<Reading> {
    let before = fabric.counters()?;
    let cpu = fabric.cpu();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut frames, mut waits) = (0u64, Vec::new());
    while Instant::now() < until {
        let start = Instant::now();
        send(igb, burst)?;
        waits.push(start.elapsed().as_secs_f64() * 1e6);
        frames += u64::from(burst);
    }
    let cpu = fabric.cpu() - cpu;
    let done = delta(&before, &fabric.counters()?);
    let per = |name: &str| done.get(name).copied().unwrap_or(0) as f64 / frames as f64;
    let wait = Summary::of(&waits).map_or(f64::NAN, |s| s.median);
    Ok(Reading {
        value: per("region_writes") + per("region_reads"),
        raw: json!({
            "frames": frames, "doorbells": per("doorbells"), "messages": per("messages"),
            "answer_us": wait, "daemon_ns": cpu * 1e9 / frames as f64, "daemon": done,
        }),
    })
}

/// Functions with a queue that is on and nothing to do.
fn resting(options: &Options, way: &str, count: usize) -> Result<Reading> {
    let fabric = fabric(options, way, count)?;
    let guests = (0..count).map(|number| connect(&fabric, number, way));
    let mut guests = guests.collect::<Result<Vec<_>>>()?;
    // Until all are as idle as can be.
    std::thread::sleep(Duration::from_millis(1500));
    let before = (fabric.cpu(), wakes(fabric.id()));
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs_f64(idle(options)));
    let took = start.elapsed().as_secs_f64();
    let share = (fabric.cpu() - before.0) / took * 100.0;
    let wakes = wakes(fabric.id()).saturating_sub(before.1) as f64 / took;
    let memory = fabric.memory();
    // The first frame after it.
    let start = Instant::now();
    if let Some(guest) = guests.last_mut() {
        send(guest, 1)?;
    }
    Ok(Reading {
        value: share,
        raw: json!({
            "wakes": wakes, "first_us": start.elapsed().as_secs_f64() * 1e6,
            "kib_each": memory as f64 / count as f64,
        }),
    })
}

/// How often the threads of a process went to sleep.
fn wakes(id: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task"));
    let switches = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(switches)
        .sum()
}

fn write(page: &mut Page, busy: &[Column], rest: &[Column]) {
    page.text(
        "A daemon with 82576s (one worker, port `null`), driven through vfio-user sockets by a driver that sends on queue 0 \
         and waits for the descriptor of each burst's last frame to be written back. `trap`: the tail register is a \
         message. `page`: it is memory that the worker looks at.",
    );
    let of = |column: &Column, name: &str| {
        let values: Vec<f64> = column
            .readings()
            .filter_map(|r| r.raw[name].as_f64())
            .collect();
        Summary::of(&values).map_or("–".to_owned(), |s| figure(s.median))
    };
    let rows = busy.iter().map(|column| {
        vec![
            column.id.clone(),
            figure(column.median()),
            of(column, "doorbells"),
            of(column, "answer_us"),
            of(column, "daemon_ns"),
        ]
    });
    page.table(
        &[
            "for each frame",
            "register accesses",
            "doorbells seen",
            "burst answered after, us",
            "daemon's processor time, ns",
        ],
        &rows.collect::<Vec<_>>(),
    );
    page.heading("Idle functions");
    page.text(
        "Each has a VMM and a queue that is on. Thread time and voluntary context switches of the daemon, as the kernel \
         counts them; the first frame after the rest waits for the next look.",
    );
    let rows = rest.iter().map(|column| {
        vec![
            column.id.clone(),
            figure(column.median()),
            of(column, "wakes"),
            of(column, "first_us"),
            of(column, "kib_each"),
        ]
    });
    page.table(
        &[
            "functions",
            "% of a core",
            "wake-ups a second",
            "first frame after, us",
            "KiB each",
        ],
        &rows.collect::<Vec<_>>(),
    );
    let json = |columns: &[Column]| -> Vec<Value> { columns.iter().map(Column::json).collect() };
    page.data("busy", json(busy));
    page.data("idle", json(rest));
}

//! What a crossing between two cells costs, and what a hostile guest in one cell does to honest ones in another.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drivers::SocketBus;
use drivers::e1000::poll::TxFrame;
use rig::paired::percentile;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fabric::{Ends, Fabric, Guest, Stream, Traffic, aim, config, driver, mac, text};
use crate::latency::{on_core, pings};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::quiet::Quiet;
use crate::report::Report;
use crate::stats::{Column, Reading, in_turns};

const RING: u32 = 512;
/// Frames a second of the honest pair.
const RATE: f64 = 10_000.0;
/// Bytes of its frames.
const SIZE: usize = 60;

/// What is sent, and how many frames at a time.
const KINDS: [(Traffic, u32); 5] = [
    (Traffic::Plain(60), 128),
    (Traffic::Plain(60), 32),
    (Traffic::Plain(60), 1),
    (Traffic::Plain(1514), 32),
    (Traffic::Tso, 1),
];

/// Where the two NICs are.
const PLACES: [(&str, [&str; 2]); 3] = [
    ("one process, no cell", ["main", "main"]),
    ("one cell", ["x", "x"]),
    ("two cells", ["x", "y"]),
];

/// What is beside the honest pair.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// Hostile guests of a NIC in a daemon of its own: what their own processor time does to all.
    Elsewhere,
    /// In another cell.
    OtherCell,
    /// In the same cell.
    SameCell,
}

const BESIDE: [(&str, Beside); 4] = [
    ("undisturbed", Beside::Nothing),
    ("hostile guests of another daemon", Beside::Elsewhere),
    ("hostile guests in another cell", Beside::OtherCell),
    ("hostile guests in the same cell", Beside::SameCell),
];

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.4 } else { 1.5 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let samples = KINDS.len() * PLACES.len() + 2 * BESIDE.len();
    20.0 + (options.rounds() * samples) as f64 * (seconds(options) + 0.1)
}

/// Starts a daemon whose NICs are in these cells.
fn serve(options: &Options, cells: &[&str]) -> Result<Fabric> {
    let last = format!("n{}.sock", cells.len() - 1);
    let file = |dir: &Path| {
        let control = dir.join("c");
        let nic = |(n, cell): (usize, &&str)| {
            let (socket, mac) = (dir.join(format!("n{n}.sock")), text(mac(n)));
            format!(
                "[[nic]]\nname = \"n{n}\"\nmac = \"{mac}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\ncell = \"{cell}\"\n"
            )
        };
        let nics: String = cells.iter().enumerate().map(nic).collect();
        format!(
            "keeper = true\nworkers = 1\ncontrol = {control:?}\n[[switch]]\nname = \"lan\"\n{nics}"
        )
    };
    let fabric = Fabric::serve(&options.hypernic(), file, &last, Some(machine::cores().1))?;
    // Cells meet within moments.
    std::thread::sleep(Duration::from_millis(500));
    Ok(fabric)
}

/// Processor seconds of a process and all below it.
fn cpu_of_all(root: u32) -> f64 {
    let children = |pid: u32| {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let pids: Vec<u32> = text
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect();
        pids
    };
    let (mut open, mut sum) = (vec![root], 0.0);
    while let Some(pid) = open.pop() {
        sum += crate::fabric::cpu(pid);
        open.extend(children(pid));
    }
    sum
}

/// Runs the module.
///
/// # Errors
/// When a daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("cells", "Cells");
    let mut quiet = options.quiet();
    crossing(options, &mut page, &mut quiet)?;
    hostile(options, &mut page, &mut quiet)?;
    Ok(page.finish(&quiet))
}

fn crossing(options: &Options, page: &mut Page, quiet: &mut Quiet) -> Result<()> {
    let mut rows = Vec::new();
    let mut data = Vec::new();
    for (kind, burst) in KINDS {
        let mut ends = Vec::new();
        for (_, cells) in PLACES {
            ends.push(Ends::at(serve(options, &cells)?, kind, RING)?);
        }
        let mut columns: Vec<Column> = PLACES.iter().map(|(name, _)| Column::new(*name)).collect();
        in_turns(quiet, options.rounds(), &mut columns, |i| {
            let ends = &mut ends[i];
            let cpu = cpu_of_all(ends.fabric.id());
            let done = ends.run(Stream {
                burst,
                both_ways: false,
                seconds: seconds(options),
            })?;
            let cpu = cpu_of_all(ends.fabric.id()) - cpu;
            Ok(Reading {
                value: done.received as f64 / done.seconds / 1e6,
                raw: json!({
                    "sent": done.sent, "received": done.received, "seconds": done.seconds, "daemon_cpu": cpu,
                    "ns": cpu * 1e9 / done.received.max(1) as f64,
                }),
            })
        })?;
        let ns: Vec<Column> = columns.iter().map(|column| column.of("ns")).collect();
        let what = format!("{}, bursts of {burst}", kind.words());
        eprintln!(
            "  {what}: {:.2} {:.2} {:.2} Mpps",
            columns[0].median(),
            columns[1].median(),
            columns[2].median()
        );
        rows.push(vec![
            what,
            columns[0].words(),
            columns[1].words(),
            columns[2].words(),
            columns[2].ratio_words(&columns[1]),
            ns[1].words(),
            ns[2].words(),
        ]);
        data.push(json!({"kind": kind.words(), "burst": burst, "places": columns.iter().map(Column::json).collect::<Vec<Value>>()}));
    }
    page.heading("What a crossing costs");
    page.text(
        "Two 82540EMs on a switch, one sends and the other receives, from one thread on the first processor; all processes of the daemon \
         have the second one, a worker each. Millions of frames (of 64 KiB: segments) a second that came, and nanoseconds of all the daemon's processes for each. \
         Between two cells a frame is copied twice and wakes a process: with one processor for both cells they take turns.",
    );
    page.table(
        &[
            "frames",
            "no cell, Mpps",
            "one cell",
            "two cells",
            "two over one",
            "one cell, ns",
            "two cells, ns",
        ],
        &rows,
    );
    page.data("crossing", data);
    Ok(())
}

/// A daemon with the honest pair, two idle NICs for the generator, and the hostile one.
struct Yard {
    fabric: Fabric,
    guests: Vec<Guest>,
}

impl Yard {
    fn open(options: &Options, hostile: &str) -> Result<Self> {
        let fabric = serve(options, &["good", "good", "good", "good", hostile])?;
        let kind = Traffic::Plain(SIZE);
        let mut guests = Vec::new();
        for number in 0..4 {
            let mut guest = fabric.guest(number, &config(kind, 256))?;
            aim(&mut guest, kind, mac(number), mac(number ^ 1))?;
            guest
                .send(1, |_, _| TxFrame::plain(SIZE as u32))
                .map_err(driver)?;
            guests.push(guest);
        }
        Ok(Self { fabric, guests })
    }
}

/// Has hostile guests of a NIC do their worst, one after the other, until it is to stop. Returns how many did.
fn villains(socket: &Path, stop: &AtomicBool, done: &AtomicU64) {
    let all: Vec<_> = villain::guests().map(|(_, run)| run).collect();
    for run in all.iter().cycle() {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(mut bus) = SocketBus::connect(socket) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        // What becomes of it is for the tests to judge.
        let _ = run(&mut bus);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn hostile(options: &Options, page: &mut Page, quiet: &mut Quiet) -> Result<()> {
    let mut apart = Yard::open(options, "bad")?;
    let mut together = Yard::open(options, "good")?;
    let other = serve(options, &["main", "main", "main", "main", "main"])?;
    let mut columns: Vec<Column> = BESIDE.iter().map(|(name, _)| Column::new(*name)).collect();
    in_turns(quiet, options.rounds(), &mut columns, |i| {
        let beside = BESIDE[i].1;
        let socket = match beside {
            Beside::Elsewhere => other.socket(4),
            Beside::SameCell => together.fabric.socket(4),
            Beside::Nothing | Beside::OtherCell => apart.fabric.socket(4),
        };
        let guests = match beside {
            Beside::SameCell => &mut together.guests,
            _ => &mut apart.guests,
        };
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let found = std::thread::scope(|scope| {
            if beside != Beside::Nothing {
                scope.spawn(|| villains(&socket, &stop, &done));
            }
            let found = on_core(machine::cores().0, || {
                pings(guests, RATE, seconds(options), false)
            });
            stop.store(true, Ordering::Release);
            found
        })?;
        let at = |p| percentile(&found.times, p).unwrap_or(f64::NAN);
        if found.times.is_empty() {
            return Err(Error::Usage("no frame came back".to_owned()));
        }
        Ok(Reading {
            value: at(99.0),
            raw: json!({
                "sent": found.sent, "answered": found.times.len(), "p50": at(50.0), "p99": at(99.0), "max": at(100.0),
                "lost": found.sent.saturating_sub(found.times.len() as u64), "programs": done.load(Ordering::Relaxed),
            }),
        })
    })?;
    page.heading("Hostile guests in another cell");
    page.text(&format!(
        "Two honest 82540EMs in a cell send {RATE:.0} frames of {SIZE} bytes a second to and fro, from a thread on the first processor; all \
         daemons have the second one. Beside them a thread has the hostile guests of [villains](../villains.md) do their worst to a NIC, one \
         after the other. On two processors that thread and what serves it take time from all; hostile guests of a \
         daemon that has nothing to do with the first show how much. Microseconds for a round trip, 99 of 100.",
    ));
    let rows: Vec<Vec<String>> = columns
        .iter()
        .map(|column| {
            let of = |name: &str| column.of(name).words();
            vec![
                column.id.clone(),
                of("p50"),
                column.words(),
                column.ratio_words(&columns[0]),
                column.ratio_words(&columns[1]),
                of("max"),
                of("lost"),
                of("programs"),
            ]
        })
        .collect();
    page.table(
        &[
            "beside them",
            "median, µs",
            "p99, µs",
            "over undisturbed",
            "over another daemon's",
            "longest",
            "lost",
            "programs run",
        ],
        &rows,
    );
    page.data(
        "hostile",
        columns.iter().map(Column::json).collect::<Vec<Value>>(),
    );
    Ok(())
}

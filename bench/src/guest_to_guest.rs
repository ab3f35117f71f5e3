//! Guest to guest through the switch: over real sockets by poll-mode guests, and inside one process without them, in one run
//! with the raw loop that is the ceiling of both.

use std::time::Duration;

use serde_json::{Value, json};

use crate::ceilings::beside_guest;
use crate::error::Result;
use crate::fabric::{Ends, Stream, Traffic};
use crate::inside::{self, Spec};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::plot::{self, Scale, Whose};
use crate::report::Report;
use crate::stats::{Column, Reading, Summary, figure, in_turns};

const KINDS: [Traffic; 5] = [
    Traffic::Plain(60),
    Traffic::Plain(256),
    Traffic::Plain(1514),
    Traffic::Plain(9014),
    Traffic::Tso,
];

const RING: u32 = 256;

/// One line of the table.
#[derive(Debug, Clone, Copy)]
struct Case {
    kind: Traffic,
    burst: u32,
    workers: usize,
    both_ways: bool,
}

fn bursts(options: &Options, kind: Traffic) -> Vec<u32> {
    match kind {
        Traffic::Tso => vec![1, 4],
        _ if options.quick => vec![1, 32, 128],
        _ => vec![1, 4, 32, 128, 256],
    }
}

/// With how many workers daemons are started: one by default where this build of it cannot be told.
fn workers(options: &Options) -> Vec<usize> {
    let help = std::process::Command::new(options.hypernic())
        .args(["run", "--help"])
        .output();
    let has = help.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("--workers"));
    if has { vec![1, 2] } else { vec![1] }
}

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    let workers = workers(options);
    for kind in KINDS {
        for &workers in &workers {
            for both_ways in [false, true] {
                cases.extend(bursts(options, kind).into_iter().map(|burst| Case {
                    kind,
                    burst,
                    workers,
                    both_ways,
                }));
            }
        }
    }
    cases
}

/// There are many cases, so there are fewer rounds than elsewhere.
fn rounds(options: &Options) -> usize {
    options.rounds().min(5)
}

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.15 } else { 0.4 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let sockets = (cases(options).len() + KINDS.len()) * rounds(options);
    let specs = inside::specs(true).len() as f64;
    8.0 + sockets as f64 * (seconds(options) + 0.1) + specs * rounds(options) as f64 * 0.15
}

/// The loop moves what arrives: segments of a large send.
fn arriving(kind: Traffic) -> usize {
    match kind {
        Traffic::Plain(size) => size,
        Traffic::Tso => 1514,
    }
}

/// Runs the module.
///
/// # Errors
/// When a daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("guest_to_guest", "Guest to guest through the switch");
    let mut quiet = options.quiet();

    // Inside one process.
    let specs = inside::specs(true);
    let mut within: Vec<Column> = specs
        .iter()
        .map(|s| Column::new(format!("{s:?}")))
        .collect();
    eprint!("  inside one process");
    in_turns(&mut quiet, rounds(options), &mut within, |i| {
        let frames = 20_000_000 / (400 + specs[i].shape().size);
        let found = inside::measure(specs[i], frames, 4);
        Ok(Reading {
            value: found.ratio(),
            raw: json!({"ours_ns": found.ours, "ceiling_ns": found.ceiling}),
        })
    })?;
    eprintln!();

    // Over sockets, beside the loop with a guest's thread.
    let cases = cases(options);
    let workers = workers(options);
    let has_choice = workers.len() > 1;
    let mut ends = Vec::new();
    for kind in KINDS {
        for &workers in &workers {
            let mut words = options.daemon();
            if has_choice {
                words.extend(["--workers".to_owned(), workers.to_string()]);
            }
            ends.push((
                (kind, workers),
                Ends::start_on(&options.hypernic(), kind, RING, &words, workers == 1)?,
            ));
        }
    }
    let mut columns: Vec<Column> = cases
        .iter()
        .map(|c| Column::new(format!("{c:?}")))
        .collect();
    let ceilings = columns.len();
    columns.extend(KINDS.map(|k| Column::new(format!("ceiling {k:?}"))));
    eprint!("  over sockets, {} cases", cases.len());
    let core = machine::cores().1;
    in_turns(&mut quiet, rounds(options), &mut columns, |i| {
        let Some(case) = cases.get(i) else {
            let length = Duration::from_secs_f64(seconds(options));
            let ns = beside_guest(arriving(KINDS[i - ceilings]), RING, 32, length, core);
            return Ok(Reading::bare(1e3 / ns));
        };
        let found = ends.iter_mut().find(|e| e.0 == (case.kind, case.workers));
        let Some((_, ends)) = found else {
            return Ok(Reading::bare(f64::NAN));
        };
        let cpu = ends.fabric.cpu();
        let done = ends.run(Stream {
            burst: case.burst,
            both_ways: case.both_ways,
            seconds: seconds(options),
        })?;
        let cpu = ends.fabric.cpu() - cpu;
        Ok(Reading {
            value: done.received as f64 / done.seconds / 1e6,
            raw: json!({
                "sent": done.sent, "received": done.received, "seconds": done.seconds, "daemon_cpu": cpu,
                "mpps_per_core": done.received as f64 / cpu.max(1e-9) / 1e6,
            }),
        })
    })?;
    eprintln!();
    write(&mut page, &specs, &within, &cases, &columns);
    Ok(page.finish(&quiet))
}

fn write(page: &mut Page, specs: &[Spec], within: &[Column], cases: &[Case], columns: &[Column]) {
    inside(page, specs, within);
    over_sockets(page, cases, columns);
    let json = |of: &[Column]| of.iter().map(Column::json).collect::<Vec<Value>>();
    page.data("inside", json(within));
    page.data("sockets", json(columns));
}

/// The median of a figure that each reading has beside its value.
fn middle(column: &Column, name: &str) -> f64 {
    let values: Vec<f64> = column
        .readings()
        .filter_map(|r| r.raw[name].as_f64())
        .collect();
    Summary::of(&values).map_or(f64::NAN, |s| s.median)
}

fn inside(page: &mut Page, specs: &[Spec], within: &[Column]) {
    page.heading("Inside one process");
    page.text(
        "Two 82540EMs or two VFs of an 82576, switch and both guests' memories driven by one thread as the daemon drives them, without \
         sockets; processor time, the least of a round's samples, beside the raw loop's in turns. The ratio is the ceiling's time over ours: our share of what this \
         machine can do. Rings of 256.",
    );
    let rows: Vec<Vec<String>> = specs
        .iter()
        .zip(within)
        .map(|(spec, column)| {
            let ns = middle(column, "ours_ns");
            vec![
                if spec.vf { "VFs" } else { "82540EMs" }.to_owned(),
                format!(
                    "{}{}",
                    spec.size,
                    if spec.mss.is_some() { " TSO" } else { "" }
                ),
                spec.burst().to_string(),
                figure(ns),
                figure(1e3 / ns),
                figure(spec.shape().size as f64 * 8.0 / ns),
                figure(middle(column, "ceiling_ns")),
                column.words(),
            ]
        })
        .collect();
    page.table(
        &[
            "NICs",
            "bytes",
            "burst",
            "ns a frame",
            "Mpps",
            "Gbit/s",
            "the ceiling's ns",
            "share of the ceiling",
        ],
        &rows,
    );
}

fn over_sockets(page: &mut Page, cases: &[Case], columns: &[Column]) {
    page.heading("Over sockets");
    page.text(
        "Two poll-mode guests on one processor; the daemon on the other with one worker, or with two workers wherever the kernel puts \
         them (where there are only two processors, they then share one with the guests). Per core is per second of the daemon's \
         processor time. The ceiling is the loop with a guest's thread beside it, burst 32, in the same rounds. A frame of the 64 KiB \
         sends is a segment of 1514 bytes, as it arrives. Rings of 256.",
    );
    let (measured, ceilings) = columns.split_at(cases.len());
    let rows: Vec<Vec<String>> = cases
        .iter()
        .zip(measured)
        .map(|(case, column)| {
            let at = KINDS.iter().position(|k| *k == case.kind).unwrap_or(0);
            let bits = arriving(case.kind) as f64 * 8.0 / 1e3;
            vec![
                case.kind.words(),
                case.burst.to_string(),
                case.workers.to_string(),
                if case.both_ways { "both" } else { "one" }.to_owned(),
                column.words(),
                figure(column.median() * bits),
                figure(middle(column, "mpps_per_core")),
                column
                    .over(&ceilings[at])
                    .map_or("–".to_owned(), |s| s.words()),
            ]
        })
        .collect();
    page.table(
        &[
            "bytes",
            "burst",
            "workers",
            "ways",
            "Mpps",
            "Gbit/s",
            "Mpps per core of the daemon",
            "share of the ceiling",
        ],
        &rows,
    );
    let set = |kind: &Traffic| {
        let fits = |c: &Case| c.kind == *kind && c.workers == 1 && !c.both_ways;
        let points = cases.iter().zip(measured).filter(|(c, _)| fits(c));
        let points = points.map(|(c, column)| (f64::from(c.burst), column.median()));
        plot::set(&kind.words(), Whose::Ours, points)
    };
    page.plot(plot::lines(
        "bursts",
        "Over sockets, one worker, one way",
        Scale::log("burst (log)"),
        Scale::log("Mpps (log)"),
        KINDS.iter().map(set).collect(),
    ));
}

//! From one NIC to a thousand: what they carry together, what each costs in memory, what idle ones cost.

use std::time::{Duration, Instant};

use ceiling::Loop;
use drivers::e1000::poll::TxFrame;
use serde_json::{Value, json};

use crate::ceilings::shape;
use crate::error::Result;
use crate::fabric::{Fabric, Guest, Traffic, aim, config, driver, mac};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::plot::{self, Scale, Whose};
use crate::quiet::Quiet;
use crate::report::Report;
use crate::scale_inside;
use crate::stats::{Column, Reading, Summary, figure, in_turns};
use crate::{adding, looking};

/// How many NICs.
const COUNTS: [usize; 4] = [1, 10, 100, 1000];

/// Descriptors of each ring: a thousand guests have to fit this machine's memory.
const RING: u32 = 128;

const SIZE: usize = 60;
const BURST: u32 = 32;

/// Rounds of all guests that a sample has at least.
const LEAST_ROUNDS: u32 = 8;

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.4 } else { 1.5 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    27.0 + (COUNTS.len() * 3 * options.rounds()) as f64 * (seconds(options) + 0.2)
        + 3.0 * idle(options)
        + adding::estimate(options)
        + scale_inside::estimate(options)
        + looking::estimate(options)
}

fn idle(options: &Options) -> f64 {
    if options.quick { 2.0 } else { 5.0 }
}

/// One daemon with its guests.
struct Fleet {
    count: usize,
    fabric: Fabric,
    guests: Vec<Guest>,
    start: f64,
    connect: Vec<f64>,
    memory: (u64, u64),
}

/// Runs the module.
///
/// # Errors
/// When a daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    machine::more_files();
    let mut page = Page::new("scale", "From one NIC to a thousand");
    let mut quiet = options.quiet();
    if options.wants("fleets") {
        fleets(options, &mut page, &mut quiet)?;
    }
    if options.wants("inside") {
        eprintln!("  without sockets");
        scale_inside::run(options, &mut page, &mut quiet)?;
    }
    if options.wants("adding") {
        adding::run(options, &mut page)?;
    }
    if options.wants("looking") {
        looking::run(options, &mut page, &mut quiet)?;
    }
    Ok(page.finish(&quiet))
}

/// What daemons with so many NICs carry, and what those cost.
fn fleets(options: &Options, page: &mut Page, quiet: &mut Quiet) -> Result<()> {
    let mut fleets = Vec::new();
    for count in COUNTS {
        let fleet = settle(options, count)?;
        eprintln!(
            "  {count} NICs: up in {:.2} s, guests connected in {:.2} s",
            fleet.start,
            fleet.connect.iter().sum::<f64>()
        );
        fleets.push(fleet);
    }
    // All of them send; then ten only, beside the others.
    let mut all: Vec<Column> = COUNTS.iter().map(|n| Column::new(format!("{n}"))).collect();
    eprint!("  all send");
    in_turns(quiet, options.rounds(), &mut all, |i| {
        fleets[i].sample(COUNTS[i], seconds(options))
    })?;
    show(&all);
    let mut ten: Vec<Column> = COUNTS.iter().map(|n| Column::new(format!("{n}"))).collect();
    eprint!("  ten send");
    in_turns(quiet, options.rounds(), &mut ten, |i| {
        fleets[i].sample(COUNTS[i].min(10), seconds(options))
    })?;
    show(&ten);
    // What is left of it when there is nothing but as many rings and buffers.
    let mut bare: Vec<Column> = COUNTS.iter().map(|n| Column::new(format!("{n}"))).collect();
    eprint!("  raw loops");
    in_turns(quiet, options.rounds(), &mut bare, |i| {
        Ok(Reading::bare(raw_loops(COUNTS[i], seconds(options))))
    })?;
    show(&bare);
    eprint!("  idle");
    let mut rest: Vec<Column> = COUNTS.iter().map(|n| Column::new(format!("{n}"))).collect();
    in_turns(quiet, 1, &mut rest, |i| {
        std::thread::sleep(Duration::from_millis(300));
        let before = fleets[i].fabric.cpu();
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(idle(options) * 0.75));
        let took = start.elapsed().as_secs_f64();
        Ok(Reading::bare(
            (fleets[i].fabric.cpu() - before) / took * 100.0,
        ))
    })?;
    show(&rest);
    for fleet in &mut fleets {
        fleet.memory.1 = fleet.fabric.memory();
    }
    write(page, &fleets, &all, &ten, &bare, &rest);
    Ok(())
}

fn show(columns: &[Column]) {
    for column in columns {
        eprint!(" {}: {}", column.id, figure(column.median()));
    }
    eprintln!();
}

fn settle(options: &Options, count: usize) -> Result<Fleet> {
    let port = if count == 1 { "loopback" } else { "switch:lan" };
    let start = Instant::now();
    let core = machine::cores().1;
    let fabric = Fabric::start(
        &options.hypernic(),
        count,
        port,
        &options.daemon(),
        Some(core),
    )?;
    let start = start.elapsed().as_secs_f64();
    let kind = Traffic::Plain(SIZE);
    let setup = config(kind, RING);
    let (mut guests, mut connect) = (Vec::new(), Vec::new());
    for number in 0..count {
        let begun = Instant::now();
        let mut guest = fabric.guest(number, &setup)?;
        connect.push(begun.elapsed().as_secs_f64());
        aim(&mut guest, kind, mac(number), mac(partner(number, count)))?;
        guests.push(guest);
    }
    // The switch learns where each is.
    for guest in &mut guests {
        guest
            .send(1, |_, _| TxFrame::plain(SIZE as u32))
            .map_err(driver)?;
    }
    let memory = fabric.memory();
    let mut fleet = Fleet {
        count,
        fabric,
        guests,
        start,
        connect,
        memory: (memory, memory),
    };
    fleet.sample(count, 0.05)?;
    Ok(fleet)
}

/// To whom a NIC sends: even ones to the next, odd ones to the one before, an only one to itself.
fn partner(number: usize, count: usize) -> usize {
    if count == 1 { number } else { number ^ 1 }
}

impl Fleet {
    /// The first `active` NICs send to their partners, in turns, from one thread on the first processor.
    fn sample(&mut self, active: usize, seconds: f64) -> Result<Reading> {
        let cpu = self.fabric.cpu();
        let guests = &mut self.guests[..active];
        let (received, took, shares) = std::thread::scope(|scope| {
            let work = scope.spawn(move || {
                machine::pin(machine::cores().0);
                let start = Instant::now();
                let until = start + Duration::from_secs_f64(seconds);
                let mut shares = vec![0_u64; guests.len()];
                let mut rounds = 0;
                // Whole rounds, and some of them: with a thousand guests one takes as long as a
                // short sample, and where it was broken off would be taken for unfairness.
                while Instant::now() < until || rounds < LEAST_ROUNDS {
                    for (guest, share) in guests.iter_mut().zip(&mut shares) {
                        guest
                            .send(BURST, |_, _| TxFrame::plain(SIZE as u32))
                            .map_err(driver)?;
                        let came = guest.receive(4 * BURST, |_| {}).map_err(driver)?;
                        *share += u64::from(came);
                    }
                    rounds += 1;
                }
                let took = start.elapsed().as_secs_f64();
                let received: u64 = shares.iter().sum();
                Ok::<_, crate::error::Error>((received, took, shares))
            });
            work.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let cpu = self.fabric.cpu() - cpu;
        self.settle()?;
        Ok(Reading {
            value: received as f64 / took / 1e6,
            raw: json!({
                "received": received, "seconds": took, "fairness": fairness(&shares),
                "daemon_cpu": cpu,
            }),
        })
    }
}

impl Fleet {
    /// Takes in what is still under way, so that it counts neither for the next sample nor for the idle guests.
    fn settle(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(5);
        let mut quiet = 0;
        while quiet < 3 && Instant::now() < until {
            let mut came = 0;
            for guest in &mut self.guests {
                came += guest.receive(4 * BURST, |_| {}).map_err(driver)?;
            }
            quiet = if came == 0 { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(if came == 0 { 10 } else { 1 }));
        }
        Ok(())
    }
}

/// Jain's index: 1 when all have the same, 1/n when one has all.
fn fairness(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&s| s as f64).sum();
    let squares: f64 = shares.iter().map(|&s| (s as f64).powi(2)).sum();
    if squares == 0.0 {
        return f64::NAN;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// Millions of frames a second of one thread that goes round as many raw loops as there are pairs: the
/// same rings and buffers, and nothing else.
fn raw_loops(nics: usize, seconds: f64) -> f64 {
    let pairs = (nics / 2).max(1);
    let mut loops: Vec<Loop> = (0..pairs).map(|_| Loop::new(shape(SIZE, RING))).collect();
    let mut round = |count: u32| -> u64 {
        (0..count)
            .flat_map(|_| 0..pairs)
            .map(|i| loops[i].burst(BURST as usize) as u64)
            .sum()
    };
    // Each buffer once: the first touch is the kernel's.
    round(RING / BURST);
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let mut moved = 0;
    while Instant::now() < until {
        moved += round(RING / BURST);
    }
    moved as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn write(
    page: &mut Page,
    fleets: &[Fleet],
    all: &[Column],
    ten: &[Column],
    bare: &[Column],
    rest: &[Column],
) {
    page.text(
        "One daemon for each number of NICs, all on one switch, in pairs that send to each other; the only NIC of the first sends to \
         itself over a loopback port. All guests are driven in turns by one thread on one processor, which sends 32 frames of 60 \
         bytes and takes what came; the daemon has the other. Rings of 128. The raw loops are one thread that goes round as many pairs of rings and buffers of \
         the same size in bursts of 32 and does nothing but move frames: what memory alone costs when there is more of it.",
    );
    let raw = |column: &Column, name: &str| {
        let values: Vec<f64> = column
            .readings()
            .filter_map(|r| r.raw[name].as_f64())
            .collect();
        rig::paired::median(&values).unwrap_or(f64::NAN)
    };
    let mut rows = Vec::new();
    for (i, fleet) in fleets.iter().enumerate() {
        let connect = Summary::of(&fleet.connect);
        rows.push(vec![
            fleet.count.to_string(),
            all[i].words(),
            figure(all[i].median() * 1e3 / fleet.count as f64),
            figure(raw(&all[i], "fairness")),
            ten[i].words(),
            bare[i].words(),
            figure(rest[i].median()),
            figure(fleet.start * 1e3 / fleet.count as f64),
            connect.map_or("–".to_owned(), |c| figure(c.median * 1e3)),
        ]);
    }
    page.table(
        &[
            "NICs",
            "all send: Mpps",
            "kpps per NIC",
            "Jain's index",
            "ten of them send: Mpps",
            "raw loops: Mpps",
            "idle: % of one processor",
            "start, ms per NIC",
            "a guest connects in, ms",
        ],
        &rows,
    );
    let ratio = |of: &[Column]| of[3].over(&of[1]).map_or("–".to_owned(), |s| s.words());
    page.text(&format!(
        "Total at 1000 over total at 10: {} when all send, {} when ten send beside 990 idle ones, {} of the raw loops.",
        ratio(all),
        ratio(ten),
        ratio(bare)
    ));
    memory(page, fleets);
    let set = |name: &str, columns: &[Column]| {
        let points = COUNTS.iter().zip(columns);
        let points = points.map(|(n, c)| (*n as f64, c.median()));
        plot::set(name, Whose::Ours, points)
    };
    page.plot(plot::lines(
        "total",
        "What all NICs carry together",
        Scale::log("NICs (log)"),
        Scale::linear("Mpps, all together"),
        vec![set("all send", all), set("ten of them send", ten)],
    ));
    let columns = |of: &[Column]| of.iter().map(Column::json).collect::<Vec<Value>>();
    let data = json!({
        "all_send": columns(all), "ten_send": columns(ten), "raw_loops": columns(bare), "idle_percent": columns(rest),
        "fleets": fleets.iter().map(|t| json!({
            "nics": t.count, "start_s": t.start, "connect_s": t.connect,
            "memory_kib_connected": t.memory.0, "memory_kib_at_end": t.memory.1,
        })).collect::<Vec<_>>(),
    });
    page.data("scale", data);
}

fn memory(page: &mut Page, fleets: &[Fleet]) {
    page.heading("Memory");
    let rows: Vec<Vec<String>> = fleets
        .iter()
        .map(|t| {
            vec![
                t.count.to_string(),
                t.memory.0.to_string(),
                t.memory.1.to_string(),
            ]
        })
        .collect();
    page.text(
        "The daemon's own resident memory (anonymous pages), which leaves out what it shares with guests, after the guests have \
         connected and after all samples.",
    );
    page.table(&["NICs", "KiB, connected", "KiB, at the end"], &rows);
    let slope = |pick: fn(&(u64, u64)) -> u64| {
        let (few, many) = (&fleets[1], &fleets[3]);
        (pick(&many.memory) as f64 - pick(&few.memory) as f64) / (many.count - few.count) as f64
    };
    page.text(&format!(
        "From 10 to 1000 NICs that is {} KiB a NIC connected, {} KiB at the end.",
        figure(slope(|m| m.0)),
        figure(slope(|m| m.1))
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_when_all_have_the_same() {
        assert!((fairness(&[5, 5, 5, 5]) - 1.0).abs() < 1e-12);
        assert!((fairness(&[8, 0, 0, 0]) - 0.25).abs() < 1e-12);
        assert!(fairness(&[0, 0]).is_nan());
    }

    #[test]
    fn everybody_has_a_partner_that_sends_back() {
        for count in [1, 10, 100] {
            assert!((0..count).all(|n| partner(partner(n, count), count) == n));
            assert!((0..count).all(|n| partner(n, count) < count));
        }
    }
}

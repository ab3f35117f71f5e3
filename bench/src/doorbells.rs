//! Doorbells without messages: register accesses for each packet, how long it takes until the NIC answers, what
//! it costs to look at the memory of one, a hundred and a thousand functions that are idle, and what comes from guest to guest.
//!
//! All of it is counted at a daemon whose other end is a driver of a few lines, so that nothing is
//! measured but the way from the tail register to the ring.

mod across;
mod way;

use std::time::{Duration, Instant};

use drivers::e1000::poll::TxFrame;
use drivers::igb::Igb;
use serde_json::{Value, json};

use self::way::{Way, calls, e1000, gone};
use crate::error::{Error, Result};
use crate::fabric::{self, Fabric, Guest, Traffic, delta, driver};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::report::Report;
use crate::stats::{Column, Reading, Summary, figure, in_turns};

/// How many functions are idle.
const COUNTS: [usize; 3] = [1, 100, 1000];
/// Frames rung for at once.
const BURSTS: [u32; 2] = [1, 32];

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
    let busy = (Way::ALL.len() * BURSTS.len()) as f64 * (seconds(options) + 1.3);
    let across = across::paths().len() as f64 * (across::seconds(options) + 1.5);
    let idle = (Way::IDLE.len() * COUNTS.len()) as f64 * (idle(options) + 2.0);
    30.0 + options.rounds() as f64 * (busy + across) + idle
}

/// A driver that sends and is told when each frame has been sent.
enum Nic {
    Igb(Box<Igb>),
    E1000(Box<Guest>),
}

impl Nic {
    fn connect(fabric: &Fabric, number: usize, way: Way) -> Result<Self> {
        if way.is_igb() {
            let igb = Igb::connect(fabric.socket(number), way.is_page()).map_err(gone)?;
            return Ok(Self::Igb(Box::new(igb)));
        }
        let mut setup = fabric::config(Traffic::Plain(SIZE), 256);
        setup.device.report_every = 1;
        Ok(Self::E1000(Box::new(e1000(fabric, number, way, setup)?)))
    }

    /// Rings once for `burst` frames and waits until the last has been sent.
    fn send(&mut self, burst: u32) -> Result<()> {
        let mut left = burst;
        match self {
            Self::Igb(igb) => {
                igb.send(&[0xff; SIZE], burst).map_err(gone)?;
            }
            Self::E1000(guest) => {
                let frame = TxFrame::plain(SIZE as u32);
                guest.send(burst, |_, _| frame).map_err(driver)?;
            }
        }
        let until = Instant::now() + MOMENT;
        while !self.all_sent(&mut left)? {
            if Instant::now() > until {
                return Err(Error::Usage("a frame was never sent".into()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn all_sent(&mut self, left: &mut u32) -> Result<bool> {
        match self {
            Self::Igb(igb) => Ok(igb.all_sent()),
            Self::E1000(guest) => {
                *left = left.saturating_sub(guest.reclaim().map_err(driver)?);
                Ok(*left == 0)
            }
        }
    }
}

fn fabric(options: &Options, way: Way, count: usize) -> Result<Fabric> {
    let mut words = options.daemon();
    words.extend(way.options());
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
    let mut columns = Vec::new();
    let mut scenes = Vec::new();
    for way in Way::ALL {
        for burst in BURSTS {
            scenes.push((way, burst));
            columns.push(Column::new(format!("{}, bursts of {burst}", way.words())));
        }
    }
    in_turns(&mut quiet, options.rounds(), &mut columns, |i| {
        let (way, burst) = scenes[i];
        let fabric = fabric(options, way, 1)?;
        let mut nic = Nic::connect(&fabric, 0, way)?;
        busy(&fabric, &mut nic, burst, seconds(options))
    })?;
    let paths = across::paths();
    let mut pairs: Vec<_> = paths.iter().map(|p| Column::new(p.words())).collect();
    in_turns(&mut quiet, options.rounds(), &mut pairs, |i| {
        across::sample(options, &paths[i])
    })?;
    let mut rest = Vec::new();
    for way in Way::IDLE {
        for count in COUNTS {
            let mut column = Column::new(format!("{}, {count}", way.words()));
            in_turns(&mut quiet, 1, std::slice::from_mut(&mut column), |_| {
                resting(options, way, count)
            })?;
            rest.push(column);
        }
    }
    write(&mut page, &columns, &pairs, &rest);
    Ok(page.finish(&quiet))
}

fn busy(fabric: &Fabric, nic: &mut Nic, burst: u32, seconds: f64) -> Result<Reading> {
    let before = fabric.counters()?;
    let cpu = fabric.cpu();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut frames, mut waits) = (0u64, Vec::new());
    while Instant::now() < until {
        let start = Instant::now();
        nic.send(burst)?;
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
            "calls": calls(&done) as f64 / frames as f64,
            "answer_us": wait, "daemon_ns": cpu * 1e9 / frames as f64, "daemon": done,
        }),
    })
}

/// Functions with a queue that is on and nothing to do.
fn resting(options: &Options, way: Way, count: usize) -> Result<Reading> {
    let fabric = fabric(options, way, count)?;
    let guests = (0..count).map(|number| Nic::connect(&fabric, number, way));
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
        guest.send(1)?;
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

fn write(page: &mut Page, busy: &[Column], pairs: &[Column], rest: &[Column]) {
    page.text(
        "A daemon with NICs (one worker, port `null`), driven through vfio-user sockets by a driver that sends on one queue \
         and waits for the descriptor of each burst's last frame to be written back. `trap`: the tail register is a \
         message. `page`: it is memory that the worker looks at. `CSB`: the tail is in the guest's own memory, and written to the \
         register only if the NIC sleeps.",
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
            of(column, "messages"),
            of(column, "calls"),
            of(column, "doorbells"),
            of(column, "answer_us"),
            of(column, "daemon_ns"),
        ]
    });
    page.table(
        &[
            "for each frame",
            "register accesses",
            "messages",
            "system calls, daemon",
            "doorbells seen",
            "burst answered after, us",
            "daemon's processor time, ns",
        ],
        &rows.collect::<Vec<_>>(),
    );
    across::write(page, pairs);
    page.heading("Idle functions");
    page.text(
        "82576s; each has a VMM and a queue that is on. Thread time and voluntary context switches of the daemon, as the kernel \
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

//! From one guest to another, by each way that a tail can take, and what it brings that a frame in hand reads the receiver's tail.

use std::time::{Duration, Instant};

use drivers::e1000::poll::TxFrame;
use drivers::igb::Igb;
use rig::Daemon;
use serde_json::{Value, json};

use super::way::{self, Way, gone};
use crate::error::Result;
use crate::fabric::{self, Fabric, Guest, Traffic, delta, driver};
use crate::options::Options;
use crate::page::Page;
use crate::stats::{Column, Reading, Summary, figure};
use crate::{load, machine};

/// Keeps the daemon from looking at tails for frames in hand.
const WITHOUT_LOOK: &str = "HYPERNIC_BENCH_NO_TAIL_LOOK";
const SIZE: usize = 60;
const RING: u32 = 256;

/// Frames rung for at once, and descriptors of the receiver.
const SCENES: [(u32, u32); 4] = [(1, RING), (32, RING), (128, RING), (128, 80)];

/// A way from guest to guest.
#[derive(Clone, Copy)]
pub(super) struct Path {
    way: Way,
    looks: bool,
    burst: u32,
    /// Of the receiver.
    ring: u32,
}

impl Path {
    pub(super) fn words(&self) -> String {
        let look = if self.looks { "" } else { ", no look" };
        let ring = if self.ring == RING {
            ""
        } else {
            ", ring of 80"
        };
        format!("{}{look}, bursts of {}{ring}", self.way.words(), self.burst)
    }
}

/// All that are measured.
pub(super) fn paths() -> Vec<Path> {
    let mut paths = Vec::new();
    for (burst, ring) in SCENES {
        for way in Way::ALL {
            // The 82576's driver has one length of ring.
            if way.is_igb() && ring != RING {
                continue;
            }
            let both: &[bool] = if way.is_page() {
                &[true, false]
            } else {
                &[true]
            };
            paths.extend(both.iter().map(|&looks| Path {
                way,
                looks,
                burst,
                ring,
            }));
        }
    }
    paths
}

pub(super) fn seconds(options: &Options) -> f64 {
    if options.quick { 0.2 } else { 1.0 }
}

/// Sender and receiver.
enum Pair {
    E1000(Box<[Guest; 2]>, TxFrame),
    Igb(Box<[Igb; 2]>, Vec<u8>),
}

impl Pair {
    fn connect(fabric: &Fabric, path: &Path) -> Result<Self> {
        let (from, to) = (fabric::mac(0), fabric::mac(1));
        if path.way.is_igb() {
            let guest =
                |number| Igb::connect(fabric.socket(number), path.way.is_page()).map_err(gone);
            let frame = load::frame(0, SIZE, false, from, to);
            return Ok(Self::Igb(Box::new([guest(0)?, guest(1)?]), frame));
        }
        let kind = Traffic::Plain(SIZE);
        let guest = |number, rx| {
            let setup = fabric::config(kind, RING).rings(RING, rx);
            way::e1000(fabric, number, path.way, setup)
        };
        let mut guests = [guest(0, RING)?, guest(1, path.ring)?];
        fabric::aim(&mut guests[0], kind, from, to)?;
        fabric::aim(&mut guests[1], kind, to, from)?;
        Ok(Self::E1000(Box::new(guests), kind.frame()?))
    }

    /// The switch learns where both are.
    fn announce(&mut self) -> Result<()> {
        match self {
            Self::E1000(guests, frame) => {
                for guest in guests.iter_mut() {
                    guest.send(1, |_, _| *frame).map_err(driver)?;
                }
            }
            Self::Igb(guests, frame) => {
                let back = load::frame(0, SIZE, false, fabric::mac(1), fabric::mac(0));
                guests[0].send(frame, 1).map_err(gone)?;
                guests[1].send(&back, 1).map_err(gone)?;
            }
        }
        self.drain()
    }

    /// A burst out, and what has come in.
    fn round(&mut self, burst: u32) -> Result<(u64, u64)> {
        match self {
            Self::E1000(guests, frame) => {
                let sent = guests[0].send(burst, |_, _| *frame).map_err(driver)?;
                let came = guests[1].receive(512, |_| {}).map_err(driver)?;
                Ok((sent.into(), came.into()))
            }
            Self::Igb(guests, frame) => {
                let sent = guests[0].send(frame, burst).map_err(gone)?;
                let came = guests[1].receive(SIZE).map_err(gone)?;
                Ok((if sent { burst.into() } else { 0 }, came.into()))
            }
        }
    }

    /// Takes what is still under way.
    fn drain(&mut self) -> Result<()> {
        let mut quiet = 0;
        while quiet < 20 {
            let mut came = 0;
            match self {
                Self::E1000(guests, _) => {
                    for guest in guests.iter_mut() {
                        came += guest.receive(512, |_| {}).map_err(driver)?;
                    }
                }
                Self::Igb(guests, _) => {
                    for guest in guests.iter_mut() {
                        came += guest.receive(SIZE).map_err(gone)?;
                    }
                }
            }
            quiet = if came == 0 { quiet + 1 } else { 0 };
            if came == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    fn run(&mut self, burst: u32, seconds: f64) -> Result<(u64, f64)> {
        let start = Instant::now();
        let (mut received, mut idle) = (0, 0);
        while start.elapsed().as_secs_f64() < seconds {
            let (sent, came) = self.round(burst)?;
            received += came;
            idle = if sent + came == 0 { idle + 1 } else { 0 };
            if idle > 32 {
                std::thread::yield_now();
            }
        }
        Ok((received, start.elapsed().as_secs_f64()))
    }
}

/// One sample, with a daemon of its own: one that rests with a page is polled, which would count for others.
pub(super) fn sample(options: &Options, path: &Path) -> Result<Reading> {
    let hypernic = options.hypernic();
    let mut command = Daemon::command(&hypernic);
    if !path.looks {
        command.env(WITHOUT_LOOK, "1");
    }
    let mut words = options.daemon();
    words.extend(path.way.options());
    let core = machine::cores().1;
    command.args(["--log-format", "json", "run"]);
    command.args(fabric::without_keeper(&hypernic)).args(words);
    let fabric = Fabric::start_as(command, 2, "switch:lan", Some(core))?;
    let mut pair = Pair::connect(&fabric, path)?;
    pair.announce()?;
    let before = fabric.counters()?;
    let cpu = fabric.cpu();
    let (received, took) = std::thread::scope(|scope| {
        let pair = &mut pair;
        let work = scope.spawn(move || {
            machine::pin(machine::cores().0);
            pair.run(path.burst, seconds(options))
        });
        work.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    pair.drain()?;
    let cpu = fabric.cpu() - cpu;
    let daemon = delta(&before, &fabric.counters()?);
    let count = |name: &str| daemon.get(name).copied().unwrap_or(0);
    let frames = count("rx_frames").max(1);
    let per = |n: u64| n as f64 / frames as f64;
    let calls = way::calls(&daemon);
    let lost = count("rx_missed");
    Ok(Reading {
        value: cpu * 1e9 / frames as f64,
        raw: json!({
            "frames": frames, "rate": received as f64 / took / 1e6, "messages": per(count("messages")),
            "accesses": per(count("region_writes") + count("region_reads")), "calls": per(calls),
            "doorbells": per(count("doorbells")), "found": per(count("rx_tails_found")) * 100.0,
            "fifo": per(count("rx_no_buffer")) * 100.0, "lost": per(lost) * 100.0,
            "kept": per(count("rx_back_pressure")) * 100.0, "daemon_ns": cpu * 1e9 / frames as f64,
            "daemon": daemon,
        }),
    })
}

pub(super) fn write(page: &mut Page, columns: &[Column]) {
    page.heading("From guest to guest");
    page.text(
        "Two poll-mode guests of one daemon, one sends frames of 60 bytes to the other as fast as it can; each figure is per frame \
         that the receiver got. `no look`: a frame in hand does not read the receiver's tail from its page, but waits until the \
         register side does (a switch of this bench's). Tails found: how often that look found buffers. FIFO: frames that found no \
         descriptor and went through the 82540EM's packet FIFO; an 82576 has none. Kept: times that the sender had to keep what \
         was left of its burst.",
    );
    let of = |column: &Column, name: &str| {
        let values: Vec<f64> = column
            .readings()
            .filter_map(|r| r.raw[name].as_f64())
            .collect();
        Summary::of(&values).map_or("–".to_owned(), |s| figure(s.median))
    };
    let names = [
        "rate",
        "daemon_ns",
        "messages",
        "accesses",
        "calls",
        "doorbells",
        "found",
        "fifo",
        "kept",
        "lost",
    ];
    let rows = columns.iter().map(|column| {
        let figures = names.iter().map(|name| of(column, name));
        [column.id.clone()].into_iter().chain(figures).collect()
    });
    page.table(
        &[
            "",
            "million a second",
            "daemon's processor time, ns",
            "messages",
            "register accesses",
            "system calls, daemon",
            "doorbells seen",
            "tails found, %",
            "FIFO, %",
            "kept, %",
            "lost, %",
        ],
        &rows.collect::<Vec<_>>(),
    );
    let json: Vec<Value> = columns.iter().map(Column::json).collect();
    page.data("across", json);
}

//! Round trips of single frames through the daemon, at a gentle and at a brisk pace, alone and beside a flood; and what
//! the same wake-ups cost without any of our code.
//!
//! The distributions of the nearest peer's thesis (figures 6.2 and 6.3) are at 10 000 and 100 000 packets a second.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drivers::e1000::poll::TxFrame;
use rig::paired::percentile;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fabric::{Fabric, Guest, Traffic, aim, config, delta, driver, mac};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::peers::work_seconds;
use crate::plot::{self, Whose};
use crate::report::Report;
use crate::stats::{Column, Reading, figure, in_turns};

/// Frames a second.
const RATES: [f64; 2] = [10_000.0, 100_000.0];

/// Where a frame's number is.
const NUMBER: usize = 16;
/// Where the source address is.
const SOURCE: usize = 6;

const SIZE: usize = 60;

/// What is measured at each rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// The frames alone.
    Alone,
    /// Another pair of NICs sends as much as the daemon takes.
    Flooded,
    /// A socket message wakes a thread, twice.
    Socket,
    /// An eventfd wakes a thread, twice.
    Event,
    /// A thread that never sleeps sees a word in memory change, twice.
    Memory,
}

const CASES: [Case; 5] = [
    Case::Alone,
    Case::Flooded,
    Case::Socket,
    Case::Event,
    Case::Memory,
];

impl Case {
    fn title(self) -> &'static str {
        match self {
            Self::Alone => "through hypernic",
            Self::Flooded => "through hypernic, beside a flood",
            Self::Socket => "two bare wake-ups by socket",
            Self::Event => "two bare wake-ups by eventfd",
            Self::Memory => "two bare looks of a thread that is awake",
        }
    }
}

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.5 } else { 2.0 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let samples = (RATES.len() * CASES.len() * options.rounds()) as f64;
    3.0 + samples * (seconds(options) + 0.1)
}

/// Runs the module.
///
/// # Errors
/// When the daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("latency", "Round trips of single frames");
    let core = machine::cores().1;
    let fabric = Fabric::start(
        &options.hypernic(),
        4,
        "switch:lan",
        &options.daemon(),
        Some(core),
    )?;
    let setup = config(Traffic::Plain(SIZE), 256);
    let mut guests = Vec::new();
    for number in 0..4 {
        let mut guest = fabric.guest(number, &setup)?;
        aim(
            &mut guest,
            Traffic::Plain(SIZE),
            mac(number),
            mac(number ^ 1),
        )?;
        guests.push(guest);
    }
    // The switch learns where each is.
    for guest in &mut guests {
        guest
            .send(1, |_, _| TxFrame::plain(SIZE as u32))
            .map_err(driver)?;
    }
    let mut quiet = options.quiet();
    let mut results = Vec::new();
    for rate in RATES {
        eprint!("  {:.0} frames/s", rate);
        let mut columns: Vec<Column> = CASES.iter().map(|c| Column::new(c.title())).collect();
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); CASES.len()];
        let length = seconds(options);
        in_turns(&mut quiet, options.rounds(), &mut columns, |i| {
            let before = (CASES[i] == Case::Alone)
                .then(|| fabric.counters())
                .transpose()?;
            let found = on_core(machine::cores().0, || match CASES[i] {
                Case::Alone => pings(&mut guests, rate, length, false),
                Case::Flooded => pings(&mut guests, rate, length, true),
                Case::Socket => bare(rate, length, WakeUp::socket()?),
                Case::Event => bare(rate, length, WakeUp::event()?),
                Case::Memory => bare(rate, length, WakeUp::Memory(AtomicU64::new(0))),
            })?;
            let at = |p| percentile(&found.times, p).unwrap_or(f64::NAN);
            let raw = json!({
                "sent": found.sent, "answered": found.times.len(), "p50": at(50.0), "p90": at(90.0),
                "p99": at(99.0), "p999": at(99.9), "max": at(100.0), "per_mille": per_mille(&found.times),
                "beside": found.beside,
                "daemon_us": before.map(|had| part(&had, &fabric)).transpose()?.flatten(),
            });
            times[i].extend(&found.times);
            Ok(Reading {
                value: at(99.0),
                raw,
            })
        })?;
        for column in &columns {
            eprint!(" {:.0}", column.median());
        }
        eprintln!(" us at p99");
        results.push((rate, columns, times));
    }
    write(&mut page, &results);
    Ok(page.finish(&quiet))
}

/// Microseconds of the daemon's work for each frame that its NICs have received since.
fn part(before: &BTreeMap<String, u64>, fabric: &Fabric) -> Result<Option<f64>> {
    let counted = delta(before, &fabric.counters()?);
    Ok(each(&counted))
}

fn each(counted: &BTreeMap<String, u64>) -> Option<f64> {
    let frames = *counted.get("rx_frames")? as f64;
    Some(work_seconds(counted)? * 1e6 / frames)
}

/// Round trips in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) sent: u64,
    pub(crate) times: Vec<f64>,
    /// Frames of the flood that arrived.
    beside: u64,
}

pub(crate) fn on_core<T: Send>(core: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            machine::pin(core);
            work()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Every thousandth of a distribution: all that a plot can show, and no more.
fn per_mille(times: &[f64]) -> Vec<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    (0..=1000)
        .filter_map(|i| sorted.get(last * i / 1000))
        .map(|t| (t * 100.0).round() / 100.0)
        .collect()
}

/// The first guest sends at a pace, the second sends back, both by looking all the time; the third may flood the fourth.
pub(crate) fn pings(guests: &mut [Guest], rate: f64, seconds: f64, flood: bool) -> Result<Found> {
    let [a, b, c, d] = guests else {
        return Err(Error::Usage("four guests are wanted".to_owned()));
    };
    let mut found = Found::default();
    let mut left = vec![Instant::now(); 1 << 16];
    let start = Instant::now();
    let gap = Duration::from_secs_f64(1.0 / rate);
    let mut due = start;
    let until = start + Duration::from_secs_f64(seconds);
    // Answers to the last ones are waited for.
    let end = until + Duration::from_millis(20);
    let mut idle = 0;
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok(found);
        }
        let mut moved = 0;
        if now >= due && now < until {
            let number = found.sent;
            left[number as usize % (1 << 16)] = now;
            let sent = a.send(1, |_, buffer| {
                buffer.put(NUMBER, number.to_le_bytes());
                TxFrame::plain(SIZE as u32)
            });
            found.sent += u64::from(sent.map_err(driver)?);
            due += gap;
            moved += 1;
        }
        let mut echo = [0_u64; 64];
        let mut echoes = 0;
        let came = b.receive(64, |frame| {
            // Others may flood.
            if frame.get(SOURCE) != mac(0) {
                return;
            }
            echo[echoes] = u64::from_le_bytes(frame.get(NUMBER));
            echoes += 1;
        });
        moved += came.map_err(driver)?;
        if echoes > 0 {
            let back = b.send(echoes as u32, |i, buffer| {
                buffer.put(NUMBER, echo[i as usize].to_le_bytes());
                TxFrame::plain(SIZE as u32)
            });
            back.map_err(driver)?;
        }
        let times = &mut found.times;
        let came = a.receive(64, |frame| {
            if frame.get(SOURCE) != mac(1) {
                return;
            }
            let number = u64::from_le_bytes(frame.get(NUMBER)) as usize % (1 << 16);
            times.push(left[number].elapsed().as_nanos() as f64 / 1e3);
        });
        moved += came.map_err(driver)?;
        if flood {
            c.send(32, |_, _| TxFrame::plain(SIZE as u32))
                .map_err(driver)?;
            found.beside += u64::from(d.receive(128, |_| {}).map_err(driver)?);
        }
        idle = if moved == 0 { idle + 1 } else { 0 };
        if idle > 64 {
            std::thread::yield_now();
        }
    }
}

/// What wakes the far thread.
enum WakeUp {
    Socket(UnixStream, UnixStream),
    Event(OwnedFd),
    /// Nothing does: it looks how often it was rung, and never sleeps.
    Memory(AtomicU64),
}

impl WakeUp {
    fn socket() -> Result<Self> {
        let (a, b) = UnixStream::pair().map_err(Error::io("make a socket pair"))?;
        Ok(Self::Socket(a, b))
    }

    fn event() -> Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC);
        Ok(Self::Event(
            fd.map_err(|e| Error::io("make an eventfd")(e.into()))?,
        ))
    }

    fn ring(&self) -> bool {
        match self {
            Self::Socket(a, _) => {
                let mut a = a;
                a.write_all(&[0; 32]).is_ok()
            }
            Self::Event(fd) => rustix::io::write(fd, &1_u64.to_ne_bytes()).is_ok(),
            Self::Memory(rung) => {
                rung.fetch_add(1, Ordering::Release);
                true
            }
        }
    }

    /// Sleeps until it is rung, and tells how often it was.
    fn wait(&self) -> u64 {
        let mut room = [0; 32];
        match self {
            Self::Socket(_, b) => {
                let mut b = b;
                u64::from(b.read_exact(&mut room).is_ok())
            }
            Self::Event(fd) => match rustix::io::read(fd, &mut room[..8]) {
                Ok(8) => u64::from_ne_bytes(std::array::from_fn(|i| room[i])),
                _ => 0,
            },
            Self::Memory(rung) => loop {
                match rung.swap(0, Ordering::Acquire) {
                    // As a worker of the daemon does between two tries.
                    0 => std::thread::yield_now(),
                    n => return n,
                }
            },
        }
    }
}

/// Wakes a thread on the second processor, which sleeps in a system call, and looks until it has answered in memory, twice
/// for each frame: what a frame there and back cannot be spared when the daemon sleeps between frames. As with the
/// frames, the next one comes when it is due, whether the one before has been answered or not: who is held up for a
/// millisecond is late for all that come meanwhile.
fn bare(rate: f64, seconds: f64, wake_up: WakeUp) -> Result<Found> {
    let answered = AtomicU64::new(0);
    let mut found = Found::default();
    let total = (rate * seconds) as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            machine::pin(machine::cores().1);
            let mut left = total * 2;
            while left > 0 {
                let rung = wake_up.wait();
                if rung == 0 {
                    break;
                }
                answered.fetch_add(rung, Ordering::Release);
                left = left.saturating_sub(rung);
            }
        });
        let gap = Duration::from_secs_f64(1.0 / rate);
        let start = Instant::now();
        // Who rang, in this order, and whether it was for the way back.
        let mut rung: VecDeque<(Instant, bool)> = VecDeque::new();
        let (mut seen, mut idle) = (0, 0_u32);
        while found.sent < total || !rung.is_empty() {
            let now = Instant::now();
            idle += 1;
            if found.sent < total && now >= start + gap * found.sent as u32 {
                if !wake_up.ring() {
                    return;
                }
                rung.push_back((now, false));
                found.sent += 1;
                idle = 0;
            }
            while seen < answered.load(Ordering::Acquire) {
                seen += 1;
                idle = 0;
                match rung.pop_front() {
                    Some((begun, false)) => {
                        if !wake_up.ring() {
                            return;
                        }
                        rung.push_back((begun, true));
                    }
                    Some((begun, true)) => {
                        found.times.push(begun.elapsed().as_nanos() as f64 / 1e3);
                    }
                    None => {}
                }
            }
            if idle > 64 {
                std::thread::yield_now();
            }
        }
    });
    Ok(found)
}

/// A rate, a column for each case, and all of each case's times.
type AtRate = (f64, Vec<Column>, Vec<Vec<f64>>);

fn write(page: &mut Page, results: &[AtRate]) {
    page.text(
        "A guest sends a frame of 60 bytes, another guest sends it back; both look at their rings all the time, on one processor, \
         and the daemon is on the other. A bare wake-up is a message of 32 bytes on a Unix socket (as long as the one that tells \
         the daemon of a frame) or a write to an eventfd, to a thread that sleeps in its system call; two of them in a row are \
         what a round trip needs when the daemon sleeps before each frame. A bare look is a word in memory that a thread on the \
         daemon's processor sees change, and answers, without ever sleeping: with it nobody sleeps on either processor, as \
         when the daemon stays awake between frames, and whatever else the machine runs takes the processor from one of the \
         two. In all of them the next frame leaves when it is due, \
         answered or not. Microseconds; medians over rounds (smallest–largest).",
    );
    let field = |column: &Column, name: &str| -> String {
        let values: Vec<f64> = column
            .readings()
            .filter_map(|r| r.raw[name].as_f64())
            .collect();
        crate::stats::Summary::of(&values).map_or("–".to_owned(), |s| s.words())
    };
    for (rate, columns, times) in results {
        page.heading(&format!("{rate:.0} frames a second"));
        let mut rows = Vec::new();
        for column in columns {
            let answered: f64 = column
                .readings()
                .filter_map(|r| r.raw["answered"].as_f64())
                .sum();
            let sent: f64 = column
                .readings()
                .filter_map(|r| r.raw["sent"].as_f64())
                .sum();
            let mut row = vec![column.id.clone()];
            row.extend(["p50", "p99", "p999"].map(|name| field(column, name)));
            row.push(figure((1.0 - answered / sent.max(1.0)) * 100.0));
            rows.push(row);
        }
        page.table(&["", "p50", "p99", "p99.9", "not answered, %"], &rows);
        for (i, what) in [
            (2, "two wake-ups by socket"),
            (3, "two wake-ups by eventfd"),
            (4, "two bare looks"),
        ] {
            let added: Vec<f64> = columns[0]
                .readings()
                .zip(columns[i].readings())
                .map(|(ours, bare)| ours.value - bare.value)
                .collect();
            if let Some(added) = crate::stats::Summary::of(&added) {
                page.text(&format!(
                    "Added at p99 beyond {what}: {} us.",
                    added.words()
                ));
            }
        }
        if let Some(part) = columns[0].of("daemon_us").summary() {
            page.text(&format!(
                "Daemon's part of one frame (target: at most 1.5 us): {} us. It is the time of the daemon's worker in turns that had \
                 something to do (`work_ns`), over frames that it handed over, two a round trip: reading the message from its \
                 socket, both models, the switch, the copy, and the message by which the receiver gives its buffers back. \
                 Waking up, and looking for messages that have not come, are not in it.",
                part.words()
            ));
        }
        // The first two are ours; the others do nothing but wake each other.
        let sets: Vec<_> = columns
            .iter()
            .zip(times)
            .enumerate()
            .map(|(i, (c, t))| {
                let whose = if i < 2 { Whose::Ours } else { Whose::Bound };
                (c.id.clone(), whose, t.clone())
            })
            .collect();
        page.plot(plot::distributions(
            &format!("{rate:.0}"),
            &format!("Round trips at {rate:.0} frames/s"),
            "us (log)",
            &sets,
        ));
    }
    let data: Vec<Value> = results
        .iter()
        .map(|(rate, columns, _)| {
            json!({"rate": rate, "columns": columns.iter().map(Column::json).collect::<Vec<_>>()})
        })
        .collect();
    page.data("rates", data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_kept_by_its_thousandths() {
        let times: Vec<f64> = (0..50_000).rev().map(f64::from).collect();
        let kept = per_mille(&times);
        assert_eq!((kept.len(), kept[0], kept[1000]), (1001, 0.0, 49_999.0));
        assert!((kept[500] - 25_000.0).abs() < 2.0);
        assert!(per_mille(&[]).is_empty());
    }

    #[test]
    fn the_daemons_part_is_its_work_over_frames_handed_over() {
        let counted = |pairs: &[(&str, u64)]| {
            let pairs = pairs.iter().map(|(n, v)| ((*n).to_owned(), *v));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let some = counted(&[("worker.work_ns", 3_000_000), ("rx_frames", 2000)]);
        assert_eq!(each(&some), Some(1.5));
        assert_eq!(each(&counted(&[("worker.work_ns", 3_000_000)])), None);
    }

    #[test]
    fn bare_wake_ups_are_all_answered() {
        for wake_up in [
            WakeUp::socket().unwrap(),
            WakeUp::event().unwrap(),
            WakeUp::Memory(AtomicU64::new(0)),
        ] {
            let found = bare(2000.0, 0.05, wake_up).unwrap();
            assert_eq!((found.sent, found.times.len()), (100, 100));
        }
    }
}

//! Guest to TAP and back, plain frames and 64 KiB ones, beside bare writes and reads of a TAP made alike.

use std::time::{Duration, Instant};

use rig::{Netns, Rig};
use serde_json::{Value, json};

use crate::error::Result;
use crate::fabric::{Fabric, Guest, Traffic, aim, config, driver};
use crate::options::Options;
use crate::page::Page;
use crate::peers::kernel::{load, mpps, myself};
use crate::plot::{self, Bar, Whose};
use crate::report::Report;
use crate::stats::{Column, Reading, figure, in_turns};
use crate::{load, machine};

/// A direction and a kind of frames.
#[derive(Debug, Clone, Copy)]
struct Scene {
    title: &'static str,
    /// Bytes of one frame at the TAP.
    size: usize,
    gso: bool,
    back: bool,
}

const SCENES: [Scene; 6] = [
    Scene {
        title: "60 bytes to the TAP",
        size: 60,
        gso: false,
        back: false,
    },
    Scene {
        title: "1514 bytes to the TAP",
        size: 1514,
        gso: false,
        back: false,
    },
    Scene {
        title: "64 KiB of TCP to the TAP",
        size: crate::fabric::TSO,
        gso: true,
        back: false,
    },
    Scene {
        title: "60 bytes from the TAP",
        size: 60,
        gso: false,
        back: true,
    },
    Scene {
        title: "1514 bytes from the TAP",
        size: 1514,
        gso: false,
        back: true,
    },
    Scene {
        title: "64 KiB of TCP from the TAP",
        size: crate::fabric::TSO,
        gso: true,
        back: true,
    },
];

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.4 } else { 1.0 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    5.0 + (SCENES.len() * 2 * options.rounds()) as f64 * (seconds(options) + 0.3)
}

/// A namespace with a bridge of two TAPs: one written by a generator, the other a guest's or a reader's.
struct BridgedTaps {
    netns: Netns,
}

/// The generator's TAP and the one that is measured.
const TAPS: [&str; 2] = ["gen", "tap"];

impl BridgedTaps {
    fn new(rig: &Rig) -> Result<Self> {
        let netns = Netns::new(rig).map_err(rig::Error::from)?;
        for tap in TAPS {
            netns.tap(tap, None)?;
        }
        netns.bridge("br0", &TAPS)?;
        Ok(Self { netns })
    }

    /// Frames and bytes the kernel took from the measured TAP's descriptor.
    fn taken(&self) -> Result<(u64, u64)> {
        let out = self
            .netns
            .command("cat")
            .arg("/proc/net/dev")
            .output()
            .map_err(crate::error::Error::io("read the TAP's counters"))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let line = text
            .lines()
            .find_map(|l| l.trim().strip_prefix(&format!("{}:", TAPS[1])));
        let mut values = line
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|v| v.parse().ok());
        let both = values.next().zip(values.next());
        let (bytes, frames) =
            both.ok_or_else(|| crate::error::Error::tool("/proc/net/dev", &text))?;
        Ok((frames, bytes))
    }
}

/// A guest of each kind at a daemon with a TAP.
struct Ours {
    taps: BridgedTaps,
    fabric: Fabric,
    guest: Guest,
    kind: Traffic,
}

impl Ours {
    fn start(options: &Options, rig: &Rig, kind: Traffic) -> Result<Self> {
        let taps = BridgedTaps::new(rig)?;
        let command = taps.netns.command(options.hypernic());
        let port = format!("tap:{}", TAPS[1]);
        let fabric = Fabric::start_as(command, 1, &port, &options.daemon(), None)?;
        let mut setup = config(kind, 256);
        // The generator's frames go to an address that both ways of receiving share.
        setup.device.promiscuous = true;
        let mut guest = fabric.guest(0, &setup)?;
        // To an address the kernel does not know, so that it drops them at once, as it does the bare writer's frames.
        aim(&mut guest, kind, load::ENDS[1], load::ENDS[0])?;
        Ok(Self {
            taps,
            fabric,
            guest,
            kind,
        })
    }

    fn send(&mut self, seconds: f64) -> Result<Reading> {
        machine::pin_process(self.fabric.id(), machine::cores().1);
        let (cpu, before) = (self.fabric.cpu(), self.taps.taken()?);
        let kind = self.kind;
        let guest = &mut self.guest;
        let start = Instant::now();
        std::thread::scope(|scope| {
            let work = scope.spawn(move || {
                machine::pin(machine::cores().0);
                let until = Instant::now() + Duration::from_secs_f64(seconds);
                let burst = if kind == Traffic::Tso { 4 } else { 64 };
                let frame = kind.frame()?;
                while Instant::now() < until {
                    if guest.send(burst, |_, _| frame).map_err(driver)? == 0 {
                        std::thread::yield_now();
                    }
                }
                Ok::<_, crate::error::Error>(())
            });
            work.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let after = self.taps.taken()?;
        let took = start.elapsed().as_secs_f64();
        let (frames, bytes) = (after.0 - before.0, after.1 - before.1);
        Ok(self.reading(frames, bytes, took, cpu))
    }

    fn reading(&self, frames: u64, bytes: u64, took: f64, cpu: f64) -> Reading {
        let cpu = self.fabric.cpu() - cpu;
        Reading {
            value: bytes as f64 * 8.0 / took / 1e9,
            raw: json!({
                "frames": frames, "bytes": bytes, "seconds": took, "daemon_cpu": cpu,
                "mpps": frames as f64 / took / 1e6,
                "gbit_per_core": bytes as f64 * 8.0 / cpu.max(1e-9) / 1e9,
            }),
        }
    }

    /// A generator writes into the other TAP; the bridge hands over to ours.
    fn receive(&mut self, scene: Scene, seconds: f64) -> Result<Reading> {
        // Three are at work here: generator, daemon, guest. The kernel puts the daemon where there is room.
        machine::pin_process_anywhere(self.fabric.id());
        // The bridge learns where the guest is.
        let hello = self.kind.frame()?;
        self.guest.send(1, |_, _| hello).map_err(driver)?;
        let cpu = self.fabric.cpu();
        let command = self.taps.netns.command(myself()?);
        let guest = &mut self.guest;
        let (found, answer) = std::thread::scope(|scope| {
            let work = scope.spawn(move || {
                machine::pin(machine::cores().0);
                let until = Instant::now() + Duration::from_secs_f64(seconds + 0.1);
                let (mut frames, mut bytes) = (0_u64, 0_u64);
                let mut idle = 0;
                let (mut first, mut last) = (None, Instant::now());
                while Instant::now() < until {
                    let came = guest
                        .receive(256, |frame| bytes += frame.len() as u64)
                        .map_err(driver)?;
                    frames += u64::from(came);
                    idle = if came == 0 { idle + 1 } else { 0 };
                    if came > 0 {
                        last = Instant::now();
                        first.get_or_insert(last);
                    } else if idle > 32 {
                        std::thread::yield_now();
                    }
                }
                let took = first.map_or(seconds, |f| (last - f).as_secs_f64());
                Ok::<_, crate::error::Error>((frames, bytes, took))
            });
            let mut words = vec!["write", TAPS[0]];
            if scene.gso {
                words.push("--gso");
            }
            let answer = load(command, &words, scene.size, seconds);
            let found = work
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (found, answer)
        });
        let (frames, bytes, took) = found?;
        let mut reading = self.reading(frames, bytes, took.max(0.05), cpu);
        reading.raw["generator"] = answer?;
        Ok(reading)
    }
}

/// Bare writes or reads, by this program inside the namespace.
fn bare(taps: &BridgedTaps, scene: Scene, seconds: f64) -> Result<Reading> {
    let command = taps.netns.command(myself()?);
    let mut words = if scene.back {
        vec!["read", TAPS[0], TAPS[1]]
    } else {
        vec!["write", TAPS[1]]
    };
    if scene.gso {
        words.push("--gso");
    }
    let answer = load(command, &words, scene.size, seconds)?;
    let count = if scene.back { "received" } else { "sent" };
    let rate = mpps(&answer, count).value;
    let mut raw = answer;
    raw["mpps"] = json!(rate);
    Ok(Reading {
        value: rate * scene.size as f64 * 8.0 / 1e3,
        raw,
    })
}

/// Runs the module.
///
/// # Errors
/// When there are no namespaces or TAPs, or the daemon fails.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("guest_to_tap", "Guest to TAP and back");
    let rig = Rig::prepare().map_err(rig::Error::from)?;
    let raw = BridgedTaps::new(&rig)?;
    let mut ours = Vec::new();
    for kind in [Traffic::Plain(60), Traffic::Plain(1514), Traffic::Tso] {
        ours.push(Ours::start(options, &rig, kind)?);
    }
    let mut quiet = options.quiet();
    let mut results = Vec::new();
    for (at, scene) in SCENES.into_iter().enumerate() {
        let mut columns = [Column::new("hypernic"), Column::new("bare")];
        eprint!("  {}", scene.title);
        in_turns(&mut quiet, options.rounds(), &mut columns, |i| match i {
            0 if scene.back => ours[at % 3].receive(scene, seconds(options)),
            0 => ours[at % 3].send(seconds(options)),
            _ => bare(&raw, scene, seconds(options)),
        })?;
        eprintln!(
            " {} and {} Gbit/s",
            figure(columns[0].median()),
            figure(columns[1].median())
        );
        results.push((scene, columns));
    }
    write(&mut page, &results);
    Ok(page.finish(&quiet))
}

fn write(page: &mut Page, results: &[(Scene, [Column; 2])]) {
    page.text(
        "Ours: a poll-mode guest on one processor, the daemon on the other, a TAP at a bridge. Bare: the same frames by one `write` or \
         `read` each of a TAP made alike, by a program of its own. From the TAP, a generator writes into a second TAP of the same bridge; \
         for ours that makes three at work on two processors where there are only two, so look at the figure per core as well, \
         which is bits over the daemon's processor time. A frame of 64 KiB counts whole at the TAP and as segments of 1514 bytes at \
         the guest. Medians over rounds (smallest–largest).",
    );
    let rows: Vec<Vec<String>> = results
        .iter()
        .map(|(scene, [ours, bare])| {
            let of = |column: &Column, name: &str| {
                let values: Vec<f64> = column
                    .readings()
                    .filter_map(|r| r.raw[name].as_f64())
                    .collect();
                figure(rig::paired::median(&values).unwrap_or(f64::NAN))
            };
            vec![
                scene.title.to_owned(),
                ours.words(),
                of(ours, "mpps"),
                of(ours, "gbit_per_core"),
                bare.words(),
                of(bare, "mpps"),
                ours.over(bare).map_or("–".to_owned(), |r| r.words()),
            ]
        })
        .collect();
    page.table(
        &[
            "",
            "ours, Gbit/s",
            "Mpps",
            "Gbit/s per core of the daemon",
            "bare, Gbit/s",
            "Mpps",
            "ours / bare",
        ],
        &rows,
    );
    let bars = results.iter().filter_map(|(scene, [ours, bare])| {
        let ratio = ours.over(bare)?;
        Some(Bar {
            name: scene.title.replace(" of TCP", ""),
            whose: Whose::Ours,
            median: ratio.median,
            spread: (ratio.min, ratio.max),
        })
    });
    page.plot(plot::bars(
        "ratios",
        "Ours over bare writes and reads",
        "ours / bare",
        bars.collect(),
    ));
    let data: Vec<Value> = results
        .iter()
        .map(|(scene, columns)| {
            json!({"scene": scene.title, "columns": columns.iter().map(Column::json).collect::<Vec<_>>()})
        })
        .collect();
    page.data("scenes", data);
}

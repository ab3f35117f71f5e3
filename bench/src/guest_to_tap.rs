//! Guest to TAP and back, plain frames and 64 KiB ones, beside bare writes and reads of a TAP made alike.

use std::time::{Duration, Instant};

use rig::{Netns, Rig};
use serde_json::{Value, json};

use crate::error::Result;
use crate::fabric::{Fabric, Guest, Traffic, aim, config, driver, without_keeper};
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

/// Who writes or reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A guest of ours that sends what once was put into its buffers.
    Ours,
    /// A guest of ours that writes each frame anew before it sends it, as programs do.
    OursAnew,
    /// A program that writes one buffer again and again, or reads.
    Bare,
    /// A program that writes frames that the other processor has just written, as a guest's are.
    BareCold,
}

impl Who {
    fn id(self) -> &'static str {
        match self {
            Self::Ours => "hypernic",
            Self::OursAnew => "hypernic, written anew",
            Self::Bare => "bare",
            Self::BareCold => "bare, cold",
        }
    }
}

impl Scene {
    fn who(&self) -> &'static [Who] {
        match self.back {
            false => &[Who::Ours, Who::OursAnew, Who::Bare, Who::BareCold],
            true => &[Who::Ours, Who::Bare],
        }
    }
}

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.4 } else { 1.0 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let columns: usize = SCENES.iter().map(|s| s.who().len()).sum();
    5.0 + (columns * options.rounds()) as f64 * (seconds(options) + 0.3)
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
        let hypernic = options.hypernic();
        let mut command = taps.netns.command(&hypernic);
        command.args(["--log-format", "json", "run"]);
        command
            .args(without_keeper(&hypernic))
            .args(options.daemon());
        let port = format!("tap:{}", TAPS[1]);
        let fabric = Fabric::start_as(command, 1, &port, None)?;
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

    /// `anew`: the guest writes each frame before it sends it.
    fn send(&mut self, seconds: f64, anew: bool) -> Result<Reading> {
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
                let (bytes, frame) = kind.make(load::ENDS[1], load::ENDS[0])?;
                while Instant::now() < until {
                    let sent = guest.send(burst, |_, buffer| {
                        if anew {
                            buffer.write(0, &bytes);
                        }
                        frame
                    });
                    if sent.map_err(driver)? == 0 {
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
fn bare(taps: &BridgedTaps, scene: Scene, cold: bool, seconds: f64) -> Result<Reading> {
    let command = taps.netns.command(myself()?);
    let mut words = if scene.back {
        vec!["read", TAPS[0], TAPS[1]]
    } else {
        vec!["write", TAPS[1]]
    };
    if scene.gso {
        words.push("--gso");
    }
    if cold {
        words.push("--cold");
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
        let who = scene.who();
        let mut columns: Vec<Column> = who.iter().map(|w| Column::new(w.id())).collect();
        eprint!("  {}", scene.title);
        in_turns(&mut quiet, options.rounds(), &mut columns, |i| {
            match who[i] {
                Who::Ours if scene.back => ours[at % 3].receive(scene, seconds(options)),
                Who::Ours => ours[at % 3].send(seconds(options), false),
                Who::OursAnew => ours[at % 3].send(seconds(options), true),
                Who::Bare => bare(&raw, scene, false, seconds(options)),
                Who::BareCold => bare(&raw, scene, true, seconds(options)),
            }
        })?;
        for column in &columns {
            eprint!(", {} {}", column.id, figure(column.median()));
        }
        eprintln!(" Gbit/s");
        results.push((scene, columns));
    }
    write(&mut page, &results);
    Ok(page.finish(&quiet))
}

/// A scene with a column for each of [`Scene::who`].
type Results = [(Scene, Vec<Column>)];

fn write(page: &mut Page, results: &Results) {
    page.text(
        "Ours: a poll-mode guest on one processor, the daemon on the other, a TAP at a bridge. Bare: the same frames by one `write` or \
         `read` each of a TAP made alike, by a program of its own. A frame of 64 KiB counts whole at the TAP and as segments of 1514 \
         bytes at the guest. Medians over rounds (smallest–largest).",
    );
    let of = |column: &Column, name: &str| {
        let values: Vec<f64> = column
            .readings()
            .filter_map(|r| r.raw[name].as_f64())
            .collect();
        figure(rig::paired::median(&values).unwrap_or(f64::NAN))
    };
    write_to(page, results, &of);
    page.heading("From the TAP");
    page.text(
        "A generator writes into a second TAP of the same bridge; for ours that makes three at work on two processors where there \
         are only two, so look at the figure per core as well, which is bits over the daemon's processor time.",
    );
    let rows: Vec<Vec<String>> = results
        .iter()
        .filter_map(|(scene, columns)| {
            let [ours, bare] = &columns[..] else {
                return None;
            };
            Some(vec![
                scene.title.to_owned(),
                ours.words(),
                of(ours, "mpps"),
                of(ours, "gbit_per_core"),
                bare.words(),
                of(bare, "mpps"),
                ours.over(bare).map_or("–".to_owned(), |r| r.words()),
            ])
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
    write_plot(page, results);
    let data: Vec<Value> = results
        .iter()
        .map(|(scene, columns)| {
            json!({"scene": scene.title, "columns": columns.iter().map(Column::json).collect::<Vec<_>>()})
        })
        .collect();
    page.data("scenes", data);
}

fn write_to(page: &mut Page, results: &Results, of: &dyn Fn(&Column, &str) -> String) {
    page.heading("To the TAP");
    page.text(
        "*Warm*: the program writes one buffer again and again, which stays in its processor's cache. *Cold*: each frame has just been \
         written by the other processor, into as many buffers as the guest has; the kernel's copy fetches it from there (time in \
         which no frame was ready does not count). \
         *Written anew*: our guest writes each frame before it sends it, as programs do; otherwise it sends what was put into its \
         buffers once. Compare cold with written anew: both copy frames that lie in the other processor's cache.",
    );
    let ratio = |a: &Column, b: &Column| a.over(b).map_or("–".to_owned(), |r| r.words());
    let rows: Vec<Vec<String>> = results
        .iter()
        .filter_map(|(scene, columns)| {
            let [ours, anew, warm, cold] = &columns[..] else {
                return None;
            };
            Some(vec![
                scene.title.to_owned(),
                ours.words(),
                of(ours, "mpps"),
                of(ours, "gbit_per_core"),
                anew.words(),
                warm.words(),
                cold.words(),
                ratio(ours, warm),
                ratio(anew, cold),
                ratio(cold, warm),
            ])
        })
        .collect();
    page.table(
        &[
            "",
            "ours, Gbit/s",
            "Mpps",
            "Gbit/s per core of the daemon",
            "ours, written anew",
            "bare, warm",
            "bare, cold",
            "ours / warm",
            "written anew / cold",
            "cold / warm",
        ],
        &rows,
    );
}

/// What of each scene is compared in the plot.
fn compared(columns: &[Column]) -> Option<(&Column, &Column)> {
    match columns {
        [_, anew, _, cold] => Some((anew, cold)),
        [ours, bare] => Some((ours, bare)),
        _ => None,
    }
}

fn write_plot(page: &mut Page, results: &Results) {
    let bars = results.iter().filter_map(|(scene, columns)| {
        let (ours, bare) = compared(columns)?;
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
        "Ours over bare writes (both cold) and reads",
        "ours / bare",
        bars.collect(),
    ));
}

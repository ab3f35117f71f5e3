//! What a frame costs in things that can be counted: messages, system calls, interrupts, register accesses, for each way
//! that a driver tells its NIC of frames; which way frames go; cache lines and copies, and misses where the processor's
//! counters can be had.

mod page;
mod perf;
mod scenes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drivers::Costs;
use drivers::e1000::poll::TxFrame;
use rig::Rig;
use serde_json::{Value, json};

use self::perf::Perf;
use self::scenes::{Door, Scene, scenes};
use crate::error::{Error, Result};
use crate::fabric::{Ends, Fabric, Stream, delta, driver};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::peers::virtio::{Shape, VirtioEnds};
use crate::peers::work_seconds;
use crate::report::Report;
use crate::stats::{Column, Reading, in_turns};
use crate::vfs::VfEnds;

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.2 } else { 0.5 }
}

/// There are many scenes, so there are fewer rounds than elsewhere.
fn rounds(options: &Options) -> usize {
    options.rounds().min(5)
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    // The end of it is under valgrind.
    90.0 + (scenes().len() * rounds(options)) as f64 * (seconds(options) + 0.5)
}

/// Two guests of one daemon, on one of the ways in.
enum Guests {
    E1000(Box<Ends>),
    Vfs(Box<VfEnds>),
    Virtio(Box<VirtioEnds>),
}

impl Guests {
    fn start(
        options: &Options,
        (rig, scratch): (&Rig, &std::path::Path),
        number: usize,
        scene: &Scene,
    ) -> Result<Self> {
        let (hypernic, words) = (options.hypernic(), options.daemon());
        Ok(match scene.door {
            Door::E1000(bell) => {
                let ends = Ends::start_by(&hypernic, scene.kind, 256, &words, bell)?;
                Self::E1000(Box::new(ends))
            }
            Door::Vfs(bell) => {
                let ends = VfEnds::start(&hypernic, scene.kind.bytes(), 256, bell)?;
                Self::Vfs(Box::new(ends))
            }
            Door::Virtio(rings) => {
                let root = rig.dpdk()?;
                let shape = Shape {
                    rings,
                    size: scene.kind.bytes(),
                    burst: scene.burst,
                };
                let name = format!("counts{number}");
                let all = (&*hypernic, &words[..]);
                let ends = VirtioEnds::start(all, (&root, scratch), &name, shape)?;
                Self::Virtio(Box::new(ends))
            }
        })
    }

    fn fabric(&self) -> &Fabric {
        match self {
            Self::E1000(ends) => &ends.fabric,
            Self::Vfs(ends) => &ends.fabric,
            Self::Virtio(ends) => &ends.fabric,
        }
    }

    /// What both drivers have cost; nothing is known of a driver that is not ours.
    fn costs(&mut self) -> Option<[Costs; 2]> {
        match self {
            Self::E1000(ends) => Some(ends.guests.each_ref().map(|guest| guest.costs())),
            Self::Vfs(ends) => Some(ends.guests.each_mut().map(|guest| guest.poll.costs())),
            Self::Virtio(_) => None,
        }
    }

    /// Sends for a while; frames that were received. What the daemon had counted before is told when frames flow.
    fn run(
        &mut self,
        scene: &Scene,
        seconds: f64,
        begin: &dyn Fn(&Fabric) -> Result<()>,
    ) -> Result<u64> {
        let stream = Stream {
            burst: scene.burst,
            both_ways: false,
            seconds,
        };
        match self {
            Self::E1000(ends) => {
                begin(&ends.fabric)?;
                if scene.interrupts {
                    return by_interrupt(ends, stream);
                }
                Ok(ends.run(stream)?.received)
            }
            Self::Vfs(ends) => {
                begin(&ends.fabric)?;
                Ok(ends.run(stream)?.received)
            }
            Self::Virtio(ends) => {
                let (_, seen) = ends.run(seconds, begin)?;
                Ok(seen.frames)
            }
        }
    }

    fn stop(&self) {
        if let Self::Virtio(ends) = self {
            ends.stop();
        }
    }
}

/// Runs the module.
///
/// # Errors
/// When the daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("counts", "What a frame costs, counted");
    let scratch = machine::scratch()?;
    let rig = Rig::prepare().map_err(rig::Error::from)?;
    let (mut all, mut columns, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    for (number, scene) in scenes().into_iter().enumerate() {
        match Guests::start(options, (&rig, scratch.path()), number, &scene) {
            Ok(guests) => {
                columns.push(Column::new(scene.title.clone()));
                all.push((scene, guests));
            }
            // A way that this daemon or this machine has not.
            Err(why) if scene.optional() => {
                eprintln!("  {} does not run here: {why}", scene.title);
                absent.push((scene.title, why.to_string()));
            }
            Err(why) => return Err(why),
        }
    }
    let mut quiet = options.quiet();
    eprint!("  {} scenes", all.len());
    in_turns(&mut quiet, rounds(options), &mut columns, |i| {
        let (scene, guests) = &mut all[i];
        sample(guests, scene, seconds(options))
    })?;
    eprintln!();
    // Valgrind shall have the machine for itself.
    drop(all);
    page::write(&mut page, &columns, &absent);
    Ok(page.finish(&quiet))
}

/// What had been counted when frames began to flow.
struct Begun {
    counters: BTreeMap<String, u64>,
    cpu: f64,
    perf: Perf,
}

fn sample(guests: &mut Guests, scene: &Scene, seconds: f64) -> Result<Reading> {
    let costs = guests.costs();
    let begun = std::cell::RefCell::new(None);
    let seen = guests.run(scene, seconds, &|fabric| {
        let perf = Perf::start(fabric.id())?;
        *begun.borrow_mut() = Some(Begun {
            counters: fabric.counters()?,
            cpu: fabric.cpu(),
            perf,
        });
        Ok(())
    })?;
    let begun = begun.into_inner();
    let begun = begun.ok_or_else(|| Error::Usage("nothing has begun".to_owned()))?;
    let cpu = guests.fabric().cpu() - begun.cpu;
    let daemon = delta(&begun.counters, &guests.fabric().counters()?);
    let counted = begun.perf.finish();
    guests.stop();
    let drivers = costs.zip(guests.costs()).map(|(before, after)| {
        let [a, b] = [0, 1].map(|i: usize| after[i] - before[i]);
        (a.syscalls + b.syscalls, a.messages + b.messages)
    });
    Ok(Reading {
        value: cpu * 1e9 / frames(&daemon, seen) as f64,
        raw: raw(&daemon, seen, cpu, drivers, &counted),
    })
}

fn frames(daemon: &BTreeMap<String, u64>, seen: u64) -> u64 {
    // What the sink took after the end was sent as well.
    daemon.get("rx_frames").copied().unwrap_or(seen).max(1)
}

/// A sample's raw data, each figure per frame that was received.
fn raw(
    daemon: &BTreeMap<String, u64>,
    seen: u64,
    cpu: f64,
    drivers: Option<(u64, u64)>,
    counted: &BTreeMap<String, u64>,
) -> Value {
    let frames = frames(daemon, seen);
    let per = |n: u64| n as f64 / frames as f64;
    let of = |name: &str| daemon.get(name).copied().unwrap_or(0);
    let sum = |names: &[&str]| -> u64 { names.iter().map(|name| of(name)).sum() };
    // Of every part: "port.syscalls" is a port's.
    let calls = daemon
        .iter()
        .filter(|(name, _)| CALLS.contains(&name.rsplit('.').next().unwrap_or(name)))
        .map(|(_, n)| n)
        .sum();
    let kicks = of("kicks");
    let fifo = per(sum(&["rx_no_buffer", "rx_rationed"]));
    let lent = per(of("rx_leased"));
    let sent = of("tx_frames").max(1);
    let mut raw = json!({
        "frames": frames, "seen_in_time": seen,
        "messages": per(of("messages")), "kicks": per(kicks), "daemon_calls": per(calls),
        "interrupts": per(sum(&["irq_triggers", "calls"])), "doorbells": per(of("doorbells")),
        "register_reads": per(of("region_reads")), "register_writes": per(of("region_writes")),
        // A virtio-net does not count them.
        "tx_descriptors": daemon.get("tx_desc_fetched").map(|&n| per(n)),
        "rx_descriptors": daemon.get("rx_desc_fetched").map(|&n| per(n)),
        "wake_ups": per(of("wake_ups")),
        // A driver that is not ours makes one call a kick; what it does besides is not known.
        "guest_calls": per(drivers.map_or(kicks, |(calls, _)| calls)),
        "guest_messages": drivers.map(|(_, messages)| per(messages)),
        "daemon_ns": cpu * 1e9 / frames as f64,
        "work_ns": work_seconds(daemon).map(|work| work * 1e9 / frames as f64),
        "fifo": fifo, "lent": lent, "direct": (1.0 - fifo - lent).max(0.0),
        "lost": sent.saturating_sub(frames) as f64 / sent as f64,
        "waits": per(of("rx_back_pressure")),
        "daemon": daemon,
    });
    for (event, n) in counted {
        raw["perf"][event] = json!(per(*n));
    }
    raw
}

/// The daemon's counters of its own system calls; each kick that it hears and each interrupt over vhost-user is one.
const CALLS: [&str; 9] = [
    "recv_calls",
    "send_calls",
    "poll_calls",
    "timer_calls",
    "syscalls",
    "irq_triggers",
    "inlet_sleeps",
    "kicks",
    "calls",
];

/// The receiver sleeps until the device says that something came.
fn by_interrupt(ends: &mut Ends, stream: Stream) -> Result<u64> {
    let [a, b] = &mut ends.guests;
    let mut received = 0;
    let until = Instant::now() + Duration::from_secs_f64(stream.seconds);
    while Instant::now() < until {
        a.send(stream.burst, |_, _| TxFrame::plain(60))
            .map_err(driver)?;
        b.wait(Duration::from_millis(20)).map_err(driver)?;
        loop {
            let came = b.receive(256, |_| {}).map_err(driver)?;
            if came == 0 {
                break;
            }
            received += u64::from(came);
        }
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(counted: &[(&str, u64)]) -> BTreeMap<String, u64> {
        counted.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect()
    }

    #[test]
    fn each_frame_went_one_way_and_what_was_sent_and_never_came_is_lost() {
        let counted = daemon(&[
            ("tx_frames", 1000),
            ("rx_frames", 800),
            ("rx_no_buffer", 200),
            ("rx_leased", 80),
        ]);
        let raw = raw(&counted, 790, 0.001, None, &BTreeMap::new());
        let of = |name: &str| raw[name].as_f64().unwrap();
        assert_eq!((of("fifo"), of("lent"), of("lost")), (0.25, 0.1, 0.2));
        assert!((of("direct") - 0.65).abs() < 1e-9);
        assert_eq!((of("frames"), of("daemon_ns")), (800.0, 1250.0));
    }

    #[test]
    fn calls_of_every_part_are_added_and_interrupts_of_queues_are_none() {
        let counted = daemon(&[
            ("rx_frames", 10),
            ("recv_calls", 20),
            ("worker.poll_calls", 5),
            ("kicks", 10),
            ("queue_calls", 1000),
        ]);
        let raw = raw(&counted, 10, 0.0, None, &BTreeMap::new());
        assert_eq!(raw["daemon_calls"].as_f64(), Some(3.5));
        assert_eq!(raw["guest_calls"].as_f64(), Some(1.0));
        assert!(raw["guest_messages"].is_null());
    }

    #[test]
    fn a_driver_of_ours_knows_what_it_has_called() {
        let counted = daemon(&[("rx_frames", 10), ("kicks", 99)]);
        let raw = raw(&counted, 10, 0.0, Some((20, 30)), &BTreeMap::new());
        assert_eq!(raw["guest_calls"].as_f64(), Some(2.0));
        assert_eq!(raw["guest_messages"].as_f64(), Some(3.0));
    }
}

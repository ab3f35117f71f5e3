//! A few real guests: Linux with its own igbvf on a VF of ours and its own virtio_net on QEMU's, in turns.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rig::{Daemon, Guest, GuestConfig, Netdev, Netns, Nic, Rig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::fabric::{alone, cpu};
use crate::machine;
use crate::options::Options;
use crate::quiet::Quiet;
use crate::stats::{Column, Reading, in_turns};

const MOMENT: Duration = Duration::from_secs(90);
/// Guests there are.
const GUESTS: usize = 4;
/// How many of them take part.
pub const ACTIVE: [usize; 3] = [1, 2, 4];
/// Megabits a second to all of them together, in datagrams of 1472 bytes.
pub const MEGABITS: usize = 100;
/// Bytes of a message between two of them, as in figures 12 and 13.
pub const MESSAGES: [u32; 2] = [1500, 4000];

/// What a guest's NIC is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// A VF of our 82576, its cable a TAP.
    Vf,
    /// QEMU's virtio-net on a TAP at a bridge.
    Virtio,
    /// The same without segmentation offload either way: frames as a cable has them.
    Plain,
}

/// All of them.
pub const PARTIES: [(Party, &str); 3] = [
    (Party::Vf, "VF, igbvf"),
    (Party::Virtio, "virtio-net"),
    (Party::Plain, "virtio-net without segmentation offloads"),
];

fn seconds(options: &Options) -> f64 {
    if options.quick { 1.5 } else { 3.0 }
}

/// Guests take their time, so there are fewer rounds than elsewhere.
fn rounds(options: &Options) -> usize {
    options.rounds().min(3)
}

/// How long it takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let each = seconds(options) + 1.5;
    let samples = PARTIES.len() * (ACTIVE.len() + MESSAGES.len());
    45.0 + (samples * rounds(options)) as f64 * each
}

fn mac(party: usize, guest: usize) -> String {
    format!("52:54:00:0e:{party:02x}:{guest:02x}")
}

fn tap(party: usize, guest: usize) -> String {
    format!("v{party}g{guest}")
}

/// A guest's address, or the host's where there is none.
fn address(party: usize, guest: Option<usize>) -> String {
    format!("10.14.{party}.{}", guest.map_or(1, |g| g + 2))
}

struct Bed {
    rig: Rig,
    netns: Netns,
    guests: Vec<Guest>,
    daemon: Daemon,
    _scratch: TempDir,
}

/// The chip's configuration.
fn chip(sockets: &std::path::Path, wire: &str) -> String {
    let mut text = format!(
        "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = {GUESTS}\nvf-socket-path = {sockets:?}\n\
         port = \"tap:{wire}\"\n"
    );
    for guest in 0..GUESTS {
        text += &format!("[[nic.vf]]\nindex = {guest}\nmac = \"{}\"\n", mac(0, guest));
    }
    text
}

impl Bed {
    fn new(options: &Options) -> Result<Self> {
        let rig = Rig::prepare().map_err(rig::Error::from)?;
        let netns = Netns::new(&rig).map_err(rig::Error::from)?;
        let scratch = machine::scratch()?;
        netns.tap("wire", Some(&format!("{}/24", address(0, None))))?;
        for party in 1..PARTIES.len() {
            let taps: Vec<String> = (0..GUESTS).map(|guest| tap(party, guest)).collect();
            for tap in &taps {
                netns.tap(tap, None)?;
            }
            let members: Vec<&str> = taps.iter().map(String::as_str).collect();
            let bridge = format!("br{party}");
            netns.bridge(&bridge, &members)?;
            let own = format!("{}/24", address(party, None));
            netns.ip(["addr", "add", &own, "dev", &bridge])?;
        }
        let file = scratch.path().join("host.toml");
        let text = chip(&scratch.path().join("vf{}.sock"), "wire");
        std::fs::write(&file, alone(&text)).map_err(Error::io("write a configuration"))?;
        let mut command = netns.command(options.hypernic());
        command.args(["--log-format", "json", "serve"]).arg(&file);
        let mut daemon = Daemon::start("hypernic", command, scratch.path().join("log"))?;
        daemon.expect("serving", MOMENT)?;
        let configs = (0..GUESTS).map(|guest| {
            let socket = scratch.path().join(format!("vf{guest}.sock"));
            let mut config = GuestConfig::new(&format!("sriov{guest}")).netns(&netns);
            config = config.nic(Nic::vfio_user("vf", socket).addr("5"));
            for (party, (kind, _)) in PARTIES.into_iter().enumerate().skip(1) {
                let netdev = Netdev::Tap {
                    ifname: tap(party, guest),
                };
                let mut nic = Nic::qemu(&format!("v{party}"), "virtio-net-pci", Some(netdev))
                    .mac(&mac(party, guest))
                    .rom("");
                if kind == Party::Plain {
                    for name in [
                        "guest_tso4",
                        "guest_tso6",
                        "guest_ecn",
                        "guest_ufo",
                        "guest_uso4",
                        "guest_uso6",
                        "host_tso4",
                        "host_tso6",
                        "host_ecn",
                        "host_ufo",
                        "host_uso",
                    ] {
                        nic = nic.property(name, json!(false));
                    }
                }
                config = config.nic(nic.addr(&format!("{}", 5 + party)));
            }
            config
        });
        let guests = rig.start_all(configs.collect())?;
        let bed = Self {
            rig,
            netns,
            guests,
            daemon,
            _scratch: scratch,
        };
        for (number, guest) in bed.guests.iter().enumerate() {
            guest.run("mp igbvf && mp virtio_net")?;
            for party in 0..PARTIES.len() {
                let interface = guest.interface(&mac(party, number), MOMENT)?;
                guest.run(&format!(
                    "ip addr add {}/24 dev {interface} && ip link set {interface} up",
                    address(party, Some(number))
                ))?;
                let ping = format!("ping -c 1 -W 1 {} >/dev/null", address(party, None));
                guest.wait_for(&ping, MOMENT)?;
            }
            guest.run("iperf3 -s -D >/dev/null 2>&1")?;
            guest.wait_for(
                "grep -qs ':1451 [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6",
                MOMENT,
            )?;
        }
        Ok(bed)
    }

    /// Processor seconds of the daemon, of QEMUs' processors, and of QEMUs' other threads.
    fn cpus(&self) -> [f64; 3] {
        let (mut inside, mut beside) = (0.0, 0.0);
        for thread in self.guests.iter().flat_map(Guest::cpu_seconds) {
            if thread.name.starts_with("CPU ") {
                inside += thread.seconds;
            } else {
                beside += thread.seconds;
            }
        }
        [cpu(self.daemon.id()), inside, beside]
    }

    fn client(&self, words: &[String]) -> Result<Child> {
        let mut command: Command = self.netns.tool(&self.rig, "iperf3")?;
        command.args(words).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(Error::io("run iperf3"))
    }

    /// Datagrams to the first `active` guests, an equal part of the load to each. The figure is percent of
    /// a core that is used beside the guests' own processors: the daemon, and QEMU's other threads.
    fn paced(&self, party: usize, active: usize, seconds: f64) -> Result<Reading> {
        for _ in 0..3 {
            if let Some(reading) = self.offer(party, active, seconds)? {
                return Ok(reading);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        Err(Error::Usage("iperf3 to the guests gave nothing".to_owned()))
    }

    /// Once; nothing where a client's answer is none.
    fn offer(&self, party: usize, active: usize, seconds: f64) -> Result<Option<Reading>> {
        let rate = format!("{}k", MEGABITS * 1000 / active);
        let time = format!("{:.0}", (seconds + 1.0).ceil());
        let mut clients = Vec::new();
        for guest in 0..active {
            let to = address(party, Some(guest));
            let words = [
                "-u", "-c", &to, "-b", &rate, "-l", "1472", "-t", &time, "-J",
            ];
            clients.push(self.client(&words.map(str::to_owned))?);
        }
        std::thread::sleep(Duration::from_millis(700));
        let (start, before) = (Instant::now(), self.cpus());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (took, after) = (start.elapsed().as_secs_f64(), self.cpus());
        let mut answers = Vec::new();
        for client in clients {
            let out = client.wait_with_output();
            let out = out.map_err(Error::io("wait for iperf3"))?;
            answers.push(counted(&String::from_utf8_lossy(&out.stdout)));
        }
        let Some(answers) = answers.into_iter().collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let megabits = |pick: fn(&[f64; 3]) -> f64| -> f64 {
            let each = answers.iter().map(|a| pick(a) / a[2]);
            each.sum::<f64>() * 1472.0 * 8.0 / 1e6
        };
        let share = |i: usize| (after[i] - before[i]) / took * 100.0;
        Ok(Some(Reading {
            value: share(0) + share(2),
            raw: json!({
                "mbit_sent": megabits(|a| a[0]), "mbit": megabits(|a| a[0] - a[1]),
                "daemon_cpu": share(0), "guests_cpu": share(1), "qemu_cpu": share(2),
            }),
        }))
    }

    /// TCP from the first guest to the second in writes of a size. The figure is gigabits a second.
    fn between(&self, party: usize, message: u32, seconds: f64) -> Result<Reading> {
        let words = format!(
            "iperf3 -c {} -l {message} -t {seconds:.0} -O 1 -J >/tmp/iperf; cat /tmp/iperf",
            address(party, Some(1))
        );
        for _ in 0..5 {
            let (start, before) = (Instant::now(), self.cpus());
            let text = self.guests[0].run(&words)?;
            let (took, after) = (start.elapsed().as_secs_f64(), self.cpus());
            let answer: Value = serde_json::from_str(&text).unwrap_or_default();
            let rate = answer["end"]["sum_received"]["bits_per_second"].as_f64();
            if let Some(rate) = rate
                && answer["error"].is_null()
            {
                let share = |i: usize| (after[i] - before[i]) / took * 100.0;
                return Ok(Reading {
                    value: rate / 1e9,
                    raw: json!({
                        "retransmits": answer["end"]["sum_sent"]["retransmits"],
                        "daemon_cpu": share(0), "guests_cpu": share(1), "qemu_cpu": share(2),
                        "beside_cpu": share(0) + share(2),
                    }),
                });
            }
            // The server takes a moment to be free again after the last client.
            std::thread::sleep(Duration::from_millis(500));
        }
        Err(Error::Usage(
            "iperf3 between two guests gave nothing".to_owned(),
        ))
    }
}

/// Datagrams that a client of iperf3's sent, those that were lost, and seconds.
fn counted(text: &str) -> Option<[f64; 3]> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let sum = &answer["end"]["sum"];
    let field = |name: &str| sum[name].as_f64();
    Some([field("packets")?, field("lost_packets")?, field("seconds")?])
}

/// What [`run`] yields.
pub struct Guests {
    /// For each of [`ACTIVE`], each of [`PARTIES`].
    pub paced: Vec<Column>,
    /// For each of [`MESSAGES`], each of [`PARTIES`].
    pub between: Vec<Column>,
    /// What they are: kernel, QEMU, accelerator.
    pub facts: [String; 3],
}

/// Boots the guests and measures.
///
/// # Errors
/// When this machine cannot run guests or TAPs, or anything does not come up.
pub fn run(options: &Options, quiet: &mut Quiet) -> Result<Guests> {
    eprintln!("  {GUESTS} guests boot");
    let bed = Bed::new(options)?;
    let columns = |firsts: &[String]| -> Vec<Column> {
        let cross = firsts.iter().flat_map(|first| {
            PARTIES
                .iter()
                .map(move |(_, words)| Column::new(format!("{first}, {words}")))
        });
        cross.collect()
    };
    let mut paced = columns(&ACTIVE.map(|n| format!("{n} guests")));
    eprint!("  guests, fixed load");
    in_turns(quiet, rounds(options), &mut paced, |i| {
        let (active, party) = (ACTIVE[i / PARTIES.len()], i % PARTIES.len());
        bed.paced(party, active, seconds(options))
    })?;
    let mut between = columns(&MESSAGES.map(|n| format!("{n} bytes")));
    eprint!("\n  guest to guest");
    in_turns(quiet, rounds(options), &mut between, |i| {
        let (message, party) = (MESSAGES[i / PARTIES.len()], i % PARTIES.len());
        bed.between(party, message, seconds(options))
    })?;
    eprintln!();
    let kernel = bed.guests[0].run("uname -r")?.trim().to_owned();
    let qemu = bed.rig.qemu().version().to_owned();
    let facts = [kernel, qemu, bed.rig.accel()?.to_string()];
    Ok(Guests {
        paced,
        between,
        facts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_counted_by_the_receivers_word() {
        let text = r#"{"end": {"sum": {"seconds": 2.5, "packets": 21233, "lost_packets": 12, "sender": true}}}"#;
        assert_eq!(counted(text), Some([21233.0, 12.0, 2.5]));
        assert_eq!(counted(r#"{"error": "the server is busy"}"#), None);
    }

    #[test]
    fn the_chip_has_a_vf_for_each_guest() {
        let text = chip(std::path::Path::new("/tmp/vf{}.sock"), "wire");
        assert_eq!(text.matches("[[nic.vf]]").count(), GUESTS);
        assert!(text.contains(&format!("vfs = {GUESTS}\n")) && text.contains("tap:wire"));
        assert!((0..GUESTS).all(|guest| text.contains(&mac(0, guest))));
    }
}

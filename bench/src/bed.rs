//! The test bed: one guest with two NICs of the same kind, QEMU's own model and ours, each before a TAP of its own
//! in one namespace.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rig::{Daemon, Guest, GuestConfig, Netdev, Netns, Nic, Rig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::fabric;
use crate::machine;

/// The limit of things that take a moment.
const MOMENT: Duration = Duration::from_secs(60);

/// One of the two NICs with its TAP and addresses.
#[derive(Debug, Clone)]
pub struct End {
    /// What it is called in reports.
    pub label: &'static str,
    /// The TAP on the host.
    pub tap: &'static str,
    /// The host's address on it.
    pub host: &'static str,
    /// The guest's address.
    pub guest: &'static str,
    /// The guest's interface.
    pub interface: String,
    index: usize,
    mac: &'static str,
    slot: &'static str,
    host_mac: &'static str,
}

/// What is on one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidate {
    /// QEMU's own e1000.
    Qemu,
    /// Ours, served by this daemon.
    Hypernic(PathBuf),
}

/// The two ends, A (to which the other is compared) first.
fn ends(labels: [&'static str; 2]) -> [End; 2] {
    let end = |index, label, tap, host, guest, mac, slot, host_mac| End {
        label,
        tap,
        host,
        guest,
        interface: String::new(),
        index,
        mac,
        slot,
        host_mac,
    };
    let [a, b] = labels;
    [
        end(
            0,
            a,
            "t0",
            "10.9.0.1",
            "10.9.0.2",
            "52:54:00:00:09:00",
            "5",
            "02:00:00:00:09:00",
        ),
        end(
            1,
            b,
            "t1",
            "10.9.1.1",
            "10.9.1.2",
            "52:54:00:00:09:01",
            "6",
            "02:00:00:00:09:01",
        ),
    ]
}

/// Processor seconds by thread name, summed over threads of one name.
pub type Cpu = BTreeMap<String, f64>;

/// Everything that counts, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Frames the guest's driver has sent and received, as they would be on a wire.
    pub frames: (u64, u64),
    /// Interrupts of the NIC that the guest took.
    pub interrupts: u64,
    /// Frames the TAP took from the NIC and gave it; one may hold many segments.
    pub tap_frames: (u64, u64),
    /// Frames the host had for the NIC and dropped.
    pub tap_dropped: u64,
    /// QEMU's and the daemon's threads.
    pub cpu: Cpu,
    /// The daemon's counters; empty for QEMU's own NIC.
    pub counters: BTreeMap<String, u64>,
}

/// What happened between two snapshots.
#[derive(Debug, Clone, Default)]
pub struct Delta {
    /// Frames sent and received by the guest.
    pub frames: (u64, u64),
    /// Interrupts of the NIC that the guest took.
    pub interrupts: u64,
    /// Frames at the TAP: from the NIC, to the NIC.
    pub tap_frames: (u64, u64),
    /// Frames for the NIC that the host dropped.
    pub tap_dropped: u64,
    /// Processor seconds by thread.
    pub cpu: Cpu,
    /// The daemon's counters.
    pub counters: BTreeMap<String, u64>,
}

impl Delta {
    /// Frames of both directions.
    pub fn total(&self) -> u64 {
        self.frames.0 + self.frames.1
    }

    /// A counter, 0 if the daemon has none of that name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// System calls by the daemon's own account: the socket's and the TAP's, its waits, timers and eventfds.
    pub fn syscalls(&self) -> u64 {
        let names = [
            "recv_calls",
            "send_calls",
            "poll_calls",
            "timer_calls",
            "syscalls",
            "irq_triggers",
            "inlet_sleeps",
        ];
        names.iter().map(|name| self.counter(name)).sum()
    }

    /// The raw figures, zeros left out.
    pub fn json(&self) -> Value {
        let cpu: BTreeMap<&String, f64> = self
            .cpu
            .iter()
            .map(|(k, v)| (k, (v * 1e4).round() / 1e4))
            .filter(|(_, v)| *v > 0.0)
            .collect();
        let counters: BTreeMap<_, _> = self.counters.iter().filter(|(_, v)| **v != 0).collect();
        json!({
            "guest_frames_tx": self.frames.0, "guest_frames_rx": self.frames.1,
            "interrupts": self.interrupts,
            "tap_frames_from_nic": self.tap_frames.0, "tap_frames_to_nic": self.tap_frames.1,
            "tap_dropped": self.tap_dropped, "cpu_s": cpu, "daemon": counters,
        })
    }
}

/// The running test bed.
pub struct Bed {
    /// The rig.
    pub rig: Rig,
    /// The guest.
    pub guest: Guest,
    /// The two NICs.
    pub ends: [End; 2],
    netns: Netns,
    daemons: [Option<Daemon>; 2],
    _iperf: Daemon,
    scratch: TempDir,
}

impl Bed {
    /// Boots it all and waits until both NICs carry frames.
    ///
    /// # Errors
    /// When this machine cannot run guests or TAPs, or anything does not come up.
    pub fn new(candidates: &[Candidate; 2], labels: [&'static str; 2]) -> Result<Self> {
        let rig = Rig::prepare().map_err(rig::Error::from)?;
        let netns = Netns::new(&rig).map_err(rig::Error::from)?;
        let mut ends = ends(labels);
        for end in &ends {
            netns.tap(end.tap, Some(&format!("{}/24", end.host)))?;
            netns.ip(["link", "set", end.tap, "address", end.host_mac])?;
            let to = [
                "neigh",
                "replace",
                end.guest,
                "lladdr",
                end.mac,
                "dev",
                end.tap,
                "nud",
                "permanent",
            ];
            netns.ip(to)?;
        }
        let scratch = machine::scratch()?;
        let mut daemons = [None, None];
        let mut nics = Vec::new();
        for (i, end) in ends.iter().enumerate() {
            let path = |ending| scratch.path().join(format!("{}.{ending}", end.tap));
            let socket = path("sock");
            nics.push(match &candidates[i] {
                Candidate::Qemu => {
                    let netdev = Netdev::Tap {
                        ifname: end.tap.to_owned(),
                    };
                    Nic::qemu(&format!("n{i}"), "e1000", Some(netdev))
                        .mac(end.mac)
                        .rom("")
                }
                Candidate::Hypernic(program) => {
                    let mut command = netns.command(program);
                    command.args(["--log-format", "json", "run", "--model", "e1000"]);
                    command.args(fabric::without_keeper(program));
                    command.args(["--mac", end.mac, "--port", &format!("tap:{}", end.tap)]);
                    command.arg("--socket-path").arg(&socket);
                    let mut daemon = Daemon::start("hypernic", command, path("log"))?;
                    daemon.expect("serving", MOMENT)?;
                    daemons[i] = Some(daemon);
                    Nic::vfio_user(&format!("n{i}"), &socket)
                }
            });
        }

        let mut guest = GuestConfig::new("bench").netns(&netns);
        for (nic, end) in nics.into_iter().zip(&ends) {
            guest = guest.nic(nic.addr(end.slot));
        }
        // Accesses are counted from this file, when tracing is switched on.
        guest = guest.args([
            "-D".into(),
            scratch.path().join("qemu.trace").into_os_string(),
        ]);
        let guest = rig.start(guest)?;
        guest.run("mp e1000 && mp pktgen")?;
        for end in &mut ends {
            end.interface = guest.interface(end.mac, MOMENT)?;
            let (interface, address, host, mac) =
                (&end.interface, end.guest, end.host, end.host_mac);
            guest.run(&format!(
                "ip addr add {address}/24 dev {interface} && ip link set {interface} up && \
                 ip neigh replace {host} lladdr {mac} dev {interface} nud permanent"
            ))?;
        }
        for end in &ends {
            guest.wait_for(&format!("ping -c 1 -W 1 {} >/dev/null", end.host), MOMENT)?;
        }
        // Sockets that no program reads: datagrams for them go all the way up and are dropped there, with no answer.
        // The guest's one program with such a socket is a DHCP server that is stopped as soon as it listens.
        for end in &ends {
            let (interface, address) = (&end.interface, end.guest);
            guest.run(&format!(
                "cd /run; printf 'interface {interface}\nlease_file /run/leases\npidfile /run/sink.{interface}\n' \
                 >sink.conf; touch leases; udhcpd -f -I {address} sink.conf </dev/null >sink.log 2>&1 & \
                 until [ -s /run/sink.{interface} ]; do usleep 20000; done; usleep 500000; \
                 kill -STOP $(cat /run/sink.{interface})"
            ))?;
        }
        let mut server = netns.tool(&rig, "iperf3")?;
        server.args(["--server", "--forceflush"]);
        let mut iperf = Daemon::start("iperf3", server, scratch.path().join("iperf3.log"))?;
        iperf.expect("listening", MOMENT)?;
        Ok(Self {
            rig,
            guest,
            ends,
            netns,
            daemons,
            _iperf: iperf,
            scratch,
        })
    }

    /// A command in the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.netns.command(program)
    }

    /// A tool of the rig's root in the namespace.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn tool(&self, program: &str) -> Result<Command> {
        Ok(self.netns.tool(&self.rig, program)?)
    }

    fn daemon(&self, end: &End) -> Option<&Daemon> {
        self.daemons[end.index].as_ref()
    }

    /// The process of the daemon that serves an end, if one does.
    pub fn daemon_id(&self, end: &End) -> Option<u32> {
        self.daemon(end).map(Daemon::id)
    }

    /// The file QEMU's traces go to.
    pub fn trace_file(&self) -> PathBuf {
        self.scratch.path().join("qemu.trace")
    }

    /// Does some work on one end and returns what it returned, with all that happened meanwhile.
    ///
    /// # Errors
    /// The work's, and those of looking.
    pub fn watch<T>(&self, end: &End, work: impl FnOnce() -> Result<T>) -> Result<(T, Delta)> {
        let before = self.look(end, true)?;
        let out = work()?;
        let after = self.look(end, false)?;
        let minus =
            |a: (u64, u64), b: (u64, u64)| (a.0.saturating_sub(b.0), a.1.saturating_sub(b.1));
        let delta = Delta {
            frames: minus(after.frames, before.frames),
            interrupts: after.interrupts.saturating_sub(before.interrupts),
            tap_frames: minus(after.tap_frames, before.tap_frames),
            tap_dropped: after.tap_dropped.saturating_sub(before.tap_dropped),
            cpu: after
                .cpu
                .iter()
                .map(|(k, v)| (k.clone(), v - before.cpu.get(k).copied().unwrap_or(0.0)))
                .collect(),
            counters: after
                .counters
                .iter()
                .map(|(k, v)| {
                    (
                        k.clone(),
                        v.saturating_sub(before.counters.get(k).copied().unwrap_or(0)),
                    )
                })
                .collect(),
        };
        Ok((out, delta))
    }

    /// Looks at everything. The processor time is read nearest to the work, since looking costs some too.
    fn look(&self, end: &End, before: bool) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        if !before {
            snapshot.cpu = self.cpu(end);
        }
        self.look_inside(end, &mut snapshot)?;
        snapshot.counters = self.counters(end)?;
        if before {
            snapshot.cpu = self.cpu(end);
        }
        Ok(snapshot)
    }

    fn look_inside(&self, end: &End, snapshot: &mut Snapshot) -> Result<()> {
        let statistics = format!("/sys/class/net/{}/statistics", end.interface);
        let text = self.guest.run(&format!(
            "cat {statistics}/tx_packets {statistics}/rx_packets; grep -w {} /proc/interrupts",
            end.interface
        ))?;
        let mut lines = text.lines();
        let mut number = || lines.next().and_then(|l| l.trim().parse().ok());
        let frames = number().zip(number());
        snapshot.frames = frames.ok_or_else(|| Error::tool("cat", &text))?;
        // "21:  1234  IO-APIC  21-fasteoi  eth0": one count per processor.
        let counts = lines.next().unwrap_or_default();
        let counts = counts
            .split_whitespace()
            .skip(1)
            .map_while(|w| w.parse::<u64>().ok());
        snapshot.interrupts = counts.sum();

        let out = self
            .command("cat")
            .arg("/proc/net/dev")
            .output()
            .map_err(Error::io("read the TAP's counters"))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let line = text
            .lines()
            .find_map(|l| l.trim().strip_prefix(&format!("{}:", end.tap)));
        let values: Vec<u64> = line
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|v| v.parse().ok())
            .collect();
        // Receive: bytes packets errs drop fifo frame compressed multicast; transmit: bytes packets errs drop ...
        let [_, rx, _, _, _, _, _, _, _, tx, _, tx_dropped, ..] = values[..] else {
            return Err(Error::tool("/proc/net/dev", &text));
        };
        snapshot.tap_frames = (rx, tx);
        snapshot.tap_dropped = tx_dropped;
        Ok(())
    }

    /// Processor seconds of QEMU's threads and those of the end's daemon.
    fn cpu(&self, end: &End) -> Cpu {
        let mut cpu = Cpu::new();
        for thread in self.guest.cpu_seconds() {
            let name = match thread.name.as_str() {
                name if name.starts_with("CPU ") => "QEMU vCPU".to_owned(),
                name if thread.id == self.guest.id() => {
                    let _ = name;
                    "QEMU main loop".to_owned()
                }
                name => format!("QEMU {name}"),
            };
            *cpu.entry(name).or_default() += thread.seconds;
        }
        if let Some(id) = self.daemon_id(end) {
            for entry in fs::read_dir(format!("/proc/{id}/task"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let read =
                    |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
                let run = read("schedstat");
                let run: f64 = run
                    .split(' ')
                    .next()
                    .and_then(|v| v.parse().ok())
                    .unwrap_or(0.0);
                *cpu.entry(format!("hypernic {}", read("comm").trim()))
                    .or_default() += run / 1e9;
            }
        }
        cpu
    }

    /// Asks the daemon for its counters and sums them by name over its parts.
    fn counters(&self, end: &End) -> Result<BTreeMap<String, u64>> {
        let Some(daemon) = self.daemon(end) else {
            return Ok(BTreeMap::new());
        };
        sums(daemon)
    }
}

/// A daemon's counters, summed by name over its parts.
///
/// # Errors
/// When it does not say.
pub fn sums(daemon: &Daemon) -> Result<BTreeMap<String, u64>> {
    sums_without(daemon, "")
}

/// As [`sums`], without those of the NIC (or whatever it is) of a name.
///
/// # Errors
/// When the daemon does not answer.
pub fn sums_without(daemon: &Daemon, name: &str) -> Result<BTreeMap<String, u64>> {
    let answer = fabric::ask(daemon)?;
    let mut sums = BTreeMap::new();
    let sections = answer["counters"].as_array().into_iter().flatten();
    for section in sections.filter(|s| s["name"] != name) {
        for (name, value) in section["values"].as_object().into_iter().flatten() {
            *sums.entry(name.clone()).or_default() += value.as_u64().unwrap_or(0);
        }
    }
    Ok(sums)
}

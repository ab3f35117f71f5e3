//! One guest with all NICs, each before a TAP of its own in one namespace; a run touches one of them.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rig::paired::percentile;
use rig::{Daemon, Guest, GuestConfig, Netns, Rig};
use serde_json::json;
use tempfile::TempDir;

use super::party::{Kind, PARTIES, Party};
use crate::error::{Error, Result};
use crate::fabric::alone;
use crate::machine;
use crate::stats::Reading;
use crate::traffic;

const MOMENT: Duration = Duration::from_secs(60);
/// Small datagrams a second that the guest is offered: more than any of its NICs takes.
const OFFERED: f64 = 150_000.0;

/// The guest, the daemons and the namespace.
pub struct Bed {
    pub guest: Guest,
    pub rig: Rig,
    netns: Netns,
    /// None of a party that is not here.
    interfaces: Vec<Option<String>>,
    /// What each party has beside QEMU.
    daemons: Vec<Option<Daemon>>,
    /// Why a party is not here.
    absent: Vec<Option<String>>,
    /// The largest MTU that each driver takes, of those asked for so far.
    mtus: Vec<u32>,
    _server: Daemon,
    _scratch: TempDir,
}

fn host_mac(at: usize) -> String {
    format!("02:00:00:00:0a:{at:02x}")
}

fn address(at: usize, host: bool) -> String {
    format!("10.10.{at}.{}", if host { 1 } else { 2 })
}

/// A TAP with an address of the host, which knows the guest's.
fn tap(netns: &Netns, at: usize) -> Result<()> {
    let (tap, mac, neighbour) = (Party::tap(at), Party::mac(at), address(at, false));
    netns.tap(&tap, Some(&format!("{}/24", address(at, true))))?;
    netns.ip(["link", "set", &tap, "address", &host_mac(at)])?;
    let words = ["neigh", "replace", &neighbour, "lladdr", &mac, "dev", &tap];
    netns.ip(words.into_iter().chain(["nud", "permanent"]))?;
    Ok(())
}

/// A NIC where it belongs. The VFs of QEMU's igb take functions far behind its own: it has a bus for itself.
fn placed(nic: rig::Nic, at: usize, party: &Party) -> rig::Nic {
    match party.kind {
        Kind::Qemu { model: "igb", .. } => nic.bus("rp0"),
        _ => nic.addr(&format!("{:x}", 5 + at)),
    }
}

/// Starts what a party has beside QEMU.
fn serve(
    rig: &Rig,
    netns: &Netns,
    hypernic: &Path,
    (at, party): (usize, &Party),
    socket: &Path,
) -> Result<Option<Daemon>> {
    if party.kind == Kind::Passt {
        return passt(rig, netns, at, socket).map(Some);
    }
    let Some(text) = party.config(at, socket) else {
        return Ok(None);
    };
    let file = socket.with_extension("toml");
    fs::write(&file, alone(&text)).map_err(Error::io("write a configuration"))?;
    let mut command = netns.command(hypernic);
    command.args(["--log-format", "json", "serve"]).arg(&file);
    let mut daemon = Daemon::start("hypernic", command, socket.with_extension("log"))?;
    daemon.expect("serving", MOMENT)?;
    Ok(Some(daemon))
}

/// passt of Debian's. The guest has it at the same addresses as TAPs of others; what it sends to its gateway passt sends to the
/// host itself, where the servers are.
fn passt(rig: &Rig, netns: &Netns, at: usize, socket: &Path) -> Result<Daemon> {
    let root = rig.packages("passt", &["passt"])?;
    let words = root.program("passt")?;
    // Whoever pings without rights does so from sockets, for which a namespace has to say that it may.
    let mut allow = netns.command("sh");
    allow.args(["-c", "echo 0 65535 >/proc/sys/net/ipv4/ping_group_range"]);
    let done = allow.status().map_err(Error::io("run sh"))?;
    if !done.success() {
        return Err(Error::Usage(
            "pings from sockets were not allowed".to_owned(),
        ));
    }
    let mut command = netns.command(&words[0]);
    command.args(&words[1..]).arg("--foreground");
    command.arg("--socket").arg(socket);
    command.args(["--interface", &Party::tap(at), "--ipv4-only"]);
    command.args(["--address", &address(at, false), "--netmask", "24"]);
    command.args(["--gateway", &address(at, true)]);
    command.args(["--mac-addr", &host_mac(at)]);
    let daemon = Daemon::start("passt", command, socket.with_extension("log"))?;
    let until = Instant::now() + Duration::from_secs(10);
    while !socket.exists() {
        if Instant::now() > until {
            return Err(Error::tool("passt", &daemon.output()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(daemon)
}

impl Bed {
    /// Boots it.
    ///
    /// # Errors
    /// When this machine cannot run guests.
    pub fn new(hypernic: &std::path::Path) -> Result<Self> {
        let rig = Rig::prepare().map_err(rig::Error::from)?;
        let netns = Netns::new(&rig).map_err(rig::Error::from)?;
        let scratch = machine::scratch()?;
        let mut daemons = Vec::new();
        let mut config = GuestConfig::new("which").netns(&netns);
        config.mem_mib = config.mem_mib.max(1024);
        let mut absent = Vec::new();
        for (at, party) in PARTIES.iter().enumerate() {
            let mut why = party.refused();
            let mut daemon = None;
            if why.is_none() {
                tap(&netns, at)?;
                let socket = scratch.path().join(format!("n{at}.sock"));
                match serve(&rig, &netns, hypernic, (at, party), &socket) {
                    Ok(begun) => {
                        let (nic, arguments) = party.nic(at, &socket);
                        config = config.nic(placed(nic, at, party)).args(arguments);
                        daemon = begun;
                    }
                    // The daemon is here, others may not be.
                    Err(error) if !party.is_ours() => why = Some(error.to_string()),
                    Err(error) => return Err(error),
                }
            }
            if let Some(why) = &why {
                eprintln!("  {} is not here: {why}", party.title);
            }
            daemons.push(daemon);
            absent.push(why);
        }
        let guest = rig.start(config)?;
        guest.run("mp realtek; for m in e1000 igb igbvf r8169 virtio_net pktgen; do mp $m || exit 1; done")?;
        let mut interfaces = Vec::new();
        for (at, why) in absent.iter().enumerate() {
            if why.is_some() {
                interfaces.push(None);
                continue;
            }
            let interface = guest.interface(&Party::mac(at), MOMENT)?;
            guest.run(&format!(
                "ip addr add {}/24 dev {interface} && ip link set {interface} up && \
                 ip neigh replace {} lladdr {} dev {interface} nud permanent",
                address(at, false),
                address(at, true),
                host_mac(at)
            ))?;
            interfaces.push(Some(interface));
        }
        let mut server = netns.tool(&rig, "iperf3")?;
        server.args(["--server", "--forceflush"]);
        let mut server = Daemon::start("iperf3", server, scratch.path().join("iperf3.log"))?;
        server.expect("listening", MOMENT)?;
        let bed = Self {
            guest,
            rig,
            netns,
            interfaces,
            daemons,
            absent,
            mtus: vec![1500; PARTIES.len()],
            _server: server,
            _scratch: scratch,
        };
        bed.answers()?;
        Ok(bed)
    }

    /// Waits until the host answers on each NIC.
    fn answers(&self) -> Result<()> {
        for at in (0..PARTIES.len()).filter(|&at| self.absent[at].is_none()) {
            let ping = format!("ping -c 1 -W 1 {} >/dev/null", address(at, true));
            self.guest.wait_for(&ping, MOMENT)?;
        }
        Ok(())
    }

    /// Sets the MTU everywhere, or the largest that a driver takes.
    ///
    /// # Errors
    /// When a NIC does not come back.
    pub fn mtu(&mut self, mtu: u32) -> Result<()> {
        for (at, interface) in self.interfaces.iter().enumerate() {
            let Some(interface) = interface else { continue };
            let most = self.guest.run(&format!(
                "ip -d link show {interface} | grep -o 'maxmtu [0-9]*' | cut -d' ' -f2"
            ))?;
            let most = most.trim().parse().unwrap_or(mtu);
            // 0 says that the driver has no limit.
            let mtu = if most == 0 { mtu } else { mtu.min(most) };
            self.mtus[at] = mtu;
            self.netns
                .ip(["link", "set", &Party::tap(at), "mtu", &mtu.to_string()])?;
            self.guest
                .run(&format!("ip link set {interface} mtu {mtu}"))?;
        }
        // A driver that was stopped for it has its link back in a moment.
        self.answers()
    }

    /// Why a party is not here.
    pub fn absent(&self, at: usize) -> Option<&str> {
        self.absent[at].as_deref()
    }

    /// What [`Bed::mtu`] came to.
    pub fn mtu_of(&self, at: usize) -> u32 {
        self.mtus[at]
    }

    /// Processor seconds of QEMU and of the party's daemon so far.
    fn cpu(&self, at: usize) -> (f64, f64) {
        let qemu = self.guest.cpu_seconds().iter().map(|t| t.seconds).sum();
        let Some(daemon) = &self.daemons[at] else {
            return (qemu, 0.0);
        };
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.id()));
        let ran = tasks.into_iter().flatten().flatten().filter_map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<f64>().ok()
        });
        (qemu, ran.sum::<f64>() / 1e9)
    }

    /// Gigabits a second of TCP payload; raw: the processor seconds that a gigabit took.
    ///
    /// # Errors
    /// iperf3 fails.
    pub fn tcp(&self, at: usize, receive: bool, seconds: u32) -> Result<Reading> {
        let reverse = if receive { "-R" } else { "" };
        let options = format!("-t {seconds} {reverse}");
        let mut before = (0.0, 0.0);
        let answer = traffic::iperf(&self.guest, &address(at, true), &options, || {
            before = self.cpu(at);
        })?;
        let after = self.cpu(at);
        let (qemu, daemon) = (after.0 - before.0, after.1 - before.1);
        let end = &answer["end"];
        let rate = end["sum_received"]["bits_per_second"].as_f64();
        let bytes = end["sum_received"]["bytes"].as_f64();
        let (Some(rate), Some(bytes)) = (rate, bytes.filter(|bytes| *bytes > 0.0)) else {
            return Err(Error::tool("iperf3", &answer.to_string()));
        };
        let gigabits = bytes * 8.0 / 1e9;
        Ok(Reading {
            value: rate / 1e9,
            raw: json!({
                "retransmits": end["sum_sent"]["retransmits"],
                "cpu_s_per_gbit": (qemu + daemon) / gigabits,
                "daemon_s_per_gbit": daemon / gigabits,
            }),
        })
    }

    /// The median of the times that the host's answers took, in microseconds; raw: the 99th percentile.
    ///
    /// # Errors
    /// Answers are missing.
    pub fn ping(&self, at: usize, count: usize) -> Result<Reading> {
        let text = traffic::ping(&self.guest, &address(at, true), count)?;
        let times = traffic::round_trips(&text, count)?;
        Ok(Reading {
            value: percentile(&times, 50.0).unwrap_or(f64::NAN),
            raw: json!({"p99": percentile(&times, 99.0), "answers": times.len()}),
        })
    }

    /// Thousands of frames of 60 bytes that pktgen sends in a second.
    ///
    /// # Errors
    /// pktgen fails.
    pub fn pktgen(&self, at: usize, count: u64) -> Result<Reading> {
        let interface = self.interfaces[at].as_deref().unwrap_or_default();
        let rate = traffic::pktgen(&self.guest, interface, &address(at, true), count)?;
        Ok(Reading::bare(rate / 1e3))
    }

    /// Thousands of small datagrams that the guest's UDP saw in a second, of many more that it was offered.
    ///
    /// # Errors
    /// The sender fails.
    pub fn flood(&self, at: usize, seconds: f64) -> Result<Reading> {
        let command = |program: &OsStr| self.netns.command(program);
        let to = address(at, false);
        let (received, offered) = traffic::flood(&self.guest, command, &to, (OFFERED, seconds))?;
        Ok(Reading {
            value: received / 1e3,
            raw: json!({"offered": offered}),
        })
    }
}

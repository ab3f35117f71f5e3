//! TCP of a real guest through our e1000, QEMU's e1000 and QEMU's virtio-net, all in one guest, in turns.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rig::{Daemon, Guest, GuestConfig, Netdev, Netns, Nic, Rig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::page::Page;
use crate::plot::{self, Bar, Whose};
use crate::report::Report;
use crate::stats::{Column, Reading, in_turns};

const MOMENT: Duration = Duration::from_secs(60);

/// Who is compared; the first is ours.
const PARTIES: [(&str, &str); 4] = [
    ("hypernic", "hypernic's e1000"),
    ("qemu-e1000", "QEMU's e1000"),
    ("virtio", "QEMU's virtio-net"),
    (
        "virtio-no-rx-seg",
        "QEMU's virtio-net without receive segmentation offload",
    ),
];

/// Both directions at both MTUs: title, whether the guest receives, MTU.
const SCENES: [(&str, bool, u32); 4] = [
    ("TCP transmit, MTU 1500", false, 1500),
    ("TCP receive, MTU 1500", true, 1500),
    ("TCP transmit, MTU 9000", false, 9000),
    ("TCP receive, MTU 9000", true, 9000),
];

fn seconds(options: &Options) -> u32 {
    if options.quick { 1 } else { 2 }
}

/// A guest takes its time, so there are fewer rounds than elsewhere.
fn rounds(options: &Options) -> usize {
    options.rounds().min(5)
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let runs = (SCENES.len() * PARTIES.len() * rounds(options)) as f64;
    15.0 + runs * (f64::from(seconds(options)) + 1.2)
}

struct Bed {
    guest: Guest,
    rig: Rig,
    netns: Netns,
    interfaces: Vec<String>,
    _daemons: Vec<Daemon>,
    _scratch: TempDir,
}

fn tap(i: usize) -> String {
    format!("t{i}")
}

fn mac(i: usize) -> String {
    format!("52:54:00:00:0a:{i:02x}")
}

fn host_mac(i: usize) -> String {
    format!("02:00:00:00:0a:{i:02x}")
}

fn address(i: usize, host: bool) -> String {
    format!("10.10.{i}.{}", if host { 1 } else { 2 })
}

impl Bed {
    fn new(hypernic: PathBuf) -> Result<Self> {
        let rig = Rig::prepare().map_err(rig::Error::from)?;
        let netns = Netns::new(&rig).map_err(rig::Error::from)?;
        let scratch = tempfile::Builder::new()
            .prefix("hypernic-bench-")
            .tempdir()
            .map_err(Error::io("make a scratch folder"))?;
        let mut daemons = Vec::new();
        let mut config = GuestConfig::new("real").netns(&netns);
        for (i, (party, _)) in PARTIES.into_iter().enumerate() {
            let tap = tap(i);
            netns.tap(&tap, Some(&format!("{}/24", address(i, true))))?;
            netns.ip(["link", "set", &tap, "address", &host_mac(i)])?;
            netns.ip([
                "neigh",
                "replace",
                &address(i, false),
                "lladdr",
                &mac(i),
                "dev",
                &tap,
                "nud",
                "permanent",
            ])?;
            let netdev = Netdev::Tap {
                ifname: tap.clone(),
            };
            let id = format!("n{i}");
            let nic = match party {
                "hypernic" => {
                    let socket = scratch.path().join("n.sock");
                    let mut command = netns.command(&hypernic);
                    command.args(["--log-format", "json", "run", "--mac", &mac(i)]);
                    command.args(["--port", &format!("tap:{tap}")]);
                    command.arg("--socket-path").arg(&socket);
                    let log = scratch.path().join("log");
                    let mut daemon = Daemon::start("hypernic", command, log)?;
                    daemon.expect("serving", MOMENT)?;
                    daemons.push(daemon);
                    Nic::vfio_user(&id, &socket)
                }
                "qemu-e1000" => Nic::qemu(&id, "e1000", Some(netdev)).mac(&mac(i)).rom(""),
                party => {
                    let nic = Nic::qemu(&id, "virtio-net-pci", Some(netdev))
                        .mac(&mac(i))
                        .rom("");
                    // Without these a host may not hand over segments to be merged, nor may it cut what it has.
                    let off = ["guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"];
                    let off = off.iter().filter(|_| party == "virtio-no-rx-seg");
                    off.fold(nic, |nic, name| nic.property(name, json!(false)))
                }
            };
            config = config.nic(nic.addr(&format!("{}", 5 + i)));
        }
        let guest = rig.start(config)?;
        guest.run("mp e1000 && mp virtio_net")?;
        let mut interfaces = Vec::new();
        for i in 0..PARTIES.len() {
            let interface = guest.interface(&mac(i), MOMENT)?;
            guest.run(&format!(
                "ip addr add {}/24 dev {interface} && ip link set {interface} up && \
                 ip neigh replace {} lladdr {} dev {interface} nud permanent",
                address(i, false),
                address(i, true),
                host_mac(i)
            ))?;
            interfaces.push(interface);
        }
        for i in 0..PARTIES.len() {
            let ping = format!("ping -c 1 -W 1 {} >/dev/null", address(i, true));
            guest.wait_for(&ping, MOMENT)?;
        }
        let mut server = netns.tool(&rig, "iperf3")?;
        server.args(["--server", "--forceflush"]);
        let mut iperf = Daemon::start("iperf3", server, scratch.path().join("iperf3.log"))?;
        iperf.expect("listening", MOMENT)?;
        daemons.push(iperf);
        Ok(Self {
            guest,
            rig,
            netns,
            interfaces,
            _daemons: daemons,
            _scratch: scratch,
        })
    }

    fn mtu(&self, mtu: u32) -> Result<()> {
        for (i, interface) in self.interfaces.iter().enumerate() {
            self.netns
                .ip(["link", "set", &tap(i), "mtu", &mtu.to_string()])?;
            self.guest
                .run(&format!("ip link set {interface} mtu {mtu}"))?;
        }
        // A driver that was stopped for it has its link back in a moment.
        for i in 0..self.interfaces.len() {
            let ping = format!("ping -c 1 -W 1 {} >/dev/null", address(i, true));
            self.guest.wait_for(&ping, MOMENT)?;
        }
        Ok(())
    }

    /// Gigabits a second of TCP payload.
    fn tcp(&self, party: usize, receive: bool, seconds: u32) -> Result<Reading> {
        let command = format!(
            "iperf3 -c {} -t {seconds} -O 1 {} -J >/tmp/iperf; cat /tmp/iperf",
            address(party, true),
            if receive { "-R" } else { "" }
        );
        let mut text = String::new();
        // The server takes a moment to be free again after the last client.
        for _ in 0..5 {
            text = self.guest.run(&command)?;
            if let Ok(answer) = serde_json::from_str::<Value>(&text)
                && let Some(rate) = answer["end"]["sum_received"]["bits_per_second"].as_f64()
                && answer["error"].is_null()
            {
                return Ok(Reading {
                    value: rate / 1e9,
                    raw: json!({
                        "retransmits": answer["end"]["sum_sent"]["retransmits"],
                        "guest_cpu": answer["end"]["cpu_utilization_percent"]["host_total"],
                    }),
                });
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        Err(Error::tool("iperf3", &text))
    }

    fn tool(&self, program: &str) -> Result<Command> {
        Ok(self.netns.tool(&self.rig, program)?)
    }
}

/// Runs the module.
///
/// # Errors
/// When this machine cannot run guests, or a measurement fails.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new(
        "real_guests",
        "TCP of a real guest: hypernic's e1000, QEMU's e1000, QEMU's virtio-net",
    );
    eprintln!("  booting the guest with {} NICs", PARTIES.len());
    let bed = Bed::new(options.hypernic())?;
    let mut quiet = options.quiet();
    let mut results = Vec::new();
    let mut mtu = 0;
    for (title, receive, size) in SCENES {
        if size != mtu {
            bed.mtu(size)?;
            mtu = size;
        }
        let mut columns: Vec<Column> = PARTIES.iter().map(|p| Column::new(p.0)).collect();
        eprint!("  {title}");
        in_turns(&mut quiet, rounds(options), &mut columns, |i| {
            bed.tcp(i, receive, seconds(options))
        })?;
        for column in &columns {
            eprint!(" {} {:.2}", column.id, column.median());
        }
        eprintln!(" Gbit/s");
        results.push((title, columns));
    }
    let version = bed.tool("iperf3").and_then(|mut command| {
        let out = command.arg("--version").output();
        let out = out.map_err(Error::io("ask iperf3 for its version"))?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        Ok(text.lines().next().unwrap_or_default().to_owned())
    })?;
    page.environment("iperf3", version);
    page.environment("qemu", bed.rig.qemu().version());
    page.environment("accelerator", bed.rig.accel()?.to_string());
    page.environment("guest_kernel", bed.guest.run("uname -rv")?.trim());
    page.text(&format!(
        "One guest (Linux {}, under {}, {}) with all four NICs, each with a TAP of its own in one namespace; a run touches one of them. \
         One stream of iperf3 for {} s after a second of warming up. Gbit/s of payload, medians over rounds \
         (smallest–largest); the ratio is ours over the other's, round by round.",
        bed.guest.run("uname -r")?.trim(),
        bed.rig.accel()?,
        bed.rig.qemu().version(),
        seconds(options)
    ));
    for (title, columns) in &results {
        page.heading(title);
        let rows: Vec<Vec<String>> = PARTIES
            .iter()
            .zip(columns)
            .map(|(party, column)| {
                let ratio = columns[0].ratio_words(column);
                vec![party.1.to_owned(), column.words(), ratio]
            })
            .collect();
        page.table(&["", "Gbit/s", "ours / this"], &rows);
    }
    let bars = results.iter().flat_map(|(title, columns)| {
        columns.iter().skip(1).filter_map(|column| {
            let ratio = columns[0].over(column)?;
            let name = title.replace("TCP ", "").replace(", MTU", "");
            Some(Bar {
                name: format!("{name}: {}", column.id),
                whose: Whose::Ours,
                median: ratio.median,
                spread: (ratio.min, ratio.max),
            })
        })
    });
    page.plot(plot::bars(
        "ratios",
        "Our TCP over the others'",
        "ours / other",
        bars.collect(),
    ));
    let data: Vec<Value> = results
        .iter()
        .map(|(title, columns)| {
            json!({"scene": title, "columns": columns.iter().map(Column::json).collect::<Vec<_>>()})
        })
        .collect();
    page.data("scenes", data);
    Ok(page.finish(&quiet))
}

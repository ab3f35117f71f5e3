//! Two guests with the same NICs, pairwise on networks of their own: ours over TAPs, ours on the switch, QEMU's e1000
//! and virtio-net over TAPs. TAPs stand on a bridge with an address of the host, as in the papers.

mod parts;
mod said;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::{Daemon, Guest, GuestConfig, Kernel, Netns, Rig};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::lan::{Driver, LANS, Lan, Setup, Way};
use super::work;
use crate::bed::{Delta, sums_without};
use crate::error::{Error, Result};
use crate::machine;
use parts::{MOMENT, carried, configure, network, nic, serve, socket, trace};
use said::{elapsed, histogram, parse_look};

/// The running test bed.
pub struct Bed {
    /// The rig.
    pub rig: Rig,
    /// The guests.
    pub guests: Vec<Guest>,
    netns: Netns,
    daemons: Vec<(Lan, Daemon)>,
    interfaces: BTreeMap<(Lan, usize), String>,
    driver: Option<Driver>,
    /// Segmentation offloads and what else the guests have set, as it was set last.
    tuned: BTreeMap<Lan, (bool, Setup)>,
    /// NICs that are down, as their interrupts would disturb others.
    down: BTreeSet<Lan>,
    /// The networks there are.
    lans: Vec<Lan>,
    hypernic: PathBuf,
    scratch: TempDir,
    _server: Daemon,
}

impl Bed {
    /// Boots the guests with `vcpus` processors each, with all virtio-nets if `pv`.
    ///
    /// # Errors
    /// When this machine cannot run guests or TAPs, or anything does not come up.
    pub fn new(hypernic: &Path, vcpus: u32, pv: bool) -> Result<Self> {
        let there = |lan: &Lan| lan.possible() && (pv || !lan.pv());
        let lans: Vec<Lan> = LANS.into_iter().filter(there).collect();
        let rig = Rig::prepare().map_err(rig::Error::from)?;
        let netns = Netns::new(&rig).map_err(rig::Error::from)?;
        let scratch = machine::scratch()?;
        for &lan in lans.iter().filter(|lan| !lan.switched()) {
            network(&netns, lan)?;
        }
        let mut daemons = Vec::new();
        for &lan in lans.iter().filter(|lan| lan.ours()) {
            daemons.push((lan, serve(&netns, scratch.path(), hypernic, lan)?));
        }
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/linux");
        let modules = ["e1000", "r8169"].map(|driver| {
            let module = rig.module(Kernel::Stable, &recipe, driver);
            module.map(|module| (driver, module))
        });
        let modules = modules
            .into_iter()
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let program = std::env::current_exe().map_err(Error::io("find this program"))?;
        let mut configs = Vec::new();
        for guest in 0..2 {
            let mut config = GuestConfig::new(&format!("papers{guest}")).netns(&netns);
            config.smp = vcpus;
            config.mem_mib = 384;
            for (driver, module) in &modules {
                config = config.file(&format!("/mod/{driver}.ko"), 0o644, module.clone());
            }
            for (name, content) in carried(&program)? {
                config = config.file(&format!("/w/{name}"), 0o755, content);
            }
            for &lan in lans.iter().filter(|lan| guest < lan.guests()) {
                let (nic, arguments) = nic(scratch.path(), lan, guest);
                let nic = nic.addr(&format!("{:x}", lan.slot()));
                config = config.nic(nic).args(arguments);
            }
            configs.push(config.args(["-D".into(), trace(scratch.path(), guest).into_os_string()]));
        }
        let guests = rig.start_all(configs)?;
        let mut server = netns.command(&program);
        server.args(["work", "serve"]);
        let mut server = Daemon::start("server", server, scratch.path().join("server.log"))?;
        server.expect("serving", MOMENT)?;
        let mut bed = Self {
            rig,
            guests,
            netns,
            daemons,
            interfaces: BTreeMap::new(),
            driver: None,
            tuned: BTreeMap::new(),
            down: BTreeSet::new(),
            lans,
            hypernic: hypernic.to_owned(),
            scratch,
            _server: server,
        };
        bed.set_up(&format!(
            "mp virtio_net && mp pktgen && {{ {WORK} serve >/run/serve.log 2>&1 </dev/null & }} && \
             until grep -q serving /run/serve.log; do usleep 50000; done"
        ), |lan| !lan.reloads())?;
        Ok(bed)
    }

    /// Whether both guests still answer.
    pub fn lives(&self) -> bool {
        self.guests
            .iter()
            .all(|g| g.sh_within("true", Duration::from_secs(20)).is_ok())
    }

    /// Has both guests' e1000 and r8169 drivers loaded in this way.
    ///
    /// # Errors
    /// When it does not load, or a link does not come up.
    pub fn load(&mut self, driver: Driver) -> Result<()> {
        if self.driver == Some(driver) {
            return Ok(());
        }
        self.driver = None;
        self.tuned.retain(|lan, _| !lan.reloads());
        self.down.clear();
        let (parameters, patches) = (driver.parameters(), driver.patches());
        self.set_up(
            &format!(
                "rmmod e1000 r8169 2>/dev/null; mp e1000 {parameters}; mp realtek; mp r8169 {patches}"
            ),
            Lan::reloads,
        )?;
        let usecs = driver.usecs();
        for &lan in self.lans.iter().filter(|lan| lan.realtek()) {
            for guest in 0..lan.guests() {
                let interface = self.interface(lan, guest)?;
                self.guests[guest].run(&format!(
                    "ethtool -C {interface} rx-usecs {usecs} tx-usecs {usecs}"
                ))?;
            }
        }
        self.driver = Some(driver);
        Ok(())
    }

    /// Runs something in both guests, gives some of their NICs their addresses, takes them up, and waits until they
    /// carry frames.
    fn set_up(&mut self, first: &str, which: fn(Lan) -> bool) -> Result<()> {
        let lans = |guest: usize| {
            let some = self.lans.clone().into_iter();
            let some = some.filter(move |lan| which(*lan));
            some.filter(move |lan| guest < lan.guests())
        };
        let each = |work: &(dyn Fn(usize, &Guest) -> Result<Vec<String>> + Sync)| {
            std::thread::scope(|scope| -> Result<Vec<Vec<String>>> {
                let guests = self.guests.iter().enumerate();
                let running: Vec<_> = guests
                    .map(|(i, guest)| scope.spawn(move || work(i, guest)))
                    .collect();
                let done = running.into_iter().map(|t| {
                    t.join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                });
                done.collect()
            })
        };
        let names = each(&|index, guest| {
            let mut script = format!("{first}\n");
            for lan in lans(index) {
                script += &configure(lan, index);
            }
            let text = guest.run(&script)?;
            let names = text.lines().filter_map(|l| l.strip_prefix("IF "));
            Ok(names.map(str::to_owned).collect())
        })?;
        each(&|index, guest| {
            for lan in lans(index) {
                let far = match lan {
                    Lan::Vale | Lan::RtlVale | Lan::PvVale => lan.address(1 - index),
                    // No host is there yet.
                    Lan::Switch => continue,
                    _ => lan.host(),
                };
                let ping = format!("ping -c 1 -W 1 {far} >/dev/null");
                guest.wait_for(&ping, MOMENT)?;
            }
            Ok(Vec::new())
        })?;
        for (index, names) in names.into_iter().enumerate() {
            for (lan, name) in lans(index).zip(names) {
                self.interfaces.insert((lan, index), name);
            }
        }
        Ok(())
    }

    fn interface(&self, lan: Lan, guest: usize) -> Result<&str> {
        let found = self.interfaces.get(&(lan, guest));
        found
            .map(String::as_str)
            .ok_or_else(|| Error::Usage(format!("guest {guest} has no NIC {lan:?}")))
    }

    /// Sets segmentation offloads on all NICs of a network, and the host's on its bridge, and what else the guests set
    /// up; takes those down whose interrupts come by the same line.
    ///
    /// # Errors
    /// When a driver refuses.
    pub fn tune(&mut self, lan: Lan, offloads: bool, setup: Setup) -> Result<()> {
        self.alone(lan)?;
        let before = self.tuned.get(&lan).copied();
        if before == Some((offloads, setup)) {
            return Ok(());
        }
        let was = before.map_or(Setup::Usual, |b| b.1);
        if was != setup {
            for guest in 0..lan.guests() {
                self.set(lan, guest, setup)?;
            }
        }
        let word = if offloads { "on" } else { "off" };
        for guest in 0..lan.guests() {
            let interface = self.interface(lan, guest)?;
            let command = format!("ethtool -K {interface} tso {word} gso {word} gro {word}");
            self.guests[guest].run(&command)?;
        }
        if !lan.switched() {
            let mut command = self.netns.tool(&self.rig, "ethtool")?;
            command.args(["-K", &lan.bridge(), "tso", word, "gso", word]);
            let out = command.output().map_err(Error::io("run ethtool"))?;
            if !out.status.success() {
                let why = String::from_utf8_lossy(&out.stderr);
                return Err(Error::tool("ethtool", &why));
            }
        }
        self.tuned.insert(lan, (offloads, setup));
        Ok(())
    }

    fn set(&self, lan: Lan, guest: usize, setup: Setup) -> Result<()> {
        let interface = self.interface(lan, guest)?;
        if lan.pv() {
            let (frames, usecs) = match setup {
                Setup::Coalesced => (64, 250),
                Setup::Usual | Setup::Ring | Setup::Threaded => (0, 0),
            };
            self.guests[guest].run(&format!(
                "ethtool -C {interface} rx-frames {frames} rx-usecs {usecs}"
            ))?;
            return Ok(());
        }
        let (ring, threaded) = match setup {
            Setup::Usual | Setup::Coalesced => (256, 0),
            Setup::Ring => (4096, 0),
            Setup::Threaded => (256, 1),
        };
        self.guests[guest].run(&format!(
            "echo {threaded} >/sys/class/net/{interface}/threaded || exit 1; \
             ethtool -g {interface} | grep '^RX:' | tail -n 1 | grep -q '[^0-9]{ring}$' || \
             ethtool -G {interface} rx {ring}"
        ))?;
        self.carrier(lan, guest)
    }

    /// Waits for a guest's link.
    fn carrier(&self, lan: Lan, guest: usize) -> Result<()> {
        let interface = self.interface(lan, guest)?;
        let up = format!("grep -q 1 /sys/class/net/{interface}/carrier");
        Ok(self.guests[guest].wait_for(&up, MOMENT)?)
    }

    /// Takes a network's NICs up, and those down whose interrupts come by the same line.
    fn alone(&mut self, lan: Lan) -> Result<()> {
        for other in self
            .lans
            .clone()
            .into_iter()
            .filter(|other| lan.disturbs(*other))
        {
            if self.down.insert(other) {
                for guest in 0..other.guests() {
                    let interface = self.interface(other, guest)?;
                    self.guests[guest].run(&format!("ip link set {interface} down"))?;
                }
            }
        }
        if self.down.remove(&lan) {
            for guest in 0..lan.guests() {
                self.guests[guest].run(&configure(lan, guest))?;
                self.carrier(lan, guest)?;
            }
        }
        Ok(())
    }

    /// Runs one end of a stream on the host.
    ///
    /// # Errors
    /// When it fails.
    pub fn on_host(&self, words: &str) -> Result<Value> {
        let program = std::env::current_exe().map_err(Error::io("find this program"))?;
        let mut command = self.netns.command(program);
        command.arg("work").args(words.split_whitespace());
        let out = command.output().map_err(Error::io("run a sender"))?;
        let text = String::from_utf8_lossy(&out.stdout);
        serde_json::from_str(&text).map_err(|_| {
            Error::tool(
                "sender",
                &format!("{text}{}", String::from_utf8_lossy(&out.stderr)),
            )
        })
    }

    /// Runs one end of a stream in a guest.
    ///
    /// # Errors
    /// When it fails.
    pub fn in_guest(&self, guest: usize, words: &str) -> Result<Value> {
        // By way of a file: the command port is a device too.
        let text =
            self.guests[guest].run(&format!("{WORK} {words} >/tmp/work 2>&1; cat /tmp/work"))?;
        serde_json::from_str(&text).map_err(|_| Error::tool("sender", &text))
    }

    /// How many datagrams the program at an end has received, asked without the network: of a guest or the host.
    ///
    /// # Errors
    /// When it does not say.
    pub fn received(&self, guest: Option<usize>) -> Result<u64> {
        let words = "count --to 127.0.0.1";
        let answer = match guest {
            Some(guest) => self.in_guest(guest, words)?,
            None => self.on_host(words)?,
        };
        let count = answer["received"].as_u64();
        count.ok_or_else(|| Error::tool("count", &answer.to_string()))
    }

    /// Has the first guest's kernel send datagrams in frames of 60 bytes (`pktgen`), as fast as its driver takes them;
    /// gives seconds.
    ///
    /// # Errors
    /// When it does not.
    pub fn kernel_sends(&self, lan: Lan, way: Way, count: u64) -> Result<f64> {
        let interface = self.interface(lan, 0)?;
        let (to, mac) = match way {
            Way::Across => (lan.address(1), lan.mac(1)),
            Way::Out | Way::In => (lan.host(), lan.host_mac()),
        };
        let port = work::SINK;
        let text = self.guests[0].run(&format!(
            "p() {{ echo \"$2\" >/proc/net/pktgen/$1; }}\n\
             p kpktgend_0 rem_device_all; p kpktgend_0 'add_device {interface}'; p {interface} 'count {count}'\n\
             p {interface} 'clone_skb 0'; p {interface} 'pkt_size 60'; p {interface} 'delay 0'\n\
             p {interface} 'udp_dst_min {port}'; p {interface} 'udp_dst_max {port}'\n\
             p {interface} 'dst {to}'; p {interface} 'dst_mac {mac}'; p pgctrl start\n\
             cat /proc/net/pktgen/{interface}"
        ))?;
        elapsed(&text).ok_or_else(|| Error::tool("pktgen", &text))
    }

    /// Offers frames to the first guest over a switch, in bursts of 100, by the poll-mode generator at its last NIC.
    ///
    /// # Errors
    /// When the generator fails.
    pub fn generate(&self, lan: Lan, pps: f64, seconds: f64) -> Result<Value> {
        let generator = lan.guests();
        let mut command = Command::new(&self.hypernic);
        command.args(["pkt-gen", "-f", "tx", "--json", "--quiet", "-l", "60"]);
        command.args(["--burst", "100", "-R", &format!("{pps:.0}")]);
        command.args(["-T", &format!("{seconds:.2}")]);
        command.args(["-D", &lan.mac(0), "-d", &lan.address(0)]);
        command.args([
            "-s",
            &lan.address(generator),
            "--dst-port",
            &work::SINK.to_string(),
        ]);
        command.arg("--socket-path");
        command.arg(socket(self.scratch.path(), lan, generator));
        let out = command.output().map_err(Error::io("run pkt-gen"))?;
        let text = String::from_utf8_lossy(&out.stdout);
        serde_json::from_str(&text).map_err(|_| {
            Error::tool(
                "pkt-gen",
                &format!("{text}{}", String::from_utf8_lossy(&out.stderr)),
            )
        })
    }

    /// The guest's runs of the driver's polling function by how many packets each handled, for its first guest's NIC,
    /// counted by the kernel while some work is done.
    ///
    /// # Errors
    /// The work's, and when the guest's kernel cannot count them.
    pub fn polls(&self, lan: Lan, work: impl FnOnce() -> Result<()>) -> Result<BTreeMap<u64, u64>> {
        let interface = self.interface(lan, 0)?;
        let event = "/sys/kernel/tracing/events/napi/napi_poll";
        let guest = &self.guests[0];
        guest.run(&format!(
            "[ -e {event} ] || mount -t tracefs t /sys/kernel/tracing; \
             echo 'hist:keys=work:size=2048 if dev_name == \"{interface}\"' >{event}/trigger"
        ))?;
        let done = work();
        let text = guest.run(&format!(
            "cat {event}/hist; echo '!hist:keys=work:size=2048 if dev_name == \"{interface}\"' >{event}/trigger"
        ))?;
        done?;
        Ok(histogram(&text))
    }

    /// Does some work and says what happened meanwhile on a network.
    ///
    /// # Errors
    /// The work's, and those of looking.
    pub fn watch<T>(&self, lan: Lan, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Delta>)> {
        let before = self.look(lan)?;
        let spent = self.processor();
        let done = work()?;
        let spent = self.processor() - spent;
        let after = self.look(lan)?;
        let deltas = after
            .iter()
            .zip(&before)
            .enumerate()
            .map(|(guest, (a, b))| {
                let minus = |a: u64, b: u64| a.saturating_sub(b);
                let counters = a.counters.iter().map(|(name, n)| {
                    let had = b.counters.get(name).copied().unwrap_or(0);
                    (name.clone(), minus(*n, had))
                });
                Delta {
                    frames: (minus(a.frames.0, b.frames.0), minus(a.frames.1, b.frames.1)),
                    interrupts: minus(a.interrupts, b.interrupts),
                    counters: counters.collect(),
                    cpu: (guest == 0)
                        .then(|| (VCPU.to_owned(), spent))
                        .into_iter()
                        .collect(),
                    ..Delta::default()
                }
            });
        Ok((done, deltas.collect()))
    }

    /// Seconds that the first guest's processors had one of the machine's.
    fn processor(&self) -> f64 {
        let threads = self.guests[0].cpu_seconds();
        let vcpus = threads.iter().filter(|t| t.name.starts_with("CPU "));
        vcpus.map(|t| t.seconds).sum()
    }

    /// One look at each guest on the network; the daemon's counters, which are of all its NICs, go with the first.
    fn look(&self, lan: Lan) -> Result<Vec<Delta>> {
        let mut seen = Vec::new();
        for guest in 0..lan.guests() {
            let interface = self.interface(lan, guest)?;
            let statistics = format!("/sys/class/net/{interface}/statistics");
            // Interrupts go by the interface's name, or by that of its virtio device and one of its queues.
            let text = self.guests[guest].run(&format!(
                "cat {statistics}/tx_packets {statistics}/rx_packets; \
                 d=$(basename $(readlink -f /sys/class/net/{interface}/device)); \
                 grep -E \"[ ,]{interface}(,|$)| $d-\" /proc/interrupts; true"
            ))?;
            let delta = parse_look(&text).ok_or_else(|| Error::tool("cat", &text))?;
            seen.push(delta);
        }
        if let Some((_, daemon)) = self.daemons.iter().find(|(of, _)| *of == lan) {
            // What the generator does is its own.
            let generator = format!("n{}", lan.guests());
            seen[0].counters = sums_without(daemon, &generator)?;
        }
        Ok(seen)
    }

    /// Counts QEMU's accesses to its own e1000 in the first guest by its trace of memory regions, which slows it.
    ///
    /// # Errors
    /// The work's, and when QEMU has no such trace.
    pub fn traced<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, u64, u64)> {
        let switch = |on: bool| -> Result<()> {
            for name in ["memory_region_ops_read", "memory_region_ops_write"] {
                let arguments = json!({"name": name, "enable": on});
                self.guests[0].qmp("trace-event-set-state", arguments)?;
            }
            Ok(())
        };
        let file = trace(self.scratch.path(), 0);
        let from = std::fs::metadata(&file).map_or(0, |m| m.len());
        switch(true)?;
        let done = work();
        switch(false)?;
        let done = done?;
        let (reads, writes) = crate::audit::count_accesses(&file, from)?;
        Ok((done, reads, writes))
    }
}

/// Seconds of the first guest's processors, among those of threads.
pub const VCPU: &str = "vcpu";

/// This program in a guest, with the loader and the libraries it was made for.
const WORK: &str = "/w/loader --library-path /w /w/program work";

//! Open vSwitch with DPDK: two vhost-user ports and one polling thread. It needs huge pages, which are reserved for it
//! and given back.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rig::{Daemon, Rig, Root};

use super::contender::{Contender, Peer};
use super::cores::{Before, Cores};
use super::dpdk::{Guests, Rings, VirtioGuests, came_through};
use crate::error::{Error, Result};
use crate::machine;
use crate::stats::Reading;

const PACKAGES: [&str; 3] = [
    "librte-bus-vdev25",
    "librte-mempool-ring25",
    "openvswitch-switch-dpdk",
];

const SWITCH: &str = "usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const POOL: &str = "usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0/librte_mempool_ring.so.25.0";
const PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// The limit of things that take a moment.
const MOMENT: Duration = Duration::from_secs(20);

/// Huge pages of 2 MiB that it is given.
const WANTED: u64 = 600;

/// Reserved huge pages; what was reserved before is restored when they go.
struct Pages {
    before: u64,
}

impl Pages {
    fn reserve() -> Result<Self> {
        let now = || -> Result<u64> {
            let text = fs::read_to_string(PAGES).map_err(Error::io(format!("read {PAGES}")))?;
            Ok(text.trim().parse().unwrap_or(0))
        };
        let before = now()?;
        let wanted = before + WANTED;
        fs::write(PAGES, wanted.to_string()).map_err(Error::io(
            "reserve huge pages (allow it by running as root)",
        ))?;
        let pages = Self { before };
        let got = now()?;
        if got < wanted {
            return Err(Error::Usage(format!(
                "the kernel has {} of {WANTED} huge pages free to give",
                got - before
            )));
        }
        Ok(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = fs::write(PAGES, self.before.to_string());
    }
}

struct Ovs {
    guests: Guests,
    switch: Rc<Running>,
}

/// The switch.
pub struct Running {
    switch: Daemon,
    /// What asks it, and its socket.
    asks: (Vec<PathBuf>, String),
    _database: Daemon,
    // Given back when no process has them mapped any more, so last.
    _pages: Pages,
}

/// Starts it with a pair of ports for each size.
///
/// # Errors
/// When it cannot be had or run; the reason belongs into the report.
pub fn start(rig: &Rig, dpdk: &Root, scratch: &Path, sizes: &[usize]) -> Result<Vec<Contender>> {
    let (running, sockets) = switch(rig, scratch, sizes.len())?;
    let mut all: Vec<Contender> = Vec::new();
    for (sockets, &size) in sockets.iter().zip(sizes) {
        let home = scratch.join("ovs").join(format!("guests{size}"));
        fs::create_dir_all(&home).map_err(Error::io(format!("make {}", home.display())))?;
        let guests = VirtioGuests {
            root: dpdk,
            dir: &home,
            name: &format!("guests{size}"),
            sockets: sockets.clone(),
            listen: true,
            rings: Rings::Packed,
            size,
            burst: 64,
        };
        let mut guests = guests.start()?;
        came_through(guests.rate(0.2)?.mpps())?;
        guests.hold(true);
        all.push(Box::new(Ovs {
            guests,
            switch: Rc::clone(&running),
        }));
    }
    running.hold(true);
    Ok(all)
}

/// Two sockets, whose ports send to each other.
type Sockets = [PathBuf; 2];

/// Starts it with so many pairs of ports that send to each other; gives their sockets, which guests listen on.
///
/// # Errors
/// When it cannot be had or run; the reason belongs into the report.
pub fn switch(rig: &Rig, scratch: &Path, pairs: usize) -> Result<(Rc<Running>, Vec<Sockets>)> {
    let root = rig.packages("ovs", &PACKAGES)?;
    let dir = scratch.join("ovs");
    fs::create_dir_all(&dir).map_err(Error::io(format!("make {}", dir.display())))?;
    let command = |words: Vec<std::path::PathBuf>| {
        let mut command = Daemon::command(&words[0]);
        command.args(&words[1..]);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "RUNTIME_DIRECTORY"] {
            command.env(name, &dir);
        }
        command
    };
    let tool = |name: &str, args: &[&str]| -> Result<String> {
        let mut command = command(root.program(name)?);
        let out = command
            .args(args)
            .output()
            .map_err(Error::io(format!("run {name}")))?;
        let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        if out.status.success() {
            Ok(text)
        } else {
            Err(Error::Usage(format!("{name}: {}", text.trim())))
        }
    };
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let schema = root.dir().join("usr/share/openvswitch/vswitch.ovsschema");
    tool(
        "ovsdb-tool",
        &["create", &path("conf.db"), &schema.to_string_lossy()],
    )?;
    let database = {
        let mut server = command(root.program("ovsdb-server")?);
        server.arg(format!("--remote=punix:{}", path("db.sock")));
        server.arg(format!("--unixctl={}", path("db.ctl")));
        server.arg(path("conf.db"));
        Daemon::start("ovsdb-server", server, dir.join("database.log"))?
    };
    // A tool that comes before the socket is there gives up at once.
    let until = Instant::now() + MOMENT;
    while !dir.join("db.sock").exists() {
        if Instant::now() > until {
            return Err(Error::tool("ovsdb-server", &database.output()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let db = format!("--db=unix:{}", path("db.sock"));
    let set = |args: &[&str]| -> Result<String> {
        let mut all = vec![db.as_str(), "--timeout=20"];
        all.extend(args);
        tool("ovs-vsctl", &all)
    };
    let pages = Pages::reserve()?;
    let (guest_core, core) = machine::cores();
    let pool = root.dir().join(POOL);
    configure(&set, &pool, guest_core, core)?;
    let switch = {
        let mut switch = command(root.program_at(Path::new(SWITCH)));
        switch.arg(format!("unix:{}", path("db.sock")));
        switch.arg(format!("--unixctl={}", path("switch.ctl")));
        Daemon::start("ovs-vswitchd", switch, dir.join("switch.log"))?
    };
    let running = Rc::new(Running {
        switch,
        asks: (root.program("ovs-appctl")?, path("switch.ctl")),
        _database: database,
        _pages: pages,
    });
    let said = |error: Error| {
        let log = running.switch.output();
        let line = log
            .lines()
            .rev()
            .find(|l| l.contains("|ERR|") || l.contains("|EMER|"));
        Error::Usage(format!(
            "{error} ({})",
            line.unwrap_or("no error in its log")
        ))
    };
    set(&[
        "add-br",
        "b",
        "--",
        "set",
        "bridge",
        "b",
        "datapath_type=netdev",
    ])
    .map_err(said)?;
    let mut sockets = Vec::new();
    for n in 0..pairs {
        let names = pair(n, &set, &tool, &path)?;
        sockets.push(names.map(|name| dir.join(name)));
    }
    Ok((running, sockets))
}

/// Runs a program with these arguments; gives what it prints.
type Run<'a> = &'a dyn Fn(&[&str]) -> Result<String>;

/// Has the switch begin with DPDK, its poller on `core`.
fn configure(set: Run<'_>, pool: &Path, guest_core: usize, core: usize) -> Result<()> {
    let extra = format!("-d {} --no-pci", pool.display());
    set(&["--no-wait", "init"])?;
    set(&[
        "--no-wait",
        "set",
        "Open_vSwitch",
        ".",
        "other_config:dpdk-init=true",
        "other_config:dpdk-socket-mem=900",
        "other_config:per-port-memory=false",
        &format!("other_config:dpdk-lcore-mask={:#x}", 1_u64 << guest_core),
        &format!("other_config:pmd-cpu-mask={:#x}", 1_u64 << core),
        &format!("other_config:dpdk-extra=\"{extra}\""),
    ])?;
    Ok(())
}

/// Adds a pair of ports that send to each other; gives their names.
fn pair(
    n: usize,
    set: Run<'_>,
    tool: &dyn Fn(&str, &[&str]) -> Result<String>,
    path: &dyn Fn(&str) -> String,
) -> Result<[String; 2]> {
    let names = [format!("p{n}a"), format!("p{n}b")];
    for (i, name) in names.iter().enumerate() {
        set(&[
            "add-port",
            "b",
            name,
            "--",
            "set",
            "Interface",
            name,
            "type=dpdkvhostuserclient",
            &format!("options:vhost-server-path={}", path(name)),
            &format!("ofport_request={}", 10 * (n + 1) + i),
        ])?;
    }
    let ports = [10 * (n + 1), 10 * (n + 1) + 1];
    for (a, b) in [(ports[0], ports[1]), (ports[1], ports[0])] {
        let flow = format!("in_port={a},actions=output:{b}");
        let bridge = format!("unix:{}", path("b.mgmt"));
        tool("ovs-ofctl", &["add-flow", &bridge, &flow])?;
    }
    Ok(names)
}

impl Running {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.switch.id()
    }

    /// Makes it stand still, or go on.
    pub fn hold(&self, held: bool) {
        use rustix::process::Signal;
        let signal = if held { Signal::STOP } else { Signal::CONT };
        let _ = self.switch.signal(signal);
    }

    /// Cycles of its poller in rounds that found frames, and all; nothing where it does not say.
    pub fn cycles(&self) -> Option<(f64, f64)> {
        let (words, socket) = &self.asks;
        let mut command = Daemon::command(&words[0]);
        command.args(&words[1..]).args(["-t", socket]);
        let out = command.arg("dpif-netdev/pmd-stats-show").output().ok()?;
        cycles(&String::from_utf8_lossy(&out.stdout))
    }
}

/// Sums of "idle cycles: 1 (10.00%)" and "processing cycles: 2 (90.00%)" over the pollers.
fn cycles(text: &str) -> Option<(f64, f64)> {
    let sum = |name: &str| -> Option<f64> {
        let found = text.lines().filter_map(|l| l.trim().strip_prefix(name));
        let counts: Option<Vec<f64>> = found
            .map(|l| l.split_whitespace().next()?.parse().ok())
            .collect();
        counts.filter(|c| !c.is_empty()).map(|c| c.iter().sum())
    };
    let (idle, work) = (sum("idle cycles:")?, sum("processing cycles:")?);
    Some((work, work + idle))
}

impl Peer for Ovs {
    fn sample(&mut self, seconds: f64) -> Result<Reading> {
        self.switch.hold(false);
        std::thread::sleep(Duration::from_millis(200));
        self.guests.hold(false);
        std::thread::sleep(Duration::from_millis(30));
        let ids = [self.switch.switch.id(), self.guests.id()];
        let (mut before, mut begun) = (Before::of(&ids), self.switch.cycles());
        let mut seen = self.guests.rate(seconds)?;
        if seen.mpps() < 1e-3 {
            // All frames were lost while a peer was held: begin again.
            self.guests.refill()?;
            (before, begun) = (Before::of(&ids), self.switch.cycles());
            seen = self.guests.rate(seconds)?;
        }
        let used = before.since();
        let share = begun.zip(self.switch.cycles());
        let share = share.map(|(b, a)| (a.0 - b.0) / (a.1 - b.1).max(1.0));
        let at_work = self.guests.share()?;
        self.guests.hold(true);
        self.switch.hold(true);
        let mut raw = self.guests.raw(&seen);
        Cores {
            frames: seen.frames,
            seconds: seen.seconds,
            switch_cpu: used[0],
            switch_at_work: share.map(|share| share * seen.seconds),
            guests_cpu: used[1],
            guests_at_work: Some(at_work),
            looks_with_frames: None,
        }
        .note(&mut raw);
        Ok(Reading {
            value: seen.mpps(),
            raw,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_of_all_pollers_are_added() {
        let text = "pmd thread numa_id 0 core_id 1:\n  packets received: 90\n  idle cycles: 100 (10.00%)\n  processing cycles: \
                    900 (90.00%)\n  avg processing cycles per packet: 10 (900/90)\npmd thread numa_id 0 core_id 2:\n  idle \
                    cycles: 50 (50.00%)\n  processing cycles: 50 (50.00%)\n";
        assert_eq!(cycles(text), Some((950.0, 1100.0)));
        assert_eq!(
            cycles("pmd thread numa_id 0 core_id 1:\n  packets received: 0\n"),
            None
        );
    }
}

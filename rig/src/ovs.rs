//! Open vSwitch with DPDK: one polling thread, ports of vhost-user. It needs huge pages, which are reserved for it and
//! given back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::error::{CannotRun, Error, Result};
use crate::rig::Rig;
use crate::root::Root;

const PACKAGES: [&str; 3] = [
    "librte-bus-vdev25",
    "librte-mempool-ring25",
    "openvswitch-switch-dpdk",
];

const SWITCH: &str = "usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const POOL: &str = "usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0/librte_mempool_ring.so.25.0";
const PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// The limit of things that take a moment.
const MOMENT: Duration = Duration::from_secs(60);

/// Reserved huge pages; what was reserved before is restored when they go.
#[derive(Debug)]
struct Pages {
    before: u64,
}

impl Pages {
    /// Pages for so many MiB, and some for what it needs beside them.
    fn reserve(memory: u64) -> Result<Self> {
        let pages = memory / 2 + 150;
        let now = || -> Result<u64> {
            let text = fs::read_to_string(PAGES).map_err(Error::io(format!("read {PAGES}")))?;
            Ok(text.trim().parse().unwrap_or(0))
        };
        let before = now()?;
        let wanted = before + pages;
        fs::write(PAGES, wanted.to_string()).map_err(|error| {
            CannotRun::new(format!(
                "cannot reserve huge pages ({error}): allow it by running as root"
            ))
        })?;
        let reserved = Self { before };
        let got = now()?;
        if got < wanted {
            let free = got.saturating_sub(before);
            let why = format!("the kernel has {free} of {pages} huge pages free to give");
            return Err(CannotRun::new(why).into());
        }
        Ok(reserved)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = fs::write(PAGES, self.before.to_string());
    }
}

/// What to start.
#[derive(Debug)]
pub struct OvsSetup<'a> {
    /// The processor for everything else, and the poller's.
    pub cores: (usize, usize),
    /// MiB of huge pages.
    pub memory: u64,
    /// Options of its own, beside those of DPDK (`other_config:KEY=VALUE`).
    pub options: &'a [&'a str],
}

/// One that runs.
#[derive(Debug)]
pub struct Ovs {
    switch: Daemon,
    _database: Daemon,
    root: Root,
    dir: PathBuf,
    // Given back when no process has them mapped any more, so last.
    _pages: Pages,
}

impl Ovs {
    /// Starts it with its files in `dir` and a bridge without ports.
    ///
    /// # Errors
    /// When it cannot be had or run; [`CannotRun`] if that is the machine's fault.
    pub fn start(rig: &Rig, dir: &Path, setup: &OvsSetup<'_>) -> Result<Self> {
        let root = rig.packages("ovs", &PACKAGES)?;
        fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))?;
        let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
        let schema = root.dir().join("usr/share/openvswitch/vswitch.ovsschema");
        tool(
            &root,
            dir,
            "ovsdb-tool",
            &["create", &path("conf.db"), &schema.to_string_lossy()],
        )?;
        let database = {
            let mut server = command(dir, &root.program("ovsdb-server")?);
            server.arg(format!("--remote=punix:{}", path("db.sock")));
            server.arg(format!("--unixctl={}", path("db.ctl")));
            server.arg(path("conf.db"));
            Daemon::start("ovsdb-server", server, dir.join("database.log"))?
        };
        // A tool that comes before the socket is there gives up at once.
        let until = Instant::now() + MOMENT;
        while !dir.join("db.sock").exists() {
            if Instant::now() > until {
                return Err(Error::Command {
                    command: "ovsdb-server".to_owned(),
                    output: database.output(),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let pages = Pages::reserve(setup.memory)?;
        configure(&root, dir, setup)?;
        let ovs = Self {
            switch: start_switch(&root, dir)?,
            _database: database,
            root,
            dir: dir.to_owned(),
            _pages: pages,
        };
        ovs.set(&[
            "add-br",
            "b",
            "--",
            "set",
            "bridge",
            "b",
            "datapath_type=netdev",
        ])?;
        Ok(ovs)
    }

    /// A file in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn set(&self, args: &[&str]) -> Result<String> {
        configured(&self.root, &self.dir, args).map_err(|error| self.said(&error))
    }

    /// An error, with the last one in the switch's log.
    fn said(&self, error: &Error) -> Error {
        let log = self.switch.output();
        let bad = |line: &&str| line.contains("|ERR|") || line.contains("|EMER|");
        let line = log.lines().rev().find(bad);
        Error::Command {
            command: "ovs-vsctl".to_owned(),
            output: format!("{error} ({})", line.unwrap_or("no error in its log")),
        }
    }

    /// Adds a port with this number, which connects to a socket of its name in the switch's folder ([`Ovs::path`]).
    ///
    /// # Errors
    /// When it says no.
    pub fn add_port(&self, name: &str, number: usize) -> Result<()> {
        let socket = format!("options:vhost-server-path={}", self.path(name).display());
        self.add(name, number, &["type=dpdkvhostuserclient", &socket])
    }

    /// Adds a port with this number, which listens at a socket of its name in the switch's folder.
    ///
    /// # Errors
    /// When it says no.
    pub fn add_listening_port(&self, name: &str, number: usize) -> Result<()> {
        self.add(name, number, &["type=dpdkvhostuser"])
    }

    fn add(&self, name: &str, number: usize, what: &[&str]) -> Result<()> {
        let number = format!("ofport_request={number}");
        let words = ["add-port", "b", name, "--", "set", "Interface", name];
        self.set(&[&words, what, &[number.as_str()]].concat())?;
        Ok(())
    }

    /// Kills the switch and starts it again. Bridge and ports are as they were; flows are gone ([`Ovs::join`]). Ports
    /// that listen leave their sockets behind, which `meanwhile` may remove.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&mut self, meanwhile: impl FnOnce()) -> Result<()> {
        self.switch.kill();
        meanwhile();
        self.switch = start_switch(&self.root, &self.dir)?;
        // It answers when it has its configuration.
        self.set(&["set", "Open_vSwitch", ".", "external_ids:again=yes"])?;
        Ok(())
    }

    /// Has two ports, by their numbers, send to each other.
    ///
    /// # Errors
    /// When it says no.
    pub fn join(&self, a: usize, b: usize) -> Result<()> {
        for (from, to) in [(a, b), (b, a)] {
            let flow = format!("in_port={from},actions=output:{to}");
            let bridge = format!("unix:{}", self.path("b.mgmt").display());
            tool(
                &self.root,
                &self.dir,
                "ovs-ofctl",
                &["add-flow", &bridge, &flow],
            )?;
        }
        Ok(())
    }

    /// The switch's process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.switch.id()
    }

    /// Cycles of its poller in rounds that found frames, and all; nothing where it does not say.
    #[must_use]
    pub fn cycles(&self) -> Option<(f64, f64)> {
        cycles(&self.ask("dpif-netdev/pmd-stats-show")?)
    }

    /// Whether its poller takes frames from this many queues of a port, or more. It becomes so some time behind the port's
    /// handshake, and frames that are sent to a queue before that may be lost in the switch.
    #[must_use]
    pub fn polls(&self, port: &str, queues: usize) -> bool {
        let said = self.ask("dpif-netdev/pmd-rxq-show");
        said.is_some_and(|text| polled(&text, port) >= queues)
    }

    fn ask(&self, what: &str) -> Option<String> {
        let mut command = command(&self.dir, &self.root.program("ovs-appctl").ok()?);
        command.arg("-t").arg(self.path("switch.ctl")).arg(what);
        let out = command.output().ok()?;
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Makes it stand still, or go on: what polls takes a processor even when nothing comes.
    pub fn hold(&self, held: bool) {
        use rustix::process::Signal;
        let signal = if held { Signal::STOP } else { Signal::CONT };
        let _ = self.switch.signal(signal);
    }
}

fn command(dir: &Path, words: &[PathBuf]) -> Command {
    let mut command = Daemon::command(&words[0]);
    command.args(&words[1..]);
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "RUNTIME_DIRECTORY"] {
        command.env(name, dir);
    }
    command
}

fn tool(root: &Root, dir: &Path, name: &str, args: &[&str]) -> Result<String> {
    let mut command = command(dir, &root.program(name)?);
    let out = command
        .args(args)
        .output()
        .map_err(Error::io(format!("run {name}")))?;
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    if out.status.success() {
        return Ok(text);
    }
    Err(Error::Command {
        command: name.to_owned(),
        output: text.trim().to_owned(),
    })
}

fn configured(root: &Root, dir: &Path, args: &[&str]) -> Result<String> {
    let database = format!("--db=unix:{}", dir.join("db.sock").display());
    let mut all = vec![database.as_str(), "--timeout=60"];
    all.extend(args);
    tool(root, dir, "ovs-vsctl", &all)
}

/// Has the switch begin with DPDK.
fn configure(root: &Root, dir: &Path, setup: &OvsSetup<'_>) -> Result<()> {
    let (main, poller) = setup.cores;
    let pool = root.dir().join(POOL);
    let extra = format!("-d {} --no-pci", pool.display());
    configured(root, dir, &["--no-wait", "init"])?;
    configured(
        root,
        dir,
        &[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-init=true",
            &format!("other_config:dpdk-socket-mem={}", setup.memory),
            "other_config:per-port-memory=false",
            &format!("other_config:dpdk-lcore-mask={:#x}", 1_u64 << main),
            &format!("other_config:pmd-cpu-mask={:#x}", 1_u64 << poller),
            &format!("other_config:dpdk-extra=\"{extra}\""),
        ],
    )?;
    if !setup.options.is_empty() {
        let words = ["--no-wait", "set", "Open_vSwitch", "."];
        configured(root, dir, &[&words, setup.options].concat())?;
    }
    Ok(())
}

fn start_switch(root: &Root, dir: &Path) -> Result<Daemon> {
    let mut switch = command(dir, &root.program_at(Path::new(SWITCH)));
    switch.arg(format!("unix:{}", dir.join("db.sock").display()));
    switch.arg(format!("--unixctl={}", dir.join("switch.ctl").display()));
    Daemon::start("ovs-vswitchd", switch, dir.join("switch.log"))
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

/// Lines such as "port: p10  queue-id:  0 (enabled)   pmd usage: NOT AVAIL" of this port.
fn polled(text: &str, port: &str) -> usize {
    let of_port = |line: &&str| {
        let mut words = line.split_whitespace();
        words.next() == Some("port:") && words.next() == Some(port)
    };
    let lines = text.lines().filter(of_port);
    lines.filter(|line| line.contains("(enabled)")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_are_polled_are_those_that_are_enabled() {
        let text = "pmd thread numa_id 0 core_id 1:\n  isolated : false\n  port: p1   queue-id:  0 (enabled)   pmd usage: NOT \
                    AVAIL\n  port: p1   queue-id:  1 (disabled)  pmd usage: NOT AVAIL\n  port: p10  queue-id:  0 (enabled)   \
                    pmd usage:  0 %\n";
        let all = ["p1", "p10", "p0"].map(|port| polled(text, port));
        assert_eq!(all, [1, 1, 0]);
    }

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

//! DPDK's testpmd on the host: a switch between two ports, or guests at them.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::cache::Cache;
use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::root::Root;

const PROMPT: &str = "testpmd> ";

/// Packages of Debian's that have all of it.
const PACKAGES: [&str; 6] = [
    "dpdk-dev",
    "librte-bus-vdev25",
    "librte-mempool-ring25",
    "librte-net-memif25",
    "librte-net-vhost25",
    "librte-net-virtio25",
];

/// Where DPDK's drivers are in the root, and those taken.
const DRIVERS: &str = "usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0";
const WANTED: [&str; 5] = [
    "librte_bus_vdev.so.25.0",
    "librte_mempool_ring.so.25.0",
    "librte_net_memif.so.25.0",
    "librte_net_vhost.so.25.0",
    "librte_net_virtio.so.25.0",
];

/// A testpmd that takes commands. It writes to a terminal of its own, since to a file it would write in blocks.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
    terminal: File,
    said: Arc<Mutex<String>>,
}

/// What to start.
#[derive(Debug)]
pub struct TestpmdSetup<'a> {
    /// The private root with DPDK, of [`crate::Rig::dpdk`].
    pub root: &'a Root,
    /// Unlike all others that run.
    pub name: &'a str,
    /// A folder for its files.
    pub dir: &'a Path,
    /// Its ports: virtual devices, as `--vdev` names them.
    pub devices: &'a [String],
    /// Its own options, beside those of DPDK.
    pub options: &'a [String],
    /// The processor that forwards, and the one for commands.
    pub cores: (usize, usize),
    /// Another processor that forwards: each then has one of two ports.
    pub also: Option<usize>,
}

impl Testpmd {
    /// The private root with DPDK; downloaded the first time.
    pub(crate) fn root(cache: &Cache) -> Result<Root> {
        Root::of(cache, "dpdk", &PACKAGES)
    }

    /// Starts one and waits for its prompt.
    ///
    /// # Errors
    /// When it does not come up, with what it said.
    pub fn start(setup: &TestpmdSetup<'_>) -> Result<Self> {
        let (worker, main) = setup.cores;
        let words = setup.root.program("dpdk-testpmd")?;
        let mut command = Daemon::command(&words[0]);
        command.args(&words[1..]);
        for driver in WANTED {
            command
                .arg("-d")
                .arg(setup.root.dir().join(DRIVERS).join(driver));
        }
        command.args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry"]);
        let also = setup.also.map(|core| format!(",2@{core}"));
        let forward = 1 + u32::from(also.is_some());
        let also = also.unwrap_or_default();
        command.args(["--lcores", &format!("0@{main},1@{worker}{also}")]);
        command.args(["--file-prefix", setup.name]);
        command.args(setup.devices.iter().map(|d| format!("--vdev={d}")));
        command.args(["--", "--total-num-mbufs=16384"]);
        command.arg(format!("--nb-cores={forward}"));
        // Cycles are told by those only that begin with counting them.
        command
            .args(setup.options)
            .args(["--record-core-cycles", "-i"]);
        command
            .env("RUNTIME_DIRECTORY", setup.dir)
            .env("TERM", "dumb");
        let mut testpmd = Self::spawn(command)?;
        testpmd.first_prompt()?;
        testpmd.count_cycles(false)?;
        Ok(testpmd)
    }

    /// Waits until it takes commands. What happens at its ports it says behind the prompt; then a line shows that again.
    fn first_prompt(&mut self) -> Result<()> {
        let mut looks = 0;
        while let Err(error) = self.wait(0, Duration::from_secs(3)) {
            looks += 1;
            if looks == 20 || self.child.try_wait().ok().flatten().is_some() {
                return Err(error);
            }
            if self.text().contains(PROMPT) {
                self.terminal
                    .write_all(b"\n")
                    .map_err(Error::io("talk to testpmd"))?;
            }
        }
        Ok(())
    }

    fn spawn(mut command: Command) -> Result<Self> {
        let terminal = || -> std::io::Result<(File, File)> {
            let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
            grantpt(&ours)?;
            unlockpt(&ours)?;
            let name = ptsname(&ours, Vec::new())?;
            let theirs = File::options()
                .read(true)
                .write(true)
                .open(name.to_string_lossy().as_ref())?;
            Ok((ours.into(), theirs))
        };
        let (ours, theirs) = terminal().map_err(Error::io("open a terminal"))?;
        let twin = |f: &File| f.try_clone().map_err(Error::io("share a terminal"));
        command
            .stdin(twin(&theirs)?)
            .stdout(twin(&theirs)?)
            .stderr(Stdio::from(theirs))
            .process_group(0);
        let child = command.spawn().map_err(Error::io("start testpmd"))?;
        drop(command);
        let said = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (twin(&ours)?, Arc::clone(&said));
        // Ends when the last process with the terminal does.
        std::thread::spawn(move || {
            let mut room = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut room) {
                let text = String::from_utf8_lossy(&room[..n]);
                to.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&text);
            }
        });
        Ok(Self {
            child,
            terminal: ours,
            said,
        })
    }

    fn text(&self) -> String {
        self.said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for the prompt behind the first `from` bytes of what it said; gives what it said before it.
    fn wait(&mut self, from: usize, limit: Duration) -> Result<String> {
        let until = Instant::now() + limit;
        loop {
            let text = self.text();
            let new = text.get(from..).unwrap_or_default();
            if new.ends_with(PROMPT) {
                return Ok(new.to_owned());
            }
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || Instant::now() > until {
                return Err(no_answer(&text));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Gives a command and returns what it says.
    ///
    /// # Errors
    /// When it is gone or does not answer.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        let from = self.text().len();
        self.terminal
            .write_all(format!("{line}\n").as_bytes())
            .map_err(Error::io("talk to testpmd"))?;
        // Its editor shows the prompt again with each letter; the answer is what ends with a prompt and holds a line.
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let text = self.wait(from, Duration::from_secs(20))?;
            if text.trim_start().contains('\n') {
                return Ok(text);
            }
            if Instant::now() > until {
                return Err(no_answer(&text));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Frames and bytes its ports have received.
    ///
    /// # Errors
    /// When it does not say.
    pub fn received(&mut self) -> Result<(u64, u64)> {
        let text = self.ask("show port stats all")?;
        received(&text).ok_or_else(|| no_answer(&text))
    }

    /// Has it count the cycles of its forwarding processor, or stop counting: it costs two readings of the clock a poll.
    ///
    /// # Errors
    /// When it is gone or does not answer.
    pub fn count_cycles(&mut self, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        self.ask(&format!("set record-core-cycles {state}"))
            .map(drop)
    }

    /// Cycles of its forwarding processor in polls that found frames, and all, as far as they were counted.
    ///
    /// # Errors
    /// When it does not say.
    pub fn cycles(&mut self) -> Result<(u64, u64)> {
        let text = self.ask("dump_lcores")?;
        cycles(&text).ok_or_else(|| no_answer(&text))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Makes it stand still, or go on: what polls takes a processor even when nothing comes.
    pub fn hold(&self, held: bool) {
        let signal = if held { Signal::STOP } else { Signal::CONT };
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, signal);
        }
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn no_answer(text: &str) -> Error {
    let lines: Vec<&str> = text.trim().lines().collect();
    Error::Command {
        command: "dpdk-testpmd".to_owned(),
        output: lines[lines.len().saturating_sub(12)..].join("\n"),
    }
}

/// Sums of "RX-packets: 1 ... RX-bytes: 2" over the ports.
fn received(text: &str) -> Option<(u64, u64)> {
    let all = |name: &str| -> Vec<u64> {
        text.match_indices(name)
            .filter_map(|(at, _)| {
                text[at + name.len()..]
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            })
            .collect()
    };
    let (frames, bytes) = (all("RX-packets:"), all("RX-bytes:"));
    (!frames.is_empty() && frames.len() == bytes.len())
        .then(|| (frames.iter().sum(), bytes.iter().sum()))
}

/// "lcore 1, socket 0, role RTE, cpuset 0, busy cycles 1/2": of all that forward.
fn cycles(text: &str) -> Option<(u64, u64)> {
    let one = |found: &str| -> Option<(u64, u64)> {
        let (busy, all) = found.split_whitespace().next()?.split_once('/')?;
        Some((busy.parse().ok()?, all.parse().ok()?))
    };
    let found = text
        .split("busy cycles ")
        .skip(1)
        .map(one)
        .collect::<Option<Vec<_>>>()?;
    let sum = |(busy, all): (u64, u64), one: &(u64, u64)| (busy + one.0, all + one.1);
    (!found.is_empty()).then(|| found.iter().fold((0, 0), sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_of_all_that_forward_are_added() {
        let text = "dump_lcores\r\nlcore 0, socket 0, role RTE, cpuset 1\r\nlcore 1, socket 0, role RTE, cpuset 0, busy \
                    cycles 100/400\r\nlcore 2, socket 0, role RTE, cpuset 2, busy cycles 7/50\r\ntestpmd> ";
        assert_eq!(cycles(text), Some((107, 450)));
        assert_eq!(cycles("lcore 0, socket 0, role RTE, cpuset 1\r\n"), None);
    }

    #[test]
    fn statistics_of_all_ports_are_added() {
        let text = "  #### NIC statistics for port 0  ####\r\n  RX-packets: 188704     RX-missed: 0          RX-bytes:  12077056\r\n  \
                    TX-packets: 5\r\n  #### port 1 ####\r\n  RX-packets: 6     RX-missed: 0  RX-bytes:  7\r\n";
        assert_eq!(received(text), Some((188_710, 12_077_063)));
        assert_eq!(received("Invalid port\r\n"), None);
    }
}

//! One guest with some NICs of ours, each with a daemon that stamps its steps, before a TAP of its own in one namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rig::{Daemon, Guest, GuestConfig, Netns, Rig};
use rustix::process::Signal;
use tempfile::TempDir;

use super::echo;
use super::rounds::Threads;
use super::stamps::{self, Stamp, Wakes};
use crate::error::{Error, Result};
use crate::fabric;
use crate::machine;
use crate::traffic;
use crate::which_nic::party::{PARTIES, Party, index};

const MOMENT: Duration = Duration::from_secs(60);
/// Between two pings: long enough for a round trip and all that follows it.
pub const PAUSE: Duration = Duration::from_millis(10);

/// A NIC on the bed.
pub struct Seat {
    pub party: &'static Party,
    /// Its place among all NICs that the bench compares: addresses and names follow from it.
    at: usize,
    daemon: Daemon,
    file: PathBuf,
}

/// The guest, the daemons and the namespace.
pub struct Bed {
    pub guest: Guest,
    pub rig: Rig,
    pub seats: Vec<Seat>,
    netns: Netns,
    scratch: TempDir,
}

/// What was stamped during some pings.
pub struct Seen {
    pub stamps: Vec<Stamp>,
    pub wakes: Wakes,
    pub threads: Threads,
    /// Stamps for which there was no room.
    pub lost: u64,
}

fn address(at: usize, host: bool) -> String {
    format!("10.11.{at}.{}", if host { 1 } else { 2 })
}

fn host_mac(at: usize) -> String {
    format!("02:00:00:00:0b:{at:02x}")
}

impl Bed {
    /// Boots it with the NICs of these names.
    ///
    /// # Errors
    /// When this machine cannot run guests.
    pub fn new(hypernic: &Path, ids: &[&str]) -> Result<Self> {
        let rig = Rig::prepare().map_err(rig::Error::from)?;
        let netns = Netns::new(&rig).map_err(rig::Error::from)?;
        let scratch = machine::scratch()?;
        let mut seats = Vec::new();
        let mut config = GuestConfig::new("timeline").netns(&netns);
        for (slot, at) in ids.iter().filter_map(|id| index(id)).enumerate() {
            let party = &PARTIES[at];
            let (tap, mac) = (Party::tap(at), Party::mac(at));
            netns.tap(&tap, Some(&format!("{}/24", address(at, true))))?;
            netns.ip(["link", "set", &tap, "address", &host_mac(at)])?;
            let to = address(at, false);
            let neighbour = ["neigh", "replace", &to, "lladdr", &mac, "dev", &tap];
            netns.ip(neighbour.into_iter().chain(["nud", "permanent"]))?;
            let path = |ending: &str| scratch.path().join(format!("n{at}.{ending}"));
            let (socket, file) = (path("sock"), path("timeline"));
            let text = party.config(at, &socket);
            let text = text.ok_or_else(|| Error::Usage(format!("{} is not ours", party.id)))?;
            fs::write(path("toml"), fabric::alone(&text))
                .map_err(Error::io("write a configuration"))?;
            let mut command = netns.command(hypernic);
            command.env("HYPERNIC_TIMELINE", &file);
            command
                .args(["--log-format", "json", "serve"])
                .arg(path("toml"));
            let mut daemon = Daemon::start("hypernic", command, path("log"))?;
            daemon.expect("serving", MOMENT)?;
            let (nic, arguments) = party.nic(at, &socket);
            config = config
                .nic(nic.addr(&format!("{:x}", 5 + slot)))
                .args(arguments);
            seats.push(Seat {
                party,
                at,
                daemon,
                file,
            });
        }
        let guest = rig.start(config)?;
        guest.run(
            "mp realtek; for m in e1000 igb igbvf r8169 virtio_net; do mp $m || exit 1; done",
        )?;
        for seat in &seats {
            let at = seat.at;
            let interface = guest.interface(&Party::mac(at), MOMENT)?;
            guest.run(&format!(
                "ip addr add {}/24 dev {interface} && ip link set {interface} up && \
                 ip neigh replace {} lladdr {} dev {interface} nud permanent",
                address(at, false),
                address(at, true),
                host_mac(at)
            ))?;
            let ping = format!("ping -c 1 -W 1 {} >/dev/null", address(at, true));
            guest.wait_for(&ping, MOMENT)?;
        }
        Ok(Self {
            guest,
            rig,
            seats,
            netns,
            scratch,
        })
    }

    /// The host pings the guest; gives when each request left and its answer came.
    ///
    /// # Errors
    /// Answers are missing.
    pub fn host_pings(&self, seat: &Seat, count: usize) -> Result<Vec<(u64, u64)>> {
        let own = std::env::current_exe().map_err(Error::io("find this program"))?;
        let mut command = self.netns.command(own);
        command.args([echo::WORD, "--to", &address(seat.at, false)]);
        command.args(["--count", &count.to_string()]);
        command.args(["--pause", &PAUSE.as_millis().to_string()]);
        let output = command.output().map_err(Error::io("ping the guest"))?;
        let pairs = echo::parse(&String::from_utf8_lossy(&output.stdout));
        if !output.status.success() || pairs.len() < count * 9 / 10 {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Error::tool(
                "echoes",
                &format!("{} answers: {why}", pairs.len()),
            ));
        }
        Ok(pairs)
    }

    /// The guest pings the host; gives what its `ping` measured, in microseconds.
    ///
    /// # Errors
    /// Answers are missing.
    pub fn guest_pings(&self, seat: &Seat, count: usize) -> Result<Vec<f64>> {
        let text = traffic::ping(&self.guest, &address(seat.at, true), count)?;
        traffic::round_trips(&text, count)
    }

    /// Has a daemon stamp while something is done. With `scheduler`, `perf` watches who is called and who runs, if it is
    /// there and may.
    ///
    /// # Errors
    /// Those of the work, and of the files.
    pub fn watch<T>(
        &self,
        seat: &Seat,
        scheduler: bool,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Seen)> {
        // What was stamped before is not wanted.
        fabric::ask(&seat.daemon)?;
        let before = fs::metadata(&seat.file).map_or(0, |file| file.len()) as usize;
        let perf = scheduler.then(|| self.begin_perf()).flatten();
        let done = work();
        let wakes = perf.map(|perf| self.end_perf(perf)).unwrap_or_default();
        let done = done?;
        fabric::ask(&seat.daemon)?;
        let what = || format!("read {}", seat.file.display());
        let text = fs::read_to_string(&seat.file).map_err(Error::io(what()))?;
        let (stamps, lost) = stamps::read(text.get(before..).unwrap_or_default());
        let threads = Threads {
            daemon: named(seat.daemon.id()).collect(),
            vmm: named(self.guest.id()).map(|(_, id)| id).collect(),
        };
        let seen = Seen {
            stamps,
            wakes,
            threads,
            lost,
        };
        Ok((done, seen))
    }

    fn trace(&self) -> PathBuf {
        self.scratch.path().join("perf.data")
    }

    fn begin_perf(&self) -> Option<Daemon> {
        let _ = fs::remove_file(self.trace());
        let mut perf = Daemon::command("perf");
        perf.args(["record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-o"]);
        perf.arg(self.trace());
        perf.args(["-e", "sched:sched_waking", "-e", "sched:sched_switch"]);
        let perf = Daemon::start("perf", perf, self.scratch.path().join("perf.log")).ok()?;
        // It writes the file's head when all is set up.
        let until = Instant::now() + MOMENT / 4;
        while fs::metadata(self.trace()).map_or(0, |file| file.len()) == 0 {
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(500));
        Some(perf)
    }

    /// Nothing, if it could not.
    fn end_perf(&self, mut perf: Daemon) -> Wakes {
        let ended = perf.signal(Signal::INT).is_ok() && perf.wait_exit(MOMENT).is_ok();
        let mut script = Daemon::command("perf");
        script.args(["script", "--ns", "-F", "time,event,trace", "-i"]);
        let output = script.arg(self.trace()).output();
        match output {
            Ok(output) if ended => Wakes::read(&String::from_utf8_lossy(&output.stdout)),
            _ => Wakes::default(),
        }
    }
}

/// A process' threads, by their names as stamps have them.
fn named(process: u32) -> impl Iterator<Item = (String, u32)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let thread = |task: fs::DirEntry| {
        let id = task.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((name.trim().replace(' ', "_"), id))
    };
    tasks.into_iter().flatten().flatten().filter_map(thread)
}

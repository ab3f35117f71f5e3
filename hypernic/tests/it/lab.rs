//! A running daemon, and the commands that ask it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::igbvf::Vf;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub const HYPERNIC: &str = env!("CARGO_BIN_EXE_hypernic");
const LONG: Duration = Duration::from_secs(60);

/// Copies the program. Another process writes: a descriptor of ours for writing may be open in a child of another thread still
/// when the copy is to run (`ETXTBSY`).
pub fn copy_program(to: &Path) {
    let copied = Command::new("cp").arg(HYPERNIC).arg(to).status();
    assert!(copied.expect("cp").success(), "it cannot be copied");
}

/// Runs the file in a folder; what it says is added to what was said before.
fn start(dir: &Path) -> Child {
    start_by(&[], dir)
}

/// The same by another program.
fn start_by(by: &[&str], dir: &Path) -> Child {
    let file = |name: &str| {
        let mut options = File::options();
        options.append(true).create(true);
        options.open(dir.join(name)).expect("file")
    };
    let mut words = by.iter().copied().chain([HYPERNIC, "serve"]);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).arg(dir.join("host.toml"));
    command.stdout(file("told")).stderr(file("log"));
    command.spawn().expect("daemon")
}

/// Whether a process has ended; nobody may have reaped it. A leader is a zombie before its last thread has gone.
pub fn has_gone(pid: Pid) -> bool {
    let process = format!("/proc/{}", pid.as_raw_nonzero());
    let stat = std::fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("{process}/task")).map_or(0, Iterator::count);
    threads == 0 || threads == 1 && stat.contains(") Z ")
}

/// A daemon of its own process, with a control socket.
pub struct Lab {
    pub dir: TempDir,
    pub daemon: Child,
}

impl Lab {
    /// With a chip of two VFs.
    pub fn new() -> Lab {
        Lab::with(|dir| {
            format!(
                "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 2\n\
                 vf-socket-path = {:?}\nport = \"null\"\nport-rate = 1000\n",
                dir.join("vf{}.sock"),
            )
        })
    }

    /// With what a file says besides its control socket.
    pub fn with(file: impl FnOnce(&Path) -> String) -> Lab {
        Lab::with_by(&[], file)
    }

    /// The same, started by another program.
    pub fn with_by(by: &[&str], file: impl FnOnce(&Path) -> String) -> Lab {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        let text = format!("control = {:?}\n", at("control.sock")) + &file(dir.path());
        std::fs::write(at("host.toml"), text).expect("file");
        let daemon = start_by(by, dir.path());
        let lab = Lab { dir, daemon };
        lab.until_it_listens();
        lab
    }

    /// The process that serves: the keeper's worker, or the daemon without one.
    pub fn server(&self) -> Pid {
        let keeper = self.daemon.id();
        let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
        let children = children.unwrap_or_default();
        let is_worker = |pid: &&str| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let is_cell = words.split(|byte| *byte == 0).any(|word| word == b"--cell");
            // A zombie has no words.
            !words.is_empty() && !is_cell
        };
        let worker = children.split_whitespace().rfind(is_worker);
        worker
            .and_then(|pid| Pid::from_raw(pid.parse().ok()?))
            .unwrap_or(Pid::from_child(&self.daemon))
    }

    /// Kills the daemon, keeper and worker at once.
    pub fn kill(&mut self) {
        let keeper = Pid::from_child(&self.daemon);
        let server = self.server();
        // It starts no other one, and tells the one that there is nothing.
        let _ = kill_process(keeper, Signal::STOP);
        let _ = kill_process(server, Signal::KILL);
        let _ = kill_process(keeper, Signal::KILL);
        let _ = self.daemon.wait();
        self.until("its end", || has_gone(server).then_some(()));
    }

    /// Kills the daemon, and starts it anew.
    pub fn restart(&mut self) {
        self.kill();
        self.daemon = start(self.dir.path());
        self.until_it_listens();
    }

    /// Kills the worker of a daemon with a keeper, and waits for the next.
    pub fn kill_worker(&self) {
        let (keeper, old) = (Pid::from_child(&self.daemon), self.server());
        assert_ne!(old, keeper, "a worker");
        kill_process(old, Signal::KILL).expect("killed");
        self.until("the next worker", || {
            Some(self.server()).filter(|pid| ![old, keeper].contains(pid))
        });
        self.until("it answers", || {
            self.run("list").status.success().then_some(())
        });
    }

    fn until_it_listens(&self) {
        // Bound is not listening yet, and a connection would be counted.
        let path = self.control();
        self.until("the control socket", || {
            let sockets = std::fs::read_to_string("/proc/net/unix").expect("sockets");
            let listens = |line: &str| {
                line.ends_with(path.to_str().expect("text")) && line.contains(" 00010000 ")
            };
            sockets.lines().any(listens).then_some(())
        });
    }

    /// Ends the daemon and takes what it says of one counter in the end.
    pub fn counted(&mut self, counter: &str) -> u64 {
        if self.daemon.try_wait().expect("state").is_none() {
            kill_process(Pid::from_child(&self.daemon), Signal::TERM).expect("signal");
        }
        assert!(self.daemon.wait().expect("end").success());
        let told = std::fs::read_to_string(self.dir.path().join("told")).expect("counters");
        told.lines()
            .filter_map(|line| line.trim().strip_prefix(counter))
            .filter_map(|rest| {
                rest.strip_prefix(' ')?
                    .split_whitespace()
                    .next()?
                    .parse::<u64>()
                    .ok()
            })
            .sum()
    }

    pub fn control(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    #[track_caller]
    pub fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + LONG;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < end, "{what} did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn vf(&self, n: u8) -> Vf<SocketBus> {
        let socket = self.dir.path().join(format!("vf{n}.sock"));
        Vf::new(SocketBus::connect(socket).expect("connect")).expect("a VF")
    }

    /// `hypernic vf …`.
    pub fn say(&self, words: &str) -> Output {
        self.run(&format!("vf {words}"))
    }

    /// `hypernic …`, asking this daemon.
    pub fn run(&self, words: &str) -> Output {
        Command::new(HYPERNIC)
            .args(words.split(' '))
            .arg("--control")
            .arg(self.control())
            .output()
            .expect("hypernic")
    }

    /// What it prints when all is well.
    #[track_caller]
    pub fn ran(&self, words: &str) -> String {
        let output = self.run(words);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {wrong}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// What the daemon has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).expect("log")
    }

    /// What `hypernic vf …` prints when all is well.
    #[track_caller]
    pub fn said(&self, words: &str) -> String {
        self.ran(&format!("vf {words}"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.daemon.try_wait().is_ok_and(|end| end.is_none()) {
            self.kill();
        }
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        // Whatever a test is about: nothing tries what its sandbox forbids.
        let tried = log
            .lines()
            .find(|line| line.contains("made the system call "));
        if let Some(line) = tried.filter(|_| !std::thread::panicking()) {
            panic!("{line}");
        }
    }
}

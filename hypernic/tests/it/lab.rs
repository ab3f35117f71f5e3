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
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        let text = format!("control = {:?}\n", at("control.sock")) + &file(dir.path());
        std::fs::write(at("host.toml"), text).expect("file");
        let daemon = Command::new(HYPERNIC)
            .arg("serve")
            .arg(at("host.toml"))
            .stdout(File::create(at("told")).expect("file"))
            .stderr(File::create(at("log")).expect("file"))
            .spawn()
            .expect("daemon");
        let lab = Lab { dir, daemon };
        // Bound is not listening yet, and a connection would be counted.
        let path = lab.control();
        lab.until("the control socket", || {
            let sockets = std::fs::read_to_string("/proc/net/unix").expect("sockets");
            let listens = |line: &str| {
                line.ends_with(path.to_str().expect("text")) && line.contains(" 00010000 ")
            };
            sockets.lines().any(listens).then_some(())
        });
        lab
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
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
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

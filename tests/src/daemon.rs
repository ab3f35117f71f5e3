//! The `hypernic` binary under test, as its users run it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rig::Netns;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::patience::LONG;

/// The daemon to test: `$HYPERNIC_BIN`, else the one in the same target folder as this program.
///
/// # Errors
/// When it has not been built.
pub fn binary() -> Result<PathBuf> {
    let path = match std::env::var_os("HYPERNIC_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let own = std::env::current_exe().map_err(Error::io("find this program"))?;
            // A test is in `deps/`, a program beside it.
            let dir = own.parent().unwrap_or(Path::new("."));
            let dir = if dir.ends_with("deps") {
                dir.parent().unwrap_or(dir)
            } else {
                dir
            };
            dir.join("hypernic")
        }
    };
    if !path.is_file() {
        return Err(Error::NoBinary(path));
    }
    std::path::absolute(&path).map_err(Error::io("find hypernic"))
}

/// Copies a program that is to be run. Another process writes: a descriptor of ours for writing may be open in a child of
/// another thread still when the copy is to run (`ETXTBSY`).
///
/// # Errors
/// It cannot be copied.
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    let copied = copy.arg(from).arg(to).status();
    let copied = copied.map_err(Error::io(format!("copy {}", from.display())))?;
    let failed = || std::io::Error::other(copied.to_string());
    let done = copied.success().then_some(()).ok_or_else(failed);
    done.map_err(Error::io(format!("copy {}", from.display())))
}

/// A folder for a test's sockets and files. Its path is short enough for a socket address (107 bytes), which that
/// of a long `$TMPDIR` would not be.
///
/// # Errors
/// When it cannot be made.
pub fn scratch() -> Result<TempDir> {
    let parent = std::env::temp_dir();
    let parent = if parent.as_os_str().len() > 50 {
        PathBuf::from("/tmp")
    } else {
        parent
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix("hypernic-test-");
    builder
        .tempdir_in(parent)
        .map_err(Error::io("make a scratch folder"))
}

/// How to start a daemon.
#[derive(Debug)]
pub struct Launch {
    command: Command,
    format: &'static str,
    /// It may try what its sandbox forbids.
    may_try: bool,
}

impl Launch {
    /// The binary under test with `--log-format json`.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn new() -> Result<Self> {
        Ok(Self::of(&binary()?))
    }

    /// Another binary.
    #[must_use]
    pub fn of(binary: &Path) -> Self {
        Self::by(rig::Daemon::command(binary))
    }

    /// In a network namespace, where its TAPs are.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn within(netns: &Netns) -> Result<Self> {
        Ok(Self::by(netns.command(binary()?)))
    }

    /// Under another program, which must become the daemon by exec: `words`, then the daemon's command line.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn under(words: &[&str]) -> Result<Self> {
        let mut command = rig::Daemon::command(words[0]);
        command.args(&words[1..]).arg(binary()?);
        Ok(Self::by(command))
    }

    fn by(command: Command) -> Self {
        let format = "json";
        Self {
            command,
            format,
            may_try: false,
        }
    }

    /// Speaking to people instead of programs.
    #[must_use]
    pub fn human(mut self) -> Self {
        self.format = "human";
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self.may_try |= name == "HYPERNIC_SANDBOX_WITHOUT";
        self
    }

    /// Hands down an open file as descriptor 0.
    #[must_use]
    pub fn stdin(mut self, file: OwnedFd) -> Self {
        self.command.stdin(Stdio::from(file));
        self
    }

    /// Starts it without waiting for anything.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(mut self) -> Result<Daemon> {
        self.command.args(["--log-format", self.format]);
        // A process group of its own: Ctrl-C at the terminal is for us, and we end it.
        self.command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(Error::io("start hypernic"))?;
        let out = Lines::of(child.stdout.take());
        let log = Lines::of(child.stderr.take());
        Ok(Daemon {
            child,
            out,
            log,
            may_try: self.may_try,
        })
    }

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// When it does not; the error holds its log.
    pub fn start(self) -> Result<Daemon> {
        let mut daemon = self.spawn()?;
        daemon.wait_log("serving")?;
        Ok(daemon)
    }
}

/// A running daemon. It is killed on drop, and by the kernel should the thread that started it end otherwise.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    out: Arc<Lines>,
    log: Arc<Lines>,
    may_try: bool,
}

impl Daemon {
    /// Starts one on a configuration file, which is written to `file`, and waits until it serves.
    ///
    /// # Errors
    /// When it does not.
    pub fn serve(file: &Path, toml: &str) -> Result<Self> {
        std::fs::write(file, toml).map_err(Error::io(format!("write {}", file.display())))?;
        Launch::new()?.arg("serve").arg(file).start()
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The process id of its worker, if it is a keeper. `None` while there is none.
    #[must_use]
    pub fn worker(&self) -> Option<Pid> {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        // Others that a process may have start user networks, or are cells; a zombie has no words.
        let is_worker = |pid: &&str| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let is_cell = words.split(|byte| *byte == 0).any(|word| word == b"--cell");
            !words.is_empty() && !is_cell && !words.starts_with(b"hypernic-user-networks")
        };
        let first = children.split_whitespace().find(is_worker)?;
        first.parse().ok().and_then(Pid::from_raw)
    }

    /// The process that serves: its worker, or itself without a keeper.
    pub fn server(&self) -> u32 {
        let worker = self.worker().map(|pid| pid.as_raw_nonzero().get());
        worker.map_or(self.child.id(), i32::unsigned_abs)
    }

    /// Ends its worker by a signal, and waits until another one serves. Returns how long that took.
    ///
    /// # Errors
    /// When there is no worker, or none comes.
    pub fn end_worker(&mut self, signal: Signal) -> Result<Duration> {
        let lines = self.log_position();
        let start = Instant::now();
        let worker = self.worker().map(|pid| kill_process(pid, signal));
        if !matches!(worker, Some(Ok(()))) {
            return Err(self.error("has no worker"));
        }
        self.wait_log_after(lines, "serving")?;
        Ok(start.elapsed())
    }

    /// What it has logged so far (standard error).
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().lines.join("\n")
    }

    /// What it has printed so far (standard output).
    #[must_use]
    pub fn printed(&self) -> String {
        self.out.lock().lines.join("\n")
    }

    /// Waits until a line of what it prints contains `text`, and returns it. What is printed and
    /// what is logged come by different ways, and not in order.
    ///
    /// # Errors
    /// When it does not print it.
    pub fn wait_printed(&self, text: &str) -> Result<String> {
        let found = self.out.wait(0, |line| line.contains(text), LONG);
        found.ok_or_else(|| self.error(&format!("should print `{text}`")))
    }

    /// Its log lines so far, read as JSON.
    #[must_use]
    pub fn log_lines(&self) -> Vec<LogLine> {
        let state = self.log.lock();
        state
            .lines
            .iter()
            .filter_map(|line| LogLine::parse(line))
            .collect()
    }

    /// Waits until a line of its log contains `text`, and returns the first such line.
    ///
    /// # Errors
    /// When it ends first or does not say it in time.
    pub fn wait_log(&mut self, text: &str) -> Result<String> {
        self.wait_log_after(0, text)
    }

    /// The same beyond the first `lines` lines of the log ([`Daemon::log_position`]).
    ///
    /// # Errors
    /// When it ends first or does not say it in time.
    pub fn wait_log_after(&mut self, lines: usize, text: &str) -> Result<String> {
        let found = self.log.wait(lines, |line| line.contains(text), LONG);
        found.ok_or_else(|| {
            // A log that has ended is the end of its writer, but for a moment.
            let ended = self.log.lock().ended;
            let status = if ended { self.wait_exit().ok() } else { None };
            let end = match status {
                Some(status) => format!("it ended ({status})"),
                None => format!("it did not for {LONG:?}"),
            };
            self.error(&format!("should log `{text}`, but {end}"))
        })
    }

    /// How many lines it has logged.
    #[must_use]
    pub fn log_position(&self) -> usize {
        self.log.lock().lines.len()
    }

    /// Asks for its counters (SIGUSR1).
    ///
    /// # Errors
    /// When it does not print them.
    pub fn counters(&self) -> Result<Counters> {
        let before = self.out.lock().lines.len();
        self.signal(Signal::USR1)?;
        let line = self
            .out
            .wait(before, |line| Counters::parse(line).is_some(), LONG);
        let counters = line.and_then(|line| Counters::parse(&line));
        counters.ok_or_else(|| self.error("should print its counters on SIGUSR1"))
    }

    /// Waits until a condition on its counters holds, looking ten times a second.
    ///
    /// # Errors
    /// When it does not in time; the error holds the counters.
    pub fn wait_counters(&self, what: &str, holds: impl Fn(&Counters) -> bool) -> Result<Counters> {
        let deadline = Instant::now() + LONG;
        loop {
            let counters = self.counters()?;
            if holds(&counters) {
                return Ok(counters);
            }
            if Instant::now() >= deadline {
                return Err(self.error(&format!("never: {what}; its counters:\n{counters}")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has gone already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        match pid.map(|pid| kill_process(pid, signal)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.error("cannot be signalled")),
        }
    }

    /// Asks it to end (SIGTERM) and returns how it did.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait_exit()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_exit(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + LONG;
        loop {
            match self
                .child
                .try_wait()
                .map_err(Error::io("wait for hypernic"))?
            {
                Some(status) => {
                    self.out.wait_end();
                    self.log.wait_end();
                    return Ok(status);
                }
                None if Instant::now() >= deadline => return Err(self.error("does not end")),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn error(&self, what: &str) -> Error {
        let state = self.log.lock();
        let from = state.lines.len().saturating_sub(20);
        Error::Daemon {
            what: what.to_owned(),
            log: state.lines[from..].join("\n"),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("hypernic's log:\n{}", self.log());
        }
        self.kill();
        // Whatever a test is about: nothing tries what its sandbox forbids.
        let log = self.log();
        let tried = log
            .lines()
            .find(|line| line.contains("made the system call "));
        if let Some(line) = tried.filter(|_| !self.may_try && !std::thread::panicking()) {
            panic!("{line}");
        }
    }
}

/// One line of a JSON log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// "INFO", "WARN", "ERROR" ...
    pub level: String,
    /// What it says.
    pub message: String,
    /// The whole line.
    pub fields: Value,
}

impl LogLine {
    /// Reads a line; `None` if it is none of the log's.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let fields: Value = serde_json::from_str(line).ok()?;
        let word = |key: &str| fields.get(key)?.as_str().map(str::to_owned);
        Some(Self {
            level: word("level")?,
            message: word("message")?,
            fields,
        })
    }
}

/// A stream's lines as they come.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<LinesState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LinesState {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn of(stream: Option<impl Read + Send + 'static>) -> Arc<Self> {
        let lines = Arc::new(Self::default());
        let filled = Arc::clone(&lines);
        if let Some(stream) = stream {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut line = Vec::new();
                while let Ok(1..) = reader.read_until(b'\n', &mut line) {
                    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                    filled.lock().lines.push(text);
                    filled.changed.notify_all();
                    line.clear();
                }
                filled.lock().ended = true;
                filled.changed.notify_all();
            });
        }
        lines
    }

    fn lock(&self) -> MutexGuard<'_, LinesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first line from number `from` on that is `wanted`; `None` when the stream ends or time is up.
    fn wait(
        &self,
        mut from: usize,
        wanted: impl Fn(&str) -> bool,
        limit: Duration,
    ) -> Option<String> {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            let fresh = state.lines.get(from..).unwrap_or_default();
            if let Some(line) = fresh.iter().find(|line| wanted(line)) {
                return Some(line.clone());
            }
            from = from.max(state.lines.len());
            let left = deadline.saturating_duration_since(Instant::now());
            if state.ended || left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until everything has been read, which is soon after the process' end.
    fn wait_end(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut state = self.lock();
        while !state.ended && Instant::now() < deadline {
            let waited = self.changed.wait_timeout(state, Duration::from_millis(100));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

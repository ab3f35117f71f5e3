//! A long-running program of the host side (the product's daemon, an iperf3 server) that never outlives us.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::process;

/// A program that runs beside a test. Dropping it kills it and its children.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Daemon {
    /// A command whose process the kernel kills when this process dies. For a program inside a namespace use
    /// [`crate::Netns::command`], which does the same.
    pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
        process::dying_with_us(program)
    }

    /// Starts a command made by [`Daemon::command`] or [`crate::Netns::command`]; its output goes to `log`.
    ///
    /// # Errors
    /// When the log cannot be made or the program not be started.
    pub fn start(name: &str, mut command: Command, log: impl AsRef<Path>) -> Result<Self> {
        let log = log.as_ref().to_path_buf();
        let file =
            std::fs::File::create(&log).map_err(Error::io(format!("create {}", log.display())))?;
        let twin = file.try_clone().map_err(Error::io("share a log"))?;
        command.stdin(Stdio::null()).stdout(file).stderr(twin);
        let line = process::show(&command);
        let child = process::spawn(command).map_err(Error::io(format!("start `{line}`")))?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until its output contains `text`.
    ///
    /// # Errors
    /// When it ends first or does not say it in time; the error holds its output.
    pub fn expect(&mut self, text: &str, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let ended = self.child.try_wait().ok().flatten();
            let output = self.output();
            if output.contains(text) {
                return Ok(());
            }
            let why = match ended {
                Some(status) => format!("it ended ({status})"),
                None if Instant::now() >= deadline => format!("it did not for {timeout:?}"),
                None => {
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                }
            };
            return Err(self.error(&format!("should say `{text}`, but {why}")));
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let sent = pid.map(|pid| rustix::process::kill_process(pid, signal));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(self.error("cannot be signalled")),
        }
    }

    /// Waits for it to end.
    ///
    /// # Errors
    /// When it does not in time; it then still runs.
    pub fn wait_exit(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            let status = self
                .child
                .try_wait()
                .map_err(Error::io("wait for a daemon"))?;
            if let Some(status) = status {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(self.error(&format!("did not end within {timeout:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it at once, as a crash would.
    pub fn kill(&mut self) {
        process::kill_group(&mut self.child);
    }

    fn error(&self, what: &str) -> Error {
        Error::Command {
            command: self.name.clone(),
            output: format!("{what}; its output:\n{}", process::tail(&self.output(), 30)),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, log: &Path) -> Daemon {
        let mut command = Daemon::command("sh");
        command.args(["-c", script]);
        Daemon::start("test", command, log).unwrap()
    }

    #[test]
    fn output_exit_and_signals() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let long = Duration::from_secs(20);
        let mut daemon = shell(
            "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.02; done",
            &log,
        );
        daemon.expect("ready", long).unwrap();
        daemon.signal(rustix::process::Signal::TERM).unwrap();
        assert_eq!(daemon.wait_exit(long).unwrap().code(), Some(3));
        assert_eq!(daemon.output(), "ready\nbye\n");
        let error = daemon.expect("never", long).unwrap_err().to_string();
        assert!(
            error.contains("bye") && error.contains("it ended"),
            "{error}"
        );
    }

    #[test]
    fn it_outlives_the_thread_that_started_it_but_not_its_handle() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let log2 = log.clone();
        let mut daemon = std::thread::spawn(move || shell("sleep 60 & echo $!; wait", &log2))
            .join()
            .unwrap();
        daemon.expect("\n", Duration::from_secs(20)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let grandchild = daemon.output().trim().to_owned();
        let state =
            || std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        assert!(
            daemon.wait_exit(Duration::from_millis(1)).is_err(),
            "it ended by itself"
        );
        assert!(state().contains("sleep"));
        drop(daemon);
        let gone = || state().is_empty() || state().contains(") Z ");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !gone() {
            assert!(Instant::now() < deadline, "a child of the daemon lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

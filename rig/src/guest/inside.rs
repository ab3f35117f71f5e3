//! What is done inside a guest by way of its commands: background jobs, waiting, copying files.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{COMMAND, Guest, lock};
use crate::agent::Output;
use crate::error::Result;

/// A command running in the background of a guest.
#[derive(Debug, Clone)]
pub struct Job {
    path: String,
}

impl Guest {
    /// Starts a shell command in the background of the guest; [`Guest::finish`] collects it.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn spawn(&self, command: &str) -> Result<Job> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let job = Job {
            path: format!("/run/job{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
        };
        let quoted = command.replace('\'', r"'\''");
        let path = &job.path;
        self.run(&format!(
            "( setsid /bin/sh -c '{quoted}' </dev/null >{path}.out 2>&1; echo $? >{path}.tmp; mv {path}.tmp {path}.code ) \
             >/dev/null 2>&1 &"
        ))?;
        Ok(job)
    }

    /// Waits for a background command to end.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn finish(&self, job: &Job, timeout: Duration) -> Result<Output> {
        let path = &job.path;
        self.wait_for(&format!("[ -e {path}.code ]"), timeout)?;
        let code = self.run(&format!("cat {path}.code"))?;
        let text = self.run(&format!("cat {path}.out"))?;
        Ok(Output {
            code: code.trim().parse().unwrap_or(-1),
            text,
        })
    }

    /// Waits until a shell condition holds in the guest, which looks fifty times a second.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn wait_for(&self, condition: &str, timeout: Duration) -> Result<()> {
        let seconds = timeout.as_secs().max(1);
        let script = format!(
            "e=$(($(cut -d. -f1 /proc/uptime)+{seconds})); until {condition}; do \
             [ $(cut -d. -f1 /proc/uptime) -gt $e ] && exit 1; usleep 20000; done"
        );
        let output = self.sh_within(&script, timeout + Duration::from_secs(30))?;
        if output.ok() {
            return Ok(());
        }
        Err(self.fail(format!(
            "`{condition}` did not come true within {seconds} s\n{}",
            output.text
        )))
    }

    /// Waits until the guest has a network interface with this MAC address, and returns its name.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn interface(&self, mac: &str, timeout: Duration) -> Result<String> {
        let mac = mac.to_ascii_lowercase();
        self.wait_for(&format!("grep -qs {mac} /sys/class/net/*/address"), timeout)?;
        let path = self.run(&format!("grep -ls {mac} /sys/class/net/*/address"))?;
        let name = path
            .trim()
            .strip_prefix("/sys/class/net/")
            .and_then(|p| p.split('/').next());
        name.map(str::to_owned)
            .ok_or_else(|| self.fail(format!("no interface has {mac}: {path}")))
    }

    /// Writes a file in the guest.
    ///
    /// # Errors
    /// When the guest does not take it.
    pub fn push_file(&self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let parent = path.rsplit_once('/').map_or("/", |p| p.0);
        let length = content.len();
        let script = format!(
            "mkdir -p '{parent}/' && head -c {length} {} > '{path}' && chmod {mode:o} '{path}' && stat -c %s '{path}'",
            if length == 0 {
                "</dev/null"
            } else {
                "</dev/rig.data"
            }
        );
        let data = self.data_port()?;
        let data = lock(data);
        let stream: &UnixStream = &data;
        let io = |e| self.fail(format!("push {path}: {e}"));
        data.set_write_timeout(Some(COMMAND)).map_err(io)?;
        let (wrote, ran) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || (&*stream).write_all(content));
            let ran = self.run_within(&script, transfer_limit(length));
            (writer.join(), ran)
        });
        if ran?.trim() != length.to_string() || !matches!(wrote, Ok(Ok(()))) {
            return Err(self.fail(format!("push {path}: the guest did not get {length} bytes")));
        }
        Ok(())
    }

    /// Reads a file of the guest.
    ///
    /// # Errors
    /// When there is none, or the guest does not send it.
    pub fn pull_file(&self, path: &str) -> Result<Vec<u8>> {
        let size = self.run(&format!("stat -L -c %s '{path}'"))?;
        let length: usize = size
            .trim()
            .parse()
            .map_err(|_| self.fail(format!("pull {path}: its size is `{size}`")))?;
        let mut content = vec![0; length];
        if length == 0 {
            return Ok(content);
        }
        let data = self.data_port()?;
        let data = lock(data);
        let stream: &UnixStream = &data;
        let io = |e: std::io::Error| self.fail(format!("pull {path}: {e}"));
        data.set_read_timeout(Some(COMMAND)).map_err(io)?;
        let (read, ran) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| (&*stream).read_exact(&mut content));
            let script = format!("head -c {length} '{path}' > /dev/rig.data");
            let ran = self.run_within(&script, transfer_limit(length));
            (reader.join(), ran)
        });
        ran?;
        match read {
            Ok(Ok(())) => Ok(content),
            Ok(Err(e)) => Err(io(e)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn data_port(&self) -> Result<&Mutex<UnixStream>> {
        let none = || self.fail("this guest has no rig in it to copy files with".to_owned());
        self.data.as_ref().ok_or_else(none)
    }
}

/// A translated guest copies some 10 MB/s; ten times slower is a fault.
fn transfer_limit(bytes: usize) -> Duration {
    COMMAND + Duration::from_secs(bytes as u64 / 1_000_000)
}

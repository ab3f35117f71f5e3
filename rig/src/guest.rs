//! A running guest.

pub(crate) mod inside;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Agent, Output};
use crate::arguments::{arguments, ports};
use crate::config::{Boot, GuestConfig};
use crate::console::Console;
use crate::error::{Error, Result};
use crate::netns::Netns;
use crate::nic::Nic;
use crate::process;
use crate::qmp::{Qmp, QmpError};
use crate::qtest::Qtest;
use crate::rig::Rig;
use crate::scratch;

/// How long a boot may take: 4 to 10 s under TCG on an idle machine, many times that on a busy one.
const BOOT: Duration = Duration::from_secs(180);

/// The limit of a command in the guest unless one is given.
const COMMAND: Duration = Duration::from_secs(60);

/// Processor time of one of QEMU's threads.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadCpu {
    /// The thread's name, such as `CPU 0/TCG`.
    pub name: String,
    /// Its id.
    pub id: u32,
    /// Seconds on a processor since it started.
    pub seconds: f64,
}

/// A running guest. Dropping it kills it and removes what it left behind; its log stays if anything failed.
#[derive(Debug)]
pub struct Guest {
    name: String,
    child: Mutex<Child>,
    stdin: Mutex<Option<ChildStdin>>,
    console: Arc<Console>,
    log: PathBuf,
    failed: AtomicBool,
    qmp: Mutex<Qmp>,
    agent: Option<Mutex<Agent>>,
    data: Option<Mutex<UnixStream>>,
    /// The NIC in each hot-plug port.
    ports: Mutex<Vec<Option<String>>>,
    scratch: TempDir,
    _netns: Option<Netns>,
}

impl Guest {
    /// Starts QEMU and connects to it, without waiting for what it boots.
    pub(crate) fn launch(rig: &Rig, config: GuestConfig) -> Result<Self> {
        Self::launch_with(rig, config, &[])
    }

    /// The same with arguments that must not be part of the configuration's key in the cache.
    pub(crate) fn launch_with(rig: &Rig, config: GuestConfig, incoming: &[&str]) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let scratch = tempfile::Builder::new()
            .prefix(&format!("{}{pid}-", scratch::PREFIX))
            .tempdir_in(scratch::parent())
            .map_err(Error::io("make a scratch folder"))?;
        let log = rig
            .cache()
            .logs()?
            .join(format!("{}-{pid}-{number}.log", config.name));
        let console = Console::new(&log)?;

        let qemu = config.qemu.as_ref().unwrap_or(rig.qemu());
        let mut command = match &config.netns {
            Some(netns) => {
                let inner = qemu.command(false);
                let mut outer = netns.command(inner.get_program());
                outer.args(inner.get_args());
                for (key, value) in inner.get_envs() {
                    outer.env(key, value.unwrap_or_default());
                }
                outer
            }
            None => qemu.command(true),
        };
        command.args(arguments(rig, &config, scratch.path())?);
        command.args(incoming);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let line = process::show(&command);
        let mut child = process::spawn(command).map_err(Error::io(format!("start `{line}`")))?;
        let stdin = child.stdin.take();
        if let Some(out) = child.stdout.take() {
            console.read_console(out);
        }
        if let Some(err) = child.stderr.take() {
            console.read_messages(err);
        }
        let connected = connect(&mut child, scratch.path(), &config.boot);
        let (qmp, agent, data) = match connected {
            Ok(parts) => parts,
            Err(why) => {
                process::kill_group(&mut child);
                console.settle();
                return Err(Error::Guest {
                    guest: config.name,
                    what: format!(
                        "QEMU did not start: {why}\n  {}\n  command: {line}",
                        console.messages().trim()
                    ),
                    log,
                    tail: console.last_words(),
                });
            }
        };
        let ports = vec![None; usize::from(ports(&config))];
        let guest = Self {
            name: config.name,
            child: Mutex::new(child),
            stdin: Mutex::new(stdin),
            console,
            log,
            failed: AtomicBool::new(false),
            qmp: Mutex::new(qmp),
            agent,
            data,
            ports: Mutex::new(ports),
            scratch,
            _netns: config.netns,
        };
        if config.allow_reboot {
            guest.qmp("set-action", json!({"reboot": "reset"}))?;
        }
        Ok(guest)
    }

    /// Waits until the guest takes commands; returns at once if it runs something else than the rig's Linux.
    pub(crate) fn wait_ready(&self) -> Result<()> {
        if self.agent.is_some() {
            self.sh_within("true", BOOT)?;
        }
        Ok(())
    }

    /// Reboots the guest at once, without taking anything down first, and waits until it takes commands again. What
    /// was pushed into it is gone.
    ///
    /// # Errors
    /// When it does not come up, or was not allowed to reboot.
    pub fn reboot(&self) -> Result<()> {
        self.restart_by("reboot -f")
    }

    /// Runs a command that ends in another boot of the rig's Linux (`kexec -e`), and waits until the guest takes
    /// commands again.
    ///
    /// # Errors
    /// As for [`Guest::reboot`].
    pub fn restart_by(&self, command: &str) -> Result<()> {
        self.console.skip();
        self.run(&format!("(usleep 50000; {command}) >/dev/null 2>&1 &"))?;
        let up = self.console.expect("RIG-UP", BOOT);
        up.ok_or_else(|| self.fail("it did not come up again".to_owned()))?;
        self.wait_ready()
    }

    /// Runs a shell command and returns its output and exit code, whatever it is. It has 60 s.
    ///
    /// A command that leaves something running must redirect that thing's output.
    ///
    /// # Errors
    /// When the guest does not answer, or the command did not end in time and was killed.
    pub fn sh(&self, command: &str) -> Result<Output> {
        self.sh_within(command, COMMAND)
    }

    /// The same with a limit of its own, in whole seconds.
    ///
    /// # Errors
    /// As for [`Guest::sh`].
    pub fn sh_within(&self, command: &str, limit: Duration) -> Result<Output> {
        let Some(agent) = &self.agent else {
            return Err(self.fail(format!("`{command}`: this guest takes no commands")));
        };
        let mut alive = || self.alive();
        lock(agent)
            .run(command, limit, &mut alive)
            .map_err(|why| self.fail(why))
    }

    /// Runs a shell command that must succeed; returns its output.
    ///
    /// # Errors
    /// As for [`Guest::sh`], and when its exit code is not 0.
    pub fn run(&self, command: &str) -> Result<String> {
        self.run_within(command, COMMAND)
    }

    /// The same with a limit of its own, in whole seconds.
    ///
    /// # Errors
    /// As for [`Guest::run`].
    pub fn run_within(&self, command: &str, limit: Duration) -> Result<String> {
        let output = self.sh_within(command, limit)?;
        if output.ok() {
            return Ok(output.text);
        }
        Err(self.fail(format!(
            "`{command}` exited with {}:\n{}",
            output.code, output.text
        )))
    }

    /// Types on the console.
    ///
    /// # Errors
    /// When QEMU has ended.
    pub fn type_text(&self, text: &str) -> Result<()> {
        let mut stdin = lock(&self.stdin);
        let written = match stdin.as_mut() {
            Some(stdin) => stdin
                .write_all(text.as_bytes())
                .and_then(|()| stdin.flush()),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        };
        written.map_err(|e| self.fail(format!("the console takes no input: {e}")))
    }

    /// Waits until the console shows `text` (after what the last call waited for) and returns what came before.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn expect_console(&self, text: &str, timeout: Duration) -> Result<String> {
        let found = self.console.expect(text, timeout);
        found.ok_or_else(|| {
            self.fail(format!(
                "the console did not show `{text}` within {timeout:?}"
            ))
        })
    }

    /// All that the console has shown (the last 4 MiB).
    #[must_use]
    pub fn console(&self) -> String {
        self.console.text()
    }

    /// What the console has shown after its first `position` bytes, which is moved to its end.
    pub fn console_since(&self, position: &mut usize) -> Vec<u8> {
        self.console.follow(position)
    }

    /// QEMU's own messages.
    #[must_use]
    pub fn qemu_messages(&self) -> String {
        self.console.messages()
    }

    /// The file with the console and QEMU's messages. It is removed with the guest unless something failed or
    /// `HYPERNIC_KEEP_LOGS` is set.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Runs a QMP command.
    ///
    /// # Errors
    /// QEMU's own error, or that it has ended.
    pub fn qmp(&self, command: &str, arguments: Value) -> Result<Value> {
        lock(&self.qmp)
            .execute(command, arguments)
            .map_err(|e| self.qmp_error(command, &e))
    }

    /// Waits for a QMP event whose data satisfies `wanted`.
    ///
    /// # Errors
    /// When it does not come in time.
    pub fn wait_event(
        &self,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
        timeout: Duration,
    ) -> Result<Value> {
        let event = lock(&self.qmp).event(name, wanted, timeout);
        event.map_err(|e| self.fail(format!("no event {name}: {e}")))
    }

    fn qmp_error(&self, command: &str, error: &QmpError) -> Error {
        if matches!(error, QmpError::Io(_)) {
            return self.fail(format!("QMP {command}: {error}"));
        }
        self.failed.store(true, Ordering::Relaxed);
        Error::Qmp {
            guest: self.name.clone(),
            command: command.to_owned(),
            message: error.to_string(),
            log: self.log.clone(),
        }
    }

    /// Plugs a NIC into the running guest: into the bus it names, else into the first free port.
    ///
    /// # Errors
    /// When no port is free or QEMU refuses.
    pub fn hotplug(&self, nic: &Nic) -> Result<()> {
        let mut ports = lock(&self.ports);
        let port = if nic.has_bus() {
            None
        } else {
            let free = ports.iter().position(Option::is_none);
            Some(free.ok_or_else(|| self.fail(format!("no free port for {}", nic.id())))?)
        };
        let netdev = nic.netdev_json();
        if let Some(netdev) = netdev.clone() {
            self.qmp("netdev_add", netdev)?;
        }
        let mut device = nic.device_json();
        if let Some(port) = port {
            device["bus"] = json!(format!("rp{port}"));
        }
        if let Err(e) = self.qmp("device_add", device) {
            if let Some(netdev) = netdev {
                let _ = self.qmp("netdev_del", json!({"id": netdev["id"]}));
            }
            return Err(e);
        }
        if let Some(port) = port {
            ports[port] = Some(nic.id().to_owned());
        }
        Ok(())
    }

    /// Unplugs a NIC; the guest must let go of it.
    ///
    /// # Errors
    /// When QEMU refuses or the guest does not let go within 30 s.
    pub fn unplug(&self, nic: &Nic) -> Result<()> {
        self.qmp("device_del", json!({"id": nic.id()}))?;
        self.wait_event(
            "DEVICE_DELETED",
            |d| d["device"] == nic.id(),
            Duration::from_secs(30),
        )?;
        if let Some(netdev) = nic.netdev_json() {
            self.qmp("netdev_del", json!({"id": netdev["id"]}))?;
        }
        for port in lock(&self.ports).iter_mut() {
            if port.as_deref() == Some(nic.id()) {
                *port = None;
            }
        }
        Ok(())
    }

    /// Connects to the machine of a guest started with [`Boot::Qtest`].
    ///
    /// # Errors
    /// When it is another kind of guest, or connected already.
    pub fn qtest(&self) -> Result<Qtest> {
        Qtest::connect(&self.scratch.path().join("qtest"))
            .map_err(|e| self.fail(format!("qtest: {e}")))
    }

    /// Processor time of each of QEMU's threads.
    #[must_use]
    pub fn cpu_seconds(&self) -> Vec<ThreadCpu> {
        let tasks = format!("/proc/{}/task", self.id());
        let mut threads = Vec::new();
        for entry in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
            let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
            let nanoseconds =
                read("schedstat").and_then(|s| s.split(' ').next()?.parse::<f64>().ok());
            let id = entry.file_name().to_string_lossy().parse().ok();
            if let (Some(ns), Some(name), Some(id)) = (nanoseconds, read("comm"), id) {
                threads.push(ThreadCpu {
                    name: name.trim().to_owned(),
                    id,
                    seconds: ns / 1e9,
                });
            }
        }
        threads
    }

    /// QEMU's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// The guest's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A folder for this guest's sockets and the like, removed with it.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Waits until QEMU ends, as after `poweroff` in the guest.
    ///
    /// # Errors
    /// When it does not in time; it then still runs.
    pub fn wait_exit(&self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            let status = lock(&self.child).try_wait();
            if let Some(status) = status.map_err(Error::io("wait for QEMU"))? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(self.fail(format!("QEMU did not end within {timeout:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether QEMU has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.alive().is_err()
    }

    /// Kills QEMU at once, as a crash of the VMM would.
    pub fn kill(&self) {
        process::kill_group(&mut lock(&self.child));
    }

    /// Whether there is still something to wait for.
    fn alive(&self) -> Result<(), String> {
        if let Ok(Some(status)) = lock(&self.child).try_wait() {
            return Err(format!(
                "QEMU ended ({status}) {}",
                self.console.messages().trim()
            ));
        }
        Ok(())
    }

    /// An error of this guest; from now on its log is kept.
    fn fail(&self, what: String) -> Error {
        self.failed.store(true, Ordering::Relaxed);
        // Its sockets close a moment before the process ends, and the console a moment after.
        if self.has_ended() || what.starts_with("QEMU ended") {
            self.console.settle();
        }
        let messages = self.console.messages();
        let messages = process::tail(&messages, 5);
        Error::Guest {
            guest: self.name.clone(),
            what: if messages.is_empty() {
                what
            } else {
                format!("{what}\n  QEMU says: {messages}")
            },
            log: self.log.clone(),
            tail: self.console.last_words(),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
        let keep = self.failed.load(Ordering::Relaxed)
            || std::thread::panicking()
            || std::env::var_os("HYPERNIC_KEEP_LOGS").is_some();
        if !keep {
            let _ = std::fs::remove_file(&self.log);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Connected = (Qmp, Option<Mutex<Agent>>, Option<Mutex<UnixStream>>);

/// Connects to QEMU's sockets as soon as they are there. QEMU makes them before it realises its devices, and
/// answers on QMP once the machine is complete.
fn connect(child: &mut Child, scratch: &Path, boot: &Boot) -> Result<Connected, String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let qmp = loop {
        match Qmp::connect(&scratch.join("qmp")) {
            Ok(qmp) => break qmp,
            Err(e) => {
                if let Ok(Some(status)) = child.try_wait() {
                    return Err(status.to_string());
                }
                if Instant::now() > deadline {
                    return Err(e.to_string());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    };
    if !matches!(boot, Boot::Linux { .. }) {
        return Ok((qmp, None, None));
    }
    let port = |name: &str| {
        UnixStream::connect(scratch.join(name)).map_err(|e| format!("port {name}: {e}"))
    };
    let agent = Agent::new(port("ctl")?);
    Ok((
        qmp,
        Some(Mutex::new(agent)),
        Some(Mutex::new(port("data")?)),
    ))
}

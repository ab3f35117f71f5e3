//! The main process's side of cells: telling the keeper which there are, telling them what they serve, and asking how they are.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;
use control::{AskError, Client, ConfigApply, Method, NicList, StatusGet};
use parking_lot::RwLock;
use program::LogFormat;
use rustix::process::Signal;

use crate::host::{Host, NicState};

/// How long a cell may take: to hear, and then to answer.
#[derive(Clone, Copy)]
pub(crate) struct Patience(Duration, Duration);

impl Patience {
    /// With one that nothing is asked of but to know.
    pub(crate) const LITTLE: Self = Self(Duration::ZERO, Duration::from_millis(200));
    /// With one whose NICs change. Its worker may be starting again just now.
    pub(crate) const SOME: Self = Self(Duration::from_secs(2), Duration::from_secs(3));
    /// With one that is to be started.
    pub(crate) const MUCH: Self = Self(Duration::from_secs(6), Duration::from_secs(3));
}

/// How long one may take that is only asked how it is: a tenant's cell that stands still holds nobody else up for longer.
const GLANCE: Duration = Duration::from_millis(500);
/// How far looks are apart.
const LOOK: Duration = Duration::from_secs(1);

/// How the main process is started as a cell, which reads what it serves from the file with this number.
pub fn command(cell: &str, file: RawFd) -> Command {
    let program = crate::upgrade::program();
    let mut command = Command::new(program.unwrap_or_else(|| "hypernic".into()));
    // What is said of log lines, which stands before the command or behind it.
    let said = crate::cli::Cli::try_parse_from(crate::cli::words(std::env::args_os()));
    if let Ok(said) = said {
        if said.log_format == LogFormat::Json {
            command.args(["--log-format", "json"]);
        }
        command.args((0..said.verbose).map(|_| "-v"));
    }
    command.arg("serve").arg(format!("/proc/self/fd/{file}"));
    command.args(["--cell", cell]);
    command.stdin(Stdio::null());
    // These are for the main process.
    for variable in [
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "HYPERNIC_KEEPER",
    ] {
        command.env_remove(variable);
    }
    command
}

/// The first thing that a cell does: it has inherited what is for others, and ends with the process that has started it.
///
/// # Errors
/// The system does not let it.
pub fn become_one() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    let file = std::env::args().find_map(|word| word.strip_prefix("/proc/self/fd/")?.parse().ok());
    match keeper::goes_on() {
        // What it has are its own descriptors, which another program of this process has left.
        true => Ok(()),
        false => keeper::close_others(file.as_slice()),
    }
}

/// Why a cell does not know.
#[derive(Debug)]
pub(crate) enum Untold {
    /// It does not hear.
    Absent(String),
    /// It cannot do it.
    Refused(String),
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untold::Absent(why) | Untold::Refused(why) => f.write_str(why),
        }
    }
}

/// The keeper starts these cells, with this text, and ends all others.
pub(crate) fn keep<'a>(text: &str, cells: impl Iterator<Item = &'a String>) -> io::Result<()> {
    let (text, cells) = (text.to_owned(), cells.cloned().collect::<Vec<_>>());
    threads::apart(move || {
        for cell in &cells {
            if !keeper::cell(cell, &text)? {
                return Err(io::Error::other("it has no room for another cell"));
            }
        }
        let names: Vec<_> = cells.iter().map(String::as_str).collect();
        keeper::end_other_cells(&names);
        Ok(())
    })
}

/// Connects to a cell, which may not be there yet.
fn reach(path: &Path, patience: Duration) -> Result<Client, Untold> {
    let until = Instant::now() + patience;
    loop {
        match Client::connect(path) {
            Ok(client) => return Ok(client),
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(Untold::Absent(error.to_string())),
        }
    }
}

/// Has a cell be as this text says.
pub(crate) fn tell(path: &Path, text: &str, patience: Patience) -> Result<(), Untold> {
    let call = ConfigApply {
        text: Some(text.to_owned()),
        disconnect: Some(true),
        partly: Some(true),
        ..ConfigApply::default()
    };
    let Patience(hears, answers) = patience;
    let answer = reach(path, hears)?.ask(&call, answers);
    match answer {
        Ok(plan) => match plan.cannot.into_iter().find(|one| one.kind != "head") {
            Some(one) => Err(Untold::Refused(format!(
                "{} {}: {}",
                one.kind, one.name, one.why
            ))),
            None => Ok(()),
        },
        Err(AskError::Refused(failure)) => Err(Untold::Refused(failure.to_string())),
        Err(error) => Err(Untold::Absent(error.to_string())),
    }
}

/// Asks a cell something that it answers at once.
///
/// # Errors
/// It does not, or refuses.
pub(crate) fn ask<M: Method>(path: &Path, call: &M) -> Result<M::Reply, AskError> {
    Client::connect(path)?.ask(call, GLANCE)
}

/// How the NICs of a cell are. `None`: it does not answer.
fn states(path: &Path) -> Option<BTreeMap<String, NicState>> {
    let told = ask(path, &NicList::default()).ok()?;
    let state = |nic: control::NicInfo| {
        let state = NicState {
            connected: nic.connected,
            link: nic.link,
            failed: nic.failed,
        };
        (nic.config.name, state)
    };
    Some(told.nics.into_iter().map(state).collect())
}

/// Asks all cells how their NICs are.
pub(crate) fn look(host: &RwLock<Host>) {
    // Whoever waits for the host does not wait for a cell.
    let cells = host.read().cells();
    for (cell, path) in &cells {
        let (text, generation) = {
            let host = host.read();
            (host.stale_text(cell), host.generation())
        };
        if let Some(text) = text {
            match tell(path, &text, Patience::LITTLE) {
                Ok(()) => host.read().is_told(cell, generation),
                Err(Untold::Refused(why)) => {
                    tracing::error!(cell, "it is not as it should be: {why}");
                    host.read().is_told(cell, generation);
                }
                Err(Untold::Absent(_)) => {}
            }
        }
        let states = states(path);
        host.read().note_cell(cell, states);
    }
}

/// Looks at cells until it is dropped.
pub struct Looking {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Looking {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Begins to look, in the main process of a daemon that may have cells.
///
/// # Errors
/// No thread can be had.
pub fn begin(host: &Arc<RwLock<Host>>) -> io::Result<Option<Looking>> {
    let may = keeper::current().is_some() && host.read().head().own_cell().is_none();
    if !may || host.read().head().control.is_none() {
        return Ok(None);
    }
    let (ends, ended) = channel::<()>();
    let host: Weak<_> = Arc::downgrade(host);
    let thread = threads::spawn("cells", move || {
        loop {
            let Some(host) = host.upgrade() else { return };
            look(&host);
            drop(host);
            if ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    })?;
    Ok(Some(Looking {
        ends: Some(ends),
        thread: Some(thread),
    }))
}

/// Waits until all cells answer, a while.
pub fn wait_for_all(host: &RwLock<Host>) {
    let until = Instant::now() + Patience::MUCH.0;
    let cells: Vec<(String, PathBuf)> = host.read().cells().into_iter().collect();
    for (cell, path) in cells {
        let patience = until.saturating_duration_since(Instant::now());
        let reached = reach(&path, patience).map(|mut cell| cell.ask(&StatusGet {}, GLANCE));
        if let Err(why) = reached {
            tracing::error!(cell, "it does not serve yet: {why}");
        }
    }
}

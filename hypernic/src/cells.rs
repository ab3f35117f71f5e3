//! The main process's side of cells: telling the keeper which there are, telling them what they serve, and asking how they are.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;
use control::{MetricsGet, NicList, StatusGet};
use parking_lot::RwLock;
use program::LogFormat;
use rustix::process::Signal;

use crate::cell_calls::{GLANCE, Patience, Untold, ask, reach, tell};
use crate::control::follow::{Followed, match_moves};
use crate::explain;
use crate::host::{Host, Losses, NicState};
use crate::limits;

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
    limits::tell(&mut command);
    // These are for the main process.
    for variable in [
        "NOTIFY_SOCKET",
        "FDSTORE",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "HYPERNIC_KEEPER",
    ] {
        command.env_remove(variable);
    }
    // Each process writes one of its own.
    if let Some(mut file) = std::env::var_os(crate::timeline::FILE) {
        file.push(format!(".cell-{cell}"));
        command.env(crate::timeline::FILE, file);
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

/// How the NICs of a cell are. `None`: it does not answer.
fn states(path: &Path) -> Option<BTreeMap<String, NicState>> {
    let told = ask(path, &NicList::default()).ok()?;
    let state = |nic: control::NicInfo| {
        let state = NicState {
            connected: nic.connected,
            link: nic.link,
            failed: nic.failed,
            revision: nic.model_revision,
        };
        (nic.config.name, state)
    };
    Some(told.nics.into_iter().map(state).collect())
}

/// What a cell has lost. `None`: it does not answer.
fn losses(path: &Path) -> Option<Losses> {
    // Of counters that are 0 none.
    let call = MetricsGet {
        zeros: Some(Vec::new()),
        ..MetricsGet::default()
    };
    let mut all = Losses::new();
    for section in ask(path, &call).ok()?.sections {
        for (counter, value) in section.values {
            if value > 0
                && let Some(row) = explain::find_loss(&section.kind, &counter)
            {
                all.insert((row.kind, section.name.clone(), row.name), value);
            }
        }
    }
    Some(all)
}

/// Asks all cells how their NICs are, and what they have lost if somebody wants to know.
pub(crate) fn look(host: &RwLock<Host>) {
    // Whoever waits for the host does not wait for a cell.
    let cells = host.read().cells();
    for (cell, path) in &cells {
        // Before it is told what there is: it may have a NIC of a move that this process is to learn of.
        let is_unmatched = host.read().is_unmatched(cell);
        if is_unmatched {
            let followed = match_moves(host, cell, path);
            if followed != Followed::NotAsked {
                host.read().has_matched(cell, followed == Followed::All);
            }
        }
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
        // One that stands still is not waited for again.
        let answers = states.is_some();
        host.read().note_cell(cell, states);
        if answers
            && host.read().are_losses_wanted()
            && let Some(losses) = losses(path)
        {
            host.read().note_losses(cell, losses);
        }
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

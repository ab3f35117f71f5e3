//! A daemon that becomes another process, and may become another program, while guests use its NICs.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::config::HostConfig;
use crate::error::Error;
use crate::host::Host;
use crate::learned;
use crate::left::AllLeft;
use crate::limits;

/// Where this program was when it started, and which file it is; another may be there later.
static PROGRAM: OnceLock<(PathBuf, Option<FileId>)> = OnceLock::new();

/// A file's device and inode.
type FileId = (u64, u64);

fn id_of(path: &Path) -> Option<FileId> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// The program that goes on, if that is one of another name.
static NEXT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// To be called when the program starts.
pub fn remember_program() {
    if let Ok(program) = std::env::current_exe() {
        let _ = PROGRAM.set((program, id_of("/proc/self/exe".as_ref())));
    }
}

/// The program that goes on after the next upgrade: as it is on disk then.
pub fn program() -> Option<PathBuf> {
    let own = || PROGRAM.get().map(|(path, _)| path.clone());
    NEXT.lock().clone().or_else(own)
}

/// Whether another file has taken this program's place on disk, which [`program`] would become. Without a keeper it becomes none.
/// `None`: the system does not say.
pub fn is_replaced() -> Option<bool> {
    if keeper::current().is_none() {
        return Some(false);
    }
    let (path, own) = PROGRAM.get()?;
    Some(id_of(path)? != (*own)?)
}

/// Whether a program may go on: the one that runs, as it is on disk now, or one that this daemon cannot have written. Who has taken a
/// worker over can have any named.
///
/// # Errors
/// Why not, and what to do about it.
pub fn may_become(program: &Path) -> Result<(), String> {
    if PROGRAM.get().is_some_and(|(own, _)| own == program) {
        return Ok(());
    }
    // What is not there is not run.
    let real = program.canonicalize();
    let real = real.as_deref().unwrap_or(program);
    match limits::written().iter().find(|f| real.starts_with(f)) {
        Some(folder) => Err(format!(
            "{} is where the sandbox lets this daemon write ({}); put the program elsewhere",
            program.display(),
            folder.display()
        )),
        None => Ok(()),
    }
}

/// What a program is told besides that goes on in the place of this one: older ones have no keeper unasked.
pub fn introduce(successor: &mut Command) {
    if !successor.get_args().any(|word| word == "--keeper") {
        successor.arg("--keeper");
    }
    limits::tell(successor);
}

/// Names the program that goes on.
pub fn name_program(program: &Path) {
    *NEXT.lock() = Some(program.to_owned());
}

/// Whether NICs could go on in another process.
///
/// # Errors
/// Why not, and what to do about it.
pub fn possible(host: &Host) -> Result<(), String> {
    if keeper::current().is_none() {
        return Err(
            "guests go on in another process only with a keeper; start the daemon without --no-keeper and keeper = false"
                .into(),
        );
    }
    if host.trial().is_some() {
        return Err(
            "a configuration is on trial; hypernic config confirm or rollback it first".into(),
        );
    }
    if let Some(name) = host.on_the_move() {
        return Err(format!(
            "the guest of {name} is being moved to another host; try again when that is done"
        ));
    }
    match host.bound() {
        Some(name) => Err(format!(
            "{name} was given a descriptor, and cannot go on in another process; give it a path or a name"
        )),
        None => Ok(()),
    }
}

/// Ends without a word to any VMM: the next worker goes on.
///
/// # Errors
/// The system has no memory or descriptor left for it. Guests have lost their NICs then.
pub fn hand_over(host: Arc<RwLock<Host>>) -> Result<(), Error> {
    let failed = |source| Error::Os {
        what: "cannot hand over to the next worker",
        source,
    };
    let page = keeper::current().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let host = Arc::into_inner(host);
    let host = host.ok_or_else(|| failed(std::io::ErrorKind::ResourceBusy.into()))?;
    let all = host.into_inner().leave();
    let (files, payload) = all.seal();
    page.hand_over(&files, program().as_deref(), &payload)
        .map_err(failed)?;
    tracing::info!(nics = all.len(), "handed over");
    Ok(())
}

/// The name of the file, in the page that workers share, that has the text of the host that runs.
const RUNS: &[u8] = b"what runs";

/// Notes what runs for the next worker, should this one die: it is not what a file or the command line said any more.
pub fn note(host: &Host) {
    let Some(page) = keeper::current() else {
        return;
    };
    // What is on trial is not to stay.
    if host.trial().is_some() {
        return;
    }
    let text = host.lasting().to_text();
    let made = threads::apart(move || keeper::file_of("what-runs", text.as_bytes()));
    match made {
        Ok(file) => page.leave(RUNS, file, [0, 0]),
        Err(error) => tracing::error!("what runs is not noted for the next worker: {error}"),
    }
}

/// The text that the worker before has noted.
fn noted() -> Option<String> {
    let page = keeper::current()?;
    let (file, _) = page.go_on(RUNS)?;
    let mut file = File::from(file);
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    // It stays open for the next one, if nothing changes.
    let _ = file.into_raw_fd();
    read.is_ok().then_some(text)
}

/// What the worker before has left, and the host that it was: `config`, which a file or the command line says, becomes that.
/// For the beginning, before anything is opened or confined.
pub fn arrive(config: &mut HostConfig) -> AllLeft {
    let mut left = AllLeft::arrive();
    // Of a worker that ended by itself that is older than what it has left.
    if let Some(learned) = learned::noted().filter(|_| !left.came()) {
        left.learn(learned);
    }
    let text = left.take_config();
    let Some(text) = text.or_else(noted) else {
        return left;
    };
    let file = config
        .file
        .clone()
        .unwrap_or_else(|| "the host that ran".into());
    match HostConfig::parse_running(&file, &text) {
        Ok(was) => {
            *config = HostConfig {
                file: config.file.take(),
                hints: std::mem::take(&mut config.hints),
                ..was.with_said(config.said.clone())
            };
        }
        Err(error) => left.complain(format!(
            "what ran before cannot be read, and the file is served instead: {error}"
        )),
    }
    left
}

//! A daemon that becomes another process, and may become another program, while guests use its NICs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::config::{HostConfig, SocketSpec};
use crate::error::Error;
use crate::host::Host;
use crate::left::AllLeft;

/// Where this program was when it started; another may be there later.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The program that goes on, if that is one of another name.
static NEXT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// To be called when the program starts.
pub fn remember_program() {
    if let Ok(program) = std::env::current_exe() {
        let _ = PROGRAM.set(program);
    }
}

/// The program that goes on after the next upgrade: as it is on disk then.
pub fn program() -> Option<PathBuf> {
    NEXT.lock().clone().or_else(|| PROGRAM.get().cloned())
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
            "guests go on in another process only with a keeper; start the daemon with --keeper"
                .into(),
        );
    }
    let given = |nic: &crate::config::NicConfig| matches!(nic.socket, SocketSpec::Fd(_));
    match host.as_is().nics.iter().find(|nic| given(nic)) {
        Some(nic) => Err(format!(
            "{} was given its connection as a descriptor (--fd), and cannot go on in another process; give it a \
             --socket-path",
            nic.name
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

/// What the worker before has left, and the host that it was: `config`, which a file or the command line says, becomes that.
/// For the beginning, before anything is opened or confined.
pub fn arrive(config: &mut HostConfig) -> AllLeft {
    let mut left = AllLeft::arrive();
    let Some(text) = left.take_config() else {
        return left;
    };
    let file = config
        .file
        .clone()
        .unwrap_or_else(|| "the host that ran".into());
    match HostConfig::parse(&file, &text) {
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

//! What a process and its threads can no longer do, from when [`enter`] returns until they end.
//!
//! Four layers, each on its own: no new privileges, no capabilities but those that are asked for, no files but those in
//! the folders that are named (Landlock), and no system calls but those in [`calls`] (seccomp). Threads that touch what
//! guests and their VMMs give may make fewer calls than the process: they say what they are ([`threads::enter`]).

pub mod calls;
mod capabilities;
mod fatal;
mod files;
mod filter;
mod plan;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use threads::Kind;

pub use fatal::{close_from, end_on_faults, leave_signals};
pub use plan::{Layers, Mode, Plan, Role};

struct Jail {
    plan: Plan,
    layers: Layers,
    /// The folders, as the kernel knows them.
    folders: Vec<PathBuf>,
}

static JAIL: OnceLock<Jail> = OnceLock::new();

/// Confines the process. It has to be called before any other thread runs: Landlock binds its caller and those it makes. A
/// process of one thread may call it again, to give up more.
///
/// # Errors
/// A strict plan cannot be had whole, or a thread cannot be had; one line says what is missing.
pub fn enter(plan: Plan) -> Result<Layers, String> {
    let mut layers = Layers {
        mode: plan.mode,
        ..Layers::default()
    };
    let mut folders = Vec::new();
    if plan.mode != Mode::Off {
        let missing = |layer: &str, why: String| {
            let text = format!("{layer}: {why}; use --sandbox default to go on without");
            (plan.mode == Mode::Strict).then_some(text)
        };
        match rustix::thread::set_no_new_privs(true) {
            Ok(()) => layers.no_new_privileges = true,
            Err(errno) => refuse(missing("no new privileges", errno.to_string()))?,
        }
        if let Err(errno) = capabilities::drop_process(&plan) {
            refuse(missing("capabilities", errno.to_string()))?;
        }
        if plan.mode != Mode::Log {
            match files::restrict(&plan) {
                Ok((version, known)) => (layers.landlock, folders) = (version, known),
                Err(why) => refuse(missing("landlock", why))?,
            }
        }
        if plan.role == Role::Daemon {
            threads::confine(thread).map_err(|error| format!("cannot start a thread: {error}"))?;
            fatal::settle_allocator();
        } else {
            fatal::set_kind(plan.role.name());
        }
        fatal::install(plan.mode == Mode::Strict);
        layers.capabilities = capabilities::count();
        match filter::process(&plan) {
            Ok(()) => layers.seccomp = true,
            Err(why) => refuse(missing("seccomp", why))?,
        }
    }
    if plan.mode == Mode::Off {
        layers.capabilities = capabilities::count();
    }
    let kept = layers.clone();
    // A second call changes nothing of what holds.
    let _ = JAIL.set(Jail {
        plan,
        layers,
        folders,
    });
    Ok(kept)
}

/// System calls that have failed because they may not be made.
pub fn failed_calls() -> u64 {
    fatal::failed()
}

fn refuse(why: Option<String>) -> Result<(), String> {
    why.map_or(Ok(()), Err)
}

/// Which layers are on.
pub fn layers() -> Layers {
    let off = || Layers {
        mode: Mode::Off,
        capabilities: capabilities::count(),
        ..Layers::default()
    };
    JAIL.get().map_or_else(off, |jail| jail.layers.clone())
}

/// Whether files can be made at `path`.
///
/// # Errors
/// They cannot; one line says why and what to do.
pub fn permits(path: &Path) -> Result<(), String> {
    let Some(jail) = JAIL.get().filter(|jail| jail.layers.landlock > 0) else {
        return Ok(());
    };
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = whole.parent().unwrap_or(&whole);
    // The kernel goes by what a path leads to.
    let known = std::fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
    if jail.folders.iter().any(|folder| known.starts_with(folder)) {
        return Ok(());
    }
    Err(outside(&whole))
}

/// Whether files in the folder `path` can be read by a process that was given these folders.
///
/// # Errors
/// They cannot; one line says why and what to do.
pub fn permits_reading(path: &Path, given: &[PathBuf]) -> Result<(), String> {
    if JAIL.get().is_none_or(|jail| jail.layers.landlock == 0) {
        return Ok(());
    }
    let known = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut readable = given.iter().filter_map(|folder| folder.canonicalize().ok());
    if readable.any(|folder| known.starts_with(folder)) {
        return Ok(());
    }
    Err(outside(path))
}

fn outside(path: &Path) -> String {
    format!(
        "{} is outside of the folders that the sandbox lets this daemon use; choose a path in one of them, or name its \
         folder in sandbox-paths and start the daemon again",
        path.display()
    )
}

/// Whether connections of its own can be made.
///
/// # Errors
/// They cannot; one line says why and what to do.
pub fn permits_network() -> Result<(), String> {
    match JAIL.get() {
        Some(jail) if jail.layers.seccomp && jail.layers.mode != Mode::Log && !jail.plan.network => {
            Err("the sandbox lets this daemon have no network of its own; say sandbox-network = true and start it again"
                .into())
        }
        _ => Ok(()),
    }
}

/// A thread has said what it is.
fn thread(kind: Kind) {
    // Within `enter` no thread says so.
    if let Some(jail) = JAIL.get() {
        // What the standard library and the allocator ask for once in a thread's life, they have now.
        drop(std::collections::HashMap::<u64, Box<u64>>::from([(
            1,
            Box::new(1),
        )]));
        fatal::leave_signals();
        capabilities::drop_thread();
        if jail.layers.seccomp {
            filter::thread(&jail.plan, kind);
        }
    }
}

//! Completions of a shell that know what a running daemon has.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use control::{NicList, SwitchList, VfShow};

use crate::client::place::DEFAULT_CONTROL;

/// The commands that a shell is told of.
static COMMANDS: OnceLock<Vec<String>> = OnceLock::new();

/// Answers a shell that asks for completions (`COMPLETE=bash hypernic` prints what it needs), and ends then.
pub fn answer(command: impl Fn() -> clap::Command) {
    let names = || {
        let all = command();
        let names = all.get_subcommands().map(|one| one.get_name().to_owned());
        names.collect()
    };
    if std::env::var_os("COMPLETE").is_some() {
        COMMANDS.get_or_init(names);
    }
    CompleteEnv::with_factory(command).complete();
}

/// Names of NICs.
pub(crate) fn nics() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let reply = control::ask(&socket(), &NicList::default());
        let nics = reply.map(|reply| reply.nics).unwrap_or_default();
        matching(current, nics.into_iter().map(|nic| nic.config.name))
    })
}

/// Names of switches.
pub(crate) fn switches() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let reply = control::ask(&socket(), &SwitchList::default());
        let switches = reply.map(|reply| reply.switches).unwrap_or_default();
        matching(current, switches.into_iter().map(|one| one.config.name))
    })
}

/// NICs that are virtual functions.
pub(crate) fn vfs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let reply = control::ask(&socket(), &VfShow::default());
        let vfs = reply.map(|reply| reply.vfs).unwrap_or_default();
        matching(current, vfs.into_iter().map(|vf| vf.nic))
    })
}

/// Of these names, and of the commands.
pub(crate) fn commands_and(names: fn() -> Vec<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let commands = COMMANDS.get().into_iter().flatten().cloned();
        matching(current, commands.chain(names()))
    })
}

/// The socket that the words so far name.
fn socket() -> PathBuf {
    let mut words = std::env::args_os().skip_while(|word| word != "--control");
    words
        .nth(1)
        .map_or_else(|| DEFAULT_CONTROL.into(), PathBuf::from)
}

fn matching(current: &OsStr, names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let wanted = names.filter(|name| name.starts_with(&*current));
    wanted.map(CompletionCandidate::new).collect()
}

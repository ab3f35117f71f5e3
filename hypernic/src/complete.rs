//! Completions of a shell that know what a running daemon has.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use control::{ChipList, Client, Method, MigrateList, NicList, SwitchList, VfShow};

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
        let reply = ask(&NicList::default());
        let nics = reply.map(|reply| reply.nics).unwrap_or_default();
        matching(current, nics.into_iter().map(|nic| nic.config.name))
    })
}

/// Names of switches.
pub(crate) fn switches() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let reply = ask(&SwitchList::default());
        let switches = reply.map(|reply| reply.switches).unwrap_or_default();
        matching(current, switches.into_iter().map(|one| one.config.name))
    })
}

/// Names of chips.
pub(crate) fn chips() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let reply = ask(&ChipList::default());
        let chips = reply.map(|reply| reply.chips).unwrap_or_default();
        matching(current, chips.into_iter().map(|chip| chip.config.name))
    })
}

/// Names of moves.
pub(crate) fn moves() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let reply = ask(&MigrateList::default());
        let moves = reply.map(|reply| reply.moves).unwrap_or_default();
        matching(current, moves.into_iter().map(|one| one.id))
    })
}

/// NICs that are virtual functions.
pub(crate) fn vfs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let reply = ask(&VfShow::default());
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

/// Asks the daemon that the words so far name. A shell that completes waits for no daemon that hangs.
fn ask<M: Method>(call: &M) -> Option<M::Reply> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let mut client = Client::connect(&socket(std::env::args_os())).ok()?;
    client.ask(call, PATIENCE).ok()
}

/// The socket that the words so far name.
fn socket(words: impl Iterator<Item = OsString>) -> PathBuf {
    let mut words = words.skip_while(|word| !word.as_bytes().starts_with(b"--control"));
    let named = words.find_map(|word| match word.as_bytes().strip_prefix(b"--control") {
        Some([]) => Some(None),
        Some([b'=', path @ ..]) => Some(Some(PathBuf::from(OsStr::from_bytes(path)))),
        _ => None,
    });
    let named = named.and_then(|path| path.or_else(|| words.next().map(PathBuf::from)));
    named.unwrap_or_else(|| DEFAULT_CONTROL.into())
}

fn matching(current: &OsStr, names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let wanted = names.filter(|name| name.starts_with(&*current));
    wanted.map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_socket_is_the_one_that_the_words_name() {
        let named = |words: &str| socket(words.split(' ').map(OsString::from));
        assert_eq!(named("hypernic list --control /a --json"), Path::new("/a"));
        assert_eq!(named("hypernic list --control=/a"), Path::new("/a"));
        assert_eq!(
            named("hypernic run --control-x --control /b"),
            Path::new("/b")
        );
        assert_eq!(named("hypernic list --control"), Path::new(DEFAULT_CONTROL));
        assert_eq!(named("hypernic list"), Path::new(DEFAULT_CONTROL));
    }
}

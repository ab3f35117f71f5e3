//! `hypernic migrate`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use control::{
    AskError, Changed, Client, Failure, MigrateAbort, MigrateCommit, MigrateList, MigrateLoad,
    MigrateSave, Move, MoveSaved, Moves,
};
use program::LogFormat;

use super::place::{Place, Printed, with};
use crate::complete;
use crate::error::Error;

/// `hypernic migrate`.
#[derive(Args, Debug)]
pub struct MigrateCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    #[command(subcommand)]
    what: MigrateVerb,
}

#[derive(Debug, Subcommand)]
enum MigrateVerb {
    /// Save a NIC of the daemon at --control and make it at the daemon at --to. It stands still at both. The same command again does no
    /// more.
    Prepare {
        /// Your name for the move, by which it is committed or aborted.
        id: String,
        /// The NIC.
        #[arg(add = complete::nics())]
        nic: String,
        /// The control socket of the daemon that the NIC comes to.
        #[arg(long, value_name = "PATH")]
        to: PathBuf,
        /// Its name there; without, the same. A VF comes in place of the VF of this name.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The Unix socket for its VMM there; without, of the same path.
        #[arg(long, value_name = "PATH")]
        socket_path: Option<String>,
        /// Where its frames go there; without, as they do here.
        #[arg(long)]
        port: Option<String>,
        /// The file of its EEPROM there; without, of the same path, if it has one.
        #[arg(long, value_name = "FILE")]
        eeprom: Option<String>,
        /// The cell that serves it there, or main; without, one of the same name.
        #[arg(long, value_name = "NAME")]
        cell: Option<String>,
        /// A VMM has the NIC and stays connected: its guest is paused, and stays so until the move is over.
        #[arg(long)]
        paused: bool,
        /// Only say whether it can be done.
        #[arg(long)]
        check: bool,
    },
    /// End a move that was prepared: the NIC goes at --control, then announces its address and is served at --to. The same command
    /// again does no more.
    Commit {
        #[command(flatten)]
        ends: Ends,
        /// Write it into the daemons' configuration files, too.
        #[arg(long)]
        persist: bool,
    },
    /// Take a move back that was prepared: the NIC is served at --control as before, then goes at --to. The same command again does no
    /// more.
    Abort {
        #[command(flatten)]
        ends: Ends,
    },
    /// List the moves that a daemon knows.
    List {
        /// One of them; without a name, all.
        #[arg(add = complete::moves())]
        id: Option<String>,
    },
}

/// Where a move ends.
#[derive(Args, Debug)]
struct Ends {
    /// The move.
    #[arg(add = complete::moves())]
    id: String,
    /// The control socket of the daemon that the NIC comes to.
    #[arg(long, value_name = "PATH", required_unless_present = "source_is_gone")]
    to: Option<PathBuf>,
    /// Ask the destination alone, at --control: the source never comes back.
    #[arg(long, conflicts_with = "to")]
    source_is_gone: bool,
}

/// What is printed of a step.
#[derive(Debug, serde::Serialize)]
struct Step {
    /// The move.
    id: String,
    /// Something is other than it was at the source.
    source: bool,
    /// The same of the destination.
    destination: bool,
}

impl MigrateCommand {
    /// Asks the daemons. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses. The same command may be given again.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let (place, printed) = (self.place, self.printed);
        let show = |step: Step, done: &str| {
            let told = match step.source || step.destination {
                true => format!("{}: {done}\n", step.id),
                false => format!("{}: nothing to do\n", step.id),
            };
            Ok(printed.show(format, &step, |_| told))
        };
        match self.what {
            MigrateVerb::Prepare {
                id,
                nic,
                to,
                name,
                socket_path,
                port,
                eeprom,
                cell,
                paused,
                check,
            } => {
                let moves = nic.clone();
                let save = MigrateSave {
                    id,
                    nic,
                    paused: paused.then_some(true),
                    check: check.then_some(true),
                    ..MigrateSave::default()
                };
                let own = [
                    ("socket-path", socket_path.is_some()),
                    ("port", port.is_some()),
                    ("eeprom", eeprom.is_some()),
                    ("cell", cell.is_some()),
                ];
                let own = own.iter().find(|(_, said)| *said).map(|(word, _)| *word);
                let there = |mut nic: control::NicConfig, is_vf: bool| {
                    nic.name = name.clone().unwrap_or(nic.name);
                    if let Some(word) = own.filter(|_| is_vf) {
                        return Err(Error::Usage(format!(
                            "{moves} is a VF, and comes in place of another one, with that one's socket and its chip's port: leave out \
                             --{word}; --name says which one"
                        )));
                    }
                    nic.socket_path = socket_path.clone().or(nic.socket_path);
                    nic.port = port.clone().unwrap_or(nic.port);
                    nic.eeprom = eeprom.clone().or(nic.eeprom);
                    nic.cell = cell.clone().or(nic.cell);
                    Ok(nic)
                };
                let step = prepare(&place, &to, save, there)?;
                show(step, if check { "it can be done" } else { "prepared" })
            }
            MigrateVerb::Commit { ends, persist } => {
                let call = MigrateCommit {
                    id: ends.id.clone(),
                    persist: persist.then_some(true),
                    ..MigrateCommit::default()
                };
                show(commit(&place, &ends, call)?, "committed")
            }
            MigrateVerb::Abort { ends } => show(abort(&place, &ends)?, "aborted"),
            MigrateVerb::List { id } => {
                let moves = place.ask(&MigrateList { id })?;
                Ok(printed.show(format, &moves, listed))
            }
        }
    }
}

/// The NIC is saved at the source and made at the destination. Nothing has changed if the destination would refuse it.
fn prepare(
    place: &Place,
    to: &Path,
    save: MigrateSave,
    there: impl Fn(control::NicConfig, bool) -> Result<control::NicConfig, Error>,
) -> Result<Step, Error> {
    let mut source = place.connect()?;
    let mut destination = with(Client::connect(to))?;
    let only_check = save.check;
    let mut load = MigrateLoad {
        id: save.id.clone(),
        check: Some(true),
        ..MigrateLoad::default()
    };
    let look = MigrateSave {
        check: Some(true),
        ..save.clone()
    };
    let MoveSaved { nic, vf, .. } = with(source.call(&look))?;
    load.nic = there(nic, vf.is_some())?;
    load.vf = vf;
    with(destination.call(&load)).map_err(at_destination)?;
    let mut step = Step {
        id: save.id.clone(),
        source: true,
        destination: true,
    };
    if only_check == Some(true) {
        return Ok(step);
    }
    let MoveSaved {
        nic,
        vf,
        state,
        changed,
    } = with(source.call(&save))?;
    load.nic = there(nic, vf.is_some())?;
    load.vf = vf;
    load.state = state;
    load.check = None;
    let loaded = with(destination.call(&load)).map_err(|error| {
        let error = at_destination(error);
        again(
            error,
            "the NIC stands still at the source: give the command again, or abort the move",
        )
    })?;
    (step.source, step.destination) = (changed, loaded.changed);
    Ok(step)
}

/// The source lets the NIC go; then the destination has it.
fn commit(place: &Place, ends: &Ends, mut call: MigrateCommit) -> Result<Step, Error> {
    let mut first = place.connect()?;
    let mut step = Step {
        id: ends.id.clone(),
        source: false,
        destination: false,
    };
    if let Some(to) = &ends.to {
        let mut destination = with(Client::connect(to))?;
        // What the destination would refuse is refused before the source has let go.
        let look = MigrateCommit {
            check: Some(true),
            ..call.clone()
        };
        with(destination.call(&look)).map_err(at_destination)?;
        step.source = with(first.call(&call))?.changed;
        first = destination;
    }
    call.source_said = Some(true);
    step.destination = with(first.call(&call))
        .map_err(|error| {
            let error = at_destination(error);
            again(
                error,
                "the NIC has gone at the source: give the command again",
            )
        })?
        .changed;
    Ok(step)
}

/// The source has the NIC again; then the destination lets it go.
fn abort(place: &Place, ends: &Ends) -> Result<Step, Error> {
    let mut call = MigrateAbort {
        id: ends.id.clone(),
        ..MigrateAbort::default()
    };
    let mut first = place.connect()?;
    let mut step = Step {
        id: ends.id.clone(),
        source: false,
        destination: false,
    };
    if let Some(to) = &ends.to {
        step.source = with(first.call(&call))?.changed;
        let kept = "the NIC is served at the source: give the command again to take it away at the destination";
        let connected = with(Client::connect(to));
        first = connected.map_err(|error| again(at_destination(error), kept))?;
    }
    call.source_said = Some(true);
    step.destination = match first.call(&call) {
        Ok(Changed { changed, .. }) => changed,
        // It was never told.
        Err(AskError::Refused(Failure::Unknown { .. })) if ends.to.is_some() => false,
        other => with(other).map_err(at_destination)?.changed,
    };
    Ok(step)
}

/// Which of the two daemons says so.
fn at_destination(error: Error) -> Error {
    match error {
        Error::Host(why) => Error::Host(format!("at the destination: {why}")),
        Error::Refused(why) => Error::Refused(format!("at the destination: {why}")),
        error => error,
    }
}

/// With what there is to be done.
fn again(error: Error, what: &str) -> Error {
    match error {
        Error::Host(why) => Error::Host(format!("{why}; {what}")),
        Error::Refused(why) => Error::Refused(format!("{why}; {what}")),
        error => Error::Host(format!("{error}; {what}")),
    }
}

fn listed(moves: &Moves) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<24} {:<16} {:<12} STEP", "MOVE", "NIC", "SIDE");
    for one in &moves.moves {
        let Move {
            id,
            nic,
            side,
            step,
        } = one;
        let _ = writeln!(
            text,
            "{id:<24} {nic:<16} {:<12} {}",
            side.word(),
            step.word()
        );
    }
    text
}

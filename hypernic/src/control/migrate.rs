//! NICs that move to another host. The operator's program talks to both daemons; each keeps its half of the move, on disk, before it
//! acts. The source decides: a NIC that it has let go lives nowhere until the destination has it, and never at both.

use control::{
    Changed, Failure, MigrateAbort, MigrateCommit, MigrateList, MigrateLoad, MigrateSave,
    MoveSaved, MoveSide, MoveStep, NicConfig as NicWords,
};
use serde_json::{Map, Value};

use super::changes::{self, Terms, compare, failed, no_nic, terms};
use super::far_moves::Cell;
use super::moved_vfs;
use crate::config::edit::Edit;
use crate::config::{NicConfig, SocketSpec};
use crate::hex;
use crate::host::Host;
use crate::moves::{MOST_OPEN, Move, VfWords, Words};
use crate::nic::HoldRefusal;
use crate::spec::Transport;
use crate::{quarantine, sandbox, upgrade};

/// The longest state that fits into an owner's call, in bytes.
const MOST_STATE: usize = 448 << 10;

/// The longest name of a move.
const MOST_ID: usize = 64;

/// A NIC stands still and is saved.
pub(super) fn save(host: &mut Host, call: &MigrateSave) -> Result<MoveSaved, Failure> {
    let (id, name) = (&call.id, &call.nic);
    let terms = Terms {
        check: call.check,
        persist: None,
        if_generation: call.if_generation,
    };
    terms.allow(host)?;
    well_named(id)?;
    if let Some(known) = host.moves().get(id) {
        is_same(known, MoveSide::Source, name)?;
        return saved(known, false);
    }
    let is = host.configuration();
    let nic = is.nics.iter().find(|nic| nic.name == *name);
    let nic = nic.ok_or_else(|| no_nic(host, name))?;
    can_move(host, nic)?;
    is_free(host, name)?;
    let words = Words {
        nic: NicWords {
            capture: None,
            capture_mib: None,
            ..nic.words()
        },
        vf: moved_vfs::leaving(nic),
    };
    let cell = Cell::of(host, nic);
    let state = match &cell {
        Some(cell) => cell.save(host, call)?,
        None => held(host, call)?,
    };
    let Some(state) = state else {
        return Ok(MoveSaved {
            nic: words.nic,
            vf: words.vf.map(|vf| vf.policy),
            state: None,
            changed: true,
        });
    };
    let one = Move {
        id: id.clone(),
        nic: name.clone(),
        side: MoveSide::Source,
        step: MoveStep::Prepared,
        words: words.text(),
        state: Some(state),
    };
    if let Err(why) = noted(host, one) {
        match cell {
            Some(cell) => cell.take_back(host, id),
            None => host.release_nic(name),
        }
        return Err(why);
    }
    tracing::info!(nic = %name, id, "stands still and is saved for a move");
    changed(host, true);
    let known = host.moves().get(id);
    known.map_or_else(|| Err(unknown(host, id)), |known| saved(known, true))
}

/// A NIC of this process stands still and is saved. `None`: it was only asked whether it could be.
fn held(host: &Host, call: &MigrateSave) -> Result<Option<Vec<u8>>, Failure> {
    let name = &call.nic;
    let works = host.nic_state(name).is_some_and(|nic| nic.connected);
    if works && call.paused != Some(true) {
        return Err(held_up(name, &vfio_user::HoldError::InUse.into()));
    }
    if call.check == Some(true) {
        return Ok(None);
    }
    let state = host.hold_nic(name, call.paused == Some(true));
    state.map(Some).map_err(|why| held_up(name, &why))
}

/// What was saved of a NIC.
fn saved(one: &Move, changed: bool) -> Result<MoveSaved, Failure> {
    let said = said(one)?;
    Ok(MoveSaved {
        nic: said.nic,
        vf: said.vf.map(|vf| vf.policy),
        state: one.state.as_deref().map(hex::of),
        changed,
    })
}

/// A NIC of another daemon comes, and stands still.
pub(super) fn load(host: &mut Host, call: &MigrateLoad) -> Result<Changed, Failure> {
    let (id, words) = (&call.id, &call.nic);
    let terms = Terms {
        check: call.check,
        persist: None,
        if_generation: call.if_generation,
    };
    terms.allow(host)?;
    well_named(id)?;
    let is = host.as_is();
    // The main process, which forgets nothing that was decided, asks for it anew.
    let anew = |known: &&Move| call.partly == Some(true) && known.step == MoveStep::Aborted;
    if let Some(known) = host.moves().get(id).filter(|known| !anew(known)) {
        is_same(known, MoveSide::Destination, &words.name)?;
        let said = said(known)?;
        let is_policy = said.vf.map(|vf| vf.policy);
        compare("VF", &words.name, &is_policy, &call.vf)?;
        if call.vf.is_none() {
            let wanted = is.without_nic(&words.name).nic_beside(words);
            let wanted = wanted.map_err(Failure::invalid)?;
            compare("NIC", &words.name, &said.nic, &wanted.words())?;
        }
        return Ok(changed(host, false));
    }
    let wanted = match &call.vf {
        Some(policy) => moved_vfs::coming(host, call, policy)?,
        None => is.nic_beside(words).map_err(Failure::invalid)?,
    };
    can_move(host, &wanted)?;
    let vf = match &call.vf {
        Some(policy) => {
            is_free(host, &wanted.name)?;
            Some(VfWords {
                policy: policy.clone(),
                was: moved_vfs::makes_place(host, &wanted.name)?,
            })
        }
        None => None,
    };
    sandbox::permits_nic(&wanted).map_err(Failure::failed)?;
    let cell = Cell::of(host, &wanted);
    if terms.only_check() {
        if let Some(cell) = cell.filter(|_| vf.is_some()) {
            cell.may_load(host, call, &wanted)?;
        }
        return Ok(changed(host, false));
    }
    let state = call.state.as_deref().and_then(hex::bytes);
    let state = state.ok_or_else(|| {
        Failure::invalid("the call has no state in hexadecimal, as the source has said it")
    })?;
    match &cell {
        Some(cell) => cell.load(host, call, &wanted)?,
        None => host.put_held(&wanted, &state).map_err(failed)?,
    }
    let words = Words {
        nic: wanted.words(),
        vf,
    };
    let one = Move {
        id: id.clone(),
        nic: wanted.name.clone(),
        side: MoveSide::Destination,
        step: MoveStep::Prepared,
        words: words.text(),
        state: Some(state),
    };
    if let Err(why) = noted(host, one.clone()) {
        gone(host, &one);
        if let Some(cell) = cell {
            cell.take_back(host, id);
        }
        return Err(why);
    }
    tracing::info!(nic = %wanted.name, id, "has come, and stands still until the move is committed");
    Ok(changed(host, true))
}

/// The NIC goes, or is served here from now on.
pub(super) fn commit(host: &mut Host, call: &MigrateCommit) -> Result<Changed, Failure> {
    let terms = terms!(call);
    terms.allow(host)?;
    let one = known(host, &call.id)?;
    let here = one.side == MoveSide::Destination;
    match one.step {
        MoveStep::Aborted => return Err(decided(&one)),
        MoveStep::Committed => return committed_again(host, &one, &terms),
        MoveStep::Prepared => {}
    }
    let config = match here {
        true => Some(config_of(host, &one)?),
        false => None,
    };
    let cell = Cell::of_move(host, &one);
    let place = moved_vfs::Place::of(host, &one);
    let edit = match (&place, &config) {
        (Some(place), _) => place.edit(),
        (None, Some(config)) => Edit::AddNic(config),
        (None, None) => Edit::RemoveNic(&one.nic),
    };
    if terms.only_check() {
        terms.write(host, edit)?;
        return Ok(changed(host, false));
    }
    if here {
        asked_first(call.source_said, "commit")?;
    }
    let written = terms.write(host, edit)?;
    match (&cell, &config) {
        (Some(cell), _) => cell.commit(host, call)?,
        (None, Some(config)) => is_there(host, config, &one)?,
        (None, None) => {}
    }
    let done = Move {
        step: MoveStep::Committed,
        state: one.state.clone().filter(|_| here),
        ..one.clone()
    };
    noted(host, done)?;
    match (here, cell) {
        (true, None) => {
            host.announce(&one.nic);
            host.release_nic(&one.nic);
        }
        (true, Some(_)) => {}
        (false, _) => gone(host, &one),
    }
    tracing::info!(nic = %one.nic, id = %one.id, "{}", match here {
        true => "has come for good",
        false => "has gone for good",
    });
    let told = changed(host, true);
    changes::keep(written)?;
    Ok(told)
}

/// A move that was committed has the file say so, too, if that is wanted now.
fn committed_again(host: &Host, one: &Move, terms: &Terms) -> Result<Changed, Failure> {
    let is = host.as_is();
    let nic = is.nics.iter().find(|nic| nic.name == one.nic);
    let last = host.moves().of_nic(&one.nic);
    let place = moved_vfs::Place::of(host, one);
    // Another move or another NIC of this name may have come since.
    let edit = match (&place, one.side, nic) {
        _ if last.is_none_or(|last| last.id != one.id) => None,
        (Some(place), ..) => Some(place.edit()),
        (None, MoveSide::Source, None) => Some(Edit::RemoveNic(&one.nic)),
        (None, MoveSide::Destination, Some(nic)) => Some(Edit::AddNic(nic)),
        _ => None,
    };
    let written = match edit {
        Some(edit) => terms.write(host, edit)?,
        None => None,
    };
    changes::keep(written)?;
    Ok(changed(host, false))
}

/// The NIC stays, or does not come.
pub(super) fn abort(host: &mut Host, call: &MigrateAbort) -> Result<Changed, Failure> {
    let terms = Terms {
        check: None,
        persist: None,
        if_generation: call.if_generation,
    };
    terms.allow(host)?;
    let one = known(host, &call.id)?;
    let here = one.side == MoveSide::Source;
    match one.step {
        MoveStep::Committed => return Err(decided(&one)),
        MoveStep::Aborted => return Ok(changed(host, false)),
        MoveStep::Prepared => {}
    }
    if !here {
        asked_first(call.source_said, "abort")?;
    }
    let cell = Cell::of_move(host, &one);
    if let Some(cell) = &cell {
        cell.abort(host, &one.id)?;
    } else if here && !host.is_held(&one.nic) {
        // It may have been lost when the daemon started.
        let config = config_of(host, &one)?;
        let state = one.state.clone().unwrap_or_default();
        host.put_held(&config, &state).map_err(failed)?;
    }
    let done = Move {
        step: MoveStep::Aborted,
        state: one.state.clone().filter(|_| here),
        ..one.clone()
    };
    noted(host, done.clone())?;
    match (here, cell) {
        (true, None) => host.release_nic(&one.nic),
        (true, Some(_)) => {}
        (false, _) => gone(host, &one),
    }
    let told = changed(host, true);
    // From here on what is laid down for a VF in whose place it did not come is as it is said.
    if !here && said(&one)?.vf.is_some() {
        let words = String::new();
        noted(host, Move { words, ..done })?;
    }
    tracing::info!(nic = %one.nic, id = %one.id, "{}", match here {
        true => "stays, and is served again",
        false => "does not come",
    });
    Ok(told)
}

/// Which moves there are.
pub(super) fn list(host: &Host, call: &MigrateList) -> Result<control::Moves, Failure> {
    let wanted = |one: &&Move| call.id.as_ref().is_none_or(|id| *id == one.id);
    let moves: Vec<_> = host.moves().all().iter().filter(wanted).collect();
    if let (Some(id), true) = (&call.id, moves.is_empty()) {
        return Err(unknown(host, id));
    }
    let told = |one: &Move| control::Move {
        id: one.id.clone(),
        nic: one.nic.clone(),
        side: one.side,
        step: one.step,
    };
    Ok(control::Moves {
        moves: moves.into_iter().map(told).collect(),
    })
}

/// The parameters of a call for the log: a state makes no line.
pub(super) fn without_state(parameters: &Map<String, Value>) -> String {
    let mut told = parameters.clone();
    if let Some(Value::String(state)) = told.get_mut("state") {
        *state = format!("{} bytes", state.len() / 2);
    }
    serde_json::to_string(&told).unwrap_or_default()
}

fn well_named(id: &str) -> Result<(), Failure> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    if (1..=MOST_ID).contains(&id.len()) && id.chars().all(is_good) {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "{id:?} names no move: use letters, digits, \".\", \"_\", \"-\" and \":\", at most {MOST_ID}"
    )))
}

/// Whether a move that is known is the one that is meant, and can be prepared still.
fn is_same(known: &Move, side: MoveSide, nic: &str) -> Result<(), Failure> {
    let mut differs = Vec::new();
    if known.side != side {
        differs.push("side".to_owned());
    }
    if known.nic != nic {
        differs.push("nic".to_owned());
    }
    if !differs.is_empty() {
        return Err(Failure::Exists {
            kind: "move".into(),
            name: known.id.clone(),
            message: format!(
                "there is another move {}, of which this daemon is the {} and whose NIC is {}; choose another name",
                known.id,
                known.side.word(),
                known.nic
            ),
            differs,
        });
    }
    match known.holds() {
        true => Ok(()),
        false => Err(decided(known)),
    }
}

fn decided(one: &Move) -> Failure {
    let step = one.step.word();
    Failure::MoveDecided {
        id: one.id.clone(),
        step: step.into(),
        message: format!(
            "the {} of the move {} has {step} it already: {}",
            one.side.word(),
            one.id,
            match one.step {
                MoveStep::Committed => "hypernic migrate commit ends it at the other daemon, too",
                _ =>
                    "hypernic migrate abort ends it at the other daemon, too; a new move needs another name",
            }
        ),
    }
}

fn known(host: &Host, id: &str) -> Result<Move, Failure> {
    let one = host.moves().get(id).cloned();
    one.ok_or_else(|| unknown(host, id))
}

fn unknown(host: &Host, id: &str) -> Failure {
    let known = host.moves().all().iter().rev().map(|one| one.id.as_str());
    Failure::unknown("move", id, known)
}

/// Whether a NIC is one that could go on elsewhere.
fn can_move(host: &Host, nic: &NicConfig) -> Result<(), Failure> {
    let why = if let Some(why) = moved_vfs::stays(host, nic) {
        why
    } else if nic.transport == Transport::VhostUser {
        "has a VMM that takes its state along by itself: make the NIC at the destination (hypernic nic add), then migrate the VM"
            .into()
    } else if matches!(nic.socket, SocketSpec::Fd(_)) || nic.port.fd().is_some() {
        "is made of a descriptor that was handed over, which has no name elsewhere".into()
    } else if quarantine::holds(&nic.name) {
        "is in quarantine: it killed the worker twice, and has no state".into()
    } else {
        return Ok(());
    };
    Err(Failure::CannotMove {
        nic: nic.name.clone(),
        message: format!("{} cannot move: it {why}", nic.name),
    })
}

/// Whether a NIC takes part in no other move.
fn is_free(host: &Host, nic: &str) -> Result<(), Failure> {
    if let Some(other) = host.moves().holding(nic) {
        return Err(Failure::InUse {
            kind: "NIC".into(),
            name: nic.into(),
            by: vec![other.id.clone()],
            message: format!("{nic} stands still for the move {} already", other.id),
        });
    }
    let open = host.moves().all().iter().filter(|one| one.holds()).count();
    match open < MOST_OPEN {
        true => Ok(()),
        false => Err(Failure::invalid(format!(
            "{open} moves are prepared: commit or abort some first"
        ))),
    }
}

fn held_up(nic: &str, why: &HoldRefusal) -> Failure {
    match why {
        HoldRefusal::Server(vfio_user::HoldError::InUse) => Failure::InUse {
            kind: "NIC".into(),
            name: nic.into(),
            by: vec!["VMM".into()],
            message: format!(
                "a VMM has {nic}: end it or unplug the NIC first; if its guest is paused and stays so, say --paused"
            ),
        },
        HoldRefusal::Server(vfio_user::HoldError::Busy(_)) => Failure::InUse {
            kind: "NIC".into(),
            name: nic.into(),
            by: vec!["VMM".into()],
            message: format!("{nic} does not stand still: {why}; try again"),
        },
        _ => Failure::CannotMove {
            nic: nic.into(),
            message: format!("{nic} cannot move: {why}"),
        },
    }
}

/// The source is to be asked before the destination.
fn asked_first(source_said: Option<bool>, what: &str) -> Result<(), Failure> {
    match source_said {
        Some(true) => Ok(()),
        _ => Err(Failure::invalid(format!(
            "this daemon is the destination: {what} at the source first (hypernic migrate {what} ID --to DESTINATION does); \
             say --source-is-gone only if the source never comes back"
        ))),
    }
}

fn said(one: &Move) -> Result<Words, Failure> {
    one.said().map_err(Failure::failed)
}

/// A move's NIC, as it is or is to be here.
fn config_of(host: &Host, one: &Move) -> Result<NicConfig, Failure> {
    let is = host.as_is();
    if let Some(nic) = is.nics.iter().find(|nic| nic.name == one.nic) {
        return Ok(nic.clone());
    }
    let words = said(one)?.nic;
    is.nic_beside(&words).map_err(Failure::invalid)
}

/// A NIC that has come stands still here as what was saved. It may have been lost when the daemon started.
fn is_there(host: &mut Host, config: &NicConfig, one: &Move) -> Result<(), Failure> {
    let state = one.state.as_deref().unwrap_or_default();
    let made = match host.is_held(&one.nic) {
        true => host.load_held(&one.nic, state),
        false => host.put_held(config, state),
    };
    made.map_err(failed)
}

/// A NIC is here no more, and all processes know that. Its chip keeps a VF, for another guest.
fn gone(host: &mut Host, one: &Move) {
    let stays = host.vf_after(one).map(|vf| host.renew_vf(&vf));
    match stays {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::error!(nic = %one.nic, "its chip has it no more: {error}"),
        None => drop(host.remove_nic(&one.nic)),
    }
    if host.has_cells()
        && let Err(error) = host.settle()
    {
        tracing::error!("{error}");
    }
}

/// Notes how far a move has come.
fn noted(host: &mut Host, one: Move) -> Result<(), Failure> {
    if one
        .state
        .as_ref()
        .is_some_and(|state| state.len() > MOST_STATE)
    {
        return Err(Failure::CannotMove {
            nic: one.nic.clone(),
            message: format!(
                "{} cannot move: its state is longer than {MOST_STATE} bytes",
                one.nic
            ),
        });
    }
    host.moves_mut().put(one).map_err(Failure::failed)
}

fn changed(host: &Host, changed: bool) -> Changed {
    if changed {
        host.changed();
        upgrade::note(host);
    }
    Changed {
        changed,
        generation: host.generation(),
    }
}

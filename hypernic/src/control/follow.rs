//! What cells have done of moves and the main process does not know, because it was killed or got no answer.

use std::path::Path;

use control::{Failure, MigrateAbort, MigrateCommit, MigrateList, MigrateSave, MoveSide, MoveStep};
use parking_lot::RwLock;

use super::far_moves::Cell;
use super::migrate;
use crate::cell_calls::ask;
use crate::config::NicConfig;
use crate::host::Host;

/// Moves of a cell that are looked at: it notes fewer.
const MOST: usize = 4096;

/// What is known by now of what a cell has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// All.
    All,
    /// It does not answer.
    NotAsked,
    /// Not all of it can be noted or done here.
    NotAll,
}

/// Has the main process know what a cell has done while nobody could note it here.
pub(crate) fn match_moves(host: &RwLock<Host>, cell: &str, path: &Path) -> Followed {
    let Ok(told) = ask(path, &MigrateList::default()) else {
        return Followed::NotAsked;
    };
    for theirs in told.moves.into_iter().take(MOST) {
        if let Err(why) = follow(&mut host.write(), cell, path, &theirs) {
            tracing::error!(cell, id = %theirs.id, "what it has done is not noted here: {why}");
            // Others wait for the host while it is asked.
            return Followed::NotAll;
        }
    }
    Followed::All
}

/// One move, as a cell has it. Of NICs of others it says nothing here.
fn follow(host: &mut Host, cell: &str, path: &Path, theirs: &control::Move) -> Result<(), Failure> {
    let id = &theirs.id;
    let of_cell = |nic: &NicConfig| nic.cell.as_deref() == Some(cell);
    let Some(ours) = host.moves().get(id).cloned() else {
        return match (theirs.side, theirs.step) {
            (MoveSide::Source, MoveStep::Prepared)
                if host.far_nic(&theirs.nic).is_some_and(of_cell) =>
            {
                let call = MigrateSave {
                    id: id.clone(),
                    nic: theirs.nic.clone(),
                    paused: Some(true),
                    ..MigrateSave::default()
                };
                migrate::save(host, &call).map(drop)
            }
            (MoveSide::Destination, MoveStep::Prepared) => Cell::at(cell, path).abort(host, id),
            _ => Ok(()),
        };
    };
    let is_there = Cell::of_move(host, &ours).is_some_and(|its| its.name() == cell);
    if !ours.holds() || !is_there || ours.side != theirs.side {
        return Ok(());
    }
    match theirs.step {
        MoveStep::Prepared => Ok(()),
        MoveStep::Committed => {
            let call = MigrateCommit {
                id: id.clone(),
                source_said: Some(true),
                ..MigrateCommit::default()
            };
            migrate::commit(host, &call).map(drop)
        }
        MoveStep::Aborted => {
            let call = MigrateAbort {
                id: id.clone(),
                source_said: Some(true),
                ..MigrateAbort::default()
            };
            migrate::abort(host, &call).map(drop)
        }
    }
}

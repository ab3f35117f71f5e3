//! Moves of NICs that cells serve. The cell holds the NIC, so it notes and does each step before the main process does its part: what a
//! cell has decided stands, and a main process that was killed meanwhile follows it.

use std::path::{Path, PathBuf};

use control::{AskError, Failure, Method, MigrateAbort, MigrateCommit, MigrateLoad, MigrateSave};

use super::cells::refused;
use super::changes::failed;
use crate::cell_calls::{Patience, ask_for};
use crate::config::NicConfig;
use crate::config::cells::{MAIN, control_of};
use crate::hex;
use crate::host::Host;
use crate::moves::Move;

/// The cell of a NIC that moves.
pub(super) struct Cell {
    name: String,
    path: PathBuf,
}

impl Cell {
    /// The one that serves a NIC, or is to. `None`: this process.
    pub fn of(host: &Host, nic: &NicConfig) -> Option<Self> {
        Self::named(host, nic.cell.clone()?)
    }

    /// The one that serves the NIC of a move, or is to. That may be missing here.
    pub fn of_move(host: &Host, one: &Move) -> Option<Self> {
        let mut nics = host.nic_configs();
        if let Some(nic) = nics.find(|nic| nic.name == one.nic) {
            return Self::of(host, nic);
        }
        let nic = one.said().ok()?.nic;
        Self::named(host, nic.cell.filter(|cell| cell != MAIN)?)
    }

    fn named(host: &Host, name: String) -> Option<Self> {
        let head = host.head();
        let control = head
            .control
            .as_ref()
            .filter(|_| head.own_cell().is_none())?;
        let path = control_of(control, &name);
        Some(Self { name, path })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The one of this name, which answers there.
    pub fn at(name: &str, path: &Path) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
        }
    }

    /// Asks it. One that gave no answer may have done it all the same, and is asked later what it has done.
    fn ask<M: Method>(&self, host: &Host, call: &M) -> Result<M::Reply, Failure> {
        ask_for(&self.path, call, Patience::SOME).map_err(|error| {
            if !matches!(error, AskError::Refused(_)) {
                host.match_moves_of(&self.name);
            }
            refused(&self.name, error)
        })
    }

    /// Its NIC stands still and is saved. `None`: it was only asked whether it could be.
    pub fn save(&self, host: &Host, call: &MigrateSave) -> Result<Option<Vec<u8>>, Failure> {
        let call = MigrateSave {
            if_generation: None,
            partly: Some(true),
            ..call.clone()
        };
        // Of what it tells only the state is its own to say.
        let told = self.ask(host, &call)?.state;
        if call.check == Some(true) {
            return Ok(None);
        }
        let state = told.as_deref().and_then(hex::bytes);
        let nothing = || Failure::failed(format!("the cell {} told no state", self.name));
        state.map(Some).ok_or_else(nothing)
    }

    /// Whether a VF could come in place of one of its own: it knows which of them VMMs have.
    pub fn may_load(
        &self,
        host: &Host,
        call: &MigrateLoad,
        nic: &NicConfig,
    ) -> Result<(), Failure> {
        self.ask(host, &partly(call, nic)).map(drop)
    }

    /// A NIC comes to it, and stands still there.
    pub fn load(
        &self,
        host: &mut Host,
        call: &MigrateLoad,
        nic: &NicConfig,
    ) -> Result<(), Failure> {
        let id = &call.id;
        let call = partly(call, nic);
        let is_new = !host.cells().contains_key(&self.name);
        if is_new {
            host.start_cell(&self.name).map_err(failed)?;
        }
        let patience = if is_new {
            Patience::MUCH
        } else {
            Patience::SOME
        };
        match ask_for(&self.path, &call, patience) {
            Ok(_) => {}
            // It has done nothing, so there is nothing to take back.
            Err(AskError::Refused(why)) => {
                host.end_unused_cells();
                return Err(why);
            }
            Err(error) => {
                self.take_back(host, id);
                return Err(refused(&self.name, error));
            }
        }
        // From here on it is told of the NIC like all others, and has it already.
        let before = host.configuration();
        let added = host.add_far_nic(nic);
        added
            .and_then(|()| host.settle_or_go_back(&before))
            .map_err(|error| {
                self.take_back(host, id);
                failed(error)
            })
    }

    /// Nobody was told that the NIC has come.
    pub fn take_back(&self, host: &mut Host, id: &str) {
        if let Err(why) = self.abort(host, id) {
            tracing::warn!(cell = %self.name, id, "the move is taken back when it answers: {why}");
            host.match_moves_of(&self.name);
        }
        host.end_unused_cells();
    }

    /// Its NIC goes, or is served there from now on.
    pub fn commit(&self, host: &Host, call: &MigrateCommit) -> Result<(), Failure> {
        let call = MigrateCommit {
            if_generation: None,
            persist: None,
            partly: Some(true),
            ..call.clone()
        };
        self.ask(host, &call).map(drop)
    }

    /// Its NIC stays, or does not come.
    pub fn abort(&self, host: &Host, id: &str) -> Result<(), Failure> {
        let call = MigrateAbort {
            id: id.into(),
            source_said: Some(true),
            partly: Some(true),
            ..MigrateAbort::default()
        };
        self.ask(host, &call).map(drop)
    }
}

/// A load as a cell is asked for it.
fn partly(call: &MigrateLoad, nic: &NicConfig) -> MigrateLoad {
    MigrateLoad {
        nic: nic.words(),
        if_generation: None,
        partly: Some(true),
        ..call.clone()
    }
}

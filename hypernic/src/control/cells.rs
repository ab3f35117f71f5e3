//! Calls about what other processes of the daemon serve: the main one asks them, and tells what they say as if it were its own.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use control::{
    Addresses, AskError, Call, CellInfo, Cells, Done, Explain, Failure, Method, MetricsGet,
    NicInterrupts, NicMemory, Reasons, Regions, Section, StatusGet, SwitchAddresses, UpgradeBegin,
    Vectors, VfLeave, VfReset, VfRevive, VfShow, Vfs,
};
use parking_lot::RwLock;
use serde::Serialize;

use super::changes::Terms;
use super::told::told;
use crate::cell_calls::ask;
use crate::config::cells::MAIN;
use crate::host::Host;

/// What a port is called that leads to another cell, in part.
const CROSSES: char = '>';

/// The NIC that a call is about, if it is about one.
fn nic_of(call: &Call) -> Option<&str> {
    match call {
        Call::NicInspect(call) => Some(&call.name),
        Call::NicTrace(call) => Some(&call.name),
        Call::NicInterrupts(call) => call.name.as_deref(),
        Call::NicMemory(call) => call.name.as_deref(),
        Call::VfShow(call) => call.nic.as_deref(),
        Call::VfRevive(call) => Some(&call.nic),
        Call::VfLeave(call) => Some(&call.nic),
        Call::UpgradeStates(call) => Some(&call.nic),
        _ => None,
    }
}

pub(super) fn refused(cell: &str, error: AskError) -> Failure {
    match error {
        AskError::Refused(failure) => failure,
        error => Failure::failed(format!("the cell {cell}: {error}")),
    }
}

fn forward<M: Method>(cell: &str, path: &Path, call: &M) -> Result<Vec<u8>, Failure>
where
    M::Reply: Serialize,
{
    told(ask(path, call).map_err(|error| refused(cell, error))?)
}

/// A cell, and where it answers.
fn place(host: &Host, cell: Option<&String>) -> Option<(String, PathBuf)> {
    let cell = cell?.clone();
    let path = host.cells().remove(&cell)?;
    Some((cell, path))
}

/// The cell that serves what a call is about, if that is a NIC or a chip.
fn cell_of<'a>(host: &'a Host, call: &Call) -> Option<&'a String> {
    if let Call::VfReset(call) = call {
        return host.far_chip(&call.chip)?.cell.as_ref();
    }
    host.far_nic(nic_of(call)?)?.cell.as_ref()
}

/// For what is asked of a cell itself: where.
pub(super) fn elsewhere(host: &Host, nic: &str) -> Option<Failure> {
    let (cell, path) = place(host, host.far_nic(nic)?.cell.as_ref())?;
    Some(Failure::invalid(format!(
        "{nic} is served by the cell {cell}: ask that one, with --control {}",
        path.display()
    )))
}

/// Whether a call is a step of a move, and not a cell's part of it.
fn is_whole_move(call: &Call) -> bool {
    let partly = match call {
        Call::MigrateSave(call) => call.partly,
        Call::MigrateLoad(call) => call.partly,
        Call::MigrateCommit(call) => call.partly,
        Call::MigrateAbort(call) => call.partly,
        _ => return false,
    };
    partly != Some(true)
}

/// Refuses what is for the main process.
fn is_for_main(host: &Host, call: &Call) -> Result<(), Failure> {
    let Some(cell) = host.head().own_cell() else {
        return Ok(());
    };
    let changes = matches!(
        call,
        Call::NicAdd(_)
            | Call::NicSet(_)
            | Call::NicLink(_)
            | Call::NicRemove(_)
            | Call::SwitchAdd(_)
            | Call::SwitchSet(_)
            | Call::SwitchRemove(_)
            | Call::PortAdd(_)
            | Call::PortRemove(_)
            | Call::ChipAdd(_)
            | Call::ChipSet(_)
            | Call::ChipRemove(_)
            | Call::VfSet(_)
            | Call::ConfigConfirm(_)
            | Call::ConfigRollback(_)
    ) || is_whole_move(call);
    let control = host.head().control.as_ref().filter(|_| changes);
    control.map_or(Ok(()), |control| {
        Err(Failure::invalid(format!(
            "this is the cell {cell}, which is as the main process says: ask that one, with --control {}",
            control.display()
        )))
    })
}

/// The terms of what is done to a function or a chip.
fn acts(call: &Call) -> Option<Terms> {
    let (check, if_generation) = match call {
        Call::VfRevive(call) => (call.check, call.if_generation),
        Call::VfLeave(call) => (call.check, call.if_generation),
        Call::VfReset(call) => (call.check, call.if_generation),
        _ => return None,
    };
    Some(Terms {
        check,
        persist: None,
        if_generation,
    })
}

/// The reply to a call about what another process serves. `None`: it is not about that alone.
pub(super) fn answer(host: &RwLock<Host>, call: &Call) -> Result<Option<Vec<u8>>, Failure> {
    let held = host.read();
    is_for_main(&held, call)?;
    let Some((cell, path)) = place(&held, cell_of(&held, call)) else {
        return Ok(None);
    };
    if let Some(terms) = acts(call) {
        terms.allow(&held)?;
        if terms.only_check() {
            return told(Done {}).map(Some);
        }
    }
    drop(held);
    let mut call = call.clone();
    // Generations are this process's.
    if let Call::VfRevive(VfRevive { if_generation, .. })
    | Call::VfLeave(VfLeave { if_generation, .. })
    | Call::VfReset(VfReset { if_generation, .. }) = &mut call
    {
        *if_generation = None;
    }
    let reply = match &call {
        Call::NicInspect(call) => forward(&cell, &path, call),
        Call::NicTrace(call) => forward(&cell, &path, call),
        Call::NicInterrupts(call) => forward(&cell, &path, call),
        Call::NicMemory(call) => forward(&cell, &path, call),
        Call::UpgradeStates(call) => forward(&cell, &path, call),
        Call::VfShow(call) => forward(&cell, &path, call),
        Call::VfRevive(call) => forward(&cell, &path, call),
        Call::VfLeave(call) => forward(&cell, &path, call),
        Call::VfReset(call) => forward(&cell, &path, call),
        _ => return Ok(None),
    };
    reply.map(Some)
}

/// Asks all cells; those that do not answer are left out.
fn ask_all<M: Method>(host: &RwLock<Host>, call: &M) -> Vec<(String, M::Reply)> {
    let cells = host.read().cells();
    let told = cells
        .into_iter()
        .filter_map(|(cell, path)| Some((cell, ask(&path, call).ok()?)));
    told.collect()
}

pub(super) fn list(host: &RwLock<Host>) -> Cells {
    let (cells, control) = {
        let host = host.read();
        (host.cells(), host.head().own_control())
    };
    let counts = |cell: Option<&str>| {
        let host = host.read();
        let of_cell = host.nic_configs().filter(|nic| nic.cell.as_deref() == cell);
        let states = of_cell.filter_map(|nic| host.nic_state(&nic.name));
        states.fold((0, 0), |(nics, connected), state| {
            (nics + 1, connected + u64::from(state.connected))
        })
    };
    let info = |name: &str, path: &Path, pid: Option<u32>| {
        let (nics, connected) = counts(Some(name).filter(|name| *name != MAIN));
        CellInfo {
            name: name.to_owned(),
            control: path.to_string_lossy().into_owned(),
            pid,
            nics,
            connected,
        }
    };
    let main = info(MAIN, &control.unwrap_or_default(), Some(std::process::id()));
    let others = cells.iter().map(|(cell, path)| {
        let status = ask(path, &StatusGet {}).ok();
        info(cell, path, status.map(|status| status.pid))
    });
    Cells {
        cells: std::iter::once(main).chain(others).collect(),
    }
}

/// Names of what several processes may have: the first keeps its own.
#[derive(Default)]
pub(super) struct Names(HashSet<(String, String)>);

impl Names {
    pub fn add(&mut self, kind: &str, name: &str) {
        self.0.insert((kind.to_owned(), name.to_owned()));
    }

    fn of(&mut self, cell: &str, kind: &str, name: String) -> String {
        if self.0.insert((kind.to_owned(), name.clone())) {
            return name;
        }
        format!("{cell}/{name}")
    }
}

/// The counters of all cells.
pub(super) fn sections(host: &RwLock<Host>, call: &MetricsGet, mut names: Names) -> Vec<Section> {
    let mut all = Vec::new();
    for (cell, told) in ask_all(host, call) {
        all.extend(told.sections.into_iter().map(|section| Section {
            name: names.of(&cell, &section.kind, section.name),
            ..section
        }));
    }
    all
}

/// What cells have to explain, beside what this process has.
pub(super) fn explain(host: &RwLock<Host>, call: &Explain, mut told: Reasons) -> Reasons {
    let mut names = Names::default();
    for reason in &told.reasons {
        let counted = reason.counted.iter();
        counted.for_each(|one| names.add(&format!("{} {}", reason.kind, reason.name), &one.name));
    }
    for (cell, theirs) in ask_all(host, call) {
        for mut reason in theirs.reasons {
            let key = format!("{} {}", reason.kind, reason.name);
            for one in &mut reason.counted {
                one.name = names.of(&cell, &key, std::mem::take(&mut one.name));
            }
            let is_it =
                |one: &&mut control::Reason| (&one.kind, &one.name) == (&reason.kind, &reason.name);
            match told.reasons.iter_mut().find(is_it) {
                Some(ours) => ours.counted.extend(reason.counted),
                None => told.reasons.push(reason),
            }
        }
    }
    told
}

/// Where all processes have seen whom. A station of a cell that answers is told by that one, and not by those that have seen it there.
pub(super) fn addresses(
    host: &RwLock<Host>,
    call: &SwitchAddresses,
    mut told: Addresses,
) -> Addresses {
    let theirs = ask_all(host, call);
    let answers: HashSet<_> = theirs.iter().map(|(cell, _)| cell.clone()).collect();
    told.addresses.retain(|one| {
        let leads_to = one.port.split_once(CROSSES);
        leads_to.is_none_or(|(_, cell)| !answers.contains(cell))
    });
    for (_, theirs) in theirs {
        let own = theirs.addresses.into_iter();
        told.addresses
            .extend(own.filter(|one| !one.port.contains(CROSSES)));
    }
    told
}

/// What is laid down for all virtual functions, if all are asked for.
pub(super) fn vfs(host: &RwLock<Host>, call: &VfShow, mut told: Vfs) -> Vfs {
    if call.nic.is_none() {
        let theirs = ask_all(host, call).into_iter();
        told.vfs.extend(theirs.flat_map(|(_, one)| one.vfs));
        told.vfs.sort_by(|one, other| one.nic.cmp(&other.nic));
    }
    told
}

/// The interrupts of all NICs, if all are asked for.
pub(super) fn vectors(host: &RwLock<Host>, call: &NicInterrupts, mut told: Vectors) -> Vectors {
    if call.name.is_none() {
        let theirs = ask_all(host, call).into_iter();
        told.vectors.extend(theirs.flat_map(|(_, one)| one.vectors));
    }
    told
}

/// The memory of all guests, if all are asked for.
pub(super) fn regions(host: &RwLock<Host>, call: &NicMemory, mut told: Regions) -> Regions {
    if call.name.is_none() {
        for (_, one) in ask_all(host, call) {
            told.regions.extend(one.regions);
            told.resident += one.resident;
            told.resident_shared += one.resident_shared;
        }
    }
    told
}

/// All processes go on as another program.
pub(super) fn upgrade(host: &RwLock<Host>, call: &UpgradeBegin) -> Result<(), Failure> {
    let cells = host.read().cells();
    for (cell, path) in cells {
        ask(&path, call).map_err(|error| refused(&cell, error))?;
    }
    Ok(())
}

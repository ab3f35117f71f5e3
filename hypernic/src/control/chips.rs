//! Chips with virtual functions that come, change and go.

use control::{
    ChipAdd, ChipChange, ChipConfig, ChipInfo, ChipRemove, ChipSet, Chips, Failure, VfConfig,
};

use super::changes::{Outcome, Terms, compare, missing, terms};
use super::set;
use crate::config::HostConfig;
use crate::config::edit::Edit;
use crate::host::Host;

pub(super) fn add(host: &mut Host, call: &ChipAdd) -> Outcome {
    let (name, is) = (&call.chip.name, host.configuration());
    let wanted = is.without_chip(name).chip_beside(&call.chip);
    let wanted = wanted.map_err(Failure::invalid)?;
    if let Some(there) = is.chip_words(name) {
        compare("chip", name, &there, &words(&wanted, name)?)?;
    } else if call.check != Some(true) {
        // They are others than those that have moved away.
        for nic in wanted.nics.iter().filter(|nic| nic.of_chip() == Some(name)) {
            let forgotten = host.moves_mut().forget_away(&nic.name);
            forgotten.map_err(Failure::failed)?;
        }
    }
    follow(host, &terms!(call), name, &wanted, false)
}

pub(super) fn change(host: &mut Host, call: &ChipSet) -> Outcome {
    let (name, is) = (&call.name, host.configuration());
    let words = words(&is, name)?;
    let words = changed(words, &call.change).map_err(Failure::invalid)?;
    let wanted = is.without_chip(name).chip_beside(&words);
    let wanted = wanted.map_err(Failure::invalid)?;
    let disconnect = call.disconnect == Some(true);
    follow(host, &terms!(call), name, &wanted, disconnect)
}

pub(super) fn remove(host: &mut Host, call: &ChipRemove) -> Outcome {
    let (name, is) = (&call.name, host.configuration());
    if !is.chips.iter().any(|chip| chip.name == *name) {
        let known = is.chips.iter().map(|chip| chip.name.as_str());
        missing("chip", name, known, call.missing_ok)?;
        return terms!(call).stays(host, Edit::RemoveNic(name));
    }
    // As with a NIC: who removes it wants it gone.
    follow(host, &terms!(call), name, &is.without_chip(name), true)
}

/// Has the host be another, in which one chip differs, and the file too, if that is wanted.
fn follow(
    host: &mut Host,
    terms: &Terms,
    name: &str,
    wanted: &HostConfig,
    disconnect: bool,
) -> Outcome {
    let chip = wanted.chips.iter().find(|chip| chip.name == name);
    let table = chip.map(|chip| wanted.chip_table(chip));
    let edit = match &table {
        Some(table) => Edit::AddChip(name, table),
        None => Edit::RemoveNic(name),
    };
    set::follow(host, terms, wanted, disconnect, edit)
}

/// The words of a chip there is.
fn words(host: &HostConfig, name: &str) -> Result<ChipConfig, Failure> {
    let known = host.chips.iter().map(|chip| chip.name.as_str());
    let words = host.chip_words(name);
    words.ok_or_else(|| Failure::unknown("chip", name, known))
}

/// The words of a chip after a change.
fn changed(is: ChipConfig, change: &ChipChange) -> Result<ChipConfig, String> {
    if *change == ChipChange::default() {
        return Err("the request changes nothing: name a change, such as vfs".into());
    }
    let vfs = change.vfs.unwrap_or(is.vfs);
    let mut vf = is.vf.clone().unwrap_or_default();
    vf.retain(|vf| vf.index < vfs);
    if let (Some(new), Some(old)) = (&change.vf_socket_path, &is.vf_socket_path)
        && new != old
    {
        // Those that stay have their sockets.
        for index in 0..is.vfs.min(vfs) {
            let own = old.replace("{}", &index.to_string());
            match vf.iter_mut().find(|vf| vf.index == index) {
                Some(vf) => drop(vf.socket_path.get_or_insert(own)),
                None => vf.push(VfConfig {
                    index,
                    socket_path: Some(own),
                    ..VfConfig::default()
                }),
            }
        }
        vf.sort_by_key(|vf| vf.index);
    }
    let rate = change.port_rate.or(is.port_rate);
    Ok(ChipConfig {
        vfs,
        port: change.port.clone().unwrap_or(is.port),
        port_rate: rate.filter(|rate| *rate != 0),
        vf_socket_path: change.vf_socket_path.clone().or(is.vf_socket_path),
        vf: (!vf.is_empty()).then_some(vf),
        ..is
    })
}

pub(super) fn list(host: &Host, name: Option<&str>) -> Result<Chips, Failure> {
    let is = host.configuration();
    let wanted = |chip: &&crate::config::ChipConfig| name.is_none_or(|name| chip.name == name);
    let info = |chip: &crate::config::ChipConfig| {
        let of = |nic: &&crate::config::NicConfig| nic.of_chip() == Some(&chip.name);
        let mut nics: Vec<_> = is.nics.iter().filter(of).collect();
        nics.sort_by_key(|nic| nic.vf.as_ref().map(|vf| vf.index));
        Some(ChipInfo {
            config: is.chip_words(&chip.name)?,
            nics: nics.into_iter().map(|nic| nic.name.clone()).collect(),
        })
    };
    let chips: Vec<_> = is.chips.iter().filter(wanted).filter_map(info).collect();
    match name {
        Some(name) if chips.is_empty() => {
            let known = is.chips.iter().map(|chip| chip.name.as_str());
            Err(Failure::unknown("chip", name, known))
        }
        _ => Ok(Chips { chips }),
    }
}

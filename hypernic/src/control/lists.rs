//! What there is.

use std::time::Instant;

use control::{
    Counted, Explain, Failure, NicInfo, NicInspect, Nics, PortInfo, Ports, Reason, Reasons,
    Registers, SwitchInfo, Switches,
};

use model::Peeked;

use super::changes::{no_nic, no_switch, users};
use super::rises::Rises;
use crate::explain;
use crate::host::Host;
use crate::report::Section;

pub(super) fn nics(host: &Host, name: Option<&str>) -> Result<Nics, Failure> {
    // A cell is asked each second, and knows all NICs of the daemon.
    let head = host.head();
    let is_told = |nic: &crate::config::NicConfig| head.own_cell().is_none() || head.is_own(nic);
    let wanted =
        |nic: &&crate::config::NicConfig| name.is_none_or(|name| nic.name == name) && is_told(nic);
    let info = |nic: &crate::config::NicConfig| {
        let state = host.nic_state(&nic.name)?;
        Some(NicInfo {
            config: nic.words(),
            connected: state.connected,
            link: state.link,
            failed: state.failed,
            chip: nic.of_chip().cloned(),
            vf: nic.vf.as_ref().map(|vf| vf.index),
            model_revision: state.revision,
        })
    };
    let all = host.nic_configs();
    let nics: Vec<_> = all.filter(wanted).filter_map(info).collect();
    match name {
        Some(name) if nics.is_empty() => Err(no_nic(host, name)),
        _ => Ok(Nics { nics }),
    }
}

pub(super) fn registers(host: &Host, call: &NicInspect) -> Result<Registers, Failure> {
    let (name, is) = (&call.name, host.as_is());
    let Some(nic) = is.nics.iter().find(|nic| nic.name == *name) else {
        return Err(no_nic(host, name));
    };
    let busy = || {
        Failure::failed(format!(
            "the worker of {name} does not answer in time; ask again"
        ))
    };
    let mut all = host.registers(name).ok_or_else(busy)?;
    let model = nic.model.name;
    if all.is_empty() {
        return Err(Failure::invalid(format!(
            "{name} has no table of registers: its model is {model}, over {}",
            nic.transport
        )));
    }
    if let Some(wanted) = &call.register {
        all.retain(|register| is_meant(wanted, register));
        if all.is_empty() {
            return Err(Failure::invalid(format!(
                "the {model} has no register {wanted:?}; hypernic inspect {name} lists them"
            )));
        }
    }
    all.sort_by_key(|register| register.offset);
    let told = |register: Peeked| control::Register {
        name: register.name.into(),
        element: register.element,
        offset: register.offset,
        access: register.access.into(),
        section: register.section.into(),
        value: register.value,
    };
    Ok(Registers {
        model: model.into(),
        registers: all.into_iter().map(told).collect(),
    })
}

/// Whether a register is meant by a name, a name and an element, or an offset.
fn is_meant(word: &str, register: &Peeked) -> bool {
    if let Some(digits) = word.strip_prefix("0x") {
        return u32::from_str_radix(digits, 16) == Ok(register.offset);
    }
    let (name, element) = match word.strip_suffix(']').and_then(|word| word.split_once('[')) {
        Some((name, element)) => (name, Some(element)),
        None => (word, None),
    };
    let is_that = |element: &str| element.parse().ok() == Some(register.element.unwrap_or(0));
    name.eq_ignore_ascii_case(register.name) && element.is_none_or(is_that)
}

pub(super) fn switches(host: &Host, name: Option<&str>) -> Result<Switches, Failure> {
    let is = host.as_is();
    let wanted =
        |switch: &&crate::config::SwitchConfig| name.is_none_or(|name| switch.name == name);
    let info = |switch: &crate::config::SwitchConfig| {
        let is_chip = |name: &String| is.chips.iter().any(|chip| chip.name == *name);
        let (chips, nics) = users(&is, &switch.name).into_iter().partition(is_chip);
        let config = switch.words();
        SwitchInfo {
            config,
            nics,
            chips,
        }
    };
    let switches: Vec<_> = is.switches.iter().filter(wanted).map(info).collect();
    match name {
        Some(name) if switches.is_empty() => Err(no_switch(&is, name)),
        _ => Ok(Switches { switches }),
    }
}

pub(super) fn ports(host: &Host, switch: Option<&str>) -> Result<Ports, Failure> {
    let is = host.as_is();
    if let Some(name) = switch
        && !is.switches.iter().any(|one| one.name == name)
    {
        return Err(no_switch(&is, name));
    }
    let names = is.switches.iter().map(|one| one.name.clone());
    let wanted = names.filter(|name| switch.is_none_or(|switch| switch == name));
    let of = |switch: String| {
        let ports = host.ports_of(&switch).into_iter();
        ports.map(move |(port, counters)| PortInfo {
            switch: switch.clone(),
            port,
            counters,
        })
    };
    Ok(Ports {
        ports: wanted.flat_map(of).collect(),
    })
}

pub(super) fn explain(
    sections: &[Section],
    rises: &Rises,
    call: &Explain,
) -> Result<Reasons, Failure> {
    let now = Instant::now();
    let ago = |at: Instant| now.saturating_duration_since(at).as_secs();
    let rows: Vec<&explain::Reason> = match &call.name {
        Some(name) => explain::named(name),
        None => explain::all().filter(|r| r.class.needs_cure()).collect(),
    };
    if let (Some(name), true) = (&call.name, rows.is_empty()) {
        return Err(Failure::unknown("counter", name, []));
    }
    let reason = |row: &explain::Reason| {
        let of_kind = sections.iter().filter(|section| section.kind == row.kind);
        let counted = of_kind.filter_map(|section| {
            let value = section.get(row.name);
            let name = section.name.clone();
            let rose = rises.of(row.kind, &name, row.name);
            (value > 0).then_some(Counted {
                name,
                value,
                rose_within: rose.map(|rose| ago(rose.after) + 1),
                rose_before: rose.map(|rose| ago(rose.before)),
            })
        });
        Reason {
            counted: counted.collect(),
            ..row.told()
        }
    };
    let mut reasons: Vec<_> = rows.into_iter().map(reason).collect();
    if call.name.is_none() {
        reasons.retain(|reason| !reason.counted.is_empty());
    }
    Ok(Reasons { reasons })
}

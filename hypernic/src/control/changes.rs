//! NICs, switches and ports that come and go. Each change is done whole, or nothing has changed.

use std::borrow::Cow;

use control::{
    Changed, Failure, NicAdd, NicRemove, PortAdd, PortRemove, SwitchAdd, SwitchRemove,
    without_nulls,
};
use parking_lot::RwLock;
use serde::Serialize;
use serde_json::Value;

use crate::config::{HostConfig, NicConfig};
use crate::error::Error;
use crate::host::Host;
use crate::sandbox;
use crate::spec::PortSpec;

type Outcome = Result<Changed, Failure>;

const CHANGED: Outcome = Ok(Changed { changed: true });
const AS_IT_IS: Outcome = Ok(Changed { changed: false });

fn failed(error: Error) -> Failure {
    Failure::failed(error.to_string().replace('\n', "; "))
}

pub(super) fn add_nic(host: &RwLock<Host>, call: &NicAdd) -> Outcome {
    let mut host = host.write();
    let (words, is) = (&call.nic, host.as_is());
    let there = is.nics.iter().find(|nic| nic.name == words.name);
    let beside = match there {
        Some(_) => Cow::Owned(is.without_nic(&words.name)),
        None => Cow::Borrowed(&is),
    };
    let wanted = beside.nic_beside(words).map_err(Failure::invalid)?;
    if let Some(there) = there {
        return compare("NIC", &words.name, &there.words(), &wanted.words());
    }
    sandbox::permits_nic(&wanted).map_err(Failure::failed)?;
    if call.check != Some(true) {
        host.add_nic(&wanted).map_err(failed)?;
    }
    CHANGED
}

pub(super) fn remove_nic(host: &RwLock<Host>, call: &NicRemove) -> Outcome {
    let name = &call.name;
    let mut host = host.write();
    let is = host.as_is();
    let Some(nic) = is.nics.iter().find(|nic| nic.name == *name) else {
        let known = is.nics.iter().map(|nic| nic.name.as_str());
        return missing("NIC", name, known, call.missing_ok);
    };
    may_go(nic)?;
    if call.check != Some(true) {
        host.remove_nic(name);
    }
    CHANGED
}

/// A function of a chip stays with it.
fn may_go(nic: &NicConfig) -> Result<(), Failure> {
    let chip = nic.vf.as_ref().map(|vf| &vf.chip).or(nic.rules.as_ref());
    let Some(chip) = chip else { return Ok(()) };
    Err(Failure::InUse {
        kind: "NIC".into(),
        name: nic.name.clone(),
        by: vec![chip.clone()],
        message: format!(
            "{} is a function of the chip {chip}, whose functions come with the configuration file and stay; \
             hypernic vf leave takes a VF from its guest",
            nic.name
        ),
    })
}

pub(super) fn add_switch(host: &RwLock<Host>, call: &SwitchAdd) -> Outcome {
    let mut host = host.write();
    let (words, is) = (&call.switch, host.as_is());
    let there = is.switches.iter().find(|one| one.name == words.name);
    let beside = match there {
        Some(_) => Cow::Owned(is.without_switch(&words.name)),
        None => Cow::Borrowed(&is),
    };
    let wanted = beside.switch_beside(words).map_err(Failure::invalid)?;
    if let Some(there) = there {
        return compare("switch", &words.name, &there.words(), &wanted.words());
    }
    sandbox::permits_switch(&wanted).map_err(Failure::failed)?;
    if call.check != Some(true) {
        host.add_switch(&wanted).map_err(failed)?;
    }
    CHANGED
}

pub(super) fn remove_switch(host: &RwLock<Host>, call: &SwitchRemove) -> Outcome {
    let name = &call.name;
    let mut host = host.write();
    let is = host.as_is();
    if !is.switches.iter().any(|switch| switch.name == *name) {
        let known = is.switches.iter().map(|switch| switch.name.as_str());
        return missing("switch", name, known, call.missing_ok);
    }
    let by = users(&is, name);
    if !by.is_empty() {
        return Err(Failure::InUse {
            kind: "switch".into(),
            name: name.clone(),
            message: format!(
                "the switch {name} has NICs or chips on it: {}; remove them first",
                by.join(", ")
            ),
            by,
        });
    }
    if call.check != Some(true) {
        host.remove_switch(name);
    }
    CHANGED
}

/// The NICs and chips on a switch.
pub(super) fn users(host: &HostConfig, switch: &str) -> Vec<String> {
    let port = PortSpec::Switch(switch.to_owned());
    let alone = |nic: &&NicConfig| nic.vf.is_none() && nic.rules.is_none();
    let nics = host
        .nics
        .iter()
        .filter(alone)
        .filter(|nic| nic.port == port);
    let chips = host.chips.iter().filter(|chip| chip.port == port);
    let nics = nics.map(|nic| nic.name.clone());
    nics.chain(chips.map(|chip| chip.name.clone())).collect()
}

pub(super) fn add_port(host: &RwLock<Host>, call: &PortAdd) -> Outcome {
    let mut host = host.write();
    let is = host.as_is();
    let port = is.port_beside(&call.switch, &call.port);
    let port = port.map_err(Failure::invalid)?;
    let port = port.ok_or_else(|| no_switch(&is, &call.switch))?;
    let has = |switch: &&crate::config::SwitchConfig| switch.name == call.switch;
    let switch = is.switches.iter().find(has);
    if switch.is_some_and(|switch| switch.ports.contains(&port)) {
        return AS_IT_IS;
    }
    sandbox::permits_port(&port).map_err(Failure::failed)?;
    if call.check != Some(true) {
        host.add_port(&call.switch, &port).map_err(failed)?;
    }
    CHANGED
}

pub(super) fn remove_port(host: &RwLock<Host>, call: &PortRemove) -> Outcome {
    let mut host = host.write();
    let is = host.as_is();
    let Some(switch) = is.switches.iter().find(|one| one.name == call.switch) else {
        return Err(no_switch(&is, &call.switch));
    };
    // As it was written, or as the profile made it.
    let wanted = is.port_beside(&call.switch, &call.port);
    let wanted = wanted.map_err(Failure::invalid)?;
    let written = call.port.parse().ok();
    let there =
        |port: &&PortSpec| Some(*port) == wanted.as_ref() || Some(*port) == written.as_ref();
    let Some(port) = switch.ports.iter().find(there) else {
        let known: Vec<_> = switch.ports.iter().map(ToString::to_string).collect();
        let known = known.iter().map(String::as_str);
        return missing("port", &call.port, known, call.missing_ok);
    };
    if call.check != Some(true) {
        host.remove_port(&call.switch, port);
    }
    CHANGED
}

pub(super) fn no_switch(host: &HostConfig, name: &str) -> Failure {
    let known = host.switches.iter().map(|switch| switch.name.as_str());
    Failure::unknown("switch", name, known)
}

fn missing<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
    ok: Option<bool>,
) -> Outcome {
    match ok {
        Some(true) => AS_IT_IS,
        _ => Err(Failure::unknown(kind, name, known)),
    }
}

/// What is there and what is wanted are the same, or differ in these words.
fn compare(kind: &str, name: &str, there: &impl Serialize, wanted: &impl Serialize) -> Outcome {
    let words = |of| match of {
        Ok(Value::Object(words)) => words,
        _ => serde_json::Map::new(),
    };
    let there = words(serde_json::to_value(there).map(without_nulls));
    let wanted = words(serde_json::to_value(wanted).map(without_nulls));
    let all = there.keys().chain(wanted.keys());
    let mut differs: Vec<String> = all
        .filter(|word| there.get(*word) != wanted.get(*word))
        .cloned()
        .collect();
    differs.sort();
    differs.dedup();
    if differs.is_empty() {
        return AS_IT_IS;
    }
    Err(Failure::Exists {
        kind: kind.into(),
        name: name.into(),
        message: format!(
            "there is another {kind} {name:?}: it differs in {}; remove it first, or choose another name",
            differs.join(", ")
        ),
        differs,
    })
}

//! NICs, switches and ports that come and go. Each change is done whole, or nothing has changed.

use std::borrow::Cow;
use std::time::Instant;

use control::{
    Changed, Failure, NicAdd, NicRemove, PortAdd, PortRemove, SwitchAdd, SwitchRemove,
    without_nulls,
};
use serde::Serialize;
use serde_json::Value;

use crate::config::edit::{Edit, Written};
use crate::config::{HostConfig, NicConfig};
use crate::error::Error;
use crate::host::Host;
use crate::sandbox;
use crate::spec::PortSpec;
use crate::upgrade;

/// Whether something is other than it was.
pub(super) type Outcome = Result<bool, Failure>;

pub(super) fn failed(error: Error) -> Failure {
    Failure::failed(error.to_string().replace('\n', "; "))
}

/// On what terms something is changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Terms {
    pub check: Option<bool>,
    pub persist: Option<bool>,
    pub if_generation: Option<u64>,
}

/// The terms of a call that has all of them.
macro_rules! terms {
    ($call:expr) => {
        Terms {
            check: $call.check,
            persist: $call.persist,
            if_generation: $call.if_generation,
        }
    };
}
pub(super) use terms;

impl Terms {
    /// Whether a host may be changed on these terms.
    pub fn allow(&self, host: &Host) -> Result<(), Failure> {
        if let Some(trial) = host.trial() {
            let left = trial.until.saturating_duration_since(Instant::now());
            return Err(Failure::InUse {
                kind: "configuration".into(),
                name: "on trial".into(),
                by: vec!["hypernic config apply".into()],
                message: format!(
                    "a configuration is on trial for {} seconds more: hypernic config confirm keeps it, hypernic config \
                     rollback does not",
                    left.as_secs() + 1
                ),
            });
        }
        let generation = host.generation();
        match self.if_generation {
            Some(expected) if expected != generation => Err(Failure::Stale {
                expected,
                generation,
                message: format!(
                    "the host has been changed: it has the generation {generation}, not {expected}; look again"
                ),
            }),
            _ => Ok(()),
        }
    }

    pub fn only_check(&self) -> bool {
        self.check == Some(true)
    }

    /// Writes what the file is to be beside it, if that is wanted.
    pub fn write(&self, host: &Host, edit: Edit) -> Result<Option<Written>, Failure> {
        if self.persist != Some(true) {
            return Ok(None);
        }
        let (file, text) = host.head().file_with(edit).map_err(Failure::invalid)?;
        if self.only_check() {
            return Ok(None);
        }
        Written::beside(&file, &text)
            .map(Some)
            .map_err(Failure::failed)
    }

    /// Makes a change, and has the file say so. Only a look, if no more is wanted.
    pub fn change(
        &self,
        host: &mut Host,
        edit: Edit,
        does: impl FnOnce(&mut Host) -> Result<(), Error>,
    ) -> Outcome {
        let brings_a_cell = matches!(&edit, Edit::AddNic(nic) if nic.cell.is_some());
        let written = self.write(host, edit)?;
        if !self.only_check() {
            // A copy of a thousand NICs takes its time.
            let follow = host.has_cells() || brings_a_cell;
            let before = follow.then(|| host.configuration());
            does(host).map_err(failed)?;
            if let Some(before) = before {
                host.settle_or_go_back(&before).map_err(failed)?;
            }
        }
        keep(written)?;
        Ok(true)
    }

    /// What runs is as it should be; has the file say so, too.
    pub fn stays(&self, host: &Host, edit: Edit) -> Outcome {
        keep(self.write(host, edit)?)?;
        Ok(false)
    }
}

/// The file is what it is to be.
pub(super) fn keep(written: Option<Written>) -> Result<(), Failure> {
    let kept = written.map_or(Ok(()), Written::keep);
    kept.map_err(|why| Failure::failed(format!("{why}; what runs was changed")))
}

/// A change that was made, told.
pub(super) fn told(host: &Host, terms: &Terms, changed: bool) -> Changed {
    if changed && !terms.only_check() {
        host.changed();
        upgrade::note(host);
    }
    Changed {
        changed,
        generation: host.generation(),
    }
}

pub(super) fn add_nic(host: &mut Host, call: &NicAdd) -> Outcome {
    let (words, is) = (&call.nic, host.as_is());
    let there = is.nics.iter().find(|nic| nic.name == words.name).cloned();
    let beside = match there {
        Some(_) => is.without_nic(&words.name),
        None => is,
    };
    let wanted = beside.nic_beside(words).map_err(Failure::invalid)?;
    if let Some(there) = there {
        compare("NIC", &words.name, &there.words(), &wanted.words())?;
        return terms!(call).stays(host, Edit::AddNic(&wanted));
    }
    sandbox::permits_nic(&wanted).map_err(Failure::failed)?;
    let edit = Edit::AddNic(&wanted);
    terms!(call).change(host, edit, |host| {
        // Said expressly, it is another NIC than the one that has moved away.
        let forgotten = host.moves_mut().forget_away(&wanted.name);
        forgotten.map_err(Error::Host)?;
        host.add_nic(&wanted)
    })
}

pub(super) fn remove_nic(host: &mut Host, call: &NicRemove) -> Outcome {
    let name = &call.name;
    let is = host.as_is();
    let Some(nic) = is.nics.iter().find(|nic| nic.name == *name) else {
        let known = is.nics.iter().map(|nic| nic.name.as_str());
        missing("NIC", name, known, call.missing_ok)?;
        return terms!(call).stays(host, Edit::RemoveNic(name));
    };
    may_go(nic)?;
    is_no_move(host, name)?;
    terms!(call).change(host, Edit::RemoveNic(name), |host| {
        host.remove_nic(name);
        Ok(())
    })
}

/// A NIC that stands still for a move stays until that is decided.
pub(super) fn is_no_move(host: &Host, name: &str) -> Result<(), Failure> {
    host.may_change(name).map_err(|error| Failure::InUse {
        kind: "NIC".into(),
        name: name.into(),
        by: host
            .moves()
            .holding(name)
            .map(|one| one.id.clone())
            .into_iter()
            .collect(),
        message: error.to_string(),
    })
}

/// A function of a chip stays with it.
fn may_go(nic: &NicConfig) -> Result<(), Failure> {
    let Some(chip) = nic.of_chip() else {
        return Ok(());
    };
    Err(Failure::InUse {
        kind: "NIC".into(),
        name: nic.name.clone(),
        by: vec![chip.clone()],
        message: format!(
            "{} is a function of the chip {chip}: hypernic chip set {chip} --vfs N takes the last ones away, hypernic chip \
             remove {chip} all; hypernic vf leave tells a guest",
            nic.name
        ),
    })
}

pub(super) fn add_switch(host: &mut Host, call: &SwitchAdd) -> Outcome {
    let (words, is) = (&call.switch, host.as_is());
    let there = is.switches.iter().find(|one| one.name == words.name);
    let beside = match there {
        Some(_) => Cow::Owned(is.without_switch(&words.name)),
        None => Cow::Borrowed(&is),
    };
    let wanted = beside.switch_beside(words).map_err(Failure::invalid)?;
    if let Some(there) = there {
        compare("switch", &words.name, &there.words(), &wanted.words())?;
        return terms!(call).stays(host, Edit::AddSwitch(&wanted));
    }
    sandbox::permits_switch(&wanted).map_err(Failure::failed)?;
    let edit = Edit::AddSwitch(&wanted);
    terms!(call).change(host, edit, |host| host.add_switch(&wanted))
}

pub(super) fn remove_switch(host: &mut Host, call: &SwitchRemove) -> Outcome {
    let name = &call.name;
    let is = host.as_is();
    if !is.switches.iter().any(|switch| switch.name == *name) {
        let known = is.switches.iter().map(|switch| switch.name.as_str());
        missing("switch", name, known, call.missing_ok)?;
        return terms!(call).stays(host, Edit::RemoveSwitch(name));
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
    terms!(call).change(host, Edit::RemoveSwitch(name), |host| {
        host.remove_switch(name);
        Ok(())
    })
}

/// The NICs and chips on a switch.
pub(super) fn users(host: &HostConfig, switch: &str) -> Vec<String> {
    let port = PortSpec::Switch(switch.to_owned());
    let alone = |nic: &&NicConfig| nic.of_chip().is_none() && nic.port == port;
    let nics = host.nics.iter().filter(alone);
    let chips = host.chips.iter().filter(|chip| chip.port == port);
    let nics = nics.map(|nic| nic.name.clone());
    nics.chain(chips.map(|chip| chip.name.clone())).collect()
}

pub(super) fn add_port(host: &mut Host, call: &PortAdd) -> Outcome {
    let is = host.as_is();
    let port = is.port_beside(&call.switch, &call.port);
    let port = port.map_err(Failure::invalid)?;
    let port = port.ok_or_else(|| no_switch(&is, &call.switch))?;
    let has = |switch: &&crate::config::SwitchConfig| switch.name == call.switch;
    let switch = is.switches.iter().find(has);
    let edit = Edit::AddPort(&call.switch, &port);
    if switch.is_some_and(|switch| switch.ports.contains(&port)) {
        return terms!(call).stays(host, edit);
    }
    sandbox::permits_port(&port).map_err(Failure::failed)?;
    terms!(call).change(host, edit, |host| host.add_port(&call.switch, &port))
}

pub(super) fn remove_port(host: &mut Host, call: &PortRemove) -> Outcome {
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
        missing("port", &call.port, known, call.missing_ok)?;
        if let Some(port) = &wanted {
            keep(terms!(call).write(host, Edit::RemovePort(&call.switch, &[port]))?)?;
        }
        return Ok(false);
    };
    let ways = [Some(port), written.as_ref()];
    let ways: Vec<_> = ways.into_iter().flatten().collect();
    let edit = Edit::RemovePort(&call.switch, &ways);
    terms!(call).change(host, edit, |host| {
        host.remove_port(&call.switch, port);
        Ok(())
    })
}

pub(super) fn no_nic(host: &Host, name: &str) -> Failure {
    Failure::unknown("NIC", name, host.nic_names())
}

pub(super) fn no_switch(host: &HostConfig, name: &str) -> Failure {
    let known = host.switches.iter().map(|switch| switch.name.as_str());
    Failure::unknown("switch", name, known)
}

pub(super) fn missing<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
    ok: Option<bool>,
) -> Result<(), Failure> {
    match ok {
        Some(true) => Ok(()),
        _ => Err(Failure::unknown(kind, name, known)),
    }
}

/// The words in which two differ.
pub(super) fn differences(there: &impl Serialize, wanted: &impl Serialize) -> Vec<String> {
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
    differs
}

/// What is there and what is wanted are the same, or differ in these words.
pub(super) fn compare(
    kind: &str,
    name: &str,
    there: &impl Serialize,
    wanted: &impl Serialize,
) -> Result<(), Failure> {
    let differs = differences(there, wanted);
    if differs.is_empty() {
        return Ok(());
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

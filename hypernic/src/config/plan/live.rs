//! What changes of NICs and chips while VMMs have them.

use std::collections::BTreeMap;

use pf::{Change, Policy};

use super::unit::{Unit, differs};
use crate::config::types::{ChipConfig, NicConfig, PfOwner};

/// Changes of a unit for which nothing of it is made anew.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Functions that a chip loses.
    pub goes: Vec<String>,
    /// What its chip is then.
    pub chip: Option<ChipConfig>,
    /// NICs that have other words then, and which.
    pub nics: Vec<(NicConfig, Vec<String>)>,
    /// What is laid down for virtual functions.
    pub policies: Vec<(String, Vec<Change>)>,
    /// Functions that a chip gains.
    pub comes: Vec<NicConfig>,
}

/// A NIC with those of another one's words that a guest need not know: all that its driver has found when it looked for the NIC
/// stays.
pub(super) fn toward(is: &NicConfig, to: &NicConfig) -> NicConfig {
    let mut near = NicConfig {
        cable: to.cable,
        moderation: to.moderation,
        ..is.clone()
    };
    if !is.csb {
        // Of a CSB it is the model's, too.
        near.busy_poll = to.busy_poll;
    }
    if is.capture != to.capture || is.capture.is_none() {
        // The same file would begin anew.
        near.capture.clone_from(&to.capture);
        near.capture_mib = to.capture_mib;
    }
    if is.port == to.port {
        // What is said of its port of a switch.
        near.mac_lock = to.mac_lock;
        near.back_pressure = to.back_pressure;
        near.guard = to.guard.clone();
    }
    near
}

impl Live {
    /// What leads from one unit to another. `None`: something of it has to be made anew.
    pub fn between(is: &Unit<'_>, to: &Unit<'_>) -> Option<Self> {
        match (is.chip, to.chip) {
            (None, None) => {
                let (is, to) = (*is.nics.first()?, *to.nics.first()?);
                let mut live = Self::default();
                live.nic(is, &toward(is, to));
                (toward(is, to) == *to).then_some(live)
            }
            (Some(chip), Some(wanted)) => Self::of_chip((is, chip), (to, wanted)),
            _ => None,
        }
    }

    /// What of the words of a NIC can be changed, though not all can.
    pub fn partly(is: &Unit<'_>, to: &Unit<'_>) -> Option<Self> {
        let (None, None) = (is.chip, to.chip) else {
            return None;
        };
        let (is, to) = (*is.nics.first()?, *to.nics.first()?);
        let mut live = Self::default();
        live.nic(is, &toward(is, to));
        (!live.nics.is_empty()).then_some(live)
    }

    fn of_chip(
        (unit, is): (&Unit<'_>, &ChipConfig),
        (wanted, to): (&Unit<'_>, &ChipConfig),
    ) -> Option<Self> {
        let like = ChipConfig {
            vfs: to.vfs,
            rate: to.rate,
            vf_sockets: to.vf_sockets.clone(),
            ..is.clone()
        };
        // Its guest's driver has found so many.
        if like != *to || is.pf == PfOwner::Guest && is.vfs != to.vfs {
            return None;
        }
        let mut live = Self {
            chip: (is != to).then(|| to.clone()),
            ..Self::default()
        };
        let mut new: BTreeMap<&str, &NicConfig> = wanted
            .nics
            .iter()
            .map(|nic| (nic.name.as_str(), *nic))
            .collect();
        for nic in &unit.nics {
            let Some(to) = new.remove(nic.name.as_str()) else {
                live.goes.push(nic.name.clone());
                continue;
            };
            let near = toward(nic, to);
            live.nic(nic, &near);
            let mut same = near;
            if let (Some(is), Some(wanted)) = (&nic.vf, &to.vf) {
                let changes = changes(&is.policy, &wanted.policy)?;
                same.mac = to.mac;
                same.vf = to.vf.clone();
                if !changes.is_empty() {
                    live.policies.push((nic.name.clone(), changes));
                }
            }
            if same != *to {
                return None;
            }
        }
        live.comes = new.into_values().cloned().collect();
        live.comes
            .sort_by_key(|nic| nic.vf.as_ref().map(|vf| vf.index));
        Some(live)
    }

    fn nic(&mut self, is: &NicConfig, near: &NicConfig) {
        if near != is {
            let words = differs(&is.table(), &near.table());
            self.nics.push((near.clone(), words));
        }
    }
}

/// What changes one policy into another. `None`: that cannot be done to a function that runs.
fn changes(is: &Policy, to: &Policy) -> Option<Vec<Change>> {
    let mut all = Vec::new();
    if (is.mac, is.mac_set) != (to.mac, to.mac_set) {
        if !to.mac_set {
            return None;
        }
        all.push(Change::Mac(to.mac));
    }
    let mut change = |differs: bool, change: Change| {
        if differs {
            all.push(change);
        }
    };
    change(is.vlan != to.vlan, Change::Vlan(to.vlan));
    change(is.trust != to.trust, Change::Trust(to.trust));
    let checks = is.spoof_check != to.spoof_check;
    change(checks, Change::SpoofCheck(to.spoof_check));
    change(is.state != to.state, Change::State(to.state));
    change(
        is.max_tx_rate != to.max_tx_rate,
        Change::MaxTxRate(to.max_tx_rate),
    );
    change(
        is.min_tx_rate != to.min_tx_rate,
        Change::MinTxRate(to.min_tx_rate),
    );
    change(is.storm != to.storm, Change::Storm(to.storm));
    let interrupts = is.interrupts != to.interrupts;
    change(interrupts, Change::Interrupts(to.interrupts));
    let rest = |policy: &Policy| {
        (
            policy.mailbox_rate,
            policy.mailbox_burst,
            policy.misdeeds,
            policy.strict,
        )
    };
    (rest(is) == rest(to)).then_some(all)
}

/// The word of a change.
pub(super) fn word(change: &Change) -> &'static str {
    match change {
        Change::Mac(_) => "mac",
        Change::Vlan(_) => "vlan",
        Change::Trust(_) => "trust",
        Change::SpoofCheck(_) => "spoofchk",
        Change::State(_) => "state",
        Change::MaxTxRate(_) => "max-tx-rate",
        Change::MinTxRate(_) => "min-tx-rate",
        Change::Storm(_) => "storm",
        Change::Interrupts(_) => "interrupts",
    }
}

/// The words of a chip that are other.
pub(super) fn chip_words(is: Option<&ChipConfig>, to: &ChipConfig) -> Vec<String> {
    let Some(is) = is else { return Vec::new() };
    let words = [
        ("vfs", is.vfs != to.vfs),
        ("port-rate", is.rate != to.rate),
        ("vf-socket-path", is.vf_sockets != to.vf_sockets),
    ];
    let other = words.iter().filter(|(_, differs)| *differs);
    other.map(|(word, _)| (*word).to_owned()).collect()
}

//! Virtual functions: their policies in words, and back.

use control::{Failure, Refusal, Storm, Vf, VfChange, VfSet, Vfs};
use pf::{Change, LinkState, PortVlan};
use wire::MacAddr;

use super::changes::{Terms, failed, is_no_move, keep, terms};
use crate::config::VfConfig;
use crate::config::edit::Edit;
use crate::host::Host;

/// A change of a policy, one by one.
///
/// # Errors
/// Words that mean nothing, or no change at all.
pub fn changes(change: &VfChange) -> Result<Vec<Change>, String> {
    let mut all = Vec::new();
    if let Some(mac) = &change.mac {
        let mac: MacAddr = mac
            .parse()
            .map_err(|_| format!("\"{mac}\" is not a MAC address: write 02:00:00:00:00:01"))?;
        all.push(Change::Mac(mac));
    }
    match (change.vlan, change.qos) {
        (None, None) => {}
        (None, Some(_)) => return Err("qos is the priority of a VLAN: add vlan".into()),
        (Some(0), None | Some(0)) => all.push(Change::Vlan(None)),
        (Some(0), Some(_)) => {
            return Err("vlan 0 means no VLAN, so it has no qos: leave out qos".into());
        }
        (Some(id), qos) => all.push(Change::Vlan(Some(PortVlan {
            id,
            qos: qos.unwrap_or(0),
        }))),
    }
    all.extend(change.trust.map(Change::Trust));
    all.extend(change.spoofchk.map(Change::SpoofCheck));
    all.extend(change.state.map(|state| {
        Change::State(match state {
            control::State::Auto => LinkState::Auto,
            control::State::Enable => LinkState::Enable,
            control::State::Disable => LinkState::Disable,
        })
    }));
    all.extend(change.max_tx_rate.map(Change::MaxTxRate));
    all.extend(change.min_tx_rate.map(Change::MinTxRate));
    all.extend(change.storm.as_ref().map(|storm| {
        Change::Storm(eswitch::Storm {
            broadcast: storm.broadcast,
            multicast: storm.multicast,
            unknown: None,
        })
    }));
    let interrupts = change.interrupts.map(|n| (n != 0).then_some(n));
    all.extend(interrupts.map(Change::Interrupts));
    if all.is_empty() {
        return Err("the request changes nothing: name a change, such as max-tx-rate".into());
    }
    Ok(all)
}

/// Changes what is laid down for a function.
pub(super) fn set(host: &mut Host, call: &VfSet) -> Result<bool, Failure> {
    let changes = changes(&call.change).map_err(Failure::invalid)?;
    known(host, &call.nic)?;
    is_no_move(host, &call.nic)?;
    let before = host.vf_policy(&call.nic);
    let vf = host.vfs().find(|(name, _)| *name == call.nic);
    let (chip, index) = vf.map_or((String::new(), 0), |(_, vf)| (vf.chip.clone(), vf.index));
    let edit = Edit::SetVf(&chip, index, &call.change);
    let written = terms!(call).write(host, edit)?;
    let invalid = |error: crate::error::Error| Failure::invalid(error.to_string());
    if call.check == Some(true) {
        host.check_vf(&call.nic, &changes).map_err(invalid)?;
        return Ok(true);
    }
    // Other processes have the VF, or know its address.
    let was = host.has_cells().then(|| host.configuration());
    host.set_any_vf(&call.nic, &changes).map_err(invalid)?;
    // Said expressly, it is another VF than the one that has moved away.
    let forgotten = host.moves_mut().forget_away(&call.nic);
    forgotten.map_err(Failure::failed)?;
    if let Some(was) = was {
        host.settle_or_go_back(&was).map_err(failed)?;
    }
    keep(written)?;
    Ok(host.vf_policy(&call.nic) != before)
}

/// Whether there is a function of that name.
pub(super) fn known(host: &Host, nic: &str) -> Result<(), Failure> {
    match host.vfs().any(|(name, _)| name == nic) {
        true => Ok(()),
        false => Err(no_vf(host, nic)),
    }
}

fn no_vf(host: &Host, nic: &str) -> Failure {
    Failure::unknown("virtual function", nic, host.vfs().map(|(name, _)| name))
}

/// Whether there is a chip of that name.
pub(super) fn chip(host: &Host, name: &str) -> Result<(), Failure> {
    let is = host.as_is();
    let known = is.chips.iter().map(|chip| chip.name.as_str());
    match is.chips.iter().any(|chip| chip.name == name) {
        true => Ok(()),
        false => Err(Failure::unknown("chip", name, known)),
    }
}

/// What is laid down for virtual functions, and what they were refused.
pub(super) fn show(host: &Host, nic: Option<&str>) -> Result<Vfs, Failure> {
    let now = host.now();
    let wanted = |name: &str| nic.is_none_or(|nic| nic == name);
    let vfs: Vec<Vf> = host
        .vfs()
        .filter(|(name, _)| wanted(name))
        .filter_map(|(name, vf)| Some(shown(name, vf, &host.vf_status(name)?, now)))
        .collect();
    match nic {
        Some(nic) if vfs.is_empty() => Err(no_vf(host, nic)),
        _ => Ok(Vfs { vfs }),
    }
}

fn shown(name: &str, vf: &VfConfig, status: &pf::Status, now: model::Nanos) -> Vf {
    let policy = &status.policy;
    let refusal = |record: &pf::Record| Refusal {
        what: record.what.to_string(),
        count: record.count,
        seconds_ago: now.saturating_sub(record.last) / 1_000_000_000,
        shut_down: record.shut_down,
    };
    Vf {
        nic: name.to_owned(),
        chip: vf.chip.clone(),
        index: vf.index,
        address: status
            .settings
            .eswitch
            .pool
            .macs
            .first()
            .unwrap_or(&policy.mac)
            .to_string(),
        ready: status.ready,
        down: status.down.map(|down| match down {
            pf::Down::Misbehaved(what) => format!("shut down: it {what}"),
            pf::Down::Leaving => "it is being removed".into(),
        }),
        refused: status.records.iter().map(refusal).collect(),
        policy: VfChange {
            mac: Some(policy.mac.to_string()),
            vlan: Some(policy.vlan.map_or(0, |vlan| vlan.id)),
            qos: policy.vlan.map(|vlan| vlan.qos),
            trust: Some(policy.trust),
            spoofchk: Some(policy.spoof_check),
            state: Some(match policy.state {
                LinkState::Auto => control::State::Auto,
                LinkState::Enable => control::State::Enable,
                LinkState::Disable => control::State::Disable,
            }),
            max_tx_rate: Some(policy.max_tx_rate),
            min_tx_rate: Some(policy.min_tx_rate),
            storm: Some(Storm {
                broadcast: policy.storm.broadcast,
                multicast: policy.storm.multicast,
            }),
            interrupts: Some(policy.interrupts.unwrap_or(0)),
        },
    }
}

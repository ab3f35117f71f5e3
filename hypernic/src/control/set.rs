//! NICs and switches that change while VMMs have them.

use control::{
    Failure, Guard, NicChange, NicConfig, NicLink, NicSet, State, SwitchChange, SwitchSet,
    VfChange, VfSet,
};

use super::changes::{Outcome, Terms, no_nic, no_switch, terms};
use super::config::not_while_running;
use super::vfs;
use crate::config::edit::Edit;
use crate::config::{Cable, HostConfig};
use crate::host::Host;
use crate::sandbox;

/// The word for a limit that is to go.
const NONE: &str = "none";

/// Has the host be another, and the file too, if that is wanted.
pub(super) fn follow(
    host: &mut Host,
    terms: &Terms,
    wanted: &HostConfig,
    disconnect: bool,
    edit: Edit<'_>,
) -> Outcome {
    let plan = host.plan(wanted, disconnect);
    if !plan.cannot.is_empty() {
        return Err(not_while_running(&plan));
    }
    sandbox::permits_plan(&plan).map_err(Failure::failed)?;
    if plan.steps.is_empty() {
        return terms.stays(host, edit);
    }
    terms.change(host, edit, |host| host.apply(&plan))
}

/// Changes words of a NIC.
pub(super) fn nic(host: &mut Host, call: &NicSet) -> Outcome {
    let (name, is) = (&call.name, host.configuration());
    let there = is.nics.iter().find(|nic| nic.name == *name);
    let there = there.ok_or_else(|| no_nic(host, name))?;
    if let Some(chip) = there.of_chip() {
        return Err(Failure::invalid(format!(
            "{name} is a function of the chip {chip}: hypernic vf set changes what a VF may do, and config apply its capture and its moderation"
        )));
    }
    if call.change == NicChange::default() {
        return Err(Failure::invalid(
            "the request changes nothing: name a change, such as mac_lock",
        ));
    }
    let words = of_nic(there.words(), &call.change);
    let beside = is.without_nic(name);
    let wanted = beside
        .clone()
        .nic_beside(&words)
        .map_err(Failure::invalid)?;
    let mut whole = beside;
    whole.nics.push(wanted.clone());
    follow(host, &terms!(call), &whole, false, Edit::AddNic(&wanted))
}

/// Pulls a cable, or puts it in.
pub(super) fn link(host: &mut Host, call: &NicLink) -> Outcome {
    let (name, mut is) = (&call.name, host.configuration());
    let there = is.nics.iter_mut().find(|nic| nic.name == *name);
    let there = there.ok_or_else(|| no_nic(host, name))?;
    if there.vf.is_some() {
        // It has no cable of its own, but what it is told of its chip's.
        let state = if call.up { State::Auto } else { State::Disable };
        let set = VfSet {
            nic: name.clone(),
            change: VfChange {
                state: Some(state),
                ..VfChange::default()
            },
            check: call.check,
            persist: call.persist,
            if_generation: call.if_generation,
        };
        return vfs::set(host, &set);
    }
    there.cable = if call.up { Cable::Up } else { Cable::Down };
    let edit = Edit::SetLink(name, call.up);
    follow(host, &terms!(call), &is, false, edit)
}

/// Changes words of a switch.
pub(super) fn switch(host: &mut Host, call: &SwitchSet) -> Outcome {
    let (name, is) = (&call.name, host.configuration());
    let there = is.switches.iter().find(|switch| switch.name == *name);
    let there = there.ok_or_else(|| no_switch(&is, name))?;
    if call.change == SwitchChange::default() {
        return Err(Failure::invalid(
            "the request changes nothing: name a change, such as ageing_seconds",
        ));
    }
    let mut words = there.words();
    let SwitchChange {
        ageing_seconds,
        link_local,
        uplink_guard,
    } = call.change.clone();
    words.ageing_seconds = ageing_seconds.or(words.ageing_seconds);
    words.link_local = link_local.or(words.link_local);
    if let Some(guard) = &uplink_guard {
        words.uplink_guard = Some(of_guard(words.uplink_guard.unwrap_or_default(), guard));
    }
    let beside = is.without_switch(name);
    let wanted = beside.switch_beside(&words).map_err(Failure::invalid)?;
    let mut whole = beside;
    whole.switches.push(wanted.clone());
    follow(host, &terms!(call), &whole, false, Edit::SetSwitch(&wanted))
}

/// The words of a NIC after a change.
fn of_nic(is: NicConfig, change: &NicChange) -> NicConfig {
    let capture = change.capture.clone().or(is.capture);
    let capture = capture.filter(|file| file != NONE);
    let guard = match &change.guard {
        Some(guard) => of_guard(is.guard.unwrap_or_default(), guard),
        None => is.guard.unwrap_or_default(),
    };
    NicConfig {
        mac_lock: change.mac_lock.or(is.mac_lock),
        back_pressure: change.back_pressure.or(is.back_pressure),
        busy_poll_us: change.busy_poll_us.or(is.busy_poll_us),
        moderation: change.moderation.clone().or(is.moderation),
        capture_mib: change
            .capture_mib
            .or(is.capture_mib)
            .filter(|_| capture.is_some()),
        capture,
        guard: (guard != Guard::default()).then_some(guard),
        ..is
    }
}

fn of_guard(is: Guard, change: &Guard) -> Guard {
    let limit = |is: Option<String>, change: &Option<String>| {
        let limit = change.clone().or(is);
        limit.filter(|limit| limit != NONE)
    };
    let macs = change.allow_macs.clone().or(is.allow_macs);
    Guard {
        tx_rate: limit(is.tx_rate, &change.tx_rate),
        rx_rate: limit(is.rx_rate, &change.rx_rate),
        storm: limit(is.storm, &change.storm),
        max_macs: change.max_macs.or(is.max_macs).filter(|most| *most != 0),
        allow_macs: macs.filter(|macs| !macs.is_empty()),
        vlans: limit(is.vlans, &change.vlans),
        private: change.private.or(is.private).filter(|is| *is),
    }
}

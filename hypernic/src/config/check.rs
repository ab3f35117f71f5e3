//! From the words of a file to what a host shall have, each word checked where it stands.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use control::Role;
use jail::Mode;
use registry::{Model, Models};
use toml::Spanned;

use super::access::Access;
use super::cells::{Rule, named};
use super::raw::{
    Fault, RawHost, RawNic, RawSwitch, Taken, busy_poll, capture_mib, check_name, mtu, queue_pairs,
    retired, revision, tenant,
};
use super::sockets::{SocketAccess, parse_group, parse_mode};
use super::types::{
    DEFAULT_AGEING, HostConfig, MAX_WORKERS, NicConfig, PfOwner, SandboxConfig, SocketSpec,
    SwitchConfig, Virtio,
};
use super::vfs::expand;
use crate::guard::{Guard, RawGuard};
use crate::spec::{NicMac, PortSpec, Transport};
use crate::transport::{Options, fits, hint};

/// How much the daemon gives up.
fn sandbox_mode(word: Option<&Spanned<String>>) -> Result<Mode, Fault> {
    let Some(word) = word else {
        return Ok(Mode::default());
    };
    let mode = word.get_ref().parse();
    mode.map_err(|message| Fault::at(word, message))
}

/// Folders that it keeps.
fn sandbox_paths(words: Vec<Spanned<PathBuf>>) -> Result<Vec<PathBuf>, Fault> {
    let one = |word: Spanned<PathBuf>| {
        if word.get_ref().is_absolute() {
            return Ok(word.into_inner());
        }
        let text = word.get_ref().display();
        let message = format!("\"{text}\" is no absolute path; write one such as /run/hypernic");
        Err(Fault::at(&word, message))
    };
    words.into_iter().map(one).collect()
}

/// Whom the file of a socket is opened to.
fn socket_access(
    group: Option<&Spanned<String>>,
    mode: Option<&Spanned<String>>,
) -> Result<SocketAccess, Fault> {
    let at = |word, parse: fn(&str) -> Result<u32, String>| {
        let parsed =
            |word: &Spanned<String>| parse(word.get_ref()).map_err(|why| Fault::at(word, why));
        Option::map(word, parsed).transpose()
    };
    Ok(SocketAccess {
        group: at(group, parse_group)?,
        mode: at(mode, parse_mode)?,
    })
}

impl RawHost {
    pub(super) fn check(self, models: Models, rule: Rule) -> Result<HostConfig, Fault> {
        let chosen = |raw: &RawNic| match &raw.model {
            None => Ok(models.default_model()),
            Some(word) => models
                .parse(word.get_ref())
                .map_err(|message| Fault::at(word, message)),
        };
        let chosen = self.nic.iter().map(chosen).collect::<Result<Vec<_>, _>>()?;
        let mut so_far = SoFar::default();
        for (role, words) in [
            (Role::Monitor, self.control_monitor),
            (Role::Operate, self.control_operate),
            (Role::Owner, self.control_owner),
        ] {
            give(
                role,
                &words,
                self.control.is_some(),
                &mut so_far.host.access,
            )?;
        }
        let (group, mode) = (self.control_group.as_ref(), self.control_mode.as_ref());
        so_far.host.control_socket = socket_access(group, mode)?;
        if let Some(word) = group.or(mode).filter(|_| self.control.is_none()) {
            return Err(Fault::at(word, NO_CONTROL.into()));
        }
        let (group, mode) = (self.socket_group.as_ref(), self.socket_mode.as_ref());
        so_far.host.sockets = socket_access(group, mode)?;
        so_far.host.control = self.control;
        so_far.host.cells = self.cells;
        so_far.host.keeper = self.keeper.unwrap_or(true);
        so_far.host.persist = self.control_persist;
        so_far.host.sandbox = SandboxConfig {
            mode: sandbox_mode(self.sandbox.as_ref())?,
            paths: sandbox_paths(self.sandbox_paths)?,
            network: self.sandbox_network,
        };
        if let Some(workers) = &self.workers {
            so_far.host.workers = Some(*workers.get_ref())
                .filter(|n| (1..=MAX_WORKERS).contains(n))
                .ok_or_else(|| {
                    let message = format!("workers must be between 1 and {MAX_WORKERS}");
                    Fault::at(workers, message)
                })?;
        }
        let locks: HashMap<_, _> = self
            .nic
            .iter()
            .map(|nic| (nic.name.get_ref().clone(), nic.mac_lock))
            .collect();
        for raw in self.switch {
            so_far.add_switch(raw)?;
        }
        let host = &so_far.host;
        if self.nic.is_empty() && host.switches.is_empty() && host.control.is_none() {
            return Err(Fault(
                None,
                "there is no [[nic]]; add one with name, socket-path and port, or control = \"PATH\" to add \
                 NICs while the daemon runs"
                    .into(),
            ));
        }
        for (raw, model) in self.nic.into_iter().zip(chosen) {
            so_far.add_nic(raw, model, models)?;
        }
        let locks = |nic: &str| locks.get(nic).copied().flatten();
        self.profile.apply(&mut so_far.host, &locks)?;
        so_far.host.share_out(rule)?;
        Ok(so_far.host)
    }
}

const NO_CONTROL: &str = "there is no control socket that they could use; add control = \"PATH\"";

/// Gives a role to the users and groups that a file names.
fn give(
    role: Role,
    words: &[Spanned<String>],
    has_socket: bool,
    access: &mut Access,
) -> Result<(), Fault> {
    for word in words {
        if !has_socket {
            return Err(Fault::at(word, NO_CONTROL.into()));
        }
        let added = access.add(role, word.get_ref());
        added.map_err(|message| Fault::at(word, message))?;
    }
    Ok(())
}

/// What has passed, which the rest must differ from and may refer to.
#[derive(Default)]
pub(super) struct SoFar {
    pub(super) host: HostConfig,
    switches: HashSet<String>,
    nics: HashSet<String>,
    taken: Taken,
    eeproms: HashMap<PathBuf, String>,
}

impl SoFar {
    /// All that a host has, which more must differ from.
    pub(super) fn of(host: HostConfig) -> Self {
        let mut so_far = SoFar::default();
        for switch in &host.switches {
            so_far.switches.insert(switch.name.clone());
        }
        for chip in &host.chips {
            so_far.nics.insert(chip.name.clone());
        }
        for nic in &host.nics {
            so_far.nics.insert(nic.name.clone());
            if let Some(file) = &nic.eeprom {
                so_far.eeproms.insert(file.clone(), nic.name.clone());
            }
            // They differ from each other, or the host would not be.
            let _ = so_far.taken.socket(&nic.socket, &nic.name, 0);
            let _ = so_far
                .taken
                .mac((nic.mac, nic.virtio.standby), &nic.name, 0);
        }
        SoFar { host, ..so_far }
    }

    pub(super) fn add_switch(&mut self, raw: RawSwitch) -> Result<(), Fault> {
        let name = raw.name.get_ref().clone();
        check_name(&raw.name)?;
        if !self.switches.insert(name.clone()) {
            return Err(Fault::at(
                &raw.name,
                format!("\"{name}\" is already a switch; names must differ"),
            ));
        }
        for port in &raw.ports {
            if let PortSpec::Switch(_) = port.get_ref() {
                return Err(Fault::at(
                    port,
                    "a switch cannot be a port of a switch; use one switch".into(),
                ));
            }
        }
        let ageing = match &raw.ageing_seconds {
            None => DEFAULT_AGEING,
            Some(s) if (10..=1_000_000).contains(s.get_ref()) => Duration::from_secs(*s.get_ref()),
            Some(s) => {
                return Err(Fault::at(
                    s,
                    "ageing-seconds must be between 10 and 1000000 (IEEE 802.1D)".into(),
                ));
            }
        };
        let uplink_guard = checked(raw.uplink_guard, |guard| {
            (guard.private || !guard.allow_macs.is_empty()).then(|| {
                "private and allow-macs are for NICs only: an uplink carries frames of many stations".into()
            })
        })?;
        let ports = raw.ports.into_iter().map(Spanned::into_inner).collect();
        self.host.switches.push(SwitchConfig {
            name,
            ports,
            ageing,
            uplink_guard,
            link_local: raw.link_local,
        });
        Ok(())
    }

    pub(super) fn add_nic(
        &mut self,
        raw: RawNic,
        model: &'static Model,
        models: Models,
    ) -> Result<(), Fault> {
        let name = raw.name.get_ref().clone();
        check_name(&raw.name)?;
        if !self.nics.insert(name.clone()) {
            return Err(Fault::at(
                &raw.name,
                format!("\"{name}\" is already a NIC; names must differ"),
            ));
        }
        let on_switch = on_switch(&raw.port, &self.switches, &self.host)?;
        let transport = transport(&raw, model, models)?;
        let mut rules = None;
        if model.vfs.is_some() && raw.vf_word().is_some() {
            let host = &mut self.host;
            let pf = expand(&raw, model, host, &mut self.nics, &mut self.taken)?;
            if pf == PfOwner::Daemon {
                return Ok(());
            }
            rules = Some(name.clone());
        } else if let Some(at) = raw.vf_word() {
            let able = models.with_vfs().map_or_else(String::new, |able| {
                format!("; give it model = \"{}\"", able.name)
            });
            let message = format!("the {} has no virtual functions{able}", model.name);
            return Err(Fault(Some(at), message));
        }
        let (socket, mac) = self.own(&raw, &name)?;
        if raw.portions {
            let hint = retired("portions", "receive-throttling");
            self.host.hints.push(hint);
        }
        self.host.hints.extend(hint(&name, model, raw.doorbell));
        let guard = checked(raw.guard, |_| {
            (!on_switch).then(|| {
                format!(
                    "only a switch enforces guards: add [[switch]] name = \"…\" with ports = \
                     [\"{}\"], and give this NIC port = \"switch:…\"",
                    raw.port.get_ref()
                )
            })
        })?;
        let busy_poll = busy_poll(raw.busy_poll_us.as_ref())?;
        self.host.nics.push(NicConfig {
            tenant: tenant(raw.tenant.as_ref(), &name)?,
            cell: named(raw.cell.as_ref())?,
            stays: false,
            name,
            model,
            revision: revision(raw.model_revision.as_ref(), model)?,
            socket,
            mac,
            port: match &rules {
                Some(chip) => PortSpec::Switch(chip.clone()),
                None => raw.port.into_inner(),
            },
            capture: raw.capture,
            capture_mib: capture_mib(raw.capture_mib.as_ref())?,
            busy_poll,
            moderation: raw.moderation.unwrap_or(model.moderation.into()),
            eeprom: raw.eeprom.map(Spanned::into_inner),
            pause: raw.pause,
            receive_throttling: raw.receive_throttling || raw.portions,
            csb: raw.csb,
            queue_pairs: queue_pairs(raw.queue_pairs.as_ref())?,
            transport,
            virtio: Virtio {
                split_rings: raw.split_rings,
                mtu: mtu(raw.mtu.as_ref())?,
                standby: raw.standby,
                hash_report: raw.hash_report,
            },
            doorbell: raw.doorbell,
            mac_lock: raw.mac_lock.unwrap_or(false),
            back_pressure: raw.back_pressure.unwrap_or(true),
            guard,
            cable: raw.link,
            vf: None,
            rules,
            pf_places_vf_rings: raw.pf_places_vf_rings.is_some_and(Spanned::into_inner),
        });
        Ok(())
    }

    /// A NIC's socket and MAC address. No other may have these, nor its EEPROM file.
    fn own(&mut self, raw: &RawNic, name: &str) -> Result<(SocketSpec, NicMac), Fault> {
        let (socket, at) = match (&raw.socket_path, &raw.fd) {
            (Some(path), None) => (SocketSpec::Path(path.get_ref().clone()), path.span().start),
            (None, Some(fd)) => (SocketSpec::Fd(*fd.get_ref()), fd.span().start),
            (None, None) => {
                return Err(Fault::at(
                    &raw.name,
                    format!("NIC \"{name}\" has no socket; add socket-path = \"/run/{name}.sock\""),
                ));
            }
            (Some(_), Some(fd)) => {
                return Err(Fault::at(
                    fd,
                    format!("NIC \"{name}\" has both socket-path and fd; keep one"),
                ));
            }
        };
        self.taken.socket(&socket, name, at)?;
        let (mac, at) = match &raw.mac {
            Some(mac) => (*mac.get_ref(), mac.span().start),
            None => (NicMac::from_name(name), raw.name.span().start),
        };
        self.taken.mac((mac, raw.standby), name, at)?;
        if let Some(file) = &raw.eeprom
            && let Some(other) = self.eeproms.insert(file.get_ref().clone(), name.to_owned())
        {
            return Err(Fault::at(
                file,
                format!("NIC \"{other}\" already has this EEPROM file; each NIC needs its own"),
            ));
        }
        Ok((socket, mac))
    }
}

/// By which protocol a NIC is served, if its model and its other words allow that.
fn transport(raw: &RawNic, model: &Model, models: Models) -> Result<Transport, Fault> {
    let word = raw.transport.as_ref();
    let transport = word.map_or_else(Transport::default, |word| *word.get_ref());
    let options = Options {
        doorbell: raw.doorbell,
        eeprom: raw.eeprom.is_some(),
        csb: raw.csb,
    };
    let at = word.map_or_else(|| raw.name.span(), Spanned::span).start;
    fits(transport, model, models, &options)
        .map(|()| transport)
        .map_err(|message| Fault(Some(at), message))
}

/// Whether a port is a switch, which then must be there.
fn on_switch(
    port: &Spanned<PortSpec>,
    names: &HashSet<String>,
    host: &HostConfig,
) -> Result<bool, Fault> {
    let PortSpec::Switch(switch) = port.get_ref() else {
        return Ok(false);
    };
    if names.contains(switch) {
        return Ok(true);
    }
    let known: Vec<_> = host.switches.iter().map(|s| s.name.as_str()).collect();
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    Err(Fault::at(
        port,
        format!(
            "there is no switch \"{switch}\" (there is: {known}); add a [[switch]] with that name"
        ),
    ))
}

/// A guard, if what it says can be and `refuse` has nothing against it.
fn checked(
    raw: Option<Spanned<RawGuard>>,
    refuse: impl FnOnce(&Guard) -> Option<String>,
) -> Result<Guard, Fault> {
    let Some(raw) = raw else {
        return Ok(Guard::default());
    };
    let at = raw.span().start;
    let guard = raw.into_inner().check();
    let guard = guard.map_err(|(at, message)| Fault(Some(at), message))?;
    match refuse(&guard) {
        Some(message) => Err(Fault(Some(at), message)),
        None => Ok(guard),
    }
}

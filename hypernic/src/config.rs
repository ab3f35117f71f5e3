//! What a host shall have: NICs and switches, from a TOML file or the command line.

mod raw;
mod types;
mod vfs;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use registry::{MODELS, Models};
use toml::Spanned;

use self::raw::{Fault, RawHost, RawNic, Taken, busy_poll};
pub use self::types::{
    ChipConfig, DEFAULT_AGEING, DEFAULT_BUSY_POLL, HostConfig, MAX_BUSY_POLL, MAX_WORKERS,
    NicConfig, PfOwner, SocketSpec, SwitchConfig, VfConfig, default_workers,
};
use self::vfs::expand;
use crate::error::Error;
use crate::guard::{Guard, RawGuard};
use crate::spec::{NicMac, PortSpec};

/// The hint for a word that the next release no longer accepts.
pub(crate) fn retired(old: &str, new: &str) -> String {
    format!("{old} is now {new}; the next release no longer accepts {old}")
}

impl HostConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// One line that names file, line and column, what is wrong there and what to do.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file).map_err(|source| Error::ReadConfig {
            file: file.to_owned(),
            source,
        })?;
        Self::parse(file, &text)
    }

    /// Checks the text of a file.
    ///
    /// # Errors
    /// As [`HostConfig::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        Self::parse_with(MODELS, file, text)
    }

    /// The same with the models of another table.
    ///
    /// # Errors
    /// As [`HostConfig::load`].
    pub fn parse_with(models: Models, file: &Path, text: &str) -> Result<Self, Error> {
        let raw: Result<RawHost, Fault> = toml::from_str(text).map_err(|error| {
            let message = error.message().trim_end().replace('\n', "; ");
            Fault(error.span().map(|span| span.start), message)
        });
        raw.and_then(|raw| raw.check(models))
            .map_err(|Fault(at, message)| {
                let message = printable(&message);
                let before = &text[..at.unwrap_or(0).min(text.len())];
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
                Error::Config {
                    file: file.to_owned(),
                    line,
                    column,
                    message,
                }
            })
    }
}

impl RawHost {
    fn check(self, models: Models) -> Result<HostConfig, Fault> {
        let chosen = |raw: &RawNic| match &raw.model {
            None => Ok(models.default_model()),
            Some(word) => models
                .parse(word.get_ref())
                .map_err(|message| Fault::at(word, message)),
        };
        let chosen = self.nic.iter().map(chosen).collect::<Result<Vec<_>, _>>()?;
        let mut host = HostConfig {
            control: self.control,
            ..HostConfig::default()
        };
        if let Some(workers) = &self.workers {
            host.workers = Some(*workers.get_ref())
                .filter(|n| (1..=MAX_WORKERS).contains(n))
                .ok_or_else(|| {
                    let message = format!("workers must be between 1 and {MAX_WORKERS}");
                    Fault::at(workers, message)
                })?;
        }
        let mut names: HashSet<String> = HashSet::new();
        for raw in self.switch {
            let name = raw.name.get_ref().clone();
            check_name(&raw.name)?;
            if !names.insert(name.clone()) {
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
                Some(s) if (10..=1_000_000).contains(s.get_ref()) => {
                    Duration::from_secs(*s.get_ref())
                }
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
            host.switches.push(SwitchConfig {
                name,
                ports,
                ageing,
                uplink_guard,
            });
        }
        if self.nic.is_empty() {
            return Err(Fault(
                None,
                "there is no [[nic]]; add one with name, socket-path and port".into(),
            ));
        }
        let mut nics: HashSet<String> = HashSet::new();
        let mut taken = Taken::default();
        let mut eeproms: HashMap<PathBuf, String> = HashMap::new();
        for (raw, model) in self.nic.into_iter().zip(chosen) {
            let name = raw.name.get_ref().clone();
            check_name(&raw.name)?;
            if !nics.insert(name.clone()) {
                return Err(Fault::at(
                    &raw.name,
                    format!("\"{name}\" is already a NIC; names must differ"),
                ));
            }
            let on_switch = on_switch(&raw.port, &names, &host)?;
            let mut rules = None;
            if model.vfs.is_some() && raw.vf_word().is_some() {
                if expand(&raw, model, &mut host, &mut nics, &mut taken)? == PfOwner::Daemon {
                    continue;
                }
                rules = Some(name.clone());
            } else if let Some(at) = raw.vf_word() {
                let able = models.with_vfs().map_or_else(String::new, |able| {
                    format!("; give it model = \"{}\"", able.name)
                });
                let message = format!("the {} has no virtual functions{able}", model.name);
                return Err(Fault(Some(at), message));
            }
            let (socket, at) = match (&raw.socket_path, &raw.fd) {
                (Some(path), None) => (SocketSpec::Path(path.get_ref().clone()), path.span().start),
                (None, Some(fd)) => (SocketSpec::Fd(*fd.get_ref()), fd.span().start),
                (None, None) => {
                    return Err(Fault::at(
                        &raw.name,
                        format!(
                            "NIC \"{name}\" has no socket; add socket-path = \"/run/{name}.sock\""
                        ),
                    ));
                }
                (Some(_), Some(fd)) => {
                    return Err(Fault::at(
                        fd,
                        format!("NIC \"{name}\" has both socket-path and fd; keep one"),
                    ));
                }
            };
            taken.socket(&socket, &name, at)?;
            let mac = raw
                .mac
                .as_ref()
                .map_or_else(|| NicMac::from_name(&name), |m| *m.get_ref());
            let at = raw
                .mac
                .as_ref()
                .map_or(raw.name.span().start, |m| m.span().start);
            taken.mac(mac, &name, at)?;
            if let Some(file) = &raw.eeprom
                && let Some(other) = eeproms.insert(file.get_ref().clone(), name.clone())
            {
                return Err(Fault::at(
                    file,
                    format!("NIC \"{other}\" already has this EEPROM file; each NIC needs its own"),
                ));
            }
            if raw.portions {
                host.hints.push(retired("portions", "receive-throttling"));
            }
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
            host.nics.push(NicConfig {
                name,
                model,
                socket,
                mac,
                port: match &rules {
                    Some(chip) => PortSpec::Switch(chip.clone()),
                    None => raw.port.into_inner(),
                },
                capture: raw.capture,
                busy_poll,
                moderation: raw.moderation.unwrap_or(model.moderation.into()),
                eeprom: raw.eeprom.map(Spanned::into_inner),
                pause: raw.pause,
                receive_throttling: raw.receive_throttling || raw.portions,
                csb: raw.csb,
                doorbell: raw.doorbell,
                mac_lock: raw.mac_lock,
                guard,
                vf: None,
                rules,
            });
        }
        Ok(host)
    }
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

/// Names and words that cannot be used come with the message, and they may hold line ends and what
/// terminals obey.
fn printable(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for c in message.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn check_name(name: &Spanned<String>) -> Result<(), Fault> {
    let text = name.get_ref();
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(fine) {
        let message = format!("bad name \"{text}\": use 1 to 64 letters, digits, '-', '_' or '.'");
        return Err(Fault::at(name, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

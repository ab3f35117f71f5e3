//! A host as the file that makes it.

use std::fmt::Write as _;
use std::path::Path;

use control::Role;
use pf::{LinkState, Policy};
use serde::Serialize;
use toml::{Table, Value};
use wire::MacAddr;

use super::cells::MAIN;
use super::types::{
    CellsOf, ChipConfig, DEFAULT_BUSY_POLL, DEFAULT_CAPTURE_MIB, HostConfig, NicConfig, PfOwner,
    Profile, SocketSpec,
};
use super::vfs::NUMBER;
use crate::guard::Storm;
use crate::spec::{Doorbell, Moderation, NicMac, PortSpec, Transport};

/// Words that stand first, in this order; the others follow by name.
const FIRST: [&str; 8] = [
    "name",
    "index",
    "model",
    "model-revision",
    "transport",
    "socket-path",
    "mac",
    "port",
];

/// The words of a VF that are its policy.
pub(super) const POLICY: [&str; 12] = [
    "mac",
    "vlan",
    "qos",
    "trust",
    "spoofchk",
    "state",
    "max-tx-rate",
    "min-tx-rate",
    "storm",
    "interrupts",
    "mailbox-rate",
    "strict",
];

/// The word of a chip for its VFs.
pub(super) const VFS: &str = "vf";

impl HostConfig {
    /// The text of a file that makes this host. Paths are whole, and defaults are left out.
    pub fn to_text(&self) -> String {
        let whole = self.clone().absolute();
        let mut text = whole.head_text();
        for switch in &whole.switches {
            section(&mut text, "switch", &table(&switch.words()));
        }
        for chip in &whole.chips {
            whole.chip_text(&mut text, chip);
        }
        for nic in whole.nics.iter().filter(|nic| nic.of_chip().is_none()) {
            section(&mut text, "nic", &nic.table());
        }
        text
    }

    /// The same with whole paths, as the daemon finds them from where it runs.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        if let Some(path) = &mut self.control {
            *path = whole(path);
        }
        let switches = self.switches.iter_mut();
        let ports = switches.flat_map(|switch| &mut switch.ports);
        let ports = ports.chain(self.chips.iter_mut().map(|chip| &mut chip.port));
        ports
            .chain(self.nics.iter_mut().map(|nic| &mut nic.port))
            .for_each(whole_port);
        for path in self.chips.iter_mut().flat_map(|chip| &mut chip.vf_sockets) {
            *path = whole(Path::new(path)).to_string_lossy().into_owned();
        }
        for nic in &mut self.nics {
            if let SocketSpec::Path(path) = &mut nic.socket {
                *path = whole(path);
            }
            let files = nic.capture.iter_mut().chain(&mut nic.eeprom);
            files.for_each(|path| *path = whole(path));
        }
        self
    }

    fn head_text(&self) -> String {
        let mut text = String::new();
        line(&mut text, "workers", self.workers as i64);
        if !self.keeper {
            line(&mut text, "keeper", false);
        }
        if self.profile == Profile::MultiTenant {
            line(&mut text, "profile", "multi-tenant");
        }
        match self.cells {
            Some(CellsOf::One) => line(&mut text, "cells", "one"),
            Some(CellsOf::Tenant) => line(&mut text, "cells", "tenant"),
            None => {}
        }
        if let Some(path) = &self.control {
            line(&mut text, "control", path.to_string_lossy().into_owned());
        }
        for role in [Role::Monitor, Role::Operate, Role::Owner] {
            let words = self.access.words(role);
            if !words.is_empty() {
                line(&mut text, &format!("control-{}", role.name()), words);
            }
        }
        if self.persist {
            line(&mut text, "control-persist", true);
        }
        for (of, access) in [("control", self.control_socket), ("socket", self.sockets)] {
            for (word, value) in ["group", "mode"].into_iter().zip(access.words()) {
                if let Some(value) = value {
                    line(&mut text, &format!("{of}-{word}"), value);
                }
            }
        }
        line(&mut text, "sandbox", self.sandbox.mode.name());
        let paths = self.sandbox.paths.iter();
        let paths: Vec<_> = paths.map(|path| path.to_string_lossy().into()).collect();
        if !paths.is_empty() {
            line::<Vec<String>>(&mut text, "sandbox-paths", paths);
        }
        if let Some(network) = self.sandbox.network {
            line(&mut text, "sandbox-network", network);
        }
        text
    }

    fn chip_text(&self, text: &mut String, chip: &ChipConfig) {
        let mut words = self.chip_table(chip);
        let vfs = words.remove(VFS);
        section(text, "nic", &words);
        for vf in vfs.iter().filter_map(Value::as_array).flatten() {
            if let Some(words) = vf.as_table() {
                section(text, "nic.vf", words);
            }
        }
    }

    /// The words of a chip in a file, without those that say what is usual. Those of its VFs are in a list.
    pub(crate) fn chip_table(&self, chip: &ChipConfig) -> Table {
        let own = |nic: &&NicConfig| nic.rules.as_ref() == Some(&chip.name);
        let vfs: Vec<_> = self.vfs_of(&chip.name).collect();
        let pf = self.nics.iter().find(own);
        let mut words = pf.map_or_else(Table::new, NicConfig::table);
        // It is on no switch but the chip's, and in no cell but that one's.
        words.remove("mac-lock");
        words.remove("cell");
        let mut set = |key: &str, value: Value| words.insert(key.into(), value);
        set("name", chip.name.clone().into());
        set("port", chip.port.to_string().into());
        set("vfs", i64::from(chip.vfs).into());
        let cell = chip.cell.clone().or(chip.stays.then(|| MAIN.to_owned()));
        if let Some(cell) = cell {
            set("cell", cell.into());
        }
        if chip.pf == PfOwner::Guest {
            set("pf", "guest".into());
        }
        if let Some(rate) = chip.rate {
            set("port-rate", i64::from(rate).into());
        }
        if let Some(path) = &chip.vf_sockets {
            set("vf-socket-path", path.clone().into());
        }
        if pf.is_some_and(|nic| nic.pf_places_vf_rings) {
            set("pf-places-vf-rings", true.into());
        }
        let (mut moderation, mut tenant) = (None, None);
        if let Some(one) = vfs.first() {
            set("model", one.model.name.into());
            if let Some(revision) = one.revision {
                set("model-revision", i64::from(revision).into());
            }
            if one.busy_poll != DEFAULT_BUSY_POLL {
                set("busy-poll-us", (one.busy_poll.as_micros() as i64).into());
            }
            if one.capture_mib != DEFAULT_CAPTURE_MIB {
                set("capture-mib", (one.capture_mib as i64).into());
            }
            if one.doorbell != Doorbell::default() {
                set("doorbell", one.doorbell.to_string().into());
            }
            // What is said of all is what is so of the first; of tenants, what is so of all.
            moderation = Some(pf.map_or(one.moderation, |nic| nic.moderation));
            if pf.is_none() && one.moderation != one.model.moderation.into() {
                set("moderation", one.moderation.to_string().into());
            }
            let alike = pf.is_none() && vfs.iter().all(|nic| nic.tenant == one.tenant);
            let of_all = alike.then(|| one.tenant.clone());
            let of_all = of_all.filter(|tenant| *tenant != one.name);
            if let Some(tenant) = &of_all {
                set("tenant", tenant.clone().into());
            }
            let of_pf = pf.map(|nic| nic.tenant.clone());
            tenant = of_pf.filter(|tenant| *tenant != chip.name).or(of_all);
        }
        let words_of = |nic: &&NicConfig| vf_table(chip, nic, moderation, tenant.as_ref());
        let mut vfs: Vec<Table> = vfs.iter().filter_map(words_of).collect();
        // A number alone says nothing.
        vfs.retain(|words| words.len() > 1);
        if !vfs.is_empty() {
            set(VFS, vfs.into());
        }
        words
    }

    /// The virtual functions of a chip, in their order.
    pub(super) fn vfs_of(&self, chip: &str) -> impl Iterator<Item = &NicConfig> {
        let of = move |nic: &&NicConfig| nic.vf.as_ref().is_some_and(|vf| vf.chip == chip);
        self.nics.iter().filter(of)
    }
}

impl NicConfig {
    /// Its words in a file, without those that say what is usual.
    pub(super) fn table(&self) -> Table {
        let mut words = table(&self.words());
        let usual = [
            ("transport", self.transport == Transport::default()),
            ("mac", self.mac == NicMac::from_name(&self.name)),
            ("tenant", self.tenant == self.name),
            ("busy-poll-us", self.busy_poll == DEFAULT_BUSY_POLL),
            ("capture-mib", self.capture_mib == DEFAULT_CAPTURE_MIB),
            (
                "moderation",
                self.moderation == self.model.moderation.into(),
            ),
            ("doorbell", self.doorbell == Doorbell::default()),
            ("back-pressure", self.back_pressure),
            // A profile may have other thoughts of a NIC on a switch.
            (
                "mac-lock",
                !self.mac_lock && !matches!(self.port, PortSpec::Switch(_)),
            ),
        ];
        for (word, is) in usual {
            if is {
                words.remove(word);
            }
        }
        words
    }
}

/// What is said of one VF, as far as it is not said of all.
fn vf_table(
    chip: &ChipConfig,
    nic: &NicConfig,
    moderation: Option<Moderation>,
    tenant: Option<&String>,
) -> Option<Table> {
    let vf = nic.vf.as_ref()?;
    let mut words = match chip.pf {
        PfOwner::Daemon => policy(&vf.policy, &nic.name),
        // Its guest lays that down.
        PfOwner::Guest => Table::new(),
    };
    let mut set = |key: &str, value: Value| words.insert(key.into(), value);
    set("index", i64::from(vf.index).into());
    let of_all = chip.vf_sockets.as_ref();
    let of_all = of_all.map(|path| path.replace(NUMBER, &vf.index.to_string()));
    if let SocketSpec::Path(path) = &nic.socket
        && of_all.as_deref().map(Path::new) != Some(path)
    {
        set("socket-path", path.to_string_lossy().into_owned().into());
    }
    if let Some(file) = &nic.capture {
        set("capture", file.to_string_lossy().into_owned().into());
    }
    if Some(nic.moderation) != moderation {
        set("moderation", nic.moderation.to_string().into());
    }
    if nic.tenant != *tenant.unwrap_or(&nic.name) {
        set("tenant", nic.tenant.clone().into());
    }
    Some(words)
}

/// What is laid down for a VF, as far as it is not usual.
pub(super) fn policy(policy: &Policy, nic: &str) -> Table {
    let usual = Policy::new(MacAddr(NicMac::from_name(nic).0));
    let mut words = Table::new();
    let mut set = |key: &str, value: Value| words.insert(key.into(), value);
    if policy.mac_set {
        set("mac", policy.mac.to_string().into());
    }
    if let Some(vlan) = policy.vlan {
        set("vlan", i64::from(vlan.id).into());
        if vlan.qos != 0 {
            set("qos", i64::from(vlan.qos).into());
        }
    }
    for (word, is, not) in [
        ("trust", policy.trust, usual.trust),
        ("spoofchk", policy.spoof_check, usual.spoof_check),
        ("strict", policy.strict, usual.strict),
    ] {
        if is != not {
            set(word, is.into());
        }
    }
    let state = match policy.state {
        LinkState::Auto => None,
        LinkState::Enable => Some("enable"),
        LinkState::Disable => Some("disable"),
    };
    if let Some(state) = state {
        set("state", state.into());
    }
    for (word, is, not) in [
        ("max-tx-rate", policy.max_tx_rate, 0),
        ("min-tx-rate", policy.min_tx_rate, 0),
        ("interrupts", policy.interrupts.unwrap_or(0), 0),
        ("mailbox-rate", policy.mailbox_rate, usual.mailbox_rate),
    ] {
        if is != not {
            set(word, i64::from(is).into());
        }
    }
    let storm = eswitch::Storm {
        unknown: None,
        ..policy.storm
    };
    if storm != eswitch::Storm::default() {
        set("storm", Storm(storm).to_string().into());
    }
    words
}

/// Words of the control socket with a file's hyphens.
pub(super) fn table(words: &impl Serialize) -> Table {
    match Value::try_from(words) {
        Ok(Value::Table(words)) => hyphens(words),
        _ => Table::new(),
    }
}

fn hyphens(words: Table) -> Table {
    let one = |(key, value): (String, Value)| {
        let value = match value {
            Value::Table(inner) => Value::Table(hyphens(inner)),
            value => value,
        };
        (key.replace('_', "-"), value)
    };
    words.into_iter().map(one).collect()
}

/// The words of a table in the order in which people look for them.
pub(super) fn in_order(words: &Table) -> Vec<(&str, &Value)> {
    let place = |word: &str| FIRST.iter().position(|first| *first == word);
    let mut all: Vec<_> = words
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    all.sort_by_key(|(key, _)| (place(key).unwrap_or(FIRST.len()), *key));
    all
}

fn section(text: &mut String, name: &str, words: &Table) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\n[[{name}]]");
    for (key, value) in in_order(words) {
        line(text, key, value.clone());
    }
}

fn line<T: Into<Value>>(text: &mut String, key: &str, value: T) {
    let _ = writeln!(text, "{key} = {}", value.into());
}

fn whole(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn whole_port(port: &mut PortSpec) {
    if let PortSpec::Stream(path)
    | PortSpec::StreamListen(path)
    | PortSpec::VhostUser(path, _)
    | PortSpec::VhostUserListen(path, _) = port
    {
        *path = whole(path);
    }
}

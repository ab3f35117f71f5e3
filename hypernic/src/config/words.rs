//! What runs, in the words by which it is asked for.

use toml::{Table, Value};

use super::cells::MAIN;
use super::text::policy;
use super::types::{Cable, HostConfig, LinkLocal, NicConfig, SocketSpec, SwitchConfig};
use crate::guard::{Guard, Storm};

impl NicConfig {
    /// A NIC's words; flags that are off are left out.
    pub fn words(&self) -> control::NicConfig {
        let on = |flag: bool| flag.then_some(true);
        let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
        control::NicConfig {
            name: self.name.clone(),
            port: self.port.to_string(),
            socket_path: match &self.socket {
                SocketSpec::Path(socket) => Some(path(socket)),
                SocketSpec::Fd(_) => None,
            },
            fd: match &self.socket {
                SocketSpec::Fd(fd) => u32::try_from(*fd).ok(),
                SocketSpec::Path(_) => None,
            },
            model: Some(self.model.name.into()),
            model_revision: self.revision,
            transport: Some(self.transport.to_string()),
            mac: Some(self.mac.to_string()),
            tenant: Some(self.tenant.clone()),
            cell: self.cell.clone().or(self.stays.then(|| MAIN.to_owned())),
            capture: self.capture.as_deref().map(path),
            capture_mib: self.capture.as_ref().map(|_| self.capture_mib),
            busy_poll_us: Some(self.busy_poll.as_micros() as u64),
            moderation: Some(self.moderation.to_string()),
            eeprom: self.eeprom.as_deref().map(path),
            pause: on(self.pause),
            receive_throttling: on(self.receive_throttling),
            csb: on(self.csb),
            queue_pairs: (self.queue_pairs != 1).then_some(self.queue_pairs),
            split_rings: on(self.virtio.split_rings),
            mtu: self.virtio.mtu,
            standby: on(self.virtio.standby),
            hash_report: on(self.virtio.hash_report),
            doorbell: Some(self.doorbell.to_string()),
            mac_lock: Some(self.mac_lock),
            back_pressure: Some(self.back_pressure),
            guard: guard_words(&self.guard),
            link: (self.cable == Cable::Down).then(|| "down".into()),
        }
    }

    /// What is laid down for a VF, in a file's words; none of another NIC.
    pub(crate) fn policy_table(&self) -> Option<Table> {
        Some(policy(&self.vf.as_ref()?.policy, &self.name))
    }

    /// The same in the words of the control socket.
    pub fn vf_words(&self) -> Option<control::VfConfig> {
        let vf = self.vf.as_ref()?;
        let mut words = self.policy_table()?;
        words.insert("index".into(), i64::from(vf.index).into());
        Value::Table(underscores(words)).try_into().ok()
    }
}

impl SwitchConfig {
    /// A switch's words.
    pub fn words(&self) -> control::SwitchConfig {
        control::SwitchConfig {
            name: self.name.clone(),
            ports: Some(self.ports.iter().map(ToString::to_string).collect()),
            ageing_seconds: Some(self.ageing.as_secs()),
            uplink_guard: guard_words(&self.uplink_guard),
            link_local: Some(
                match self.link_local {
                    LinkLocal::Drop => "drop",
                    LinkLocal::Pass => "pass",
                }
                .into(),
            ),
        }
    }
}

/// Words of a file with the control socket's underscores.
fn underscores(words: Table) -> Table {
    let inner = |value: Value| match value {
        Value::Table(words) => underscores(words).into(),
        value => value,
    };
    let one = |(key, value): (String, Value)| {
        let value = match value {
            Value::Array(values) => values.into_iter().map(inner).collect::<Vec<_>>().into(),
            value => inner(value),
        };
        (key.replace('-', "_"), value)
    };
    words.into_iter().map(one).collect()
}

fn guard_words(guard: &Guard) -> Option<control::Guard> {
    if *guard == Guard::default() {
        return None;
    }
    let macs = guard.allow_macs.iter().map(ToString::to_string);
    Some(control::Guard {
        tx_rate: guard.tx_rate.map(|rate| rate.to_string()),
        rx_rate: guard.rx_rate.map(|rate| rate.to_string()),
        storm: (guard.storm != Storm::default()).then(|| guard.storm.to_string()),
        max_macs: guard.max_macs.map(|n| n as u64),
        allow_macs: (!guard.allow_macs.is_empty()).then(|| macs.collect()),
        vlans: guard.vlans.as_ref().map(ToString::to_string),
        private: guard.private.then_some(true),
    })
}

impl HostConfig {
    /// The same without a NIC.
    pub fn without_nic(&self, name: &str) -> Self {
        let mut rest = self.clone();
        rest.nics.retain(|nic| nic.name != name);
        rest
    }

    /// The same without a chip and its functions.
    pub fn without_chip(&self, name: &str) -> Self {
        let mut rest = self.clone();
        rest.chips.retain(|chip| chip.name != name);
        rest.nics
            .retain(|nic| nic.of_chip().is_none_or(|chip| chip != name));
        rest
    }

    /// The words of a chip; none, if there is none of that name.
    pub fn chip_words(&self, name: &str) -> Option<control::ChipConfig> {
        let chip = self.chips.iter().find(|chip| chip.name == name)?;
        let words = underscores(self.chip_table(chip));
        // Every word of a chip is one of these: a test has them all.
        Value::Table(words).try_into().ok()
    }

    /// The same without a switch. NICs may still be on it.
    pub fn without_switch(&self, name: &str) -> Self {
        let mut rest = self.clone();
        rest.switches.retain(|switch| switch.name != name);
        rest
    }
}

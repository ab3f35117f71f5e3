//! What is added to a host that runs, in the words of a file and by its rules.

use std::collections::HashMap;

use registry::MODELS;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cells::Rule;
use super::check::SoFar;
use super::raw::{Fault, RawNic, RawSwitch};
use super::types::{HostConfig, NicConfig, Profile, SwitchConfig};
use crate::spec::PortSpec;

impl HostConfig {
    /// A NIC beside those there are.
    ///
    /// # Errors
    /// A word that cannot be, or something that another NIC has: one line.
    pub fn nic_beside(self, words: &control::NicConfig) -> Result<NicConfig, String> {
        let raw: RawNic = of_words(words)?;
        let word = words.model.as_deref();
        let model = word.map_or(Ok(MODELS.default_model()), |word| MODELS.parse(word))?;
        let profile = self.profile;
        // Only who has many tenants pays for a list of all.
        let all = self
            .nics
            .iter()
            .filter(|_| profile != Profile::SingleTenant);
        let locks: HashMap<_, _> = all.map(|nic| (nic.name.clone(), nic.mac_lock)).collect();
        let locks = |nic: &str| match locks.get(nic) {
            Some(lock) => Some(*lock),
            None => words.mac_lock,
        };
        let mut so_far = SoFar::of(self);
        let added = so_far.add_nic(raw, model, MODELS);
        let applied = added.and_then(|()| profile.apply(&mut so_far.host, &locks));
        let applied = applied.and_then(|()| so_far.host.share_out(Rule::Holds));
        applied.map_err(|Fault(_, message)| message)?;
        so_far.host.nics.pop().ok_or_else(nothing)
    }

    /// This host with another chip.
    ///
    /// # Errors
    /// A word that cannot be, or something that another NIC has: one line.
    pub fn chip_beside(&self, words: &control::ChipConfig) -> Result<HostConfig, String> {
        let raw: RawNic = of_words(words)?;
        let word = words.model.as_deref();
        let with_vfs = MODELS.with_vfs().unwrap_or(MODELS.default_model());
        let model = word.map_or(Ok(with_vfs), |word| MODELS.parse(word))?;
        let mut so_far = SoFar::of(self.clone());
        let added = so_far.add_nic(raw, model, MODELS);
        let applied = added.and_then(|()| self.apply_profile(&mut so_far.host));
        let applied = applied.and_then(|()| so_far.host.share_out(Rule::Holds));
        applied.map_err(|Fault(_, message)| message)?;
        Ok(so_far.host)
    }

    /// A switch beside those there are.
    ///
    /// # Errors
    /// A word that cannot be: one line.
    pub fn switch_beside(&self, words: &control::SwitchConfig) -> Result<SwitchConfig, String> {
        let raw: RawSwitch = of_words(words)?;
        let mut so_far = SoFar::of(self.clone());
        let added = so_far.add_switch(raw);
        let applied = added.and_then(|()| self.apply_profile(&mut so_far.host));
        applied.map_err(|Fault(_, message)| message)?;
        so_far.host.switches.pop().ok_or_else(nothing)
    }

    /// A port of a switch beside those it has. `None`: there is no such switch.
    ///
    /// # Errors
    /// A word that cannot be: one line.
    pub fn port_beside(&self, switch: &str, port: &str) -> Result<Option<PortSpec>, String> {
        let port: PortSpec = port.parse()?;
        if let PortSpec::Switch(_) = port {
            return Err("a switch cannot be a port of a switch; use one switch".into());
        }
        let mut host = self.clone();
        let named = |other: &SwitchConfig| other.name == switch;
        let Some(at) = host.switches.iter().position(named) else {
            return Ok(None);
        };
        host.switches[at].ports.push(port);
        let applied = self.apply_profile(&mut host);
        applied.map_err(|Fault(_, message)| message)?;
        Ok(host.switches[at].ports.pop())
    }

    /// The profile's defaults, for what is new; NICs keep what they have.
    fn apply_profile(&self, host: &mut HostConfig) -> Result<(), Fault> {
        let lock = |nic: &str| {
            let has = self.nics.iter().find(|other| other.name == nic);
            has.map(|nic| nic.mac_lock)
        };
        self.profile.apply(host, &lock)
    }
}

fn nothing() -> String {
    "it is nothing that could be added".into()
}

/// Words of the control socket as a file has them, and so with a file's rules.
pub(super) fn of_words<T: DeserializeOwned>(words: &impl Serialize) -> Result<T, String> {
    let words = serde_json::to_value(words).map_err(|error| error.to_string())?;
    let text = toml::to_string(&in_file(words)).map_err(|error| error.to_string())?;
    toml::from_str(&text).map_err(|error| error.message().trim_end().replace('\n', "; "))
}

/// Without what is absent, and with the file's hyphens.
fn in_file(words: Value) -> Value {
    match words {
        Value::Object(members) => {
            let said = members.into_iter().filter(|(_, value)| !value.is_null());
            said.map(|(name, value)| (name.replace('_', "-"), in_file(value)))
                .collect()
        }
        Value::Array(values) => values.into_iter().map(in_file).collect(),
        words => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "control = \"/run/c\"\n[[switch]]\nname = \"lan\"\n\
        [[nic]]\nname = \"a\"\nsocket-path = \"/run/a\"\nmac = \"52:54:00:00:00:0a\"\nport = \"switch:lan\"\n";

    fn host(head: &str) -> HostConfig {
        HostConfig::parse("h.toml".as_ref(), &format!("{head}{HOST}")).expect("good")
    }

    fn nic(name: &str, port: &str) -> control::NicConfig {
        control::NicConfig {
            name: name.into(),
            port: port.into(),
            socket_path: Some(format!("/run/{name}")),
            ..control::NicConfig::default()
        }
    }

    #[test]
    fn what_is_added_is_what_a_file_would_have_made() {
        let mut words = nic("b", "switch:lan");
        words.model = Some("82576".into());
        words.moderation = Some("fixed:8000".into());
        words.guard = Some(control::Guard {
            tx_rate: Some("1gbit".into()),
            vlans: Some("untagged,10".into()),
            allow_macs: Some(vec!["02:00:00:00:00:01".into()]),
            ..control::Guard::default()
        });
        let file = "[[nic]]\nname = \"b\"\nsocket-path = \"/run/b\"\nport = \"switch:lan\"\nmodel = \"82576\"\n\
                    moderation = \"fixed:8000\"\n\
                    guard = { tx-rate = \"1gbit\", vlans = \"untagged,10\", allow-macs = [\"02:00:00:00:00:01\"] }\n";
        for head in ["", "profile = \"multi-tenant\"\n"] {
            let host = host(head);
            let whole = HostConfig::parse("h.toml".as_ref(), &format!("{head}{HOST}{file}"));
            let whole = whole.expect("good");
            let added = host.clone().nic_beside(&words).expect("can be");
            assert_eq!(added, whole.nics[1]);
            // And it is told in words that make the same again.
            assert_eq!(host.clone().nic_beside(&added.words()), Ok(added));
        }
    }

    #[test]
    fn what_a_file_refuses_is_refused_in_one_line() {
        let host = host("");
        let with = |change: fn(&mut control::NicConfig)| {
            let mut words = nic("b", "switch:lan");
            change(&mut words);
            words
        };
        for (words, named) in [
            (nic("a", "switch:lan"), "already a NIC"),
            (nic("b", "switch:wan"), "no switch \"wan\""),
            (nic("b", "tap"), "bad port"),
            (nic("b\n", "null"), "bad name"),
            (with(|w| w.socket_path = None), "has no socket"),
            (
                with(|w| w.socket_path = Some("/run/a".into())),
                "already has this socket",
            ),
            (
                with(|w| w.mac = Some("52:54:00:00:00:0a".into())),
                "already has the MAC",
            ),
            (with(|w| w.mac = Some("52:54".into())), "bad MAC"),
            (with(|w| w.model = Some("ne2000".into())), "unknown model"),
            (with(|w| w.queue_pairs = Some(17)), "between 1 and 16"),
            (
                with(|w| w.capture_mib = Some(u64::MAX)),
                "capture-mib must be",
            ),
            (with(|w| w.transport = Some("vhost-user".into())), "virtio"),
        ] {
            let error = host.clone().nic_beside(&words).expect_err(named);
            assert!(error.contains(named), "{named}: {error}");
        }
        let switch = |name: &str, port: &str| control::SwitchConfig {
            name: name.into(),
            ports: Some(vec![port.into()]),
            ..control::SwitchConfig::default()
        };
        for (words, named) in [
            (switch("lan", "null"), "already a switch"),
            (switch("x", "switch:lan"), "cannot be a port"),
            (switch("x", "tap:"), "bad port"),
        ] {
            let error = host.switch_beside(&words).expect_err(named);
            assert!(error.contains(named), "{named}: {error}");
        }
        let added = host.switch_beside(&switch("wan", "user")).expect("can be");
        assert_eq!(host.switch_beside(&added.words()), Ok(added));
        assert_eq!(host.port_beside("wan", "null"), Ok(None));
        assert_eq!(host.port_beside("lan", "null"), Ok(Some(PortSpec::Null)));
        host.port_beside("lan", "switch:lan").expect_err("a switch");
    }
}

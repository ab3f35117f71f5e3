//! What a plan does as a whole: a NIC, or a chip with its functions.

use std::collections::BTreeSet;

use toml::Table;

use crate::config::types::{ChipConfig, NicConfig};
use crate::spec::PortSpec;

/// A NIC of its own, or a chip with all its functions.
#[derive(Clone, Debug)]
pub(super) struct Unit<'a> {
    pub chip: Option<&'a ChipConfig>,
    pub nics: Vec<&'a NicConfig>,
}

impl Unit<'_> {
    /// What it is, for people.
    pub fn kind(&self) -> &'static str {
        if self.chip.is_some() { "chip" } else { "NIC" }
    }

    /// The switch that it is on.
    pub fn switch(&self) -> Option<&str> {
        let port = self.chip.map(|chip| &chip.port);
        match port.or(self.nics.first().map(|nic| &nic.port)) {
            Some(PortSpec::Switch(name)) => Some(name),
            _ => None,
        }
    }

    /// The words in which it differs from another.
    pub fn differs(&self, other: &Unit) -> Vec<String> {
        let words = |unit: &Unit| match (unit.chip, unit.nics.as_slice()) {
            (None, [nic]) => nic.table(),
            _ => Table::new(),
        };
        if self.kind() != other.kind() {
            return vec!["vfs".into()];
        }
        differs(&words(self), &words(other))
    }
}

/// The words of one table that are other in another.
pub(super) fn differs(is: &Table, to: &Table) -> Vec<String> {
    let all: BTreeSet<&String> = is.keys().chain(to.keys()).collect();
    let other = |word: &&String| is.get(*word) != to.get(*word);
    all.into_iter().filter(other).cloned().collect()
}

//! Counters, for people and for programs.

use std::fmt::Write as _;

use frame::Counted;
use serde_json::{Map, Value};

use crate::explain;

/// The counters of one thing: a NIC, a switch port, a port, the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// "nic", "switch", "port", "control".
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Name and value, in the order they were visited.
    pub values: Vec<(&'static str, u64)>,
}

impl Section {
    /// Reads one counting thing.
    pub fn of(kind: &'static str, name: impl Into<String>, counted: &dyn Counted) -> Self {
        let mut values = Vec::new();
        counted.counters(&mut |name, value| values.push((name, value)));
        Self {
            kind,
            name: name.into(),
            values,
        }
    }

    /// One value by name; 0 when there is none.
    pub fn get(&self, name: &str) -> u64 {
        self.values
            .iter()
            .filter(|(n, _)| *n == name)
            .map(|(_, v)| v)
            .sum()
    }
}

/// What the process counts beside its host.
pub fn process() -> Section {
    let page = keeper::current();
    let of_keeper = |get: fn(&keeper::Shared) -> u64| page.map_or(0, get);
    let values = vec![
        ("log_lines_lost", program::log::lost()),
        ("worker_restarts", of_keeper(|page| page.life() - 1)),
        ("worker_hangs", of_keeper(keeper::Shared::hangs)),
        (
            "nics_quarantined",
            of_keeper(|page| page.nics().quarantines()),
        ),
    ];
    Section {
        kind: "process",
        name: "hypernic".into(),
        values,
    }
}

/// A table of what is not zero. What was lost or refused says what it means.
pub fn human(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        let _ = writeln!(text, "{} {}", section.kind, section.name);
        for (name, value) in section.values.iter().filter(|(_, v)| *v != 0) {
            let _ = write!(text, "  {name:<28} {value:>16}");
            let reason = explain::find(section.kind, name);
            let _ = match reason.filter(|reason| reason.class.needs_cure()) {
                Some(reason) => writeln!(text, "  {}", reason.meaning),
                None => writeln!(text),
            };
        }
    }
    text
}

/// One JSON object: `{"counters": [{"kind", "name", "values": {…}} …]}`, zeros included.
pub fn json(sections: &[Section]) -> Value {
    let one = |section: &Section| {
        let values: Map<String, Value> = section
            .values
            .iter()
            .map(|(n, v)| ((*n).to_owned(), Value::from(*v)))
            .collect();
        serde_json::json!({"kind": section.kind, "name": section.name, "values": values})
    };
    serde_json::json!({ "counters": sections.iter().map(one).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_show_the_same_numbers() {
        let values = vec![("tx_frames", 7), ("rx_frames", 0), ("rx_missed", 2)];
        let section = Section {
            kind: "nic",
            name: "n0".into(),
            values,
        };
        assert_eq!(section.get("tx_frames"), 7);
        assert_eq!(section.get("none"), 0);
        let text = human(std::slice::from_ref(&section));
        assert!(text.contains("tx_frames") && !text.contains("rx_frames"));
        let lost = text.lines().find(|line| line.contains("rx_missed"));
        assert!(lost.is_some_and(|line| line.contains(" 2  Frames lost because ")));
        let value = json(&[section]);
        assert_eq!(value["counters"][0]["values"]["rx_frames"], 0);
        assert_eq!(value["counters"][0]["values"]["tx_frames"], 7);
    }
}

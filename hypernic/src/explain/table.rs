//! The table, of all parts.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::reason::Reason;
use super::{frames, outside, protocol, realtek, rest, switch, virtio};

const PARTS: &[&[Reason]] = &[
    frames::TABLE,
    virtio::TABLE,
    realtek::TABLE,
    protocol::VFIO_USER,
    protocol::VHOST_USER,
    switch::TABLE,
    outside::PORTS,
    outside::INLETS,
    outside::CAPTURES,
    rest::VFS,
    rest::WORKERS,
    rest::TENANTS,
    rest::CELLS,
    rest::CONTROL,
    rest::SANDBOX,
    rest::PROCESS,
];

/// All rows.
pub fn all() -> impl Iterator<Item = &'static Reason> {
    PARTS.iter().copied().flatten()
}

/// The row of a counter in a section of a kind.
pub fn find(kind: &str, name: &str) -> Option<&'static Reason> {
    static ROWS: OnceLock<HashMap<(&str, &str), &Reason>> = OnceLock::new();
    let rows = || all().map(|row| ((row.kind, row.name), row)).collect();
    ROWS.get_or_init(rows).get(&(kind, name)).copied()
}

/// The same, if it counts a loss.
pub fn find_loss(kind: &str, name: &str) -> Option<&'static Reason> {
    find(kind, name).filter(|row| row.class.needs_cure())
}

/// All rows of a name: NICs and ports may have counters of one name.
pub fn named(name: &str) -> Vec<&'static Reason> {
    all().filter(|reason| reason.name == name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_counter_has_one_row_and_each_loss_its_rule_cause_and_cure() {
        let mut seen = BTreeSet::new();
        for reason in all() {
            let Reason { kind, name, .. } = *reason;
            assert!(seen.insert((kind, name)), "{kind} {name} has two rows");
            let cure = [reason.rule, reason.cause, reason.cure];
            if reason.class.needs_cure() {
                assert!(cure.iter().all(|text| !text.is_empty()), "{name}");
            } else {
                assert_eq!(cure, [""; 3], "{name} is no loss");
            }
            for text in [reason.meaning, reason.rule, reason.cause, reason.cure] {
                // They are cells of a table, and lines of Prometheus' text.
                assert!(!text.contains(['|', '\n', '\\']), "{name}: {text}");
                assert!(text.chars().count() <= 120, "{name}: {text}");
                assert!(
                    !text.ends_with('.') && text.trim() == text,
                    "{name}: {text}"
                );
            }
            assert!(!reason.meaning.is_empty(), "{name}");
        }
    }
}

//! The daemon's counters as it prints them.

use std::collections::BTreeMap;

use serde_json::Value;

/// One print of all counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    sections: BTreeMap<(String, String), BTreeMap<String, u64>>,
}

impl Counters {
    /// Reads a line of `--log-format json`; `None` if it is another kind of line.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let mut counters = Self::default();
        for section in value.get("counters")?.as_array()? {
            let word = |key: &str| section.get(key)?.as_str().map(str::to_owned);
            let entry = counters
                .sections
                .entry((word("kind")?, word("name")?))
                .or_default();
            for (name, value) in section.get("values")?.as_object()? {
                entry.insert(name.clone(), value.as_u64()?);
            }
        }
        Some(counters)
    }

    /// One counter of one thing (`"nic"`, `"a"`, `"messages"`).
    #[must_use]
    pub fn find(&self, kind: &str, name: &str, counter: &str) -> Option<u64> {
        let section = self.sections.get(&(kind.to_owned(), name.to_owned()))?;
        section.get(counter).copied()
    }

    /// One counter of a NIC.
    ///
    /// # Panics
    /// When there is no such NIC or counter; the message lists those there are.
    #[must_use]
    pub fn nic(&self, name: &str, counter: &str) -> u64 {
        self.find("nic", name, counter)
            .unwrap_or_else(|| panic!("no counter `{counter}` of NIC {name} in:\n{self}"))
    }

    /// The sum of one counter over all things of a kind.
    #[must_use]
    pub fn total(&self, kind: &str, counter: &str) -> u64 {
        let of_kind = self.sections.iter().filter(|((k, _), _)| k == kind);
        of_kind.filter_map(|(_, values)| values.get(counter)).sum()
    }

    /// The highest of one counter over all things of a kind.
    #[must_use]
    pub fn highest(&self, kind: &str, counter: &str) -> u64 {
        let of_kind = self.sections.iter().filter(|((k, _), _)| k == kind);
        let values = of_kind.filter_map(|(_, values)| values.get(counter));
        values.copied().max().unwrap_or(0)
    }

    /// The names of all things of a kind.
    pub fn names<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        let of_kind = self.sections.keys().filter(move |(k, _)| k == kind);
        of_kind.map(|(_, name)| name.as_str())
    }

    /// How much each counter grew since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut grown = self.clone();
        for (key, values) in &mut grown.sections {
            let Some(old) = before.sections.get(key) else {
                continue;
            };
            for (name, value) in values {
                *value = value.saturating_sub(old.get(name).copied().unwrap_or(0));
            }
        }
        grown
    }
}

impl std::fmt::Display for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for ((kind, name), values) in &self.sections {
            write!(f, "{kind} {name}:")?;
            for (name, value) in values.iter().filter(|(_, value)| **value != 0) {
                write!(f, " {name}={value}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"counters":[{"kind":"nic","name":"a","values":{"messages":7,"resets":0}},
        {"kind":"nic","name":"b","values":{"messages":2}}]}"#;

    #[test]
    fn a_line_of_counters_is_read_and_other_lines_are_not() {
        let counters = Counters::parse(LINE).unwrap();
        assert_eq!(counters.nic("a", "messages"), 7);
        assert_eq!(counters.nic("a", "resets"), 0);
        assert_eq!(counters.find("nic", "a", "none"), None);
        assert_eq!(counters.total("nic", "messages"), 9);
        assert_eq!(counters.names("nic").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(Counters::parse(r#"{"serving":[]}"#), None);
        assert_eq!(Counters::parse("NIC n0"), None);
        let later = Counters::parse(&LINE.replace(":7", ":10")).unwrap();
        assert_eq!(later.since(&counters).total("nic", "messages"), 3);
        assert!(counters.to_string().contains("nic a: messages=7\n"));
    }
}

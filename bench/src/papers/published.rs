//! What the papers printed, from `bench/papers/numbers.json`, and what was found out about differences
//! (`bench/papers/notes/`).

use std::path::PathBuf;

use serde_json::Value;

use crate::error::{Error, Result};

/// The papers' own numbers.
pub struct Published {
    all: Value,
}

/// The counts a row may have beside its rate, in thousands a second.
pub const COUNTS: [&str; 4] = ["reads", "writes", "notifications", "interrupts"];

impl Published {
    /// Reads them.
    ///
    /// # Errors
    /// When the file is no JSON.
    pub fn read() -> Result<Self> {
        let all = serde_json::from_str(include_str!("../../papers/numbers.json"));
        let all = all.map_err(|e| Error::Usage(format!("bench/papers/numbers.json: {e}")))?;
        Ok(Self { all })
    }

    fn find(&self, id: &str) -> Option<&Value> {
        let tables = self.all["tables"].as_array()?;
        tables.iter().find(|t| t["id"] == id)
    }

    /// The titles of the papers by their short names.
    pub fn papers(&self) -> Vec<(String, String)> {
        let papers = self.all["papers"].as_object().into_iter().flatten();
        papers
            .map(|(name, title)| (name.clone(), title.as_str().unwrap_or_default().to_owned()))
            .collect()
    }

    /// Where a table is found: paper and place.
    pub fn place(&self, id: &str) -> String {
        let word = |key: &str| {
            self.find(id)
                .and_then(|t| t[key].as_str())
                .unwrap_or_default()
        };
        format!("{}, {}", word("paper"), word("place"))
    }

    /// What the text says about it.
    pub fn says(&self, id: &str) -> Vec<String> {
        let says = self.find(id).and_then(|t| t["says"].as_array());
        let words = says.into_iter().flatten().filter_map(Value::as_str);
        words.map(str::to_owned).collect()
    }

    /// A figure of a row, as printed.
    pub fn figure(&self, id: &str, row: &str, vcpus: u32, key: &str) -> Option<f64> {
        let rows = self.find(id)?["rows"].as_array()?;
        let row = rows
            .iter()
            .find(|r| r["row"] == row && r["vcpus"] == vcpus)?;
        row[key].as_f64()
    }

    /// A count for each packet.
    pub fn per_packet(&self, id: &str, row: &str, vcpus: u32, key: &str) -> Option<f64> {
        let packets = self.figure(id, row, vcpus, "kpps")?;
        Some(self.figure(id, row, vcpus, key)? / packets)
    }
}

/// What was shown about why ours differs from a table; empty where nothing was.
pub fn note(id: &str) -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("papers/notes/{id}.md"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_and_counted_per_packet() {
        let published = Published::read().unwrap();
        assert_eq!(published.figure("t3.1", "itr=0", 1, "kpps"), Some(20.6));
        let per = |row, key| published.per_packet("t3.1", row, 1, key).unwrap();
        assert!((per("itr=0", "reads") + per("itr=0", "writes") - 6.0).abs() < 0.02);
        let csb = published
            .per_packet("t4.1", "mair=4000 CSB", 1, "reads")
            .unwrap()
            + published
                .per_packet("t4.1", "mair=4000 CSB", 1, "writes")
                .unwrap();
        assert!((csb - 0.009).abs() < 0.001, "{csb}");
        assert_eq!(published.figure("t3.1", "itr=0 SC", 1, "kpps"), None);
    }

    #[test]
    fn every_row_has_a_place_and_known_columns() {
        let published = Published::read().unwrap();
        let units = published.all["units"].as_object().unwrap();
        for table in published.all["tables"].as_array().unwrap() {
            let id = table["id"].as_str().unwrap();
            assert!(published.place(id).len() > 12, "{id}");
            assert!(published.all["papers"][table["paper"].as_str().unwrap()].is_string());
            for row in table["rows"].as_array().unwrap() {
                for key in row.as_object().unwrap().keys() {
                    let known = key == "row" || key == "vcpus" || units.contains_key(key);
                    assert!(known, "{id}: {key}");
                }
            }
        }
    }

    #[test]
    fn a_table_without_a_note_has_an_empty_one() {
        assert_eq!(note("no such table"), "");
    }
}

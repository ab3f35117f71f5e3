//! The text of a page of differences.

use std::fmt::Write as _;

use crate::oracle::chip::Chip;

/// The page of a chip, generated from its list.
#[must_use]
pub fn page(chip: &Chip) -> String {
    let mut text = chip.preface.to_owned();
    for entry in chip.differences() {
        let right = entry.right.name();
        let star = if entry.parts() { " *" } else { "" };
        let (id, what, section) = (entry.id, entry.what, entry.section);
        let _ = writeln!(text, "| `{id}`{star} | {what} | {right} | {section} |");
    }
    text
}

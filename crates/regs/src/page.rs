//! The page in `docs/registers/` that a table writes about itself.

use std::fmt::Write as _;

use crate::{Register, Status};

/// A Markdown page: what is there, what is only stored and what is not there, each with its reason.
pub fn render(title: &str, preface: &str, registers: &[Register]) -> String {
    let mut out = format!("# {title}\n\n{preface}\n");
    for heading in ["Implemented", "Stored without effect", "Absent"] {
        let members: Vec<_> = registers
            .iter()
            .filter(|r| self::heading(&r.status) == heading)
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\n## {heading}: {}\n", members.len());
        if members.is_empty() {
            let _ = writeln!(out, "None.");
            continue;
        }
        let _ = writeln!(
            out,
            "| register | offset | access | reset | writable | section | note |\n\
             |---|---|---|---|---|---|---|"
        );
        for r in members {
            let place = if r.count > 1 {
                format!("{:05X} + {:X}n, n < {}", r.offset, r.stride, r.count)
            } else {
                format!("{:05X}", r.offset)
            };
            let note = match r.status {
                Status::Implemented => "",
                Status::Stored(why) | Status::Absent(why) => why,
            };
            let _ = writeln!(
                out,
                "| {} | {place} | {} | {:08X} | {:08X} | {} | {note} |",
                r.name,
                r.access.short(),
                r.reset,
                r.mask,
                r.section
            );
        }
    }
    out
}

fn heading(status: &Status) -> &'static str {
    match status {
        Status::Implemented => "Implemented",
        Status::Stored(_) => "Stored without effect",
        Status::Absent(_) => "Absent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    #[test]
    fn every_register_stands_under_its_status() {
        let of = |name, status| Register {
            name,
            offset: 0x10,
            count: 2,
            stride: 8,
            access: Access::ReadWrite,
            reset: 0,
            mask: 1,
            section: "13.4",
            status,
        };
        let page = render(
            "Title",
            "Preface.",
            &[
                of("FIRST", Status::Stored("no flash")),
                of("SECOND", Status::Implemented),
            ],
        );
        let at = |what: &str| page.find(what).expect(what);
        assert!(at("Implemented: 1") < at("SECOND"));
        assert!(at("SECOND") < at("Stored without effect: 1"));
        assert!(at("Stored without effect: 1") < at("FIRST"));
        assert!(page.contains("no flash"));
        assert!(page.contains("00010 + 8n, n < 2"));
        assert!(page.ends_with("Absent: 0\n\nNone.\n"));
    }
}

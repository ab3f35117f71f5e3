//! The page in `docs/registers/` that a table writes about itself.

use std::fmt::Write as _;

use crate::register::{Alias, Register, Status};

/// A Markdown page: what is there, what is only stored and what is not there, each with its reason;
/// then the second addresses.
pub fn render(title: &str, preface: &str, registers: &[Register], aliases: &[Alias]) -> String {
    let mut out = format!("# {title}\n\n{preface}\n");
    for heading in ["Implemented", "Stored without effect", "Absent"] {
        let mut members: Vec<_> = registers
            .iter()
            .filter(|r| self::heading(&r.status) == heading)
            .collect();
        members.sort_by_key(|r| (numbers(r.section), r.offset));
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
            let place = place(r.offset, r.count, r.stride);
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
    if aliases.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "\n## Second addresses: {}\n\n| name | offset | the same as |\n|---|---|---|",
        aliases.len()
    );
    for alias in aliases {
        let r = &registers[alias.of.index()];
        let _ = writeln!(
            out,
            "| {} | {} | {} ({:05X}) |",
            alias.name,
            place(alias.offset, alias.count, alias.stride),
            r.name,
            r.offset
        );
    }
    out
}

/// A section's numbers, which are its place in the manual; what is not in the manual comes last.
fn numbers(section: &str) -> Vec<u32> {
    let number = |part: &str| part.parse().unwrap_or(u32::MAX);
    section.split('.').map(number).collect()
}

/// Where a register, or each element of an array, lies when the first is at `offset`.
fn place(offset: u32, count: u32, stride: u32) -> String {
    if count > 1 && stride == 0 {
        format!("{offset:05X}, {count} behind it")
    } else if count > 1 {
        format!("{offset:05X} + {stride:X}n, n < {count}")
    } else {
        format!("{offset:05X}")
    }
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
            &[],
        );
        let at = |what: &str| page.find(what).expect(what);
        assert!(at("Implemented: 1") < at("SECOND"));
        assert!(at("SECOND") < at("Stored without effect: 1"));
        assert!(at("Stored without effect: 1") < at("FIRST"));
        assert!(page.contains("no flash"));
        assert!(page.contains("00010 + 8n, n < 2"));
        assert!(page.ends_with("Absent: 0\n\nNone.\n"));
    }

    #[test]
    fn second_addresses_name_their_register() {
        let register = Register {
            name: "RAL",
            offset: 0x5400,
            count: 16,
            stride: 8,
            access: Access::ReadWrite,
            reset: 0,
            mask: 1,
            section: "13.5.2",
            status: Status::Implemented,
        };
        let alias = Alias {
            name: "RAL_A",
            offset: 0x40,
            count: 16,
            stride: 8,
            of: crate::Id::new(0),
        };
        let page = render("Title", "Preface.", &[register], &[alias]);
        assert!(page.ends_with("| RAL_A | 00040 + 8n, n < 16 | RAL (05400) |\n"));
    }
}

//! docs/drops.md, from the table.

use std::fmt::Write as _;

use super::reason::{Class, Reason};
use super::table::all;

/// The kinds of sections, in the order of the page: where frames pass first, then what is around them.
const KINDS: [(&str, &str); 12] = [
    ("nic", "NICs"),
    ("switch-port", "Ports of switches"),
    (
        "port",
        "Ports to the outside: TAP, user network, stream, vhost-user, loopback, null",
    ),
    (
        "inlet",
        "Threads that bring frames in from ports to the outside",
    ),
    ("vf", "Virtual functions that the daemon controls"),
    ("capture", "Captures"),
    ("worker", "Workers"),
    ("tenant", "Tenants"),
    ("cell", "Cells, as the main process knows them"),
    ("control", "The control socket"),
    ("sandbox", "The sandbox"),
    ("process", "The process"),
];

/// The whole page.
pub fn page() -> String {
    let mut text = String::from(
        "# What every counter means\n\n\
         The daemon prints these counters on SIGUSR1 and at its end; `hypernic explain NAME` explains one of them in a \
         terminal. `make docs` writes this page from the table in `hypernic/src/explain`, and a test fails when the \
         daemon can report a counter that has no row.\n\n\
         - *drop*: frames were lost.\n\
         - *refusal*: a guest, a VMM or a peer asked for something and did not get it.\n\
         - *fault*: something broke.\n\
         - *delay*: something waited; nothing was lost.\n",
    );
    for (kind, title) in KINDS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n## {title}");
        let of_kind = || all().filter(move |reason| reason.kind == kind);
        let mut losses: Vec<_> = of_kind().filter(|r| r.class.needs_cure()).collect();
        losses.sort_by_key(|reason| reason.class);
        losses_table(&mut text, &losses);
        let others: Vec<_> = of_kind().filter(|r| !r.class.needs_cure()).collect();
        others_table(&mut text, &others);
    }
    text
}

fn losses_table(text: &mut String, rows: &[&Reason]) {
    if rows.is_empty() {
        return;
    }
    let head = "| counter | | what | rule | usual cause | cure |\n|---|---|---|---|---|---|";
    let _ = writeln!(text, "\n{head}");
    for row in rows {
        let Reason { name, meaning, .. } = row;
        let (class, rule) = (row.class.name(), row.rule);
        let (cause, cure) = (row.cause, row.cure);
        let _ = writeln!(
            text,
            "| `{name}` | {class} | {meaning} | {rule} | {cause} | {cure} |"
        );
    }
}

fn others_table(text: &mut String, rows: &[&Reason]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n| counter | what |\n|---|---|");
    for row in rows {
        let now = if row.class == Class::Gauge {
            " (now)"
        } else {
            ""
        };
        let _ = writeln!(text, "| `{}` | {}{now} |", row.name, row.meaning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/drops.md");
        let kept = std::fs::read_to_string(path).expect("docs/drops.md");
        assert!(kept == page(), "docs/drops.md is stale: make docs");
    }

    #[test]
    fn no_row_is_left_out() {
        let page = page();
        for reason in all() {
            assert!(page.contains(&format!("| `{}` |", reason.name)));
            let known = KINDS.iter().any(|(kind, _)| *kind == reason.kind);
            assert!(known, "{} has no place on the page", reason.kind);
        }
    }
}

//! The text of `docs/oracle.md`.

use std::fmt::Write as _;

use super::differences::{DIFFERENCES, Right};

const PREFACE: &str = "# The oracle

Written from the list in `tests/src/oracle/differences/` by `HYPERNIC_WRITE_DOCS=1 cargo test -p \
hypernic-tests --test oracle_e1000`;\na test fails when this page is stale.

The same script goes through our 82540EM and through QEMU's `e1000` (QEMU 11, `-accel qtest`): \
register accesses, guest\nmemory, frames from the wire. After each step the causes, the mask, ring \
heads and tails, STATUS, the level of INTx, both rings\nand every sent frame are compared; at the end \
all registers and all memory. Scripts are made from a seed: what a driver\nwould do, with every \
setting drawn, and now and then what no driver does. `make test` runs 3000, `make test-long`\n50 000; \
`HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose others. A script with a difference that is \
not\non this list is cut down and printed, and becomes a file in \
`tests/tests/oracle_e1000/regressions/` once its bug is\nmended.

An entry explains only the bits and the case it names. Those marked * part the machines: a frame was \
taken by one and\nnot by the other, say, and from there on that half (receive, transmit or both) of \
that script is not compared.\nWhere QEMU was right, our model was mended, so nobody else is in the \
third column. Sections are those of Intel's\nmanual, 317453 rev. 4.0.

| id | difference | right | section |
|---|---|---|---|
";

/// The page, generated from the list.
#[must_use]
pub fn page() -> String {
    let mut text = PREFACE.to_owned();
    for entry in DIFFERENCES.iter() {
        let right = match entry.right {
            Right::Hypernic => "hypernic",
            Right::Both => "both allowed",
        };
        let star = if entry.parts() { " *" } else { "" };
        let (id, what, section) = (entry.id, entry.what, entry.section);
        let _ = writeln!(text, "| `{id}`{star} | {what} | {right} | {section} |");
    }
    text
}

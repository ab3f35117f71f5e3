//! The models' register tables and `intel-offsets`, written apart from each other, say the same.

use intel_offsets::{Register, e1000, igb, igbvf};
use regs::Table;

/// Checks that each of `offsets` is in `table` under its name with `suffix`.
#[track_caller]
fn compare(offsets: &[Register], suffix: &str, table: &Table) {
    assert!(offsets.len() >= 5, "only {} offsets", offsets.len());
    let registers = table.registers().iter().map(|r| (r.name, r.offset));
    let aliases = table.aliases().iter().map(|a| (a.name, a.offset));
    let known: Vec<_> = registers.chain(aliases).collect();
    for ours in offsets {
        let name = format!("{}{suffix}", ours.name);
        let theirs = known.iter().find(|(known, _)| *known == name);
        let theirs = theirs.map(|(_, offset)| *offset);
        assert_eq!(theirs, Some(ours.offset), "{name}: left the model's table");
    }
}

#[test]
fn offsets_outside_of_the_models_are_those_of_their_tables() {
    compare(e1000::ALL, "", &::e1000::regs::table());
    compare(igb::ALL, "", &::igb::regs::table());
    compare(igb::legacy::ALL, "_A", &::igb::regs::table());
    compare(igbvf::ALL, "", &::igb::vf_table());
}

#[test]
fn registers_of_a_queue_lie_alike_in_both_kinds_of_function() {
    let queue = igb::queue::ALL;
    for (rx, tx, of) in [
        (igb::RDBAL, igb::TDBAL, igb::ALL),
        (igbvf::RDBAL, igbvf::TDBAL, igbvf::ALL),
    ] {
        for (name, receive, send) in [
            ("BASE", Some("RDBAL"), Some("TDBAL")),
            ("BASE_HIGH", Some("RDBAH"), Some("TDBAH")),
            ("LEN", Some("RDLEN"), Some("TDLEN")),
            ("SRRCTL", Some("SRRCTL"), None),
            ("HEAD", Some("RDH"), Some("TDH")),
            ("TAIL", Some("RDT"), Some("TDT")),
            ("XDCTL", Some("RXDCTL"), Some("TXDCTL")),
        ] {
            let part = queue.iter().find(|r| r.name == name).expect("a part");
            for (base, register) in [(rx, receive), (tx, send)] {
                let Some(register) = register else { continue };
                let found = of.iter().find(|r| r.name == register);
                let found = found.expect("a register").offset;
                assert_eq!(found, base + part.offset, "{register}");
            }
        }
    }
}

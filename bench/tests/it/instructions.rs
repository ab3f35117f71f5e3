//! Instructions per frame, which are the same on a busy machine and on an idle one.

use std::collections::BTreeMap;
use std::process::Command;

/// What the program counts of a chip, by what it sends.
fn of(chip: &str) -> BTreeMap<String, f64> {
    let program = env!("CARGO_BIN_EXE_hypernic-bench");
    let output = Command::new(program)
        .args(["instructions", &format!("{chip}, 60 bytes, ")])
        .output()
        .expect("runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let text = String::from_utf8(output.stdout).expect("text");
    println!("{text}");
    let rows = text.lines().skip(1).map(|line| {
        let (name, number) = line.trim().rsplit_once(' ').expect("a name and a number");
        let name = name.trim().strip_prefix(chip).expect("as asked for");
        let number = number.parse().expect("a number");
        (name.trim_start_matches(", ").to_owned(), number)
    });
    rows.collect()
}

/// Its data path is the shared one. What its driver does itself, which an 82540EM's need not, is no part of it.
#[test]
#[ignore = "long, and wants valgrind: make test-long"]
fn long_an_rtl8168c_takes_at_most_a_tenth_more_instructions_than_an_82540em() {
    if cfg!(debug_assertions) {
        println!("not tried: without optimisation the counts say nothing; make test-long has it");
        return;
    }
    let (intel, realtek) = (of("82540EM"), of("RTL8168C"));
    assert_eq!(intel.len(), 3, "{intel:?}");
    for (what, least) in &intel {
        let drivers = realtek[&format!("{what}: drivers")];
        let ours = realtek[what] - drivers;
        println!("{what}: {ours:.1} and {least:.1}");
        assert!(drivers > 0.0 && ours <= 1.1 * least, "{what}: {ours}");
    }
}

//! The example of the README does what it says.

use std::process::Command;

#[test]
fn the_example_sends_a_frame() {
    let source = include_str!("../../examples/embed.rs");
    assert!(source.lines().count() <= 60, "it is a 60-line example");
    let test = std::env::current_exe().expect("a path");
    let target = test.ancestors().nth(3).expect("three up");
    let output = Command::new(env!("CARGO"))
        .args(["run", "-q", "--example", "embed", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.starts_with("on the wire, 60 bytes: [ff, ff"), "{said}");
    assert!(
        said.contains("INTA# is asserted\nINTA# is released\ndescriptor done: 1"),
        "{said}"
    );
}

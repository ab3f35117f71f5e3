//! The header is what the source says, and the C example runs with both libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn run(command: &mut Command) -> String {
    let output = command.output().expect("starts");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The folder cargo builds into, from where this test lies in it: `DIR/PROFILE/deps/test`.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.ancestors().nth(3).expect("three up").to_owned()
}

#[test]
fn the_header_is_not_stale() {
    let cargo = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(args).arg("--target-dir").arg(target());
        command.current_dir(HERE);
        run(&mut command)
    };
    let generated = cargo(&["run", "-q", "--example", "header"]);
    let kept = std::fs::read_to_string(Path::new(HERE).join("include/hypernic_nic.h"));
    assert!(
        generated == kept.expect("the header"),
        "include/hypernic_nic.h is stale: run `make docs`"
    );
}

#[test]
fn the_c_example_sends_and_receives_with_the_static_and_the_shared_library() {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "-q", "-p", "hypernic-embed-c", "--lib"]);
    build.arg("--target-dir").arg(target()).current_dir(HERE);
    run(&mut build);
    let libraries = target().join("debug");
    let dir = tempfile::tempdir().expect("a folder");
    let source = Path::new(HERE).join("examples/embed.c");
    let include = Path::new(HERE).join("include");
    for shared in [false, true] {
        let program = dir.path().join(format!("embed-{shared}"));
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]);
        cc.arg(&include).arg(&source).arg("-o").arg(&program);
        if shared {
            cc.arg("-L").arg(&libraries).arg("-lhypernic_nic");
            cc.arg(format!("-Wl,-rpath,{}", libraries.display()));
        } else {
            cc.arg(libraries.join("libhypernic_nic.a"));
            cc.args(["-lpthread", "-ldl", "-lm"]);
        }
        run(&mut cc);
        assert_eq!(
            run(&mut Command::new(&program)),
            "8086:100e, 131072 bytes of registers\n\
             sent 60 bytes of type 88b5: hello\n\
             INTA# asserted\n\
             INTA# released\n\
             sent: 1, causes 1\n\
             INTA# asserted\n\
             INTA# released\n\
             received: 1, causes 80, hello\n"
        );
    }
}

//! `scripts/before`, which builds the program that upgrades are tried with: in a repository of its own, with a cargo that only says
//! what it finds.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::tempdir;

const LOCK: &str = "[[package]]\nname = \"theirs\"\nversion = \"1.0.0\"\nsource = \"registry\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.2.0\"\n";

/// Says which files it begins with, and makes a program.
const CARGO: &str = "#!/bin/sh\ncd \"$CARGO_TARGET_DIR\" && find . -type f | sort >\"$SEEN\"\n\
                     echo old >debug/hypernic && chmod +x debug/hypernic\n";

fn git(dir: &Path, words: &[&str]) {
    let who = ["-c", "user.name=n", "-c", "user.email=n@n"];
    let done = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(who)
        .args(words)
        .output()
        .expect("git");
    assert!(done.status.success(), "{words:?}: {done:?}");
}

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    std::fs::write(path, text).expect("written");
}

fn repository(dir: &Path) {
    put(&dir.join("Cargo.lock"), LOCK);
    put(&dir.join("cargo"), CARGO);
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.join("cargo"), executable).expect("executable");
    std::fs::create_dir_all(dir.join("scripts")).expect("made");
    std::fs::copy(
        super::root().join("scripts/before"),
        dir.join("scripts/before"),
    )
    .expect("copied");
    git(dir, &["init", "-q"]);
    git(dir, &["add", "Cargo.lock"]);
    git(dir, &["commit", "-q", "-m", "the release before"]);
}

fn before(dir: &Path, revision: &str) -> Output {
    Command::new(dir.join("scripts/before"))
        .arg(revision)
        .env("CARGO", dir.join("cargo"))
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env("CACHE", dir.join("cache"))
        .env("SEEN", dir.join("seen"))
        .output()
        .expect("runs")
}

#[test]
fn a_build_of_the_release_before_begins_with_crates_of_others_and_none_of_ours() {
    let dir = tempdir().expect("a directory");
    let dir = dir.path();
    repository(dir);
    let (theirs, ours) = ("0123456789abcdef", "fedcba9876543210");
    for (package, hash) in [("theirs", theirs), ("ours", ours)] {
        for file in [
            format!(".fingerprint/{package}-{hash}/lib-{package}"),
            format!("build/{package}-{hash}/output"),
            format!("deps/lib{package}-{hash}.rlib"),
            format!("deps/{package}-{hash}.d"),
        ] {
            put(&dir.join("target/debug").join(file), "");
        }
    }
    put(&dir.join("target/debug/hypernic"), "new");

    let done = before(dir, "HEAD");
    assert!(done.status.success(), "{done:?}");
    let program = String::from_utf8(done.stdout).expect("text");
    let made = std::fs::read_to_string(program.trim()).expect("a program");
    assert_eq!(made, "old\n");
    let seen = std::fs::read_to_string(dir.join("seen")).expect("what it saw");
    assert_eq!(seen.matches(theirs).count(), 4, "{seen}");
    assert!(!seen.contains(ours) && !seen.contains("hypernic"), "{seen}");
    let new = std::fs::read_to_string(dir.join("target/debug/hypernic"));
    assert_eq!(new.expect("still there"), "new");
}

#[test]
fn a_revision_that_cannot_be_had_is_named_in_one_line() {
    let dir = tempdir().expect("a directory");
    let dir = dir.path();
    repository(dir);
    let done = before(dir, "v9.9.9");
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    let said = String::from_utf8(done.stderr).expect("text");
    assert!(
        said.lines().count() == 1 && said.contains("v9.9.9 is not in this clone"),
        "{said}"
    );
    assert!(done.stdout.is_empty());
}

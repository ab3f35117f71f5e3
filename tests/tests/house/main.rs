//! The house rules of ARCHITECTURE.md, held by the build itself: which room may see which, where
//! `unsafe` may live, and that the rooms stay small enough to read.
#![forbid(unsafe_code)]

mod arrows;
mod before;
mod book;
mod dependencies;
mod layers;
mod specification;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Rooms that may contain `unsafe`; each says why in its own words.
const UNSAFE: &[&str] = &[
    "ceiling",
    "embed-c",
    "guest-mem",
    "jail",
    "keeper",
    "peer",
    "port-tap",
    "port-user",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

fn short(package: &str) -> String {
    package
        .strip_prefix("hypernic-")
        .unwrap_or(package)
        .to_owned()
}

fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    value["packages"].as_array().expect("packages").clone()
}

#[test]
fn unsafe_code_has_an_address() {
    let mut forbidding = 0;
    for package in packages() {
        let name = short(package["name"].as_str().expect("name"));
        if UNSAFE.contains(&name.as_str()) {
            continue;
        }
        for target in package["targets"].as_array().expect("targets") {
            let kinds = target["kind"].as_array().expect("kind");
            if kinds.iter().any(|k| k == "custom-build" || k == "test") {
                continue;
            }
            let file = target["src_path"].as_str().expect("path");
            let text = std::fs::read_to_string(file).expect(file);
            assert!(
                text.contains("#![forbid(unsafe_code)]"),
                "{file} does not forbid unsafe code"
            );
            forbidding += 1;
        }
    }
    assert!(forbidding > 15, "only {forbidding} targets looked at");
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let mut blocks = 0;
    for package in packages() {
        let name = short(package["name"].as_str().expect("name"));
        if !UNSAFE.contains(&name.as_str()) {
            continue;
        }
        let dir = Path::new(package["manifest_path"].as_str().expect("path"))
            .parent()
            .expect("dir")
            .join("src");
        for file in rust_files(&dir) {
            let text = std::fs::read_to_string(&file).expect("readable");
            let lines: Vec<_> = text.lines().collect();
            for (i, line) in lines.iter().enumerate() {
                let code = line.trim_start();
                if code.starts_with("//")
                    || !(code.contains("unsafe {") || code.contains("unsafe impl"))
                {
                    continue;
                }
                blocks += 1;
                let before = &lines[i.saturating_sub(8)..i];
                let noted = before.iter().any(|l| l.contains("SAFETY:"));
                assert!(noted, "{}:{}: no SAFETY note", file.display(), i + 1);
            }
        }
    }
    assert!(blocks > 10, "only {blocks} blocks found");
}

#[test]
fn files_stay_readable() {
    // A long file is not forbidden, but must be looked at: if yours passes this limit, ask what second
    // thing it does.
    const LIMIT: usize = 900;
    for package in packages() {
        let dir = Path::new(package["manifest_path"].as_str().expect("path"))
            .parent()
            .expect("dir")
            .join("src");
        for file in rust_files(&dir) {
            let lines = std::fs::read_to_string(&file)
                .expect("readable")
                .lines()
                .count();
            assert!(lines <= LIMIT, "{} has {lines} lines", file.display());
        }
    }
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else {
        return found;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

//! Every input that fuzzing has kept, and every one that ever broke something, once more.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::{TARGETS, Target};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The inputs kept of a target and their names, from its archive.
pub(super) fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let path = folder("corpus").join(target).with_extension("tar.xz");
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut archive = tar::Archive::new(lzma_rust2::XzReader::new(file, false));
    let inputs = archive.entries().expect("an archive").map(|entry| {
        let mut entry = entry.expect("whole");
        let mut data = Vec::new();
        entry.read_to_end(&mut data).expect("whole");
        let name = entry.path().expect("a name").display().to_string();
        (name, data)
    });
    inputs.collect()
}

/// The inputs that once broke a target, and their names. None has no folder.
fn crashes(target: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder("crashes").join(target)) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    files.sort();
    let read = |file: PathBuf| {
        let data = std::fs::read(&file).expect("readable");
        (file.display().to_string(), data)
    };
    files.into_iter().map(read).collect()
}

/// Runs all inputs of a target; says which one it was when one fails.
fn replay(name: &str, target: Target, inputs: &[(String, Vec<u8>)]) -> usize {
    for (input, data) in inputs {
        let survived = std::panic::catch_unwind(|| target(data)).is_ok();
        assert!(survived, "{name} fails with {input}");
    }
    inputs.len()
}

#[test]
fn every_kept_input_still_passes() {
    let mut all = 0;
    for &(name, target) in TARGETS {
        let inputs = kept(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        all += replay(name, target, &inputs);
    }
    println!("{all} inputs");
    assert!(all > 100, "the corpora are nearly empty");
}

#[test]
fn what_once_broke_something_does_no_more() {
    for &(name, target) in TARGETS {
        replay(name, target, &crashes(name));
    }
}

#[test]
fn every_archive_and_folder_belongs_to_a_target() {
    for name in ["corpus", "crashes"] {
        for entry in std::fs::read_dir(folder(name))
            .into_iter()
            .flatten()
            .flatten()
        {
            let found = entry.file_name().to_string_lossy().into_owned();
            let target = found.strip_suffix(".tar.xz").unwrap_or(&found);
            let known = TARGETS.iter().any(|t| t.0 == target);
            assert!(known, "{} is no target", entry.path().display());
        }
    }
}

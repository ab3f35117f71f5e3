//! Every input that fuzzing has kept, and every one that ever broke something, once more.

use std::path::{Path, PathBuf};

use crate::TARGETS;

/// The files of a folder, in order. A folder that is not there is empty.
fn files(folder: &str, target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(folder)
        .join(target);
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    files.sort();
    files
}

/// Runs all inputs of a folder; says which one it was when one fails.
fn replay(folder: &str) -> usize {
    let mut all = 0;
    for (name, target) in TARGETS {
        for file in files(folder, name) {
            let data = std::fs::read(&file).expect("readable");
            let survived = std::panic::catch_unwind(|| target(&data)).is_ok();
            assert!(survived, "{name} fails with {}", file.display());
            all += 1;
        }
    }
    all
}

#[test]
fn every_kept_input_still_passes() {
    for (name, _) in TARGETS {
        assert!(!files("corpus", name).is_empty(), "{name} has no corpus");
    }
    assert!(replay("corpus") > 100, "the corpora are nearly empty");
}

#[test]
fn what_once_broke_something_does_no_more() {
    replay("crashes");
}

#[test]
fn every_folder_belongs_to_a_target() {
    for folder in ["corpus", "crashes"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let known = TARGETS.iter().any(|t| *t.0 == *name);
            assert!(known, "{} is no target", entry.path().display());
        }
    }
}

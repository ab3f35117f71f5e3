//! What was written once and for all: saved states, and what guests see.

use std::path::Path;

/// What a release has left in the file at `path`. `now` is what this program writes of the same NIC, and has to be the same: the
/// release before loads it, and guests know it. What changes is a new version or revision, written beside this one.
///
/// # Panics
/// There is no such file, or what is written now is another.
pub fn golden(path: impl AsRef<Path>, now: &[u8]) -> Vec<u8> {
    let path = path.as_ref();
    if std::env::var_os("HYPERNIC_GOLDEN").is_some_and(|how| how == "write") && !path.exists() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, now).expect("written");
    }
    let kept = std::fs::read(path).expect("HYPERNIC_GOLDEN=write makes one that is new");
    let differs = kept.iter().zip(now).position(|(a, b)| a != b);
    assert!(
        kept == now,
        "{}: from byte {differs:?} on it is not what was written once and for all",
        path.display()
    );
    kept
}

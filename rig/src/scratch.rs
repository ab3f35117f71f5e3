//! Folders for the sockets and files of running guests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache;

/// How their names begin; the process' id follows.
pub(crate) const PREFIX: &str = "hypernic-rig-";

/// Removes those of processes that were killed.
pub(crate) fn sweep() {
    for entry in fs::read_dir(parent()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        if pid
            .is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
        {
            cache::remove(&entry.path());
        }
    }
}

/// Where sockets go: their paths must fit in 107 bytes, which a long `$TMPDIR` would not leave room for.
pub(crate) fn parent() -> PathBuf {
    let dir = std::env::temp_dir();
    if dir.as_os_str().len() > 50 {
        "/tmp".into()
    } else {
        dir
    }
}

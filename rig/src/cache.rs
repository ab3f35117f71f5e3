//! The cache folder: where things that take long are kept, safely for several processes at once.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{CannotRun, Error, Result};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How many things of one kind (roots, saved machines) are kept in any case.
const KEPT: usize = 8;

/// The rig's folder on disk: `$HYPERNIC_CACHE`, else `$XDG_CACHE_HOME/hypernic`, else `~/.cache/hypernic`.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// Finds the folder from the environment and makes it.
    ///
    /// # Errors
    /// [`CannotRun`] when no folder is named by the environment or it cannot be written.
    pub fn open() -> Result<Self, CannotRun> {
        let var = |name: &str| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let dir = var("HYPERNIC_CACHE")
            .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("hypernic")))
            .or_else(|| var("HOME").map(|d| d.join(".cache/hypernic")))
            .ok_or_else(|| {
                CannotRun::new("no cache folder: set HYPERNIC_CACHE to a folder with 1 GB free")
            })?;
        Self::at(dir)
    }

    /// Uses the given folder, which is made if need be.
    ///
    /// # Errors
    /// [`CannotRun`] when the folder cannot be made or written.
    pub fn at(dir: PathBuf) -> Result<Self, CannotRun> {
        let fail = |e: std::io::Error| {
            CannotRun::new(format!(
                "the cache folder {} cannot be written ({e}): set HYPERNIC_CACHE to a folder with 1 GB free",
                dir.display()
            ))
        };
        fs::create_dir_all(&dir).map_err(fail)?;
        let dir = dir.canonicalize().map_err(fail)?;
        tempfile::tempfile_in(&dir).map_err(fail)?;
        Ok(Self { dir })
    }

    /// The folder itself, absolute.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits for the named lock, which other processes respect too. It is freed on drop or process exit.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn lock(&self, name: &str) -> Result<File> {
        let path = self.dir.join(format!("{name}.lock"));
        let file = File::create(&path).map_err(Error::io(format!("lock {}", path.display())))?;
        if file.try_lock().is_err() {
            say(&format!(
                "waiting for another process to finish with {name}"
            ));
            file.lock()
                .map_err(Error::io(format!("lock {}", path.display())))?;
        }
        Ok(file)
    }

    /// Returns `<cache>/<name>`, made by `build` the first time. `build` fills a scratch path (that does not
    /// exist yet), which is renamed into place only when complete, so what is in the cache is always whole.
    ///
    /// # Errors
    /// Whatever `build` says, or a failed rename.
    pub fn once(&self, name: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let done = self.dir.join(name);
        if done.exists() {
            touch(&done);
            return Ok(done);
        }
        let _lock = self.lock(&name.replace('/', "-"))?;
        if done.exists() {
            return Ok(done);
        }
        let parent = done.parent().unwrap_or(&self.dir);
        fs::create_dir_all(parent).map_err(Error::io(format!("create {}", parent.display())))?;
        let scratch = done.with_extension("partial");
        remove(&scratch);
        build(&scratch)?;
        fs::rename(&scratch, &done).map_err(Error::io(format!("finish {}", done.display())))?;
        self.forget_unused(name);
        Ok(done)
    }

    /// Removes what has the same kind of name (`kind-KEY`) and is no longer used, since its recipe changed: not for
    /// two weeks, or not for an hour while [`KEPT`] of its kind were.
    fn forget_unused(&self, name: &str) {
        let Some((kind, _)) = name.rsplit_once('-') else {
            return;
        };
        let mut ages = Vec::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let of_kind = name.rsplit_once('-').is_some_and(|n| n.0 == kind) && !name.contains('.');
            if of_kind && let Some(age) = age(&entry.path()) {
                ages.push((age, entry.path()));
            }
        }
        ages.sort();
        for (rank, (age, path)) in ages.iter().enumerate() {
            if *age > 14 * DAY || (rank >= KEPT && *age > DAY / 24) {
                remove(path);
            }
        }
    }

    /// Where guests' console logs go. Logs older than three days are removed.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn logs(&self) -> Result<PathBuf> {
        let dir = self.dir.join("logs");
        fs::create_dir_all(&dir).map_err(Error::io(format!("create {}", dir.display())))?;
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if age(&entry.path()).is_some_and(|age| age > 3 * DAY) {
                remove(&entry.path());
            }
        }
        Ok(dir)
    }
}

/// Notes that something in the cache is in use. Failing to is harmless.
fn touch(path: &Path) {
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Time since something in the cache was last noted to be in use.
fn age(path: &Path) -> Option<Duration> {
    let modified = fs::symlink_metadata(path).and_then(|m| m.modified());
    modified.ok()?.elapsed().ok()
}

/// Removes a file or a folder tree; absent is fine.
pub(crate) fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        let _ = fs::remove_dir_all(path);
    } else {
        let _ = fs::remove_file(path);
    }
}

/// Tells the person at the terminal what takes so long. Written past the test harness' capture on purpose:
/// a first run downloads for a while, and silence would look like a hang.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "rig: {line}");
}

/// A name for content: 128-bit FNV-1a over length-prefixed parts, in hex. Not for hostile input.
#[must_use]
pub(crate) fn content_key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    };
    for part in parts {
        eat(&(part.len() as u64).to_le_bytes());
        eat(part);
    }
    format!("{:016x}", (hash >> 64) as u64 ^ hash as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_tells_parts_apart() {
        let one = content_key([b"ab".as_slice(), b"c"]);
        let two = content_key([b"a".as_slice(), b"bc"]);
        assert_ne!(one, two);
        assert_eq!(one, content_key([b"ab".as_slice(), b"c"]));
        assert_eq!(one.len(), 16);
    }

    #[test]
    fn once_builds_once_and_leaves_nothing_half_done() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("deep/er")).unwrap();
        let failed = cache.once("x", |p| {
            fs::write(p, "half").unwrap();
            Err(CannotRun::new("no").into())
        });
        assert!(failed.is_err());
        assert!(!cache.dir().join("x").exists());
        let path = cache
            .once("x", |p| fs::write(p, "whole").map_err(Error::io("w")))
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        cache.once("x", |_| panic!("built twice")).unwrap();
    }

    #[test]
    fn what_is_no_longer_used_goes_when_its_successor_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_path_buf()).unwrap();
        let build = |name: &str| {
            let path = cache.once(name, |p| fs::write(p, "").map_err(Error::io("w")));
            File::open(path.unwrap()).unwrap()
        };
        let old = SystemTime::now() - Duration::from_secs(15 * 24 * 3600);
        build("root-1").set_modified(old).unwrap();
        build("root-2").set_modified(old).unwrap();
        build("image-1").set_modified(old).unwrap();
        build("root-2");
        build("root-3");
        let names = ["root-1", "root-2", "root-3", "image-1"];
        assert_eq!(
            names.map(|n| dir.path().join(n).exists()),
            [false, true, true, true]
        );
    }

    #[test]
    fn only_so_many_of_a_kind_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_path_buf()).unwrap();
        let hours = |n: u32| SystemTime::now() - (DAY / 24) * n;
        for n in 0..12 {
            let path = cache.once(&format!("saved-{n}"), |p| {
                fs::write(p, "").map_err(Error::io("w"))
            });
            let file = File::open(path.unwrap()).unwrap();
            file.set_modified(hours(24 - n)).unwrap();
        }
        let left = |n: &u32| dir.path().join(format!("saved-{n}")).exists();
        assert_eq!(
            (0..12).filter(left).collect::<Vec<_>>(),
            (4..12).collect::<Vec<_>>()
        );
    }

    #[test]
    fn once_is_safe_between_threads() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_path_buf()).unwrap();
        let count = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    cache
                        .once("y", |p| {
                            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            std::thread::sleep(Duration::from_millis(20));
                            fs::write(p, "1").map_err(Error::io("w"))
                        })
                        .unwrap();
                });
            }
        });
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}

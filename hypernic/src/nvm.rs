//! The EEPROM of a NIC in a file, so that what a guest writes outlives the daemon.
//!
//! A guest may write its EEPROM as often as it likes: a thread of its own writes the file, at most
//! a few times a second, and no other thread waits for the disk. It replaces the file, and never
//! changes it in place, so the file is whole at any moment.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frame::Counted;
use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;
use rustix::io::Errno;

use program::log::Limit;

/// Between two writes of one file.
const PACE: Duration = Duration::from_millis(200);

/// After a write that failed: there may be room again.
const AGAIN: Duration = Duration::from_secs(1);

/// The longest image that is read; what a chip takes is for the chip to say.
const MOST: u64 = 1 << 20;

#[derive(Default)]
struct Todo {
    image: Option<Vec<u8>>,
    quit: bool,
}

#[derive(Default)]
struct Writer {
    todo: Mutex<Todo>,
    changed: Condvar,
    written: AtomicU64,
    failed: AtomicU64,
}

/// The file of one NIC. Dropping it writes what is left.
pub(crate) struct NvmFile {
    shared: Arc<Writer>,
    thread: Option<JoinHandle<()>>,
}

impl NvmFile {
    /// What the file holds; `None` when there is no file yet.
    ///
    /// # Errors
    /// Cause and cure, when there is something that cannot be read.
    pub fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
        let shown = path.display();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path);
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return Err(format!(
                    "the EEPROM file {shown} is a symbolic link, which the daemon does not follow; name the \
                     file itself"
                ));
            }
            Err(error) => {
                return Err(format!(
                    "cannot read the EEPROM file {shown}: {error}; choose a file that you can read \
                     and replace"
                ));
            }
        };
        let mut image = Vec::new();
        let read = Read::by_ref(&mut file).take(MOST).read_to_end(&mut image);
        read.map_err(|error| format!("cannot read the EEPROM file {shown}: {error}"))?;
        Ok(Some(image))
    }

    /// Starts to keep a NIC's image at `path`; `first` is written at once, or `again`, in a NIC whose guest goes on, soon.
    ///
    /// # Errors
    /// Cause and cure, when it cannot be written there.
    pub fn start(
        path: &Path,
        nic: &str,
        first: Option<Vec<u8>>,
        again: bool,
    ) -> Result<Self, String> {
        let (at_once, soon) = if again { (None, first) } else { (first, None) };
        if let Some(image) = at_once {
            replace(path, &image).map_err(|error| {
                format!(
                    "cannot write the EEPROM file {}: {error}; choose a directory that you can \
                     write to",
                    path.display()
                )
            })?;
        }
        let shared = Arc::new(Writer::default());
        shared.todo.lock().image = soon;
        let (theirs, to, name) = (Arc::clone(&shared), path.to_owned(), nic.to_owned());
        let thread = threads::spawn(format!("nvm {nic}"), move || keep(&theirs, &to, &name))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Has this image written soon. Returns at once.
    pub fn put(&self, image: Vec<u8>) {
        self.shared.todo.lock().image = Some(image);
        self.shared.changed.notify_one();
    }
}

impl Counted for NvmFile {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("nvm_written", self.shared.written.load(Ordering::Relaxed));
        visit("nvm_failed", self.shared.failed.load(Ordering::Relaxed));
    }
}

impl Drop for NvmFile {
    fn drop(&mut self) {
        self.shared.todo.lock().quit = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic over there has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

/// Writes what there is to write until `shared` says quit.
fn keep(shared: &Writer, path: &Path, nic: &str) {
    let limit = Limit::default();
    // A disk may be full for long: it is said once, and when it is over.
    let mut fails = false;
    loop {
        let mut failed = None;
        let (image, quit) = {
            let mut todo = shared.todo.lock();
            while todo.image.is_none() && !todo.quit {
                shared.changed.wait(&mut todo);
            }
            (todo.image.take(), todo.quit)
        };
        if let Some(image) = image {
            match replace(path, &image) {
                Ok(()) => {
                    shared.written.fetch_add(1, Ordering::Relaxed);
                    if std::mem::take(&mut fails) {
                        tracing::info!(nic, "the EEPROM file is written again");
                    }
                }
                Err(error) => {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                    if !std::mem::replace(&mut fails, true)
                        && let Some(held_back) = limit.pass(Instant::now())
                    {
                        let path = path.display();
                        tracing::error!(
                            nic,
                            held_back,
                            "cannot write the EEPROM file {path}: {error}; trying again; if the daemon ends \
                             before, the guest's changes are lost"
                        );
                    }
                    failed = Some(image);
                }
            }
        }
        if quit {
            return;
        }
        // More may come while the first word of several is being written.
        let mut todo = shared.todo.lock();
        let mut pace = PACE;
        if failed.is_some() {
            // What came meanwhile is newer.
            todo.image = todo.image.take().or(failed);
            pace = AGAIN;
        }
        let end = Instant::now() + pace;
        while !todo.quit && !shared.changed.wait_until(&mut todo, end).timed_out() {}
    }
}

/// Puts a file with these contents in the place of what is at `path`.
fn replace(path: &Path, image: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    // One that was left behind, or a link that another has put there, is not written through.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    let mut fill = || {
        // The operator may have let others read it.
        if let Ok(old) = path.symlink_metadata()
            && old.is_file()
        {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(image)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    // A part of it is of no use, and takes the room that the next attempt needs.
    fill().inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_image_is_in_the_file_when_it_is_dropped() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("n0.nvm");
        assert_eq!(NvmFile::read(&path), Ok(None));
        let file = NvmFile::start(&path, "n0", Some(vec![0; 128]), false).expect("starts");
        assert_eq!(NvmFile::read(&path), Ok(Some(vec![0; 128])));
        for n in 1..=100 {
            file.put(vec![n; 128]);
        }
        let counted = Arc::clone(&file.shared);
        drop(file);
        assert_eq!(NvmFile::read(&path), Ok(Some(vec![100; 128])));
        let written = counted.written.load(Ordering::Relaxed);
        assert!(written < 100, "many changes are one write: {written}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 1);
    }

    #[test]
    fn no_link_is_followed_and_none_is_written_through() {
        let dir = tempfile::tempdir().expect("directory");
        let (path, victim) = (dir.path().join("n0.nvm"), dir.path().join("victim"));
        std::fs::write(&victim, "precious").expect("written");
        std::os::unix::fs::symlink(&victim, dir.path().join("n0.nvm.new")).expect("link");
        drop(NvmFile::start(&path, "n0", Some(vec![7; 128]), false).expect("starts"));
        assert_eq!(std::fs::read(&victim).expect("read"), b"precious");
        assert_eq!(NvmFile::read(&path), Ok(Some(vec![7; 128])));
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(&victim, &path).expect("link");
        let error = NvmFile::read(&path).expect_err("a link");
        assert!(error.contains("symbolic link"), "{error}");
    }

    #[test]
    fn a_new_file_is_its_owners_alone_and_an_old_one_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("n0.nvm");
        let mode = || {
            std::fs::metadata(&path)
                .expect("there")
                .permissions()
                .mode()
                & 0o777
        };
        drop(NvmFile::start(&path, "n0", Some(vec![7; 128]), false).expect("starts"));
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
        drop(NvmFile::start(&path, "n0", Some(vec![8; 128]), false).expect("starts"));
        assert_eq!(mode(), 0o640);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("none/n0.nvm");
        let error = NvmFile::start(&path, "n0", Some(vec![0; 128]), false).map(drop);
        let error = error.expect_err("no directory");
        assert!(error.contains("none/n0.nvm") && error.contains("directory"));
        let error = NvmFile::read(dir.path()).expect_err("a directory");
        assert!(error.contains("EEPROM file"), "{error}");
    }

    #[test]
    fn what_could_not_be_written_is_written_once_it_can_be() {
        let dir = tempfile::tempdir().expect("directory");
        let (path, beside) = (dir.path().join("n0.nvm"), dir.path().join("n0.nvm.new"));
        std::fs::create_dir(&beside).expect("in the way");
        let first = || Some(vec![1; 128]);
        assert!(NvmFile::start(&path, "n0", first(), false).is_err());
        let file = NvmFile::start(&path, "n0", first(), true).expect("its guest goes on");
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let until = Instant::now() + Duration::from_secs(60);
        while count(&file.shared.failed) == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        file.put(vec![2; 128]);
        std::fs::remove_dir(&beside).expect("out of the way");
        while count(&file.shared.written) == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(NvmFile::read(&path), Ok(Some(vec![2; 128])));
        // It is not written again, and nothing else is left.
        drop(file);
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 1);
    }
}

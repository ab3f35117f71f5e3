//! Descriptors: those inherited from the process that started us, and how many there may be.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Gid, chownat};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrUnix, getsockname, shutdown};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, getpid, getppid, getrlimit, pidfd_getfd,
    pidfd_open, setrlimit,
};
use vfio_user::{ListenError, Listener};

use crate::config::SocketAccess;
use crate::store;

/// What a NIC takes while a VMM is connected: its socket's listener, its epoll set, the
/// connection, an interrupt's eventfd and the one that unmasks it.
const PER_NIC: usize = 5;
/// What it takes with a keeper besides: the memory in which it outlives a worker, and the files of the guest's memory, which are
/// not needed again without. QEMU has given five; one is to spare.
const KEPT: usize = 7;
/// What the process takes whatever it serves, workers and ports included.
const BESIDES: usize = 100;

/// Takes all the descriptors the system grants this process.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the system grants no more, the daemon goes on with the limit it has.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// What so many NICs take in all.
fn wanted(nics: usize) -> usize {
    let kept = keeper::current().map_or(0, |_| KEPT);
    nics * (PER_NIC + kept) + BESIDES
}

/// Descriptors that are left for what peers send, when so many NICs have theirs.
pub(crate) fn for_peers(nics: usize) -> u64 {
    let granted = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    granted.saturating_sub(wanted(nics) as u64)
}

/// Whether this is the want of descriptors, and then what to do about it, for so many NICs.
pub(crate) fn exhausted(error: &std::io::Error, nics: usize) -> Option<String> {
    let out = [Errno::MFILE, Errno::NFILE].map(|e| Some(e.raw_os_error()));
    out.contains(&error.raw_os_error()).then(|| {
        let wanted = wanted(nics);
        let granted = match getrlimit(Resource::Nofile).current {
            Some(n) => n.to_string(),
            None => "all".to_owned(),
        };
        format!(
            "too few file descriptors: {nics} NICs need about {wanted}, and the limit is \
             {granted}; raise it (ulimit -Hn {wanted}, or LimitNOFILE={wanted} in a systemd unit)"
        )
    })
}

/// Listens at `path`, opened `to` whom it is for, if VMMs can connect there. They start elsewhere, so they need the absolute path that the hints
/// print.
///
/// # Errors
/// As [`Listener::bind`]; also where only the relative path would be short enough.
pub(crate) fn listen(path: &Path, to: SocketAccess) -> Result<Listener, ListenError> {
    let listener = listen_within(path)?;
    match open_to(path, to) {
        Ok(()) => Ok(listener),
        Err(error) => Err(ListenError::Path {
            path: path.to_owned(),
            error,
        }),
    }
}

fn listen_within(path: &Path) -> Result<Listener, ListenError> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if whole.as_os_str().len() > vfio_user::MAX_SOCKET_PATH {
        return Err(ListenError::TooLong(whole));
    }
    let Some(page) = keeper::current() else {
        return stored_or_bound(path);
    };
    // VMMs that come while no worker runs wait in the backlog for the next one.
    let name = whole.as_os_str().as_encoded_bytes();
    let left = page.go_on(name);
    let resumed = left.and_then(|(fd, [dev, ino])| {
        let there = std::fs::symlink_metadata(path).ok()?;
        // Somebody may have removed the path meanwhile, or put something else in its place.
        let same = (there.dev(), there.ino()) == (dev, ino);
        same.then(|| Listener::resume(fd, path, (dev, ino)).ok())?
    });
    let listener = match resumed {
        Some(listener) => listener,
        None => stored_or_bound(path).inspect_err(|_| page.forget(name))?,
    };
    if let (Some(fd), Some((dev, ino))) = (listener.as_fd(), listener.key()) {
        page.keep(name, fd, [dev, ino]);
    } else {
        page.forget(name);
    }
    Ok(listener)
}

/// On the socket that the service manager has kept, if it still is that of this path; else on a new one, which it is to keep.
fn stored_or_bound(path: &Path) -> Result<Listener, ListenError> {
    if let Some(listener) = stored(path) {
        return Ok(listener);
    }
    let listener = Listener::bind(path)?;
    if let (Some(fd), Some(key)) = (listener.as_fd(), listener.key()) {
        store::keep(key, fd);
    }
    Ok(listener)
}

fn stored(path: &Path) -> Option<Listener> {
    if !store::is_open() {
        return None;
    }
    let there = fs::symlink_metadata(path).ok()?;
    let key = (there.dev(), there.ino());
    let name = store::name(key);
    let fd = handed_over(&name).ok()??;
    // The number of an inode may have been given to another since.
    let same = bound_to(&fd)? == std::path::absolute(path).ok()?;
    let listener = Listener::resume(fd, path, key).ok().filter(|_| same)?;
    WANTED.lock().insert(name);
    Some(listener)
}

/// The path that a socket was bound to.
fn bound_to(socket: &OwnedFd) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    let path = address.path()?;
    std::path::absolute(Path::new(OsStr::from_bytes(path.to_bytes()))).ok()
}

/// Sockets that the service manager had kept and that are listened on again, by their names there.
static WANTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What the service manager has kept and nobody wants any more is closed there, and leads nowhere.
pub fn end_unwanted() {
    if !store::is_open() || keeper::current().is_some_and(|page| page.life() > 1) {
        return;
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let wanted = WANTED.lock();
    let stored = names
        .split(':')
        .filter(|name| name.starts_with(store::PREFIX));
    for name in stored.filter(|name| !wanted.contains(*name)) {
        let Ok(Some(fd)) = handed_over(name) else {
            continue;
        };
        // Who connects there is refused, though we still have it.
        let _ = shutdown(&fd, Shutdown::Both);
        let path = bound_to(&fd).filter(|path| {
            let there = fs::symlink_metadata(path).ok();
            there.is_some_and(|there| store::name((there.dev(), there.ino())) == name)
        });
        if let Some(path) = path {
            let _ = fs::remove_file(path);
        }
        store::forget(name);
    }
}

/// The listener at `path` is about to be closed.
pub(crate) fn forget(path: &Path) {
    if store::is_open()
        && let Ok(there) = fs::symlink_metadata(path)
    {
        store::forget(&store::name((there.dev(), there.ino())));
    }
    if let Some(page) = keeper::current() {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        page.forget(whole.as_os_str().as_encoded_bytes());
    }
}

/// A duplicate of inherited descriptor `number`.
///
/// Taking a bare number as an owned descriptor cannot be safe; asking the kernel for a duplicate
/// of one of our own is. The original stays open until the process ends.
///
/// # Errors
/// One line with the cause and the cure.
pub fn inherited(number: i32) -> Result<OwnedFd, String> {
    let open = || {
        let own = pidfd_open(getpid(), PidfdFlags::empty())?;
        pidfd_getfd(own, number, PidfdGetfdFlags::empty())
    };
    open().map_err(|errno| {
        format!(
            "file descriptor {number} was not inherited ({errno}); the parent process must leave it \
             open across exec (no close-on-exec)"
        )
    })
}

/// Whether a process id, which a service manager has told, means this process: its own, or that of its keeper.
pub(crate) fn is_main(pid: u32) -> bool {
    let is = |process: Pid| u32::try_from(process.as_raw_nonzero().get()) == Ok(pid);
    is(getpid()) || KEEPER.get().is_some_and(|keeper| is(*keeper))
}

static KEEPER: OnceLock<Pid> = OnceLock::new();

/// Asks who the keeper of this worker is, which a confined process may not.
pub fn remember_keeper() {
    if keeper::current().is_some()
        && let Some(parent) = getppid()
    {
        let _ = KEEPER.set(parent);
    }
}

/// The first descriptor that a service manager hands over (`sd_listen_fds(3)`).
const FIRST: i32 = 3;

/// The socket that a service manager has handed over under this name (`FileDescriptorName=`), if it has.
///
/// # Errors
/// One line with the cause and the cure.
pub fn handed_over(name: &str) -> Result<Option<OwnedFd>, String> {
    handed_over_number(name).map(inherited).transpose()
}

/// Whether it has, without taking it.
pub(crate) fn is_handed_over(name: &str) -> bool {
    handed_over_number(name).is_some()
}

fn handed_over_number(name: &str) -> Option<i32> {
    let words = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].map(|word| std::env::var(word).ok());
    place(&words, name, is_main)
}

/// The number of a descriptor, by what the manager's environment says.
fn place(words: &[Option<String>; 3], name: &str, is_main: impl Fn(u32) -> bool) -> Option<i32> {
    let [pid, count, names] = words.each_ref().map(Option::as_deref);
    pid?.parse().ok().filter(|pid| is_main(*pid))?;
    let count: usize = count?.parse().ok()?;
    let at = names?.split(':').take(count).position(|one| one == name)?;
    i32::try_from(at).ok()?.checked_add(FIRST)
}

/// Lets a group, or others, connect to a socket of ours.
///
/// # Errors
/// One line with the cause and the cure.
pub(crate) fn open_to(path: &Path, to: SocketAccess) -> io::Result<()> {
    if let Some(gid) = to.group {
        let group = Some(Gid::from_raw(gid));
        let given = chownat(CWD, path, None, group, AtFlags::SYMLINK_NOFOLLOW);
        given.map_err(|errno| {
            io::Error::other(format!(
                "cannot give it to group {gid} ({errno}); make the daemon's user a member of the group"
            ))
        })?;
    }
    match to.mode {
        Some(mode) => fs::set_permissions(path, PermissionsExt::from_mode(mode)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn what_a_service_manager_hands_over_is_found_by_its_name() {
        let found = |words: [&str; 3], name: &str| {
            let words = words.map(|word| (!word.is_empty()).then(|| word.to_owned()));
            place(&words, name, |pid| pid == 7)
        };
        assert_eq!(found(["7", "2", "web:control"], "control"), Some(4));
        assert_eq!(found(["7", "1", "control"], "control"), Some(3));
        for words in [
            ["8", "1", "control"],
            ["7", "0", "control"],
            ["7", "1", "web:control"],
            ["7", "1", ""],
            ["", "", ""],
            ["x", "1", "control"],
        ] {
            assert_eq!(found(words, "control"), None, "{words:?}");
        }
    }

    #[test]
    fn a_socket_is_opened_to_a_group() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("s");
        let _socket = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        let group = fs::metadata(&path).expect("socket").gid();
        let to = SocketAccess {
            group: Some(group),
            mode: Some(0o660),
        };
        open_to(&path, to).expect("own group");
        let now = fs::metadata(&path).expect("socket");
        assert_eq!((now.mode() & 0o777, now.gid()), (0o660, group));
        open_to(&path, SocketAccess::default()).expect("nothing to do");
        assert_eq!(fs::metadata(&path).expect("socket").mode() & 0o777, 0o660);
    }

    #[test]
    fn an_inherited_descriptor_is_the_same_file() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("pair");
        let copy = inherited(theirs.as_raw_fd()).expect("open");
        let mut copy = std::os::unix::net::UnixStream::from(copy);
        ours.write_all(b"x").expect("write");
        copy.read_exact(&mut [0]).expect("read");
        let error = inherited(9999).expect_err("not open");
        assert!(
            error.contains("9999") && error.contains("close-on-exec"),
            "{error}"
        );
    }
}

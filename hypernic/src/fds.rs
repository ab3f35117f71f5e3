//! Descriptors: those inherited from the process that started us, and how many there may be.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Resource, getpid, getrlimit, pidfd_getfd, pidfd_open, setrlimit,
};
use vfio_user::{ListenError, Listener};

/// What a NIC takes while a VMM is connected: its socket's listener, its epoll set, the
/// connection, an interrupt's eventfd and the one that unmasks it.
const PER_NIC: usize = 5;
/// What the process takes whatever it serves, workers and ports included.
const BESIDES: usize = 100;

/// Takes all the descriptors the system grants this process.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the system grants no more, the daemon goes on with the limit it has.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Descriptors that are left for what peers send, when so many NICs have theirs.
pub(crate) fn for_peers(nics: usize) -> u64 {
    let granted = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    granted.saturating_sub((nics * PER_NIC + BESIDES) as u64)
}

/// Whether this is the want of descriptors, and then what to do about it, for so many NICs.
pub(crate) fn exhausted(error: &std::io::Error, nics: usize) -> Option<String> {
    let out = [Errno::MFILE, Errno::NFILE].map(|e| Some(e.raw_os_error()));
    out.contains(&error.raw_os_error()).then(|| {
        let wanted = nics * PER_NIC + BESIDES;
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

/// Listens at `path`, if VMMs can connect there. They start elsewhere, so they need the absolute path that the hints
/// print.
///
/// # Errors
/// As [`Listener::bind`]; also where only the relative path would be short enough.
pub(crate) fn listen(path: &Path) -> Result<Listener, ListenError> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if whole.as_os_str().len() > vfio_user::MAX_SOCKET_PATH {
        return Err(ListenError::TooLong(whole));
    }
    let Some(page) = keeper::current() else {
        return Listener::bind(path);
    };
    // VMMs that come while no worker runs wait in the backlog for the next one.
    let name = whole.as_os_str().as_encoded_bytes();
    let left = page.take(name);
    let resumed = left.and_then(|(fd, [dev, ino])| {
        let there = std::fs::symlink_metadata(path).ok()?;
        // Somebody may have removed the path meanwhile, or put something else in its place.
        let same = (there.dev(), there.ino()) == (dev, ino);
        same.then(|| Listener::resume(fd, path, (dev, ino)).ok())?
    });
    let listener = match resumed {
        Some(listener) => listener,
        None => Listener::bind(path)?,
    };
    if let (Some(fd), Some((dev, ino))) = (listener.as_fd(), listener.key()) {
        page.keep(name, fd, [dev, ino]);
    }
    Ok(listener)
}

/// The listener at `path` is about to be closed.
pub(crate) fn forget(path: &Path) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

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

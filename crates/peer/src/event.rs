//! Eventfds: ours, and those a peer gave us.

use std::io::{IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// A counter that can be waited for: what interrupts arrive on.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, at 0.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(threads::apart(move || {
            rustix::event::eventfd(0, flags)
        })?))
    }

    /// One that a process before this one has made.
    pub fn of(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Adds one.
    pub fn signal(&self) {
        // A saturated counter is as good as one more.
        let _ = signal(self.0.as_fd());
    }

    /// The count since the last call; 0 when nothing happened.
    pub fn take(&self) -> u64 {
        take(self.0.as_fd())
    }

    /// Waits until the count is not 0, and takes it. `None` after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<u64> {
        wait_readable(self.0.as_fd(), timeout).then(|| self.take())
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits for `fd` to have something to read; false after `timeout`.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    wait_for(fd, PollFlags::IN, timeout)
}

/// Waits for `flags` of `fd`; false after `timeout`.
pub fn wait_for(fd: BorrowedFd<'_>, flags: PollFlags, timeout: Duration) -> bool {
    let until = std::time::Instant::now().checked_add(timeout);
    loop {
        let left = until.map(|u| u.saturating_duration_since(std::time::Instant::now()));
        let spec = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
        match rustix::event::poll(&mut fds, spec.as_ref()) {
            Ok(0) => return false,
            Err(Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// Adds one to an eventfd.
pub fn signal(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // A worker may make one call of all that write: that of its TAPs.
    match rustix::io::writev(fd, &[IoSlice::new(&1u64.to_ne_bytes())]) {
        Ok(_) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Reads and clears an eventfd; 0 when there is nothing.
pub fn take(fd: BorrowedFd<'_>) -> u64 {
    try_take(fd).unwrap_or(0)
}

/// Reads and clears an eventfd, and says why it cannot.
pub fn try_take(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut count = [0; 8];
    // A peer can make its eventfd blocking again, and empty it after epoll has seen it full.
    let mut into = [std::io::IoSliceMut::new(&mut count)];
    let at_once = rustix::io::ReadWriteFlags::NOWAIT;
    match rustix::io::preadv2(fd, &mut into, u64::MAX, at_once)? {
        8 => Ok(u64::from_ne_bytes(count)),
        _ => Err(Errno::INVAL),
    }
}

/// Accepts a descriptor from a peer as an eventfd, and makes it non-blocking, which is a courtesy:
/// the peer can undo it, and nothing here relies on it.
///
/// Everything else among the kernel's anonymous inodes may make its reader, writer or poller wait: an epoll set takes a
/// lock that its owner may hold. So the kernel is asked what it is, by the one question that takes no lock of the file's
/// own: what the link in `/proc` says. (`fdinfo` would ask the epoll set.)
pub fn adopt(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    crate::apart::asked(fd, |fd| {
        if !is_eventfd(fd)? {
            return Err(Errno::INVAL);
        }
        let flags = rustix::fs::fcntl_getfl(fd)?;
        if !flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        }
        Ok(())
    })
}

/// What `/proc` calls an eventfd. A path begins with `/` and cannot look like it.
const EVENTFD: &[u8] = b"anon_inode:[eventfd]";

fn is_eventfd(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut path = [0u8; 32];
    let mut rest = &mut path[..];
    let _ = write!(rest, "/proc/self/fd/{}", fd.as_raw_fd());
    let left = rest.len();
    let path = &path[..32 - left];
    let mut name = [0u8; EVENTFD.len() + 1];
    let len = rustix::fs::readlinkat_raw(rustix::fs::CWD, path, &mut name[..])?;
    Ok(name[..len] == *EVENTFD)
}

/// Says at start what would otherwise be refused to every VMM.
///
/// # Errors
/// There is no `/proc`, or it does not show this process.
pub fn can_tell() -> std::io::Result<()> {
    if is_eventfd(EventFd::new()?.as_fd())? {
        Ok(())
    } else {
        Err(std::io::Error::other("/proc does not name eventfds"))
    }
}

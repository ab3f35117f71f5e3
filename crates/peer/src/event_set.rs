//! Where a server's descriptors are watched.
//!
//! Epoll sets inside epoll sets share one lock of the whole kernel, and any local process can hold it for seconds by
//! building deep nests of its own. So a server owns no set that its owner would put into another one: it puts its
//! descriptors straight into the owner's set.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

/// An epoll set, and what the events of one server's descriptors carry there.
///
/// Do not put the set into another epoll set. `poll` may wait for it.
#[derive(Clone, Debug)]
pub struct EventSet {
    epoll: Arc<OwnedFd>,
    data: u64,
}

impl EventSet {
    /// An empty set, for one server.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self::within(Arc::new(epoll), 0))
    }

    /// A set that several servers share: all events of this one carry `data`.
    pub fn within(epoll: Arc<OwnedFd>, data: u64) -> Self {
        Self { epoll, data }
    }

    /// Watches `fd` for something to read.
    ///
    /// # Errors
    /// `fd` is in the set, or the system has no memory left.
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.add_for(fd, EventFlags::IN)
    }

    /// Watches `fd` for `flags`.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_for(&self, fd: BorrowedFd<'_>, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(self.data),
            flags,
        )?)
    }

    /// Watches `fd`, which is in the set, for `flags` from now on.
    ///
    /// # Errors
    /// It is not in the set.
    pub fn modify(&self, fd: BorrowedFd<'_>, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::modify(&self.epoll, fd, EventData::new_u64(self.data), flags)
    }

    /// Watches `fd` no more. To close it is not enough: a peer may hold the same open file.
    pub fn delete(&self, fd: BorrowedFd<'_>) {
        // What is not in the set need not leave it.
        let _ = epoll::delete(&self.epoll, fd);
    }
}

impl AsFd for EventSet {
    /// Readable when one of the descriptors has something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

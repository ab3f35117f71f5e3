//! Where the connections of a port come from, without ever waiting for one.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::listener::{ListenError, Listener};

/// Where connections come from.
pub enum Source {
    /// Calls this address, again and again.
    Connect(SocketAddrUnix),
    /// Is called here; there until the end.
    Listen(Option<Listener>),
}

/// What an attempt to get a connection came to.
pub enum Attempt {
    /// It came.
    Connected(OwnedFd),
    /// Wait until the listener is readable.
    NobodyYet,
    /// Try again later.
    Failed,
}

impl Source {
    /// Calls this path.
    ///
    /// # Errors
    /// It cannot be that of a socket.
    pub fn connect(path: &Path) -> Result<Self, Errno> {
        SocketAddrUnix::new(path).map(Self::Connect)
    }

    /// Is called at this path. A stale socket file is replaced.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn listen(path: &Path) -> Result<Self, ListenError> {
        Listener::bind(path).map(|listener| Self::Listen(Some(listener)))
    }

    /// Tries to get a connection.
    pub fn attempt(&self) -> Attempt {
        match self {
            Self::Connect(address) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
                // One that has no room for callers now is tried again, too.
                match fd.and_then(|fd| connect(&fd, address).map(|()| fd)) {
                    Ok(fd) => Attempt::Connected(fd),
                    Err(_) => Attempt::Failed,
                }
            }
            Self::Listen(None) => Attempt::NobodyYet,
            Self::Listen(Some(listener)) => match listener.accept() {
                Ok(Some(fd)) => Attempt::Connected(fd),
                Ok(None) => Attempt::NobodyYet,
                // Out of descriptors or memory: the caller stays in the backlog.
                Err(_) => Attempt::Failed,
            },
        }
    }

    /// What becomes readable when somebody calls.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Listen(Some(listener)) => listener.as_fd(),
            _ => None,
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Self::Listen(listener) = self {
            let listener = listener.take();
            // The thread that brings frames in changes no folders.
            threads::apart(move || drop(listener));
        }
    }
}

//! Where connections come from.

use std::fs::Permissions;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use peer::Listener;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::config::{Endpoint, RingError};

/// For the port's name.
pub fn describe(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Connect(path) => format!("ring:{}", path.display()),
        Endpoint::Listen(path) => format!("ring-listen:{}", path.display()),
    }
}

pub enum Source {
    Connect(SocketAddrUnix),
    /// There until the end.
    Listen(Option<Listener>),
}

/// What an attempt to get a connection came to.
pub enum Attempt {
    Connected(OwnedFd),
    /// Wait until the listener is readable.
    NobodyYet,
    /// Try again later.
    Failed,
}

impl Source {
    pub fn new(endpoint: Endpoint) -> Result<Self, RingError> {
        match endpoint {
            Endpoint::Connect(path) => match SocketAddrUnix::new(&path) {
                Ok(address) => Ok(Self::Connect(address)),
                Err(_) => Err(RingError::BadPath { path }),
            },
            Endpoint::Listen(path) => {
                let listener = Listener::bind(&path)?;
                // A peer needs the owner's rights; whoever called before this has said nothing that is trusted.
                std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                Ok(Self::Listen(Some(listener)))
            }
        }
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

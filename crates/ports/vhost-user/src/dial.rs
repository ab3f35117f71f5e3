//! Getting a session, without making the inlet wait for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use peer::Listener;
use port::Bell;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::config::{Endpoint, VhostUserError};
use crate::session::{self, Failed, Session, Wanted};

/// Where connections come from.
pub enum Source {
    Connect(SocketAddrUnix),
    Listen(Listener),
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
    pub fn new(endpoint: Endpoint) -> Result<Self, VhostUserError> {
        match endpoint {
            Endpoint::Connect(path) => match SocketAddrUnix::new(&path) {
                Ok(address) => Ok(Self::Connect(address)),
                Err(_) => Err(VhostUserError::BadPath { path }),
            },
            Endpoint::Listen(path) => Ok(Self::Listen(Listener::bind(path)?)),
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
            Self::Listen(listener) => match listener.accept() {
                Ok(Some(fd)) => Attempt::Connected(fd),
                Ok(None) => Attempt::NobodyYet,
                Err(_) => Attempt::Failed,
            },
        }
    }

    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Connect(_) => None,
            Self::Listen(listener) => listener.as_fd(),
        }
    }
}

/// A session that is being set up by another thread.
pub struct Dialing(Arc<Slot>);

struct Slot {
    result: Mutex<Option<Result<Session, Failed>>>,
    done: Bell,
}

impl Dialing {
    /// Begins on this connection.
    pub fn start(socket: OwnedFd, wanted: Wanted) -> std::io::Result<Self> {
        let slot = Arc::new(Slot {
            result: Mutex::default(),
            done: Bell::new()?,
        });
        let theirs = Arc::clone(&slot);
        threads::spawn("vhost-user dial", move || {
            let result = session::begin(socket, wanted);
            *theirs.result.lock() = Some(result);
            theirs.done.ring();
        })?;
        Ok(Self(slot))
    }

    /// What came of it, once.
    pub fn take(&self) -> Option<Result<Session, Failed>> {
        self.0.result.lock().take()
    }
}

impl AsFd for Dialing {
    /// Readable at the end.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.done.as_fd()
    }
}

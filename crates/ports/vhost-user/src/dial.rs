//! Getting a session, without making the inlet wait for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use peer::dial::Source;
use port::Bell;

use crate::config::{Endpoint, VhostUserError};
use crate::session::{self, Failed, Session, Wanted};

/// Where connections come from.
pub fn source(endpoint: Endpoint) -> Result<Source, VhostUserError> {
    match endpoint {
        Endpoint::Connect(path) => {
            Source::connect(&path).map_err(|_| VhostUserError::BadPath { path })
        }
        Endpoint::Listen(path) => Ok(Source::listen(&path)?),
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

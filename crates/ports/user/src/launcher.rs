//! Where processes of networks come from, as a port sees it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::config::UserConfig;
use crate::message::{MAX, Start};
use crate::serve;
use crate::socket;

/// Starts processes of networks. A process that has confined itself cannot, so it asks another.
#[derive(Clone, Debug)]
pub struct Launcher(Arc<Way>);

#[derive(Debug)]
enum Way {
    /// By a process at the other end of this socket ([`crate::attend`]).
    Asks(OwnedFd),
    /// By itself, on threads.
    Threads,
}

impl Launcher {
    /// At the other end of `socket`, which is of [`Launcher::socket`], a process does it ([`crate::attend`]).
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self(Arc::new(Way::Asks(socket)))
    }

    /// This process does it, on threads: libslirp shares its memory. For programs that give nothing up, and tests.
    #[must_use]
    pub fn of_threads() -> Self {
        Self(Arc::new(Way::Threads))
    }

    /// The two ends of a launcher's socket.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn socket() -> io::Result<(OwnedFd, OwnedFd)> {
        socket::pair()
    }

    /// Has a network started. What is returned is its socket; whether the network is there will be said on it.
    ///
    /// # Errors
    /// The process is out of descriptors, or the launcher is gone.
    pub(crate) fn start(&self, config: &UserConfig, patient: bool) -> io::Result<OwnedFd> {
        let start = Start {
            config: config.clone(),
            patient,
        };
        let words = serde_json::to_vec(&start)?;
        if words.len() > MAX {
            return Err(io::Error::other("its configuration is too long"));
        }
        // A thread that serves a port makes no sockets.
        let (ours, theirs) = threads::apart(socket::pair)?;
        socket::send(&ours, &words)?;
        match &*self.0 {
            Way::Asks(launcher) => socket::give(launcher, theirs.as_fd())?,
            Way::Threads => {
                let run = move || serve::serve(theirs, |_| Ok(()), || 0);
                threads::spawn("user network", run)?;
            }
        }
        Ok(ours)
    }
}

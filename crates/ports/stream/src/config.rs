//! What can be chosen of a stream port, and what is wrong with a choice.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::kept::{Keeps, Parts};

/// Largest frame either way, in bytes: what QEMU's receiver takes (`NET_BUFSIZE`).
pub const MAX_FRAME: usize = 4096 + 65536;

/// The other end.
#[derive(Debug)]
pub enum Endpoint {
    /// Connects to a Unix socket, again and again.
    Connect(PathBuf),
    /// Listens on a Unix socket, one peer at a time. A stale socket file is replaced.
    Listen(PathBuf),
    /// Connects by TCP, again and again.
    ConnectTcp(SocketAddr),
    /// Listens on a TCP port, one peer at a time.
    ListenTcp(SocketAddr),
    /// A connected stream socket, until its peer leaves; or a listening one, as systemd passes.
    Fd(OwnedFd),
}

/// A stream port to be.
#[derive(Debug)]
pub struct StreamConfig {
    /// The other end.
    pub endpoint: Endpoint,
    /// How long senders wait for a peer that has stopped reading before their frames are dropped.
    pub patience: Duration,
    /// First pause before connecting again; doubles up to [`StreamConfig::retry_max`].
    pub retry_min: Duration,
    /// Longest pause before connecting again.
    pub retry_max: Duration,
    /// Who keeps the port for the next process.
    pub keeps: Option<Arc<dyn Keeps>>,
    /// What the process before has left of it.
    pub goes_on: Parts,
}

impl StreamConfig {
    /// The defaults: half a second of patience, 20 ms to 2 s between attempts.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            patience: Duration::from_millis(500),
            retry_min: Duration::from_millis(20),
            retry_max: Duration::from_secs(2),
            keeps: None,
            goes_on: Parts::default(),
        }
    }
}

/// Why a stream port could not be made.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The path cannot be that of a socket.
    #[error(
        "{} cannot be the path of a socket: use at most 107 bytes",
        path.display()
    )]
    BadPath {
        /// As given.
        path: PathBuf,
    },
    /// Another process listens there.
    #[error(
        "{} is in use: another process listens on it; stop that one or choose another path",
        path.display()
    )]
    InUse {
        /// As given.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{} exists and is not a socket: choose another path", path.display())]
    NotASocket {
        /// As given.
        path: PathBuf,
    },
    /// Cannot listen.
    #[error("cannot listen on {at}: {source}")]
    Listen {
        /// Path or address.
        at: String,
        /// What the system said.
        source: io::Error,
    },
    /// The descriptor given is unusable.
    #[error("the descriptor given is not a stream socket: pass a connected or listening one")]
    NotAStream,
    /// It could begin in the middle of a frame if the process before this one had died.
    #[error(
        "no more descriptors can be kept for the next process; close some ports or NICs and try again"
    )]
    NotKept,
    /// The system is out of something.
    #[error("cannot set up the stream port: {0}")]
    System(#[from] io::Error),
}

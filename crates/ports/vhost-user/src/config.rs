//! What can be chosen of a vhost-user port, and what is wrong with a choice.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use peer::{ListenError, MAX_SOCKET_PATH};
use thiserror::Error;

/// Pairs of rings that a port can have.
pub const MAX_PAIRS: usize = 16;

/// The other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Connects to a Unix socket where a back end listens, again and again.
    Connect(PathBuf),
    /// Listens on a Unix socket, for one back end at a time. A stale socket file is replaced.
    Listen(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(path) => write!(f, "vhost-user:{}", path.display()),
            Self::Listen(path) => write!(f, "vhost-user:listen={}", path.display()),
        }
    }
}

/// A vhost-user port to be.
#[derive(Clone, Debug)]
pub struct VhostUserConfig {
    /// The other end.
    pub endpoint: Endpoint,
    /// Pairs of rings, at most [`MAX_PAIRS`]. A back end that has fewer is used with those.
    pub pairs: usize,
    /// Packed rings, if the back end has them.
    pub packed: bool,
    /// How long senders wait for a peer that takes nothing before their frames are dropped.
    pub patience: Duration,
    /// First pause before connecting again; doubles up to [`VhostUserConfig::retry_max`].
    pub retry_min: Duration,
    /// Longest pause before connecting again.
    pub retry_max: Duration,
}

impl VhostUserConfig {
    /// The defaults: one pair, packed rings, half a second of patience, 20 ms to 2 s between attempts.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            pairs: 1,
            packed: true,
            patience: Duration::from_millis(500),
            retry_min: Duration::from_millis(20),
            retry_max: Duration::from_secs(2),
        }
    }
}

/// Why a vhost-user port could not be made.
#[derive(Debug, Error)]
pub enum VhostUserError {
    /// The path cannot be that of a socket.
    #[error("{} cannot be the path of a socket: use at most {MAX_SOCKET_PATH} bytes", path.display())]
    BadPath {
        /// As given.
        path: PathBuf,
    },
    /// No port has so many.
    #[error("a vhost-user port has 1 to {MAX_PAIRS} pairs of rings, not {0}")]
    Pairs(usize),
    /// Cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system is out of something.
    #[error("cannot set up the vhost-user port: {0}")]
    System(#[from] io::Error),
}

//! What can be chosen of a ring port, and what is wrong with a choice.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use peer::{ListenError, MAX_SOCKET_PATH};
use thiserror::Error;

use crate::kept::{Keeps, Parts};

/// Longest frame either way, in bytes: the largest that any NIC leaves to be cut.
pub const MAX_FRAME: usize = 65536 + 64;

/// Least bytes of a ring. A frame of the longest kind finds room in it wherever the ring stands.
pub const MIN_BYTES: usize = 256 << 10;

/// Most bytes of a ring. What a peer's ring has is read into memory that counts as ours, too.
pub const MAX_BYTES: usize = 64 << 20;

/// The other end.
#[derive(Debug)]
pub enum Endpoint {
    /// Listens on a Unix socket, one peer at a time. A stale socket file is replaced.
    Listen(PathBuf),
    /// Connects to a Unix socket, again and again.
    Connect(PathBuf),
}

/// A ring port to be.
#[derive(Debug)]
pub struct RingConfig {
    /// The other end.
    pub endpoint: Endpoint,
    /// Bytes of the ring that this side writes: a power of two from [`MIN_BYTES`] to [`MAX_BYTES`]. The peer chooses its own.
    pub bytes: usize,
    /// First pause before connecting again; doubles up to [`RingConfig::retry_max`].
    pub retry_min: Duration,
    /// Longest pause before connecting again.
    pub retry_max: Duration,
    /// Who keeps the connection for the next process.
    pub keeps: Option<Arc<dyn Keeps>>,
    /// The connection that the process before has left.
    pub goes_on: Option<Parts>,
}

impl RingConfig {
    /// The defaults: 1 MiB, 20 ms to 2 s between attempts.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            bytes: 1 << 20,
            retry_min: Duration::from_millis(20),
            retry_max: Duration::from_secs(2),
            keeps: None,
            goes_on: None,
        }
    }

    /// The size, if it is one.
    pub(crate) fn checked_bytes(&self) -> Result<u32, RingError> {
        good_bytes(self.bytes).ok_or(RingError::BadSize { bytes: self.bytes })
    }
}

/// The size of a ring, if a ring can have it.
pub(crate) fn good_bytes(bytes: usize) -> Option<u32> {
    let good = bytes.is_power_of_two() && (MIN_BYTES..=MAX_BYTES).contains(&bytes);
    u32::try_from(bytes).ok().filter(|_| good)
}

/// Why a ring port could not be made.
#[derive(Debug, Error)]
pub enum RingError {
    /// The path cannot be that of a socket.
    #[error("{} cannot be the path of a socket: use at most {MAX_SOCKET_PATH} bytes", path.display())]
    BadPath {
        /// As given.
        path: PathBuf,
    },
    /// No ring has this size.
    #[error("a ring cannot have {bytes} bytes: use a power of two from {MIN_BYTES} to {MAX_BYTES}")]
    BadSize {
        /// As given.
        bytes: usize,
    },
    /// Cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system is out of something.
    #[error("cannot set up the ring port: {0}; free some memory or descriptors and try again")]
    System(#[from] io::Error),
}

//! Why a call fails.

use std::io;

use rustix::io::Errno;

use crate::codec::{Command, Malformed};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket failed.
    #[error("the server's socket failed: {0}")]
    Socket(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server did not answer in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server refused the command.
    #[error("the server refused {command:?} with errno {errno}")]
    Refused {
        /// What was asked.
        command: Command,
        /// Why not.
        errno: u32,
    },
    /// The server's answer makes no sense.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The server did not offer what the call needs.
    #[error("the server did not offer {0}")]
    NotOffered(&'static str),
}

impl From<Errno> for ClientError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            errno => Self::Socket(errno.into()),
        }
    }
}

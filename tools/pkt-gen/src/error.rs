//! Everything that can stop pkt-gen, each with its next step.

use std::path::PathBuf;

use program::ExitCode;

/// One clear line: what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A word of the command line.
    #[error("{0}")]
    Usage(String),
    /// There is no NIC to be driven at a socket.
    #[error("{socket}: {message}", socket = .socket.display())]
    Peer {
        /// The socket.
        socket: PathBuf,
        /// Cause and cure.
        message: String,
    },
    /// A NIC went away, or did what no NIC does, while it was driven.
    #[error("the NIC failed: {0}")]
    Device(String),
    /// Frames were not received as they were sent.
    #[error("{0}")]
    Verdict(String),
    /// Anything else of the operating system.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    /// The process's exit code for this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Error::Usage(_) => ExitCode::Usage,
            Error::Peer { .. } => ExitCode::Resource,
            Error::Device(_) | Error::Verdict(_) | Error::Os { .. } => ExitCode::Failure,
        }
    }
}

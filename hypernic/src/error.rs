//! Everything that can stop hypernic from doing what it was told, each with its next step.

use std::path::PathBuf;

/// How the process ends; documented in docs/configuration.md and by `hypernic --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Ended by SIGINT or SIGTERM, everything closed.
    Clean = 0,
    /// Something failed that should not have.
    Failure = 1,
    /// The command line does not make sense (also clap's own code).
    Usage = 2,
    /// The configuration file does not make sense.
    Config = 3,
    /// The host does not give what was asked for: a socket in use, a TAP, a file, a permission.
    Resource = 4,
}

/// One clear line: what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A word of the command line.
    #[error("{0}")]
    Usage(String),
    /// A place in the configuration file.
    #[error("{file}:{line}:{column}: {message}", file = .file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong and what to do.
        message: String,
    },
    /// The configuration file itself.
    #[error("cannot read {file}: {source}", file = .file.display())]
    ReadConfig {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A port could not be opened; the port's own words say why and what to do.
    #[error("NIC or switch \"{owner}\", port {port}: {message}")]
    Port {
        /// Name of the NIC or switch it belongs to.
        owner: String,
        /// The port as written.
        port: String,
        /// Cause and cure.
        message: String,
    },
    /// A socket could not be opened.
    #[error("NIC \"{nic}\": {message}")]
    Socket {
        /// Name of the NIC.
        nic: String,
        /// Cause and cure.
        message: String,
    },
    /// The file of a NIC's EEPROM is not to be had.
    #[error("NIC \"{nic}\": {message}")]
    Nvm {
        /// Name of the NIC.
        nic: String,
        /// Cause and cure.
        message: String,
    },
    /// There is no NIC to be driven at a socket.
    #[error("{socket}: {message}", socket = .socket.display())]
    Peer {
        /// The socket.
        socket: PathBuf,
        /// Cause and cure.
        message: String,
    },
    /// The control socket is not to be had.
    #[error("control socket {path}: {message}", path = .path.display())]
    Control {
        /// The socket.
        path: PathBuf,
        /// Cause and cure.
        message: String,
    },
    /// No daemon answers at a control socket.
    #[error(transparent)]
    Ask(#[from] control::AskError),
    /// A daemon will not do what it was asked.
    #[error("{0}")]
    Refused(String),
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
            Error::Config { .. } | Error::ReadConfig { .. } => ExitCode::Config,
            Error::Port { .. }
            | Error::Socket { .. }
            | Error::Nvm { .. }
            | Error::Peer { .. }
            | Error::Control { .. }
            | Error::Ask(_) => ExitCode::Resource,
            Error::Device(_) | Error::Verdict(_) | Error::Refused(_) | Error::Os { .. } => {
                ExitCode::Failure
            }
        }
    }

    pub(crate) fn os(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
        move |errno| Error::Os {
            what,
            source: errno.into(),
        }
    }
}

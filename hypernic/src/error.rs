//! Everything that can stop hypernic from doing what it was told, each with its next step.

use std::path::PathBuf;

pub use program::ExitCode;

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
    /// A daemon was refused something by its host.
    #[error("{0}")]
    Host(String),
    /// A program that is run as a command does not start.
    #[error("cannot run {program}: {source}", program = .program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        source: std::io::Error,
    },
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
            | Error::Control { .. }
            | Error::Program { .. }
            | Error::Host(_)
            | Error::Ask(_) => ExitCode::Resource,
            Error::Refused(_) | Error::Os { .. } => ExitCode::Failure,
        }
    }
}

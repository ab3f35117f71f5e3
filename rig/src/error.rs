//! What can go wrong, in words a person can act on.

use std::path::PathBuf;

/// One line that says why something cannot run on this machine, and what would change that.
///
/// A test that meets this prints the line and either skips or fails, as its suite demands; it is never a
/// fault of the code under test.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot run here: {reason}")]
pub struct CannotRun {
    /// The cause and the next step, on one line.
    pub reason: String,
}

impl CannotRun {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        let reason: String = reason.into();
        Self {
            reason: reason.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
}

/// Why an operation of the rig failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine lacks something the rig needs.
    #[error(transparent)]
    CannotRun(#[from] CannotRun),
    /// A file, socket or process of the host side failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the path or command it was done to.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A helper program of the host side said no.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status and the end of its output.
        output: String,
    },
    /// A guest did not do what was asked of it.
    #[error("guest {guest}: {what}\n  console log: {}\n  end of console:\n{tail}", log.display())]
    Guest {
        /// The guest's name.
        guest: String,
        /// What was asked and what happened instead.
        what: String,
        /// The complete console and QEMU's own messages, kept after a failure.
        log: PathBuf,
        /// The last lines of the console.
        tail: String,
    },
    /// QEMU answered a QMP command with an error.
    #[error("guest {guest}: QMP {command}: {message} (log: {})", log.display())]
    Qmp {
        /// The guest's name.
        guest: String,
        /// The QMP command.
        command: String,
        /// QEMU's description of the error.
        message: String,
        /// The guest's log.
        log: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// The rig's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

//! What can go wrong, in words that say which joint gave way.

use std::path::PathBuf;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A guest, or the rig that runs it.
    #[error(transparent)]
    Rig(#[from] rig::Error),
    /// There is no daemon to test.
    #[error(
        "no hypernic at {0}: run `cargo build -p hypernic -p hypernic-pkt-gen`, or set HYPERNIC_BIN"
    )]
    NoBinary(PathBuf),
    /// The daemon did not do what was expected.
    #[error("hypernic: {what}\n  its log:\n{log}")]
    Daemon {
        /// What was expected and what happened instead.
        what: String,
        /// The end of its log.
        log: String,
    },
    /// A result is not what it must be.
    #[error("{0}")]
    Check(String),
    /// The operating system.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// A result that is not what it must be.
    pub fn check(what: impl Into<String>) -> Self {
        Self::Check(what.into())
    }
}

impl From<rig::CannotRun> for Error {
    fn from(why: rig::CannotRun) -> Self {
        Self::Rig(why.into())
    }
}

/// The result of a step.
pub type Result<T, E = Error> = std::result::Result<T, E>;

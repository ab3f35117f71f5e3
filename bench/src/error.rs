//! What can go wrong while measuring.

/// Why a module gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Guests, namespaces, daemons.
    #[error(transparent)]
    Rig(#[from] rig::Error),
    /// A file or socket of the host.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A tool answered something we cannot use.
    #[error("{tool}: {what}")]
    Tool {
        /// The tool.
        tool: &'static str,
        /// What was wrong with its answer, with the end of it.
        what: String,
    },
    /// The words on the command line make no sense.
    #[error("{0}")]
    Usage(String),
}

/// A result of this program.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// For `map_err` on a call into the operating system.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// A tool's answer that is of no use.
    pub fn tool(tool: &'static str, answer: &str) -> Self {
        let from = answer.len().saturating_sub(600);
        let from = (from..=answer.len())
            .find(|&i| answer.is_char_boundary(i))
            .unwrap_or(0);
        Self::Tool {
            tool,
            what: format!("cannot use its answer: {}", answer[from..].trim()),
        }
    }
}

//! How a program ends.

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

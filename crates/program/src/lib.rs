//! What every program of hypernic has: how it writes log lines, and how it ends.
#![forbid(unsafe_code)]

mod exit_code;
pub mod log;

pub use exit_code::ExitCode;
pub use log::LogFormat;

//! hypernic as a library: what the binary wires together, for the binary, benches and tests.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cli;
pub mod config;
pub mod error;
pub mod hints;
pub mod log;
pub mod spec;
pub mod time;

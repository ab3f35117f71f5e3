//! hypernic as a library: what the binary wires together, for the binary, benches and tests.
#![forbid(unsafe_code)]

mod busy_poll;
pub mod capture;
pub mod chip;
pub mod cli;
pub mod client;
pub mod complete;
pub mod config;
pub mod control;
pub mod error;
pub mod explain;
pub mod external;
pub mod fds;
pub mod guard;
pub mod hints;
pub mod host;
mod make;
pub mod nic;
pub mod notify;
mod nvm;
mod ports;
mod quarantine;
pub mod report;
pub mod sandbox;
pub mod spec;
mod tenants;
pub mod time;
mod transport;
pub mod vf;
mod worker;

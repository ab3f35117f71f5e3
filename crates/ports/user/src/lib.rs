//! The user port: a network that needs no root and no setup.
//!
//! Guests get an address by DHCP (10.0.2.15 and up), a router and name server (10.0.2.2,
//! 10.0.2.3), answers to ping, and TCP and UDP to wherever the host can go; 10.0.2.2 is the host
//! itself. (Ping beyond that address needs the host to allow it: `net.ipv4.ping_group_range`.) The
//! work is done by libslirp, the library QEMU uses for the same purpose; several guests may
//! share one such network through the switch (libslirp knows 16 leases).
//!
//! The inlet's thread owns libslirp. A sender only copies its frames into a bounded queue, so it
//! never waits for another guest's connections.
//!
//! `unsafe` is in `sys` only, which makes the C library safe. The `libslirp` crate would have
//! spared it, but has no port forwarding, cannot be moved between threads, and changes its handler
//! through a pointer made from a shared reference.
#![deny(unsafe_code)]

mod config;
#[cfg(feature = "slirp")]
mod count;
#[cfg(feature = "slirp")]
mod flows;
#[cfg(feature = "slirp")]
mod inlet;
#[cfg(feature = "slirp")]
mod network;
#[cfg(feature = "slirp")]
mod poller;
#[cfg(feature = "slirp")]
mod queue;
#[cfg(feature = "slirp")]
mod sink;
#[cfg(feature = "slirp")]
#[allow(unsafe_code)]
mod sys;

pub use config::{Addresses, Forward, MTU, Protocol, UserConfig, UserError};
#[cfg(feature = "slirp")]
pub use network::open;

/// A program without the C library has no such network.
///
/// # Errors
/// Always.
#[cfg(not(feature = "slirp"))]
pub fn open(_: &UserConfig) -> Result<port::Port, UserError> {
    Err(UserError::NotBuilt)
}

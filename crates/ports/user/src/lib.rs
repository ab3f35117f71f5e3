//! The user port: a network that needs no root and no setup.
//!
//! Guests get an address by DHCP (10.0.2.15 and up), a router and name server (10.0.2.2,
//! 10.0.2.3), answers to ping, and TCP and UDP to wherever the host can go; 10.0.2.2 is the host
//! itself. (Ping beyond that address needs the host to allow it: `net.ipv4.ping_group_range`.) The
//! work is done by libslirp, the library QEMU uses for the same purpose; several guests may
//! share one such network through the switch (libslirp knows 16 leases).
//!
//! Each network is a process of its own ([`serve`]), so the library shares no memory with guests, and what it opens is not
//! the port's. The port ([`open`]) has one socket to it, for messages of many frames: a sender copies its frames into a
//! bounded queue and sends what the socket takes, so it never waits for another guest's connections. A process that has
//! confined itself can start no other, so it asks one that was there before: the *launcher* ([`attend`]), which reads
//! nothing and makes children, and is kept by a process that makes another one when it dies. When a network's process dies, the port's link goes down, and another is started.
//!
//! `unsafe` is in `sys`, which makes the C library safe, and in `fork`. The `libslirp` crate would have
//! spared the first, but has no port forwarding, cannot be moved between threads, and changes its handler
//! through a pointer made from a shared reference.
#![deny(unsafe_code)]

#[cfg(feature = "slirp")]
mod attend;
mod config;
#[cfg(feature = "slirp")]
mod count;
#[cfg(feature = "slirp")]
mod engine;
#[cfg(feature = "slirp")]
mod flows;
#[cfg(feature = "slirp")]
#[allow(unsafe_code)]
mod fork;
#[cfg(feature = "slirp")]
mod inlet;
#[cfg(feature = "slirp")]
mod launcher;
#[cfg(feature = "slirp")]
mod link;
#[cfg(feature = "slirp")]
mod lives;
#[cfg(feature = "slirp")]
mod message;
#[cfg(feature = "slirp")]
mod network;
#[cfg(feature = "slirp")]
mod poller;
#[cfg(feature = "slirp")]
mod serve;
#[cfg(feature = "slirp")]
mod sink;
#[cfg(feature = "slirp")]
mod socket;
#[cfg(feature = "slirp")]
#[allow(unsafe_code)]
mod sys;
#[cfg(not(feature = "slirp"))]
mod without;

pub use config::{Addresses, Forward, MTU, Protocol, UserConfig, UserError};
#[cfg(not(feature = "slirp"))]
pub use without::{Launcher, attend, open, serve};
#[cfg(feature = "slirp")]
pub use {attend::attend, launcher::Launcher, network::open, serve::serve};

/// Whether this program has user networks.
pub const BUILT: bool = cfg!(feature = "slirp");

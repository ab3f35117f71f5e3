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
mod count;
mod flows;
mod inlet;
mod poller;
mod queue;
mod sink;
#[allow(unsafe_code)]
mod sys;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use config::{Addresses, Forward, MTU, Protocol, UserConfig, UserError};
use parking_lot::Mutex;
use port::{Backlog, Bell, Port, Tally, Waiters};
use queue::UserQueue;

/// Frames libslirp may produce in one turn.
const OUT_FRAMES: usize = 4096;

/// Makes a user-mode network.
///
/// # Errors
/// A [`UserError`] that names the cause and the cure.
pub fn open(config: &UserConfig) -> Result<Port, UserError> {
    if let Some(path) = &config.tftp {
        let bad = |source| UserError::Tftp {
            path: path.clone(),
            source,
        };
        std::fs::read_dir(path).map_err(bad)?;
    }
    let addresses = config.addresses()?;
    let frame = MTU + 64;
    let out = Backlog::new(OUT_FRAMES * frame.next_multiple_of(64), 64 * 1024);
    let mut stack = sys::Stack::new(config, out.with_frames(OUT_FRAMES))?;
    for forward in &config.forwards {
        let guest = forward.guest.unwrap_or(addresses.dhcp_start);
        stack
            .forward(forward, guest)
            .map_err(|source| UserError::Forward {
                protocol: forward.protocol,
                host: forward.host,
                source,
            })?;
    }
    let shared = Arc::new(UserQueue {
        queue: Mutex::default(),
        bell: Bell::new()?,
        waiters: Waiters::new(),
        stalled: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        tally: Tally::new(count::NAMES),
    });
    let flows = flows::Flows::new(config, addresses.host);
    let inlet = inlet::UserInlet::new(stack, Arc::clone(&shared), flows)?;
    Ok(Port {
        name: "user".into(),
        sink: Arc::new(sink::UserSink::new(Arc::clone(&shared))),
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

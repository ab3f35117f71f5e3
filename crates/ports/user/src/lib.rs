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
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod inlet;
mod poller;
mod sink;
#[allow(unsafe_code)]
mod sys;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frame::Counted;
use parking_lot::Mutex;
use port::{Backlog, Bell, Port, Tally, Waiters};
use thiserror::Error;

/// Largest IP packet in either direction, in bytes.
pub const MTU: usize = 1500;

/// A user-mode network. [`UserConfig::default`] needs nothing from anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserConfig {
    /// The network's address: 10.0.2.0. The host is at `.2`, the name server at `.3`, guests from
    /// `.15` on.
    pub network: Ipv4Addr,
    /// Bits of the network, 8 to 27.
    pub prefix: u8,
    /// Whether guests also get IPv6 addresses (fec0::/64).
    pub ipv6: bool,
    /// Whether guests are kept from everything but the DHCP, DNS and TFTP here and the forwarded
    /// ports.
    pub restrict: bool,
    /// Name the DHCP server gives to guests.
    pub hostname: Option<String>,
    /// Directory served read-only by TFTP at the host address.
    pub tftp: Option<PathBuf>,
    /// File name in it that DHCP tells guests to boot.
    pub bootfile: Option<String>,
    /// Ports of the host that lead to a guest.
    pub forwards: Vec<Forward>,
}

impl Default for UserConfig {
    fn default() -> Self {
        Self {
            network: Ipv4Addr::new(10, 0, 2, 0),
            prefix: 24,
            ipv6: true,
            restrict: false,
            hostname: None,
            tftp: None,
            bootfile: None,
            forwards: Vec::new(),
        }
    }
}

/// The protocol of a [`Forward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of the host that leads to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Where the host listens.
    pub host: SocketAddrV4,
    /// The guest; the first one by default.
    pub guest: Option<Ipv4Addr>,
    /// Its port.
    pub guest_port: u16,
}

/// The addresses of a network, worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The network itself.
    pub network: Ipv4Addr,
    /// Its mask.
    pub mask: Ipv4Addr,
    /// The host and router.
    pub host: Ipv4Addr,
    /// The name server.
    pub dns: Ipv4Addr,
    /// The first guest.
    pub dhcp_start: Ipv4Addr,
}

impl UserConfig {
    /// The addresses that follow from `network` and `prefix`.
    ///
    /// # Errors
    /// [`UserError::Network`] when they are no network, or one too small.
    pub fn addresses(&self) -> Result<Addresses, UserError> {
        let bad = UserError::Network {
            network: self.network,
            prefix: self.prefix,
        };
        if !(8..=27).contains(&self.prefix) {
            return Err(bad);
        }
        let mask = u32::MAX << (32 - self.prefix);
        let network = u32::from(self.network);
        if network & !mask != 0 {
            return Err(bad);
        }
        Ok(Addresses {
            network: self.network,
            mask: mask.into(),
            host: (network + 2).into(),
            dns: (network + 3).into(),
            dhcp_start: (network + 15).into(),
        })
    }
}

/// Why a user-mode network could not be made.
#[derive(Debug, Error)]
pub enum UserError {
    /// The addresses make no sense.
    #[error(
        "{network}/{prefix} cannot be a user network: give the first address of a network of 8 \
         to 27 bits, such as 10.0.2.0/24"
    )]
    Network {
        /// As configured.
        network: Ipv4Addr,
        /// As configured.
        prefix: u8,
    },
    /// A text with a NUL in it.
    #[error("the {what} of the user network contains a NUL character: remove it")]
    Text {
        /// Which one.
        what: &'static str,
    },
    /// The TFTP directory cannot be used.
    #[error("cannot serve {} by TFTP: {source}; give a directory this user can read", path.display())]
    Tftp {
        /// As configured.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A port of the host cannot be taken.
    #[error(
        "cannot forward {} port {host}: {source}; free the port, or choose another (below 1024 \
         needs privileges)",
        match protocol { Protocol::Tcp => "TCP", Protocol::Udp => "UDP" }
    )]
    Forward {
        /// As configured.
        protocol: Protocol,
        /// As configured.
        host: SocketAddrV4,
        /// What the system said.
        source: io::Error,
    },
    /// libslirp refused.
    #[error("libslirp refused to start: install libslirp 4.2 or later (package libslirp0)")]
    Library,
    /// The system is out of something.
    #[error("cannot set up the user network: {0}")]
    System(#[from] io::Error),
}

/// Counters, by index.
mod count {
    pub const NAMES: [&str; 12] = [
        "frames_out",
        "bytes_out",
        "frames_in",
        "bytes_in",
        "syscalls",
        "user_in_full",
        "user_too_long",
        "user_cannot_take",
        "user_closed",
        "user_out_full",
        "user_sink_cannot_take",
        "user_guest_errors",
    ];
    pub const FRAMES_OUT: usize = 0;
    pub const BYTES_OUT: usize = 1;
    pub const FRAMES_IN: usize = 2;
    pub const BYTES_IN: usize = 3;
    /// Ours; libslirp's own are not seen.
    pub const SYSCALLS: usize = 4;
    /// From a guest: the queue is full and nobody takes what we have to say.
    pub const IN_FULL: usize = 5;
    /// From a guest: longer than the MTU.
    pub const TOO_LONG: usize = 6;
    /// From a guest: with work left to do.
    pub const CANNOT_TAKE: usize = 7;
    /// From a guest: after the port has been closed.
    pub const CLOSED: usize = 8;
    /// To a guest: more in one turn than the queue holds.
    pub const OUT_FULL: usize = 9;
    /// To a guest: not taken as it is.
    pub const SINK_CANNOT_TAKE: usize = 10;
    /// Not a drop: mistakes of guests that libslirp reported.
    pub const GUEST_ERRORS: usize = 11;
}

/// Frames queued from guests at once.
const QUEUE_FRAMES: usize = 1024;
/// Frames libslirp may produce in one turn.
const OUT_FRAMES: usize = 4096;

/// Frames from guests on their way to libslirp, one behind the other.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    lens: Vec<u16>,
}

/// What the senders and the inlet share.
struct Shared {
    queue: Mutex<Queue>,
    bell: Bell,
    waiters: Waiters,
    /// Nobody takes our frames just now, so the queue will not move either.
    stalled: AtomicBool,
    /// The inlet is no more.
    closed: AtomicBool,
    tally: Tally<12>,
}

impl Counted for Shared {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let bell = self.bell.syscalls();
        self.tally.counters(&mut |name, value| {
            let more = if name == "syscalls" { bell } else { 0 };
            visit(name, value + more);
        });
    }
}

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
    let shared = Arc::new(Shared {
        queue: Mutex::default(),
        bell: Bell::new()?,
        waiters: Waiters::new(),
        stalled: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        tally: Tally::new(count::NAMES),
    });
    let inlet = inlet::UserInlet::new(stack, Arc::clone(&shared))?;
    Ok(Port {
        name: "user".into(),
        sink: Arc::new(sink::UserSink::new(Arc::clone(&shared))),
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

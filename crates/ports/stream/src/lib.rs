//! The stream port: QEMU's length-prefixed socket framing (`-netdev stream`), which passt, other
//! QEMUs and many tools speak.
//!
//! A frame is its length as a big-endian 32-bit number and its bytes. The peer may come, go and
//! come back: meanwhile the link is down, frames are dropped and counted, and a port that connects
//! tries again with growing pauses.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod endpoint;
mod inlet;
mod sink;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use frame::Counted;
use parking_lot::Mutex;
use port::{Bell, Port, Tally, Waiters};
use thiserror::Error;

/// Largest frame either way, in bytes: what QEMU's receiver takes (`NET_BUFSIZE`).
pub const MAX_FRAME: usize = 4096 + 65536;

/// The other end.
#[derive(Debug)]
pub enum Endpoint {
    /// Connects to a Unix socket, again and again.
    Connect(PathBuf),
    /// Listens on a Unix socket, one peer at a time. A stale socket file is replaced.
    Listen(PathBuf),
    /// Connects by TCP, again and again.
    ConnectTcp(SocketAddr),
    /// Listens on a TCP port, one peer at a time.
    ListenTcp(SocketAddr),
    /// A connected stream socket, until its peer leaves; or a listening one, as systemd passes.
    Fd(OwnedFd),
}

/// A stream port to be.
#[derive(Debug)]
pub struct StreamConfig {
    /// The other end.
    pub endpoint: Endpoint,
    /// How long senders wait for a peer that has stopped reading before their frames are dropped.
    pub patience: Duration,
    /// First pause before connecting again; doubles up to [`StreamConfig::retry_max`].
    pub retry_min: Duration,
    /// Longest pause before connecting again.
    pub retry_max: Duration,
}

impl StreamConfig {
    /// The defaults: half a second of patience, 20 ms to 2 s between attempts.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            patience: Duration::from_millis(500),
            retry_min: Duration::from_millis(20),
            retry_max: Duration::from_secs(2),
        }
    }
}

/// Why a stream port could not be made.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The path cannot be that of a socket.
    #[error(
        "{} cannot be the path of a socket: use at most 107 bytes",
        path.display()
    )]
    BadPath {
        /// As given.
        path: PathBuf,
    },
    /// Somebody listens there.
    #[error(
        "{} is in use: another process listens on it; stop that one or choose another path",
        path.display()
    )]
    InUse {
        /// As given.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{} exists and is not a socket: choose another path", path.display())]
    NotASocket {
        /// As given.
        path: PathBuf,
    },
    /// Cannot listen.
    #[error("cannot listen on {at}: {source}")]
    Listen {
        /// Path or address.
        at: String,
        /// What the system said.
        source: io::Error,
    },
    /// The descriptor given is unusable.
    #[error("the descriptor given is not a stream socket: pass a connected or listening one")]
    NotAStream,
    /// The system is out of something.
    #[error("cannot set up the stream port: {0}")]
    System(#[from] io::Error),
}

/// Counters, by index.
mod count {
    pub const NAMES: [&str; 14] = [
        "frames_out",
        "bytes_out",
        "frames_in",
        "bytes_in",
        "syscalls",
        "stream_down",
        "stream_stalled",
        "stream_too_long",
        "stream_cannot_take",
        "stream_unsent_bytes",
        "stream_runt",
        "stream_bad_length",
        "stream_connects",
        "stream_disconnects",
    ];
    /// Handed to the socket or its buffer here.
    pub const FRAMES_OUT: usize = 0;
    pub const BYTES_OUT: usize = 1;
    pub const FRAMES_IN: usize = 2;
    pub const BYTES_IN: usize = 3;
    pub const SYSCALLS: usize = 4;
    /// Out: nobody is connected.
    pub const DOWN: usize = 5;
    /// Out: the peer has not read for longer than we wait.
    pub const STALLED: usize = 6;
    /// Out: longer than the peer takes.
    pub const TOO_LONG: usize = 7;
    /// Out: with work left to do.
    pub const CANNOT_TAKE: usize = 8;
    /// Out: bytes that waited when the peer left.
    pub const UNSENT: usize = 9;
    /// In: shorter than an Ethernet header.
    pub const RUNT: usize = 10;
    /// In: a length beyond [`crate::MAX_FRAME`]; ends the connection.
    pub const BAD_LENGTH: usize = 11;
    /// Not drops: how often a peer came and went.
    pub const CONNECTS: usize = 12;
    pub const DISCONNECTS: usize = 13;
}

/// What senders and the inlet share.
struct Shared {
    out: Mutex<sink::Out>,
    bell: Bell,
    waiters: Waiters,
    tally: Tally<14>,
    patience: Duration,
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

/// Makes a stream port. A peer that is not there yet is no error: the link is down until it is.
///
/// # Errors
/// A [`StreamError`] that names the cause and the cure.
pub fn open(config: StreamConfig) -> Result<Port, StreamError> {
    let name = endpoint::describe(&config.endpoint);
    let source = endpoint::Source::new(config.endpoint)?;
    let shared = Arc::new(Shared {
        out: Mutex::default(),
        bell: Bell::new()?,
        waiters: Waiters::new(),
        tally: Tally::new(count::NAMES),
        patience: config.patience,
    });
    let retry = (config.retry_min, config.retry_max);
    let inlet = inlet::StreamInlet::new(source, retry, Arc::clone(&shared));
    Ok(Port {
        name,
        sink: Arc::new(sink::StreamSink::new(Arc::clone(&shared))),
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

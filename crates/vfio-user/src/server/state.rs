//! What a server holds, and what its descriptor watches.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::process::Pid;

use super::line::{Lifeline, Stand};
use super::session::{Session, Signal};
use crate::dma::Dma;
use crate::stream::{Receiver, Sender};
use peer::deferred_closer::PeerFd;
use peer::{EventFd, EventSet, Listener};

/// Clients that are sent away are told apart by numbers from here on, signals by those from [`SIGNAL`] on.
pub(super) const REFUSED: u64 = 16;
pub(super) const SIGNAL: u64 = 1 << 32;

/// Eventfds that mask or unmask vectors. VFIO's own devices have two, of INTx.
pub(super) const MAX_SIGNALS: usize = 8;

/// Clients that are being sent away at once.
pub(super) const MAX_REFUSED: usize = 4;

pub(super) struct Connection {
    pub(super) since: Instant,
    /// The process that connected, where the kernel says.
    pub(super) pid: Option<Pid>,
    pub(super) socket: PeerFd,
    pub(super) rx: Receiver,
    pub(super) tx: Sender,
    pub(super) twin: Option<Twin>,
    /// What epoll watches the socket for.
    pub(super) watching_out: bool,
    /// It is not listened to: an answer waits for another thread.
    pub(super) paused: bool,
    /// Rung by that thread.
    pub(super) map_bell: Option<Arc<EventFd>>,
}

/// The second socket, for our commands and their replies.
pub(super) struct Twin {
    pub socket: PeerFd,
    pub rx: Receiver,
    pub tx: Sender,
    pub watching_out: bool,
}

/// A client that came while the device was taken.
pub(super) struct Refused {
    pub(super) socket: PeerFd,
    pub(super) rx: Receiver,
    pub(super) token: u64,
}

/// Serves one device to one client after another.
///
/// [`watch`](Self::watch) puts its descriptors into the owner's epoll set, which an owner of many devices has for all of
/// them; an event says that [`process`](Self::process) has something to do. [`run`](Self::run) is the loop for those who
/// have nothing else to do.
pub struct Server {
    pub(super) session: Session,
    pub(super) listener: Listener,
    pub(super) connection: Option<Connection>,
    pub(super) refused: Vec<Refused>,
    pub(super) signals: Vec<Signal>,
    /// Where its descriptors are watched.
    pub(super) set: Option<EventSet>,
    pub(super) dma: Dma,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) calls: u32,
    pub(super) served_one: bool,
    /// Given up for a moment when descriptors run out; see `accept`.
    pub(super) spare: Option<OwnedFd>,
    /// What earlier clients gave does not end, so no other is let in.
    pub(super) out_of_service: bool,
    /// Since when too much of what clients gave has not ended.
    pub(super) choked: Option<Instant>,
    /// What outlives the process.
    pub(super) lifeline: Option<Box<dyn Lifeline>>,
    pub(super) stand: Stand,
}

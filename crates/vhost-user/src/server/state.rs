//! What a server has.

use std::os::fd::OwnedFd;
use std::time::Instant;

use peer::stream::Sender;
use peer::{Listener, PeerFd};

use crate::session::Session;
use crate::stream::Receiver;

/// Rings that a device can have: their numbers have 8 bits where eventfds come.
pub(super) const MAX_QUEUES: u16 = 256;

pub(super) struct Connection {
    pub(super) socket: PeerFd,
    pub(super) rx: Receiver,
    pub(super) tx: Sender,
    /// The socket is watched for room, not for messages.
    pub(super) watching_out: bool,
    /// It is watched for its end only: a message waits for its answer.
    pub(super) watching_end: bool,
    pub(super) since: Instant,
}

/// Serves one device to one front end after another.
///
/// [`watch`](Self::watch) puts its descriptors into the owner's epoll set, which an owner of many
/// devices has for all of them; an event says that [`process`](Self::process) has something to do.
/// [`run`](Self::run) is the loop for those who have nothing else to do.
pub struct Server {
    pub(super) session: Session,
    pub(super) listener: Listener,
    pub(super) connection: Option<Connection>,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) calls: u32,
    pub(super) served_one: bool,
    /// Given up for a moment when descriptors run out; see `accept`.
    pub(super) spare: Option<OwnedFd>,
    /// What earlier front ends gave does not end, so no other is let in.
    pub(super) out_of_service: bool,
    /// Since when too much of what front ends gave has not ended.
    pub(super) choked: Option<Instant>,
}

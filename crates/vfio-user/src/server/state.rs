//! What a server holds, and what its descriptor watches.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use super::listener::Listener;
use super::session::{Session, Signal};
use crate::deferred_closer::PeerFd;
use crate::dma::Dma;
use crate::stream::{Receiver, Sender};

pub(super) const LISTENER: u64 = 0;
pub(super) const WAKE: u64 = 1;
pub(super) const MAIN: u64 = 2;
pub(super) const TWIN: u64 = 3;
pub(super) const STOP: u64 = 4;
pub(super) const REFUSED: u64 = 16;
pub(super) const SIGNAL: u64 = 1 << 32;

pub(super) struct Connection {
    pub(super) since: Instant,
    pub(super) socket: PeerFd,
    pub(super) rx: Receiver,
    pub(super) tx: Sender,
    pub(super) twin: Option<Twin>,
    /// What epoll watches the socket for.
    pub(super) watching_out: bool,
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
/// Everything is behind one descriptor, [`as_fd`](Self::as_fd), which is readable when
/// [`process`](Self::process) has something to do: an owner of many devices puts it into its own
/// epoll set. [`run`](Self::run) is the loop for those who have nothing else to do.
pub struct Server {
    pub(super) session: Session,
    pub(super) listener: Listener,
    pub(super) connection: Option<Connection>,
    pub(super) refused: Vec<Refused>,
    pub(super) signals: Vec<Signal>,
    pub(super) epoll: OwnedFd,
    pub(super) dma: Dma,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) calls: u32,
    pub(super) served_one: bool,
    /// Given up for a moment when descriptors run out; see `accept`.
    pub(super) spare: Option<OwnedFd>,
    /// Since when too much of what clients gave has not ended.
    pub(super) choked: Option<Instant>,
}

pub(super) fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    let data = epoll::EventData::new_u64(token);
    Ok(epoll::add(epoll, fd, data, epoll::EventFlags::IN)?)
}

/// The main socket with replies that wait is watched for room only: its next messages wait too.
/// The twin carries answers to us, which must be read for the peer to go on.
pub(super) fn rewatch(
    epoll: &OwnedFd,
    fd: BorrowedFd<'_>,
    token: u64,
    out: bool,
) -> Result<(), Errno> {
    let flags = match (out, token) {
        (false, _) => epoll::EventFlags::IN,
        (true, TWIN) => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        (true, _) => epoll::EventFlags::OUT,
    };
    epoll::modify(epoll, fd, epoll::EventData::new_u64(token), flags)
}

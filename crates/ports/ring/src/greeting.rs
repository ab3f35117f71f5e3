//! How a connection begins: each side sends one message with two descriptors.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use peer::stream::{Filled, Framed, Receiver};
use peer::{DeferredCloser, EventFd, PeerFd, SharedMem};
use rustix::fs::SealFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};

use crate::config::good_bytes;
use crate::crossing::{CONTROL, Crossing};
use crate::hello::{self, Hello};
use crate::kept::Parts;

/// How long a peer may take to greet.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A connection whose peer has not greeted yet.
pub struct Greeting {
    wire: Wire,
    file: SharedMem,
    bytes: u32,
    event: EventFd,
    /// Until then it has to be done.
    pub until: Instant,
}

/// The socket of a connection, on which nothing comes after the greeting.
pub struct Wire {
    socket: PeerFd,
    receiver: Receiver<Hello>,
    closer: DeferredCloser,
}

/// A connection that stands.
pub struct Met {
    pub crossing: Crossing,
    pub wire: Wire,
    /// What wakes us.
    pub event: EventFd,
    /// Our file and the peer's.
    pub files: (SharedMem, PeerFd),
}

impl Met {
    /// The connection of the process before, if it can go on.
    pub fn resume(parts: Parts) -> Option<Self> {
        let closer = DeferredCloser::default();
        let [socket, ours, our_event, theirs, their_event] = parts.fds;
        let [our_bytes, their_bytes] = parts.bytes;
        let peers = |fd| PeerFd::new(fd, &closer);
        let (socket, theirs, their_event) = (peers(socket), peers(theirs), peers(their_event));
        let is_ring = |bytes: u32| good_bytes(bytes as usize).is_some();
        if !is_ring(our_bytes) || !is_ring(their_bytes) {
            return None;
        }
        let file = SharedMem::from_fd(ours, 0, (CONTROL + our_bytes) as usize).ok()?;
        let event = EventFd::of(our_event);
        let sides = ((&file, our_bytes), (&theirs, their_bytes));
        let crossing = Crossing::new(sides.0, sides.1, their_event, closer.clone()).ok()?;
        Some(Met {
            crossing,
            wire: Wire {
                socket,
                receiver: Receiver::new(hello::LEN, closer.clone()),
                closer,
            },
            event,
            files: (file, theirs),
        })
    }
}

/// How a greeting stands.
pub enum Greeted {
    Waiting,
    /// The peer left, or said nothing for too long.
    Gone,
    /// It said what cannot be.
    Bad,
    Met(Box<Met>),
}

impl Greeting {
    /// Makes our memory and sends our message.
    pub fn begin(socket: OwnedFd, bytes: u32) -> std::io::Result<Self> {
        let closer = DeferredCloser::default();
        let wire = Wire {
            // Descriptors may wait in it that nobody knows: another thread closes it.
            socket: PeerFd::new(socket, &closer),
            receiver: Receiver::new(hello::LEN, closer.clone()),
            closer,
        };
        let file = SharedMem::new("ring-port", (CONTROL + bytes) as usize)?;
        let event = EventFd::new()?;
        let descriptors = [file.as_fd(), event.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let hello = Hello::new(bytes).bytes();
        let sent = port::socket::send_with(&wire.socket, &hello, &mut control)?;
        if sent != hello::LEN {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        Ok(Self {
            wire,
            file,
            bytes,
            event,
            until: Instant::now() + PATIENCE,
        })
    }

    /// Looks what the peer has said.
    pub fn advance(mut self) -> (Greeted, Option<Self>) {
        let late = Instant::now() >= self.until;
        let wire = &mut self.wire;
        match wire.receiver.fill(wire.socket.as_fd()) {
            Ok(Filled::Data) => {}
            Ok(Filled::Empty) if !late => return (Greeted::Waiting, Some(self)),
            _ => return (Greeted::Gone, None),
        }
        let mut fds = Vec::new();
        let hello = match wire.receiver.next(&mut fds) {
            Ok(Some(message)) if message.truncated => Err(()),
            Ok(Some(message)) => Ok(message.header),
            Ok(None) if late => return (Greeted::Gone, None),
            Ok(None) => return (Greeted::Waiting, Some(self)),
            Err(_) => Err(()),
        };
        let closer = &wire.closer;
        let fds: Vec<_> = fds.into_iter().map(|fd| PeerFd::new(fd, closer)).collect();
        let greeted = hello
            .ok()
            .and_then(|hello| self.meet(&hello, fds))
            .map_or(Greeted::Bad, |met| Greeted::Met(Box::new(met)));
        (greeted, None)
    }

    /// Takes what the peer gave, if it is what it has to be.
    fn meet(self, hello: &Hello, fds: Vec<PeerFd>) -> Option<Met> {
        let bytes = hello.ring()?;
        let [file, event] = <[PeerFd; 2]>::try_from(fds).ok()?;
        let wire = self.wire;
        if !(wire.receiver.unread().0.is_empty() && is_sealed(file.as_fd())) {
            return None;
        }
        peer::event::adopt(event.as_fd()).ok()?;
        let (ours, theirs) = ((&self.file, self.bytes), (&file, bytes));
        let crossing = Crossing::new(ours, theirs, event, wire.closer.clone()).ok()?;
        Some(Met {
            crossing,
            wire,
            event: self.event,
            files: (self.file, file),
        })
    }
}

impl AsFd for Greeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

/// Whether a file cannot become shorter: then a page of it can hardly be missing.
fn is_sealed(file: BorrowedFd<'_>) -> bool {
    let seals = peer::asked(file, |file| rustix::fs::fcntl_get_seals(file));
    seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// What a look at a connection's socket found.
pub enum Heard {
    Nothing,
    /// The peer has hung up.
    End,
    /// It speaks, which it must not.
    Words,
}

impl Wire {
    /// Looks what came.
    pub fn hear(&mut self) -> Heard {
        match self.receiver.fill(self.socket.as_fd()) {
            Ok(Filled::Empty) => Heard::Nothing,
            Ok(Filled::Data) => Heard::Words,
            Ok(Filled::Closed) | Err(_) => Heard::End,
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

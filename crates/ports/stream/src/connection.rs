//! The connection, which sink and inlet have in common, and its sending half.

use frame::Counted;
use parking_lot::Mutex;
use port::{Bell, Tally, Waiters};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use crate::memory;

/// Bytes that may wait for the peer to read.
pub(crate) const LIMIT: usize = memory::RING;

/// The sending half of the connection.
#[derive(Default)]
pub struct Out {
    /// The socket, and what is to go there; `None` while no peer is connected.
    to: Option<(Arc<OwnedFd>, memory::Out)>,
    /// A frame as it is sent.
    framed: Vec<u8>,
    /// The socket failed; the inlet takes it from here.
    pub(crate) broken: bool,
    /// The inlet waits for the socket to become writable, so senders need not ring it.
    pub(crate) watched: bool,
    /// Since when nothing has moved although there was no room.
    pub(crate) full_since: Option<Instant>,
}

impl Out {
    /// Bytes waiting.
    pub fn waiting(&self) -> usize {
        self.to.as_ref().map_or(0, |(_, out)| out.waiting())
    }

    /// Starts anew with this socket, or with none. Returns how many bytes were lost.
    pub fn replace(&mut self, to: Option<(Arc<OwnedFd>, memory::Out)>) -> usize {
        let lost = self.waiting();
        *self = Self {
            to,
            framed: std::mem::take(&mut self.framed),
            ..Self::default()
        };
        lost
    }

    /// Whether there is a peer to send to.
    pub fn is_up(&self) -> bool {
        self.to.is_some() && !self.broken
    }

    /// Since when senders have found no room.
    pub fn full_since(&self) -> Option<Instant> {
        self.full_since
    }

    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether the inlet is going to wait for the socket to become writable; it then does.
    pub fn watch(&mut self) -> bool {
        self.watched = self.waiting() > 0 && !self.broken;
        self.watched
    }

    /// Appends a frame. There must be room.
    pub fn push(&mut self, frame: &frame::Frame<'_>) {
        let Some((_, out)) = &mut self.to else { return };
        self.framed.clear();
        self.framed.extend((frame.len() as u32).to_be_bytes());
        let start = self.framed.len();
        self.framed.resize(start + frame.len(), 0);
        frame.copy_to(0, &mut self.framed[start..]);
        out.push(&self.framed);
    }

    /// What was appended is to be sent, by this process or the next one.
    pub fn commit(&mut self) {
        if let Some((_, out)) = &mut self.to {
            out.commit();
        }
    }

    /// Sends what the socket takes; says whether anything moved. Counts its system calls.
    pub fn send(&mut self, calls: &mut u64) -> bool {
        let Some((fd, out)) = self.to.as_mut().filter(|_| !self.broken) else {
            return false;
        };
        let before = out.waiting();
        while out.waiting() > 0 {
            *calls += 1;
            match out.send(&**fd) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.broken = true;
                    break;
                }
            }
        }
        let moved = out.waiting() < before;
        if moved {
            self.full_since = None;
        }
        moved
    }
}

/// What senders and the inlet share.
pub(crate) struct Connection {
    pub(crate) out: Mutex<Out>,
    pub(crate) bell: Bell,
    pub(crate) waiters: Waiters,
    pub(crate) tally: Tally<{ crate::count::NAMES.len() }>,
    pub(crate) patience: Duration,
}

impl Counted for Connection {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let bell = self.bell.syscalls();
        self.tally.counters(&mut |name, value| {
            let more = if name == "syscalls" { bell } else { 0 };
            visit(name, value + more);
        });
    }
}

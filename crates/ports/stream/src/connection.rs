//! The connection, which sink and inlet have in common, and its sending half.

use frame::Counted;
use parking_lot::Mutex;
use port::{Bell, Tally, Waiters};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

/// Bytes that may wait for the peer to read.
pub(crate) const LIMIT: usize = 256 * 1024;

/// The sending half of the connection.
#[derive(Default)]
pub struct Out {
    /// The socket; `None` while no peer is connected.
    pub(crate) fd: Option<Arc<OwnedFd>>,
    /// Framed bytes not yet sent, from `start` on.
    pub(crate) bytes: Vec<u8>,
    start: usize,
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
        self.bytes.len() - self.start
    }

    /// Starts anew with this socket, or with none. Returns how many bytes were lost.
    pub fn replace(&mut self, fd: Option<Arc<OwnedFd>>) -> usize {
        let lost = self.waiting();
        self.bytes.clear();
        *self = Self {
            fd,
            bytes: std::mem::take(&mut self.bytes),
            ..Self::default()
        };
        lost
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

    /// Sends what the socket takes; says whether anything moved. Counts its system calls.
    pub fn send(&mut self, calls: &mut u64) -> bool {
        let Some(fd) = self.fd.as_ref().filter(|_| !self.broken) else {
            return false;
        };
        let before = self.waiting();
        while self.start < self.bytes.len() {
            *calls += 1;
            match port::socket::send(&**fd, &self.bytes[self.start..]) {
                Ok(n) => self.start += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.broken = true;
                    break;
                }
            }
        }
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > LIMIT {
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(self.bytes.len() - self.start);
            self.start = 0;
        }
        let moved = self.waiting() < before;
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
    pub(crate) tally: Tally<14>,
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

//! What the way out and the thread of the way in have in common: the socket of the network's process.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use frame::Counted;
use parking_lot::Mutex;
use port::{Bell, Tally, Waiters};
use rustix::io::Errno;

use crate::{count, message, socket};

/// Frames queued from guests at once.
pub(crate) const QUEUE_FRAMES: usize = 1024;

/// The way to the process.
#[derive(Default)]
pub(crate) struct Out {
    /// Its socket; `None` while it is not there.
    pub(crate) socket: Option<Arc<OwnedFd>>,
    /// Frames not yet sent, from `start` on.
    pub(crate) bytes: Vec<u8>,
    start: usize,
    /// How many those are.
    pub(crate) frames: usize,
    /// The socket failed; the thread takes it from here.
    pub(crate) broken: bool,
    /// The thread waits for the socket to become writable, so senders need not ring it.
    pub(crate) watched: bool,
    /// Since when nothing has moved although there was no room.
    pub(crate) full_since: Option<Instant>,
}

impl Out {
    /// Starts anew with this socket, or with none. Returns how many frames were lost.
    pub(crate) fn replace(&mut self, socket: Option<Arc<OwnedFd>>) -> usize {
        let lost = self.frames;
        self.bytes.clear();
        *self = Self {
            socket,
            bytes: std::mem::take(&mut self.bytes),
            ..Self::default()
        };
        lost
    }

    /// Whether the thread is going to wait for the socket to become writable; it then does.
    pub(crate) fn watch(&mut self) -> bool {
        self.watched = self.frames > 0 && !self.broken;
        self.watched
    }

    /// Sends what the socket takes; says whether anything moved. Counts its system calls.
    pub(crate) fn send(&mut self, calls: &mut u64) -> bool {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.broken) else {
            return false;
        };
        let before = self.frames;
        while self.frames > 0 {
            let (bytes, frames) = message::fitting(&self.bytes[self.start..]);
            *calls += 1;
            match socket::send(socket, &self.bytes[self.start..][..bytes]) {
                Ok(()) => {
                    self.start += bytes;
                    self.frames -= frames;
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => break,
                Err(_) => {
                    self.broken = true;
                    break;
                }
            }
        }
        if self.frames == 0 {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > message::MAX {
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(self.bytes.len() - self.start);
            self.start = 0;
        }
        let moved = self.frames < before;
        if moved {
            self.full_since = None;
        }
        moved
    }
}

/// What senders and the thread share.
pub(crate) struct Link {
    pub(crate) out: Mutex<Out>,
    pub(crate) bell: Bell,
    pub(crate) waiters: Waiters,
    /// The guests take no frames of ours just now, so the queue will not move either.
    pub(crate) stalled: AtomicBool,
    /// The way in is no more.
    pub(crate) closed: AtomicBool,
    pub(crate) tally: Tally<{ count::NAMES.len() }>,
}

impl Link {
    /// Goes on with this process, or without one.
    pub(crate) fn replace(&self, socket: Option<Arc<OwnedFd>>) {
        let lost = self.out.lock().replace(socket);
        self.tally.add(count::DOWN, lost as u64);
        self.stalled.store(false, Ordering::Release);
        self.waiters.wake_all();
    }
}

impl Counted for Link {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let bell = self.bell.syscalls();
        self.tally.counters(&mut |name, value| {
            let more = if name == "syscalls" { bell } else { 0 };
            visit(name, value + more);
        });
    }
}

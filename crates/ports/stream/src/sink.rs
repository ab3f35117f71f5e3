//! The way out: a bounded buffer before a socket that is never waited for.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use frame::{Batch, Caps, Sink, Wake};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::{MAX_FRAME, Shared, count};

/// Bytes that may wait for the peer to read.
const LIMIT: usize = 256 * 1024;

/// The sending half of the connection.
#[derive(Default)]
pub struct Out {
    /// The socket; `None` while nobody is connected.
    fd: Option<Arc<OwnedFd>>,
    /// Framed bytes not yet sent, from `start` on.
    bytes: Vec<u8>,
    start: usize,
    /// The socket failed; the inlet takes it from here.
    broken: bool,
    /// The inlet waits for the socket to become writable, so it need not be told.
    watched: bool,
    /// Since when nothing has moved although there was no room.
    full_since: Option<Instant>,
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
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&**fd, &self.bytes[self.start..], flags) {
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

pub struct StreamSink {
    shared: Arc<Shared>,
}

impl StreamSink {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Sink for StreamSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let tally = &self.shared.tally;
        let mut out = self.shared.out.lock();
        let (mut frames, mut bytes, mut calls, mut done) = (0, 0, 0, 0);
        let mut tell = false;
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else {
                done += 1;
                continue;
            };
            let framed = 4 + frame.len();
            if out.fd.is_none() || out.broken {
                tally.add(count::DOWN, 1);
            } else if !frame.notes().is_plain() {
                tally.add(count::CANNOT_TAKE, 1);
            } else if frame.len() > MAX_FRAME {
                tally.add(count::TOO_LONG, 1);
            } else if out.waiting() + framed > LIMIT && !out.send(&mut calls) {
                let since = *out.full_since.get_or_insert_with(Instant::now);
                if since.elapsed() < self.shared.patience {
                    // The inlet must watch the clock for those who wait now.
                    tell = true;
                    break;
                }
                tally.add(count::STALLED, 1);
            } else if out.waiting() + framed > LIMIT {
                // Something moved, though not enough yet.
                break;
            } else {
                out.bytes.extend((frame.len() as u32).to_be_bytes());
                let start = out.bytes.len();
                out.bytes.resize(start + frame.len(), 0);
                frame.copy_to(0, &mut out.bytes[start..]);
                frames += 1;
                bytes += frame.len() as u64;
            }
            done += 1;
        }
        // One call for the whole batch, unless the socket is known to be full.
        if !out.watched {
            out.send(&mut calls);
        }
        tell |= !out.watched && (out.waiting() > 0 || out.broken);
        drop(out);
        if tell {
            self.shared.bell.ring();
        }
        tally.add(count::FRAMES_OUT, frames);
        tally.add(count::BYTES_OUT, bytes);
        tally.add(count::SYSCALLS, calls);
        done
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.shared.waiters.add(waker);
    }
}

//! What of a connection outlives the process: bytes that came and are not dealt with, bytes that are to be sent, and how far both are.
//!
//! | At      | What                                                                     |
//! |---------|--------------------------------------------------------------------------|
//! | 0       | `begun`: 1 once bytes of a connection may have been moved                |
//! | 8       | `done`: bytes in whose frames the sink has dealt with                    |
//! | 16      | `claim`: bytes behind the frames that the sink is about to be offered    |
//! | 24      | `head`: bytes out that are framed and whole                              |
//! | 128     | how many bytes came ([`Noted`])                                          |
//! | 256     | how many bytes went                                                      |
//! | 4096    | a ring of the bytes that came, from `done` on                            |
//! | 266240  | a ring of the bytes that are to go, up to `head`                         |
//!
//! Bytes are counted from the beginning of the connection. The kernel notes how many came and went within the calls that move them, so a
//! process may die anywhere, and the next one knows where a frame begins.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use peer::{Noted, Piece, SharedMem};
use rustix::io::Errno;

/// Bytes of a ring: what may wait for the peer to read, and what is read at once. It holds the longest frame.
pub const RING: usize = 256 * 1024;

const BEGUN: usize = 0;
const DONE: usize = 8;
const CLAIM: usize = 16;
const HEAD: usize = 24;
const CAME: usize = 128;
const WENT: usize = 256;
/// More bytes than any connection has moved.
const MOST: u64 = 1 << 60;
/// Bytes before the rings.
const WORDS: usize = 4096;
const IN: usize = WORDS;
const OUT: usize = IN + RING;
const LEN: usize = OUT + RING;

const _: () = assert!(CAME + Noted::BYTES <= WENT && WENT + Noted::BYTES <= WORDS);

/// Where a test lets the process die: before each store that the next one can see. (Calls have a test of their own, in `peer`.)
#[cfg(not(test))]
#[inline(always)]
fn step() {}
#[cfg(test)]
use crate::tests::death::step;

/// The memory of a port, one connection after the other.
#[derive(Clone, Debug)]
pub struct Memory(SharedMem);

impl Memory {
    pub fn new() -> std::io::Result<Self> {
        SharedMem::new("stream-port", LEN).map(Self::pinned)
    }

    /// The memory that the process before has left.
    pub fn of(file: OwnedFd) -> Option<Self> {
        SharedMem::from_fd(file, 0, LEN).ok().map(Self::pinned)
    }

    fn pinned(memory: SharedMem) -> Self {
        memory.pin(WORDS);
        Self(memory)
    }

    /// Whether there was a connection of which bytes may have been moved.
    pub fn has_begun(&self) -> bool {
        self.load(BEGUN) != 0
    }

    /// There is a connection, which is kept by now: its bytes may be moved.
    pub fn note_begun(&self) {
        if !self.has_begun() {
            self.store(BEGUN, 1);
        }
    }

    /// A connection begins, of which nothing came and nothing went.
    pub fn begin(&self) -> (In, Out) {
        for word in [DONE, CLAIM, HEAD] {
            self.store(word, 0);
        }
        for place in [CAME, WENT] {
            Noted::resume(self.0.clone(), place).begin();
        }
        (In::at(self, 0), Out::at(self, 0, 0))
    }

    /// The connection goes on where the process before has left it, and says how many bytes of frames that was passing on: those are
    /// taken for passed on, so that no frame comes twice. `None`: nobody leaves it so.
    pub fn resume(&self) -> Option<(In, Out, u64)> {
        let (done, claim) = (self.load(DONE), self.load(CLAIM));
        let mut inward = In::at(self, claim);
        let outward = Out::at(self, self.load(HEAD), 0);
        let outward = Out {
            tail: outward.noted.moved(),
            ..outward
        };
        let unsure = claim.checked_sub(done)?;
        inward.end.checked_sub(claim)?;
        let kept = inward.end.checked_sub(done)?;
        let waiting = outward.head.checked_sub(outward.tail)?;
        if kept.max(waiting) > RING as u64 || inward.end.max(outward.head) > MOST {
            return None;
        }
        inward.settle(claim);
        Some((inward, outward, unsure))
    }

    fn load(&self, word: usize) -> u64 {
        self.0.load_u64(word, Ordering::Acquire)
    }

    fn store(&self, word: usize, value: u64) {
        step();
        self.0.store_u64(word, value, Ordering::Release);
    }

    /// Where `len` bytes of a ring are.
    fn pieces(ring: usize, from: u64, len: usize) -> [Piece; 2] {
        let at = (from % RING as u64) as usize;
        let first = len.min(RING - at);
        [(ring + at, first), (ring, len - first)]
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Bytes that came.
pub struct In {
    memory: Memory,
    noted: Noted,
    done: u64,
    claim: u64,
    /// Bytes that were looked at.
    pub parsed: u64,
    end: u64,
}

impl In {
    fn at(memory: &Memory, parsed: u64) -> Self {
        let noted = Noted::resume(memory.0.clone(), CAME);
        Self {
            done: memory.load(DONE),
            claim: memory.load(CLAIM),
            parsed,
            end: noted.moved(),
            memory: memory.clone(),
            noted,
        }
    }

    /// The next bytes, from `skip` on, if so many are there.
    pub fn copy(&self, skip: usize, to: &mut [u8]) -> bool {
        let there = (self.end - self.parsed) as usize;
        if skip + to.len() > there {
            return false;
        }
        let from = self.parsed + skip as u64;
        let [(at, first), (begin, _)] = Memory::pieces(IN, from, to.len());
        let (one, other) = to.split_at_mut(first);
        self.memory.0.read(at, one);
        if !other.is_empty() {
            self.memory.0.read(begin, other);
        }
        true
    }

    /// Receives once. All that was parsed must have been dealt with, or there may be no room.
    pub fn fill(&mut self, socket: impl AsFd) -> Result<usize, Errno> {
        let room = RING - (self.end - self.done) as usize;
        let into = Memory::pieces(IN, self.end, room);
        let came = self.noted.receive(socket, into)?;
        self.end += came as u64;
        Ok(came)
    }

    /// What was parsed is about to be passed on.
    pub fn claim(&mut self) {
        if self.claim != self.parsed {
            self.claim = self.parsed;
            self.memory.store(CLAIM, self.claim);
        }
    }

    /// All up to here was dealt with, and nothing behind it is being passed on.
    pub fn settle(&mut self, to: u64) {
        if self.done != to {
            self.done = to;
            self.memory.store(DONE, to);
        }
        if self.claim != to {
            self.claim = to;
            self.memory.store(CLAIM, to);
        }
    }

    /// Up to where it was dealt with.
    pub fn done(&self) -> u64 {
        self.done
    }
}

/// Bytes that are to go.
pub struct Out {
    memory: Memory,
    noted: Noted,
    /// With what is not committed yet.
    head: u64,
    committed: u64,
    tail: u64,
}

impl Out {
    fn at(memory: &Memory, head: u64, tail: u64) -> Self {
        Self {
            noted: Noted::resume(memory.0.clone(), WENT),
            memory: memory.clone(),
            head,
            committed: head,
            tail,
        }
    }

    /// Bytes waiting.
    pub fn waiting(&self) -> usize {
        (self.head - self.tail) as usize
    }

    /// Appends a whole frame, as it is to be sent. There must be room.
    pub fn push(&mut self, framed: &[u8]) {
        debug_assert!(self.waiting() + framed.len() <= RING);
        let [(at, first), (begin, _)] = Memory::pieces(OUT, self.head, framed.len());
        let (one, other) = framed.split_at(first);
        self.memory.0.write(at, one);
        if !other.is_empty() {
            self.memory.0.write(begin, other);
        }
        self.head += framed.len() as u64;
    }

    /// What was appended is to be sent, whatever becomes of this process.
    pub fn commit(&mut self) {
        if self.committed != self.head {
            self.committed = self.head;
            self.memory.store(HEAD, self.head);
        }
    }

    /// Sends once what the socket takes of what is waiting.
    pub fn send(&mut self, socket: impl AsFd) -> Result<usize, Errno> {
        self.commit();
        let from = Memory::pieces(OUT, self.tail, self.waiting());
        let went = self.noted.send(socket, from)?;
        self.tail += went as u64;
        Ok(went)
    }
}

//! The memory of both sides, mapped, and the way to wake the peer.
//!
//! The file of a side begins with a page of words, each in a cache line of its own, and goes on with its ring:
//!
//! | At  | What                                                                       |
//! |-----|----------------------------------------------------------------------------|
//! | 0   | `head`: bytes that this side has put into its ring                          |
//! | 64  | `tail`: bytes that it has taken from the peer's ring                        |
//! | 128 | `sleeps`: it waits for its eventfd                                         |
//! | 192 | `wants_room`: it waits for room in its ring                                |
//! | 256 | `claim`: `tail` behind the frames that it is about to pass on, for itself    |
//!
//! Heads and tails wrap. `sleeps` and `wants_room` are 0 for no and a number that is another each time for yes, so that the
//! peer rings once for each. A side writes its own file only.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guest_mem::{MapError, Memory, Prot, View, Words};
use peer::signal::{Line, SLOW, Signaller};
use peer::{DeferredCloser, PeerFd};

/// Bytes before the ring.
pub const CONTROL: u32 = 4096;
/// Places of the words.
pub const HEAD: u32 = 0;
pub const TAIL: u32 = 64;
pub const SLEEPS: u32 = 128;
pub const WANTS_ROOM: u32 = 192;
pub const CLAIM: u32 = 256;
/// Bytes from the first to behind the last.
const WORDS: u32 = 320;

/// Where our file is in the map, and where the peer's is.
const OURS: u64 = 1 << 32;
const THEIRS: u64 = 1 << 33;
/// Where the rings are.
pub const OUR_RING: u64 = OURS + CONTROL as u64;
pub const THEIR_RING: u64 = THEIRS + CONTROL as u64;

/// What the peer wrote cannot be, or its memory is gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

/// Both files of a connection. The last who drops it has another thread unmap them.
pub struct Crossing {
    memory: Memory,
    /// Bytes of our ring, and of the peer's.
    pub ours: u32,
    pub theirs: u32,
    line: Arc<Line>,
    signaller: Signaller,
    broken: AtomicBool,
    closer: DeferredCloser,
}

impl Crossing {
    /// Maps our file, which is there, and the peer's, which may be anything.
    pub fn new(
        (our_file, ours): (&impl AsFd, u32),
        (their_file, theirs): (&impl AsFd, u32),
        event: PeerFd,
        closer: DeferredCloser,
    ) -> Result<Self, MapError> {
        let memory = Memory::new();
        let (control, ring) = (u64::from(CONTROL), u64::from(theirs));
        let len = control + u64::from(ours);
        memory.map_fd(OURS, len, our_file.as_fd(), 0, Prot::RW)?;
        let file = their_file.as_fd();
        // As the file is long enough for the ring, the words before it are there, too.
        memory.map_fd(THEIR_RING, ring, file, control, Prot::RO)?;
        // For words that are read whole, the map asks for a region that may be written. Nobody does.
        memory.map_fd(THEIRS, control, file, 0, Prot::RW)?;
        Ok(Self {
            memory,
            ours,
            theirs,
            line: Line::new(event),
            signaller: Signaller::new(SLOW),
            broken: AtomicBool::new(false),
            closer,
        })
    }

    /// Pins both for one batch.
    #[inline]
    pub fn view(&self) -> View<'_> {
        self.memory.view()
    }

    /// What the peer is woken by.
    pub fn their_event(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// Wakes the peer, without ever waiting for it.
    pub fn wake(&self) {
        self.signaller.signal(&self.line);
    }

    /// The connection has to end; `true` for the first who says so.
    pub fn fail(&self) -> bool {
        !self.broken.swap(true, Ordering::AcqRel)
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        // To unmap a peer's memory may be to free all of it.
        self.closer.bury(self.memory.unmap_all());
    }
}

/// Our words.
#[inline]
pub fn our_words<'v>(view: &'v View<'_>) -> Result<Words<'v>, Broken> {
    view.words(OURS, WORDS).ok_or(Broken)
}

/// The peer's words; none when its file was cut off.
#[inline]
pub fn their_words<'v>(view: &'v View<'_>) -> Result<Words<'v>, Broken> {
    view.words(THEIRS, WORDS).ok_or(Broken)
}

/// Another number than 0 and the one before.
pub fn another(number: u32) -> u32 {
    number.wrapping_add(1).max(1)
}

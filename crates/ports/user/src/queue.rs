//! What the way out and the thread of libslirp have in common.

use std::sync::atomic::AtomicBool;

use frame::Counted;
use parking_lot::Mutex;
use port::{Bell, Tally, Waiters};

/// Frames queued from guests at once.
pub(crate) const QUEUE_FRAMES: usize = 1024;

/// Frames from guests on their way to libslirp, one behind the other.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lens: Vec<u16>,
}

/// What the senders and the inlet share.
pub(crate) struct UserQueue {
    pub(crate) queue: Mutex<Queue>,
    pub(crate) bell: Bell,
    pub(crate) waiters: Waiters,
    /// The guests take no frames of ours just now, so the queue will not move either.
    pub(crate) stalled: AtomicBool,
    /// The inlet is no more.
    pub(crate) closed: AtomicBool,
    pub(crate) tally: Tally<14>,
}

impl Counted for UserQueue {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let bell = self.bell.syscalls();
        self.tally.counters(&mut |name, value| {
            let more = if name == "syscalls" { bell } else { 0 };
            visit(name, value + more);
        });
    }
}

//! A worker's answer to the question whether it still turns.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// What a worker is asked, and has answered.
#[derive(Default)]
pub(super) struct Pulse {
    asked: AtomicU64,
    answered: AtomicU64,
    /// The kernel's number of its thread; 0 while there is none.
    tid: AtomicI32,
}

impl Pulse {
    /// For the worker's thread, when it begins.
    pub(super) fn begin(&self) {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.answer();
        self.tid.store(tid, Ordering::Release);
    }

    /// For the worker's thread, at the beginning of its loop.
    #[inline]
    pub(super) fn answer(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked != self.answered.load(Ordering::Relaxed) {
            self.answered.store(asked, Ordering::Release);
        }
    }

    /// An answer is owed.
    #[inline]
    pub(super) fn is_owed(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != self.answered.load(Ordering::Acquire)
    }

    /// Asks anew.
    pub(super) fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// The kernel's number of the thread, once it runs.
    pub(super) fn thread(&self) -> Option<i32> {
        Some(self.tid.load(Ordering::Acquire)).filter(|tid| *tid != 0)
    }
}

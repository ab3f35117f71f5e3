//! What a task has had of its worker.

use std::sync::atomic::{AtomicU64, Ordering};

use model::Nanos;

/// The most that one turn counts if nothing says why it took longer. Turns are bounded and shorter than this; what
/// takes longer is a thread that was not running, which is not the NIC's fault.
pub(super) const MOST: Nanos = 200_000;
/// What a copy of a frame that floods takes at most. A turn of many counts so much longer.
const COPY: Nanos = 2_000;

/// What a task has had, in nanoseconds of its worker's account. Only the thread that holds the task
/// writes it.
#[derive(Debug, Default)]
pub(super) struct Spent(pub(super) AtomicU64);

impl Spent {
    /// A turn took so long, in which receivers made so many copies of its frames.
    pub fn charge(&self, time: Nanos, copies: u64) {
        let had = self.0.load(Ordering::Relaxed);
        self.0.store(
            had + time.min(MOST.max(copies.saturating_mul(COPY))),
            Ordering::Relaxed,
        );
    }
}

//! What a task has had of its worker.

use std::sync::atomic::{AtomicU64, Ordering};

use model::Nanos;

/// The most that one turn counts. Turns are bounded and shorter than this; what takes longer is a
/// thread that was not running, which is not the NIC's fault.
pub(super) const MOST: Nanos = 200_000;

/// What a task has had, in nanoseconds of its worker's account. Written by whoever has the task in
/// hand.
#[derive(Debug, Default)]
pub(super) struct Spent(pub(super) AtomicU64);

impl Spent {
    /// A turn took so long.
    pub fn charge(&self, time: Nanos) {
        let had = self.0.load(Ordering::Relaxed);
        self.0.store(had + time.min(MOST), Ordering::Relaxed);
    }
}

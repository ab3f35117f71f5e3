//! Whether this worker leaves what it has open to the next one.

use std::sync::atomic::{AtomicBool, Ordering};

static LEAVES: AtomicBool = AtomicBool::new(false);

/// From now on ports that are dropped are not closed: the next worker goes on with them.
pub(crate) fn begin() {
    LEAVES.store(true, Ordering::Release);
}

pub(crate) fn are() -> bool {
    LEAVES.load(Ordering::Acquire)
}

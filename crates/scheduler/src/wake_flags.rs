//! What an item is called for.

use crate::sync::{AtomicU32, Ordering};

/// Set while the item is on a list, or a worker holds it: the worker looks at the bits again before
/// it releases the item, so no other thread needs to list it.
const LISTED: u32 = 1 << 31;

/// The calls of one item: a set of bits, and whether a worker will look at them.
///
/// The thread that sets that flag ([`raise`](Self::raise) or [`claim`](Self::claim) returns `true`)
/// must list the item or take it, and no other thread may.
#[derive(Debug)]
pub struct WakeFlags(AtomicU32);

impl WakeFlags {
    /// No call; the creator holds the item.
    pub fn held() -> Self {
        Self(AtomicU32::new(LISTED))
    }

    /// WakeFlags the item for `bits` (the topmost is not the caller's). `true`: the caller lists it.
    pub fn raise(&self, bits: u32) -> bool {
        self.0.fetch_or(bits | LISTED, Ordering::AcqRel) & LISTED == 0
    }

    /// Takes the item without calling it. `true`: the caller holds it now.
    pub fn claim(&self) -> bool {
        self.raise(0)
    }

    /// The bits raised since the last time. What a caller did before it raised one is done. Only
    /// for the thread that holds the item.
    pub fn take(&self) -> u32 {
        self.0.fetch_and(LISTED, Ordering::AcqRel) & !LISTED
    }

    /// Releases the item, unless it was called meanwhile (`false`).
    pub fn rest(&self) -> bool {
        self.0
            .compare_exchange(LISTED, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_call_lists() {
        let calls = WakeFlags::held();
        assert!(!calls.raise(1));
        assert!(!calls.rest());
        assert_eq!(calls.take(), 1);
        assert!(calls.rest());
        assert!(calls.raise(2) && !calls.raise(4) && !calls.claim());
        assert_eq!((calls.take(), calls.take()), (6, 0));
        assert!(calls.rest() && calls.claim() && calls.rest());
    }
}

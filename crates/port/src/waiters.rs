//! Those who wait for room.

use std::sync::Arc;

use frame::Wake;

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Senders that asked for one wake each ([`frame::Sink::want_room`]).
///
/// A sender that finds no room adds itself, looks once more, and only then waits. Whether there is
/// room has to be looked at and changed under a lock (or with sequentially consistent operations):
/// then one of the two sees the other, whatever the order (`make loom`).
pub struct Waiters {
    any: AtomicBool,
    list: Mutex<Vec<Arc<dyn Wake>>>,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            any: AtomicBool::new(false),
            list: Mutex::new(Vec::new()),
        }
    }
}

impl Waiters {
    /// No sender waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sender, unless it is waiting already.
    pub fn add(&self, waker: &Arc<dyn Wake>) {
        let mut list = lock(&self.list);
        if !list.iter().any(|w| Arc::ptr_eq(w, waker)) {
            list.push(Arc::clone(waker));
        }
        // A swap and not a store: it stands after a swap of `wake_all` that came before it in one
        // order for all, and not only in this thread's.
        self.any.swap(true, Ordering::SeqCst);
    }

    /// Wakes all of them, once. Call it after making room; nearly free when no sender waits.
    pub fn wake_all(&self) {
        if self.any.swap(false, Ordering::SeqCst) {
            // Wakes without the lock, so that a sender that adds itself meanwhile is not held up.
            let woken = std::mem::take(&mut *lock(&self.list));
            woken.iter().for_each(|waker| waker.wake());
        }
    }
}

//! Those who wait for room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frame::Wake;
use parking_lot::Mutex;

/// Senders that asked for one wake each ([`frame::Sink::want_room`]).
#[derive(Default)]
pub struct Waiters {
    any: AtomicBool,
    list: Mutex<Vec<Arc<dyn Wake>>>,
}

impl Waiters {
    /// Nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sender, unless it is waiting already.
    pub fn add(&self, waker: &Arc<dyn Wake>) {
        let mut list = self.list.lock();
        if !list.iter().any(|w| Arc::ptr_eq(w, waker)) {
            list.push(Arc::clone(waker));
        }
        self.any.store(true, Ordering::SeqCst);
    }

    /// Wakes all of them, once. Call it after making room; nearly free when nobody waits.
    pub fn wake_all(&self) {
        if self.any.swap(false, Ordering::SeqCst) {
            for waker in std::mem::take(&mut *self.list.lock()) {
                waker.wake();
            }
        }
    }
}

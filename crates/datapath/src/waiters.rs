//! Senders that found no room and wait for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use frame::Wake;
use parking_lot::Mutex;

/// Their wakers, each of them once.
#[derive(Default)]
#[repr(C)]
pub struct Waiters {
    /// There are some, or were a moment ago. Changed under the lock. First: often it is all that is looked at.
    any: AtomicBool,
    list: Mutex<Vec<Arc<dyn Wake>>>,
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").field("any", &self.any).finish()
    }
}

impl Waiters {
    /// Adds a sender's waker, unless it waits already.
    pub fn add(&self, waker: &Arc<dyn Wake>) {
        let mut list = self.list.lock();
        if !list.iter().any(|known| Arc::ptr_eq(known, waker)) {
            list.push(Arc::clone(waker));
        }
        self.any.store(true, Ordering::Release);
        // For `wake_behind`: the caller tries once more, and does not look before this.
        fence(Ordering::SeqCst);
    }

    /// Whether senders wait, or waited a moment ago.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Wakes all of them.
    pub fn wake(&self) {
        let list = {
            let mut list = self.list.lock();
            self.any.store(false, Ordering::Release);
            std::mem::take(&mut *list)
        };
        for waker in list {
            waker.wake();
        }
    }

    /// As [`Waiters::wake`], for a caller that has just stored what senders look at: room. Either it sees here that one waits, or that
    /// one sees the room when it tries once more ([`frame::Sink::want_room`]).
    #[inline]
    pub fn wake_behind(&self) {
        fence(Ordering::SeqCst);
        if self.any() {
            self.wake();
        }
    }

    /// As [`Waiters::wake`], for a caller that has held the lock of the receive side since there is room. No
    /// lock is taken when no sender waits: one that registers too late to be seen here tries once more
    /// ([`frame::Sink::want_room`]), takes the receive lock for that after the caller, and finds the room.
    #[inline]
    pub fn wake_any(&self) {
        if self.any() {
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_sender_is_woken_once_for_each_time_it_waits() {
        let waiters = Waiters::default();
        let [a, b] = [0, 0].map(|n| Arc::new(Count(AtomicU32::new(n))));
        let [wake_a, wake_b]: [Arc<dyn Wake>; 2] = [a.clone(), b.clone()];
        let counts = || [&a, &b].map(|count| count.0.load(Ordering::Relaxed));
        waiters.wake();
        waiters.wake_any();
        assert_eq!(counts(), [0, 0]);
        for waker in [&wake_a, &wake_b, &wake_a] {
            waiters.add(waker);
        }
        assert!(waiters.any());
        waiters.wake_any();
        assert_eq!(counts(), [1, 1]);
        assert!(!waiters.any());
        waiters.add(&wake_b);
        waiters.wake_behind();
        waiters.wake_behind();
        assert_eq!(counts(), [1, 2]);
    }
}

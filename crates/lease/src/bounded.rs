//! Locks that are waited for only so long.
//!
//! The holder of a receive lock copies frames, and a copy may wait for a page of memory that another process punches out of
//! its file. Senders wait [`PATIENCE`] for such a holder, one after the other not at all, and then find no room. The holder
//! learns that it has turned somebody away when it has let go ([`BoundedLock::relieve`]), and wakes them.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, fence, lock, try_lock, try_lock_for};

/// Longest wait for a lock that is held too long. A batch takes microseconds.
pub const PATIENCE: Duration = Duration::from_millis(2);

/// What is known of a lock that is held too long.
#[derive(Debug)]
pub struct HeldUp {
    /// One has waited in vain: the next ones do not.
    stuck: AtomicBool,
    /// Somebody was turned away and is to be woken.
    turned_away: AtomicBool,
}

impl Default for HeldUp {
    fn default() -> Self {
        HeldUp::new()
    }
}

impl HeldUp {
    /// Nobody waits.
    pub fn new() -> HeldUp {
        HeldUp {
            stuck: AtomicBool::new(false),
            turned_away: AtomicBool::new(false),
        }
    }

    /// The lock, for one that has found it taken: by `try_for`, which waits for [`PATIENCE`], or by `try_now`. `None`: the
    /// caller is turned away.
    #[cold]
    pub fn wait<G>(
        &self,
        try_for: impl FnOnce() -> Option<G>,
        try_now: impl FnOnce() -> Option<G>,
    ) -> Option<G> {
        if !self.stuck.load(Ordering::Relaxed) {
            if let Some(guard) = try_for() {
                return Some(guard);
            }
            self.stuck.store(true, Ordering::Relaxed);
        }
        self.turned_away.store(true, Ordering::Relaxed);
        // Either the holder sees that when it has let go, or the lock is free now.
        fence(Ordering::SeqCst);
        try_now()
    }

    /// The same for a mutex.
    #[inline]
    pub(crate) fn reach<'a, T>(&self, of: &'a Mutex<T>) -> Option<MutexGuard<'a, T>> {
        self.wait(|| try_lock_for(of, PATIENCE), || try_lock(of))
    }

    /// For a holder that has let go: whether somebody is to be woken.
    #[inline]
    pub fn relieve(&self) -> bool {
        fence(Ordering::SeqCst);
        self.turned_away.load(Ordering::Relaxed) && self.forget()
    }

    #[cold]
    fn forget(&self) -> bool {
        self.stuck.store(false, Ordering::Relaxed);
        self.turned_away.swap(false, Ordering::Relaxed)
    }
}

/// A lock that its senders wait for only so long.
#[derive(Debug)]
pub struct BoundedLock<T> {
    inner: Mutex<T>,
    held_up: HeldUp,
}

/// The lock, held.
pub struct BoundedGuard<'a, T>(MutexGuard<'a, T>);

impl<T: Default> Default for BoundedLock<T> {
    fn default() -> Self {
        BoundedLock::new(T::default())
    }
}

impl<T> BoundedLock<T> {
    /// One that is free.
    pub fn new(own: T) -> Self {
        BoundedLock {
            inner: Mutex::new(own),
            held_up: HeldUp::new(),
        }
    }

    /// Waits as long as it takes: for those who change what the holder stands on.
    pub fn lock(&self) -> BoundedGuard<'_, T> {
        BoundedGuard(lock(&self.inner))
    }

    /// Waits [`PATIENCE`] at most. `None`: somebody else has it for long, and will find out by [`Self::relieve`] that the
    /// caller wanted it.
    #[inline]
    pub fn reach(&self) -> Option<BoundedGuard<'_, T>> {
        let guard = try_lock(&self.inner).or_else(|| self.held_up.reach(&self.inner));
        guard.map(BoundedGuard)
    }

    /// To be called by a holder that has let go: whether it has turned somebody away meanwhile. Says so once.
    #[inline]
    pub fn relieve(&self) -> bool {
        self.held_up.relieve()
    }
}

impl<T> Deref for BoundedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for BoundedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

//! What the lease protocol is made of: real locks, or loom's when its interleavings are explored.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
    use std::time::Duration;

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock()
    }

    pub(crate) fn try_lock_for<T>(mutex: &Mutex<T>, most: Duration) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock_for(most)
    }

    pub(crate) fn wait<'a, T>(on: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        on.wait(&mut guard);
        guard
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    use std::time::Duration;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no thread panics")
    }

    pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.try_lock().ok()
    }

    /// Time does not pass in a model: the wait is over at once.
    pub(crate) fn try_lock_for<T>(mutex: &Mutex<T>, _: Duration) -> Option<MutexGuard<'_, T>> {
        try_lock(mutex)
    }

    pub(crate) fn wait<'a, T>(on: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        on.wait(guard).expect("no thread panics")
    }
}

pub(crate) use real::*;

//! A process that dies at one of the stores that the next one can see.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

thread_local! {
    /// Stores until this process dies.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// What a process dies of.
pub struct Death;

pub fn step() {
    let left = LEFT.get();
    if left == 0 {
        panic_any(Death);
    }
    LEFT.set(left - 1);
}

/// Runs, and dies at the store after so many. `None`: it has.
pub fn until<T>(stores: usize, run: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(stores);
    let result = catch_unwind(AssertUnwindSafe(run));
    LEFT.set(usize::MAX);
    match result {
        Ok(value) => Some(value),
        Err(death) if death.is::<Death>() => None,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

//! A process that dies where a test wants it to: at a step that code under test has counted.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Steps until this thread's process dies.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

struct Death;

/// Dies here, if it is the step.
pub fn step() {
    LEFT.with(|left| {
        let now = left.get();
        left.set(now.saturating_sub(1));
        if now == 0 {
            // What ends on the way ends as in a process that lives on; it changes nothing that outlives it.
            left.set(u64::MAX);
            resume_unwind(Box::new(Death));
        }
    });
}

/// Lets `work` take so many steps. `None`: it died.
pub fn living<T>(steps: u64, work: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(steps);
    let result = catch_unwind(AssertUnwindSafe(work));
    match result {
        Ok(done) => Some(done),
        Err(death) if death.is::<Death>() => None,
        Err(other) => resume_unwind(other),
    }
}

/// Steps that are left.
pub fn left() -> u64 {
    LEFT.get()
}

/// Lives on, however many steps there are.
pub fn live_on() {
    LEFT.set(u64::MAX);
}

//! What the device has changed by itself, and another process is to know that goes on when this one dies: commands that were done,
//! a ring that broke. It is saved behind the device's work. The driver sees no answer to a command before that.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const NONE: u8 = 0;
/// Commands were done, and their answers are not shown.
const DONE: u8 = 1;
/// What they have changed is saved.
const SAVED: u8 = 2;

/// What is not saved.
#[derive(Debug, Default)]
pub struct Unsaved {
    changed: AtomicBool,
    answers: AtomicU8,
    /// Somebody saves.
    keeps: AtomicBool,
}

impl Unsaved {
    /// From now on somebody saves what changes.
    pub fn keep(&self) {
        self.keeps.store(true, Ordering::Release);
    }

    /// The device has changed.
    pub fn change(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// Whether it has since the last call.
    pub fn take(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    /// A command was done. `true`: its answer is to wait until what it has changed is saved.
    pub fn will_be_saved(&self) -> bool {
        let keeps = self.keeps.load(Ordering::Acquire);
        if keeps {
            self.answers.store(DONE, Ordering::Release);
            self.change();
        }
        keeps
    }

    /// Whether answers wait.
    pub fn waits(&self) -> bool {
        self.answers.load(Ordering::Acquire) != NONE
    }

    /// What was changed is saved.
    pub fn settle(&self) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        // Otherwise no answer waits, or it is known already.
        let _ = self.answers.compare_exchange(DONE, SAVED, success, failure);
    }

    /// Whether answers wait whose commands are saved. They are shown by the caller.
    pub fn take_saved(&self) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.answers
            .compare_exchange(SAVED, NONE, success, failure)
            .is_ok()
    }

    /// No answer waits: the queue they are in is gone.
    pub fn reset(&self) {
        self.answers.store(NONE, Ordering::Release);
    }
}

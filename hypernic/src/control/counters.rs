//! How calls have fared.

use std::sync::atomic::{AtomicU64, Ordering};

use frame::Counted;

use crate::report::Section;

/// How many connections and calls there were, and what became of those that were not served.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub connections: AtomicU64,
    pub done: AtomicU64,
    /// From a user without a role.
    pub stranger: AtomicU64,
    /// No whole call came within its time.
    pub no_request: AtomicU64,
    /// The message is no call.
    pub malformed: AtomicU64,
    /// What is asked for cannot be.
    pub refused: AtomicU64,
    /// The caller's role does not allow the call.
    pub not_allowed: AtomicU64,
    /// The client was gone or did not read.
    pub reply_not_taken: AtomicU64,
    /// Connections closed to make room for others.
    pub crowded_out: AtomicU64,
}

impl Counters {
    pub fn section(&self) -> Section {
        Section::of("control", "socket", self)
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counted for Counters {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        for (name, counter) in [
            ("control_connections", &self.connections),
            ("control_done", &self.done),
            ("control_stranger", &self.stranger),
            ("control_no_request", &self.no_request),
            ("control_malformed", &self.malformed),
            ("control_refused", &self.refused),
            ("control_not_allowed", &self.not_allowed),
            ("control_reply_not_taken", &self.reply_not_taken),
            ("control_crowded_out", &self.crowded_out),
        ] {
            visit(name, counter.load(Ordering::Relaxed));
        }
    }
}

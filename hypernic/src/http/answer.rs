//! What is answered, and how often it is an error.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What is answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Status and reason.
    pub status: &'static str,
    /// Its `Content-Type`.
    pub kind: &'static str,
    pub body: Arc<Vec<u8>>,
}

impl Answer {
    pub fn new(status: &'static str, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            kind,
            body: Arc::new(body.into()),
        }
    }

    /// A line for people.
    pub fn line(status: &'static str, line: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{line}\n"))
    }
}

/// What a server counts of its clients.
#[derive(Default)]
pub(crate) struct Counters {
    /// Connections that were closed before their request was answered.
    pub cut: AtomicU64,
    /// Requests that were answered by an error.
    pub refused: AtomicU64,
}

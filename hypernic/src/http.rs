//! HTTP/1 for the programs beside the daemon, `hypernic exporter` and `hypernic web`: few connections at once, none of
//! them for long, one request on each, and small.

mod listen;
mod request;
mod server;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::Error;

pub(crate) use self::listen::Listening;
pub(crate) use self::request::{Asked, Method, Names, Rules};
pub(crate) use self::server::serve;

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

/// What is served.
pub(crate) trait Site: Sync {
    /// Which requests come to [`Site::answer`].
    fn rules(&self) -> &Rules;

    /// Fields of every answer, each with its end of line.
    fn fields(&self) -> &str {
        ""
    }

    fn counters(&self) -> &Counters;

    /// Answers in bounded time. A status from 400 on is counted as refused.
    fn answer(&self, asked: &Asked) -> Answer;
}

/// A program that is to serve has no socket.
pub(crate) fn not_listening() -> Error {
    Error::Usage("it listens nowhere".into())
}

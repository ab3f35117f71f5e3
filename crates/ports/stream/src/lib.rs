//! The stream port: QEMU's length-prefixed socket framing (`-netdev stream`), which passt, other
//! QEMUs and many tools speak.
//!
//! A frame is its length as a big-endian 32-bit number and its bytes. The peer may come, go and
//! come back: meanwhile the link is down, frames are dropped and counted, and a port that connects
//! tries again with growing pauses.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod count;
mod endpoint;
mod inlet;
mod sink;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use config::{Endpoint, MAX_FRAME, StreamConfig, StreamError};
use connection::Connection;
use parking_lot::Mutex;
use port::{Bell, Port, Tally, Waiters};

/// Makes a stream port. A peer that is not there yet is no error: the link is down until it is.
///
/// # Errors
/// A [`StreamError`] that names the cause and the cure.
pub fn open(config: StreamConfig) -> Result<Port, StreamError> {
    let name = endpoint::describe(&config.endpoint);
    let source = endpoint::Source::new(config.endpoint)?;
    let shared = Arc::new(Connection {
        out: Mutex::default(),
        bell: Bell::new()?,
        waiters: Waiters::new(),
        tally: Tally::new(count::NAMES),
        patience: config.patience,
    });
    let retry = (config.retry_min, config.retry_max);
    let inlet = inlet::StreamInlet::new(source, retry, Arc::clone(&shared));
    Ok(Port {
        name,
        sink: Arc::new(sink::StreamSink::new(Arc::clone(&shared))),
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

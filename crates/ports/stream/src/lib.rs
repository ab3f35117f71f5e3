//! The stream port: QEMU's length-prefixed socket framing (`-netdev stream`), which passt, other
//! QEMUs and many tools speak.
//!
//! A frame is its length as a big-endian 32-bit number and its bytes. The peer may come, go and
//! come back: meanwhile the link is down, frames are dropped and counted, and a port that connects
//! tries again with growing pauses. A connection may outlive the process ([`Keeps`]).
#![forbid(unsafe_code)]

mod config;
mod connection;
mod count;
mod endpoint;
mod inlet;
mod kept;
mod memory;
mod sink;
#[cfg(test)]
mod tests;

use std::os::fd::AsFd;
use std::sync::Arc;

pub use config::{Endpoint, MAX_FRAME, StreamConfig, StreamError};
use connection::Connection;
pub use kept::{Keeps, Parts};
use memory::Memory;
use parking_lot::Mutex;
use port::{Bell, Port, Tally, Waiters};

/// Makes a stream port. A peer that is not there yet is no error: the link is down until it is.
///
/// # Errors
/// A [`StreamError`] that names the cause and the cure.
pub fn open(config: StreamConfig) -> Result<Port, StreamError> {
    let name = endpoint::describe(&config.endpoint);
    let left = config.goes_on;
    let mut source = endpoint::Source::new(config.endpoint, left.listener)?;
    let kept = left.memory.and_then(Memory::of);
    let had = kept.as_ref().map_or(left.had, Memory::has_begun);
    let halves = kept.as_ref().and_then(Memory::resume);
    let is_left = left.connection.is_some();
    let met = left.connection.zip(halves);
    if is_left && met.is_none() {
        config.keeps.iter().for_each(|keeps| keeps.over());
    }
    if had || met.is_some() {
        source.spend(met.is_some());
    }
    let memory = match kept {
        Some(memory) => memory,
        None => Memory::new()?,
    };
    if let Some(keeps) = &config.keeps {
        let kept = keeps.opened(memory.as_fd(), source.listener());
        if !kept && source.is_single() {
            return Err(StreamError::NotKept);
        }
    }
    let shared = Arc::new(Connection {
        out: Mutex::default(),
        bell: Bell::new()?,
        waiters: Waiters::new(),
        tally: Tally::new(count::NAMES),
        patience: config.patience,
    });
    let retry = (config.retry_min, config.retry_max);
    let mut inlet = inlet::StreamInlet::new(source, memory, retry, Arc::clone(&shared));
    inlet.kept(config.keeps, met);
    Ok(Port {
        name,
        sink: Arc::new(sink::StreamSink::new(Arc::clone(&shared))),
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

//! The ring port: a switch in this process and one in another meet in shared memory.
//!
//! A sender copies a frame once, into its ring; the receiver reads it there, in place. Each side has a file of memory that
//! only it writes, with its ring and what it says of itself, and an eventfd that wakes it. Both cross a Unix socket once, in
//! a greeting ([`hello`]); nothing else is ever sent. The layout is in [`crossing`], that of a record in [`record`].
//!
//! The other process is not trusted. Each side keeps its own indices to itself, checks what the other says against them, and
//! ends a connection whose numbers cannot be. So a peer can garble only what goes to itself. It may come, go and come back:
//! meanwhile the link is down, and frames are dropped and counted.
#![forbid(unsafe_code)]

mod config;
mod count;
mod crossing;
mod greeting;
mod hello;
mod inlet;
mod kept;
mod out;
mod receive;
mod record;
mod shared;
mod sink;
mod source;
#[cfg(test)]
mod tests;
use std::sync::Arc;

pub use config::{Endpoint, MAX_BYTES, MAX_FRAME, MIN_BYTES, RingConfig, RingError};
pub use count::NAMES as COUNTERS;
pub use kept::{Keeps, PARTS, Parts};
use port::Port;
use shared::Shared;

/// Makes a ring port. A peer that is not there yet is no error: the link is down until it is.
///
/// # Errors
/// A [`RingError`] that names the cause and the cure.
pub fn open(config: RingConfig) -> Result<Port, RingError> {
    let bytes = config.checked_bytes()?;
    peer::event::can_tell()?;
    // A thread that is confined may not make what wakes peers need.
    peer::poke::prepare();
    let name = source::describe(&config.endpoint);
    let source = source::open(config.endpoint)?;
    let shared = Arc::new(Shared::new()?);
    let retry = (config.retry_min, config.retry_max);
    let is_left = config.goes_on.is_some();
    let met = config.goes_on.and_then(greeting::Met::resume);
    if is_left && met.is_none() {
        config.keeps.iter().for_each(|keeps| keeps.over());
    }
    let inlet = inlet::RingInlet::new(source, bytes, retry, Arc::clone(&shared));
    let inlet = inlet.kept(config.keeps, met);
    Ok(Port {
        name,
        sink: Arc::new(sink::RingSink::new(Arc::clone(&shared))),
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

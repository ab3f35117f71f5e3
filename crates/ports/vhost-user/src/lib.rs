//! The vhost-user port: the driver's end of a virtio-net device that another process serves, such as OVS-DPDK, VPP, a
//! DPDK program or another hypernic.
//!
//! There may be several pairs of rings: frames go out by flow, so a flow keeps its order. Rings and buffers lie in memory that both processes map, so a frame costs one copy each way and no system call while
//! both are awake. The back end sees that memory and no guest's: it is made anew for each connection. The peer may come,
//! go and come back: meanwhile the link is down, frames are dropped and counted, and a port that connects tries again
//! with growing pauses.
#![forbid(unsafe_code)]

mod config;
mod count;
mod dial;
mod inlet;
mod receive;
mod ring;
mod session;
mod shared;
mod sink;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use port::Port;

pub use config::{Endpoint, MAX_PAIRS, VhostUserConfig, VhostUserError};
use shared::Shared;

/// Makes a vhost-user port. A peer that is not there yet is no error: the link is down until it is.
///
/// # Errors
/// A [`VhostUserError`] that names the cause and the cure.
pub fn open(config: VhostUserConfig) -> Result<Port, VhostUserError> {
    if !(1..=MAX_PAIRS).contains(&config.pairs) {
        return Err(VhostUserError::Pairs(config.pairs));
    }
    let mut name = config.endpoint.to_string();
    if config.pairs > 1 {
        name = format!("{name},pairs={}", config.pairs);
    }
    let source = dial::source(config.endpoint)?;
    let shared = Arc::new(Shared::new(config.patience)?);
    let wanted = session::Wanted {
        pairs: config.pairs,
        packed: config.packed,
    };
    let retry = (config.retry_min, config.retry_max);
    let inlet = inlet::VhostInlet::new(source, retry, wanted, Arc::clone(&shared))?;
    Ok(Port {
        name,
        sink: Arc::new(sink::VhostSink::new(Arc::clone(&shared))),
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

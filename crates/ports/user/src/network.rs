//! Everything of a network, put together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use port::{Backlog, Bell, Port, Tally, Waiters};

use crate::config::{MTU, UserConfig, UserError};
use crate::queue::UserQueue;
use crate::{count, flows, inlet, sink, sys};

/// Frames libslirp may produce in one turn.
const OUT_FRAMES: usize = 4096;

/// Makes a user-mode network.
///
/// # Errors
/// A [`UserError`] that names the cause and the cure.
pub fn open(config: &UserConfig) -> Result<Port, UserError> {
    if let Some(path) = &config.tftp {
        let bad = |source| UserError::Tftp {
            path: path.clone(),
            source,
        };
        std::fs::read_dir(path).map_err(bad)?;
    }
    let addresses = config.addresses()?;
    let frame = MTU + 64;
    let out = Backlog::new(OUT_FRAMES * frame.next_multiple_of(64), 64 * 1024);
    let mut stack = sys::Stack::new(config, out.with_frames(OUT_FRAMES))?;
    for forward in &config.forwards {
        let guest = forward.guest.unwrap_or(addresses.dhcp_start);
        stack
            .forward(forward, guest)
            .map_err(|source| UserError::Forward {
                protocol: forward.protocol,
                host: forward.host,
                source,
            })?;
    }
    let shared = Arc::new(UserQueue {
        queue: Mutex::default(),
        bell: Bell::new()?,
        waiters: Waiters::new(),
        stalled: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        tally: Tally::new(count::NAMES),
    });
    let flows = flows::Flows::new(config, addresses.host);
    let inlet = inlet::UserInlet::new(stack, Arc::clone(&shared), flows)?;
    Ok(Port {
        name: "user".into(),
        sink: Arc::new(sink::UserSink::new(Arc::clone(&shared))),
        inlet: Some(Box::new(inlet)),
        counters: shared,
    })
}

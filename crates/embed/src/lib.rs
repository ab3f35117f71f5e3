//! A NIC model inside another program: a VMM, a simulator, a test bench.
//!
//! The models of hypernic are state machines that own no thread, socket or clock. This crate wraps
//! one in a single object, [`Nic`], and asks the program around it for six things, the trait
//! [`Host`]: take a frame, do DMA, show an interrupt, arm a timer, tell the time, and (by
//! [`Nic::receive`]) wait with frames while the guest has no buffers.
//!
//! The program passes on what the guest does:
//!
//! ```text
//! configuration space, BARs   -> Nic::config_read, config_write, read, write
//! then the work they asked for -> Nic::run, until it is Idle (or Blocked, until there is room)
//! a frame from the wire       -> Nic::receive
//! the timer came              -> Nic::tick
//! ```
//!
//! Nothing here blocks, and the guest is not trusted: whatever it writes, every call comes to an
//! end, and its work is bounded by the guest's rings. `examples/embed.rs` is a whole machine in 60
//! lines; the crate `hypernic-embed-c` is the same for C.
#![forbid(unsafe_code)]

mod host;
mod nic;
mod pins;

use std::sync::Arc;
use std::time::Duration;

pub use host::Host;
pub use model::Progress;
pub use nic::{Description, Error, Nic};
use registry::{Function, MODELS, Settings};
pub use snapshot::StateError;

/// A NIC fresh from power-up, its cable in. Its link negotiates in no time, so that a host without a
/// timer gets one too; for other choices make the model yourself and call [`Nic::of`].
///
/// # Errors
/// [`Error::Model`] when there is no such model.
pub fn new(model: &str, mac: [u8; 6], host: Arc<dyn Host>) -> Result<Nic, Error> {
    made(model, mac, host, None)
}

/// The same, of the model's revision that the NIC was whose state is to be [loaded](Nic::load) into it: its guest has
/// started with that. The state may be of an older program, which had no newer one.
///
/// # Errors
/// [`Error::Model`] when there is no such model, or this program does not know that revision of it.
pub fn new_for(state: &[u8], model: &str, mac: [u8; 6], host: Arc<dyn Host>) -> Result<Nic, Error> {
    made(model, mac, host, snapshot::revision_of(state))
}

fn made(
    model: &str,
    mac: [u8; 6],
    host: Arc<dyn Host>,
    revision: Option<u16>,
) -> Result<Nic, Error> {
    let unknown = |_| Error::Model(model.to_owned());
    let mut settings = Settings::new(mac);
    settings.negotiation = Some(Duration::ZERO);
    settings.revision = revision;
    let entry = MODELS.parse(model).map_err(unknown)?;
    let parts = entry.nic(&settings, &Function::Alone).map_err(unknown)?;
    Nic::of(parts, host)
}

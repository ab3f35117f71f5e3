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
#![warn(missing_docs)]

mod nic;
mod pins;

use std::sync::Arc;
use std::time::Duration;

pub use model::Progress;
pub use nic::{Description, Error, Nic};
pub use snapshot::StateError;

/// What a NIC needs of the program around it.
///
/// All of it may be called from within any call to [`Nic`], by the thread that makes the call. An
/// implementation must not call back into the same NIC; it notes what there is to do, and does it
/// once the call has returned.
pub trait Host: Send + Sync {
    /// Takes a frame the guest sent, finished: checksums are in it, segments are cut, no FCS.
    /// `false` when there is no room: the frame stays in the guest's ring, [`Nic::run`] ends
    /// [`Progress::Blocked`], and continues there when it is called again.
    fn send(&self, frame: &[u8]) -> bool;

    /// Reads guest memory at the bus address. `false`: nothing there (master abort).
    fn dma_read(&self, address: u64, out: &mut [u8]) -> bool;

    /// Writes guest memory at the bus address. `false`: nothing there.
    fn dma_write(&self, address: u64, bytes: &[u8]) -> bool;

    /// The level of the INTA# pin has changed to `level`.
    fn interrupt(&self, level: bool);

    /// A message signalled interrupt: a write of `data` to `address`.
    fn message(&self, address: u64, data: u32) {
        let _ = (address, data);
    }

    /// PME# is asserted or no more: the NIC asks for its sleeping machine to be woken.
    fn pme(&self, asserted: bool) {
        let _ = asserted;
    }

    /// Calls [`Nic::tick`] at or soon after `deadline`, on the clock of [`Host::now`]; `None` calls
    /// it off. Replaces the timer set before. A host without a timer must not let its guest delay
    /// interrupts (ITR, RDTR, TIDV), for they would never come.
    fn set_timer(&self, deadline: Option<u64>);

    /// Nanoseconds of a clock that never goes backwards.
    fn now(&self) -> u64;

    /// [`Nic::receive`] took less than it was given, and may take more now.
    fn room(&self) {}
}

/// A NIC fresh from power-up, its cable in. Its link negotiates in no time, so that a host without a
/// timer gets one too; for other choices make the model yourself and call [`Nic::of`].
///
/// # Errors
/// [`Error::Model`] when there is no such model.
pub fn new(model: &str, mac: [u8; 6], host: Arc<dyn Host>) -> Result<Nic, Error> {
    let variant = e1000::Variant::from_name(model).ok_or_else(|| Error::Model(model.to_owned()))?;
    let parts = e1000::new(e1000::Config {
        variant,
        negotiation: Duration::ZERO,
        ..e1000::Config::new(mac)
    });
    Nic::of(parts, host)
}

//! Where a NIC's frames go: ports, and the wrappers around them.
//!
//! A port has a way out, a [`Sink`] that any thread may use, and often a way in, an [`Inlet`] that
//! one thread owns: it waits for the port's descriptors and passes what arrives to the sink on
//! the other side. A switch port is the same pair. Where a peer answers at once, the writer looks for it itself
//! ([`answer`]).
#![forbid(unsafe_code)]

pub mod answer;
mod backlog;
mod bell;
pub mod capture;
mod driver;
pub mod flow;
mod inlet;
pub mod socket;
mod sync;
mod tally;
pub mod vnet;
mod waiters;

pub use backlog::{Backlog, Flushed};
pub use bell::{Bell, Rung};
pub use driver::{InletEvent, InletThread};
pub use inlet::{Inlet, InletStatus, Interest, Kind, Port};
pub use tally::{Tally, counter};
pub use waiters::Waiters;

//! What must hold across rooms. The tests are in `tests/`; this crate gathers what they need: the
//! [`Daemon`] under test, a [`Lab`] with [`guests`] that use it, [`Slots`] that keep a small machine from running
//! more guests than it can, and the host's side of a transfer.
#![forbid(unsafe_code)]

mod counters;
mod daemon;
mod error;
pub mod guests;
pub mod host;
mod lab;
pub mod measure;
pub mod offloads;
pub mod oracle;
pub mod peer;
mod slots;
pub mod torture;
pub mod wired;

pub use counters::Counters;
pub use daemon::{Daemon, Launch, LogLine, binary, scratch};
pub use error::{Error, Result};
pub use lab::{Lab, mac};
pub use slots::Slots;
pub use wired::{Card, Wired, Wiring};

use std::time::Duration;

/// How long anything may take before it counts as stuck: generous, since two translated guests may
/// share two busy processors. Nothing is asserted about how long it really takes.
pub const LONG: Duration = Duration::from_secs(60);

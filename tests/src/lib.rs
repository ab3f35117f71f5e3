//! What must hold across rooms. The tests are in `tests/`; this crate gathers what they need: the
//! [`Daemon`] under test, a [`Lab`] with [`guests`] that use it, [`Slots`] that keep a small machine from running
//! more guests than it can, and the host's side of a transfer.
#![forbid(unsafe_code)]

mod counters;
mod daemon;
mod ends;
mod error;
#[cfg(target_arch = "x86_64")]
mod fault;
pub mod guests;
mod holdings;
pub mod host;
pub mod installed;
mod lab;
pub mod measure;
pub mod offloads;
pub mod oracle;
mod patience;
pub mod peer;
mod slots;
pub mod torture;
pub mod wired;

pub use counters::Counters;
pub use daemon::{Daemon, Launch, LogLine, binary, copy_program, scratch};
pub use ends::Ends;
pub use error::{Error, Result};
#[cfg(target_arch = "x86_64")]
pub use fault::fault;
pub use holdings::Holdings;
pub use lab::{Lab, mac};
pub use patience::LONG;
pub use slots::Slots;
pub use wired::{Card, Wired, Wiring};

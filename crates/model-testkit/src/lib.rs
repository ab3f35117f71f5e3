//! What is around a NIC model in tests, all fake: a clock moved by hand, a timer that is held, interrupts that
//! are recorded, a wire that keeps frames, a guest's memory. [`Machine`] joins them to a model.
//!
//! [`scripts`] are tests that hold for more than one model. A model's own tests run them.
#![forbid(unsafe_code)]

mod cable;
pub mod death;
mod golden;
mod groups;
mod large;
pub mod lives;
mod machine;
pub mod packet;
mod peek;
mod pin;
pub mod scripts;
mod time;
mod touched;
pub mod virtq;

pub use cable::{CountedWake, Hole, Unsent, Wire};
pub use golden::golden;
pub use groups::{in_groups, in_mixes};
pub use large::Finished;
pub use machine::{Machine, counter, memory};
pub use peek::{a_look_is_a_read_without_effect, peeked};
pub use pin::{Pin, Silent};
pub use time::Time;
pub use touched::Touched;

//! A timeline of what the daemon does with single frames: a stamp of the clock at each step, in memory, and in a file when
//! the daemon is asked for its counters or ends. Off, unless the environment names the file ([`FILE`]); then a step costs a
//! look at whether it is on. `hypernic-bench timeline` reads the file.
//!
//! A line of the file is a stamp: nanoseconds of `CLOCK_MONOTONIC`, the thread's name, the step, a number. Where a register
//! is, the number has the BAR in its upper half and the offset in the lower one.

mod ring;
mod wires;

pub(crate) use self::ring::{Accesses, Step, mark_at};
pub use self::ring::{FILE, begin, write};
pub(crate) use self::wires::{Seen, arrives, interrupts, leaves};

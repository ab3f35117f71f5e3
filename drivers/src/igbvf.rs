//! The guest side of an 82576's virtual function: mailbox, one queue in each direction, polling.

mod poll;
mod vf;

pub use intel_offsets::igbvf::{self as regs, mailbox};
pub use poll::{Masking, Poll};
pub use vf::{RING, Tagged, Vf, VfError};

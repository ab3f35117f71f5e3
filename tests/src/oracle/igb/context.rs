//! What the registers of a script say.

pub(super) use crate::oracle::context::Context;

/// Registers by their offset. Those of queues are of the first; [`QUEUE`](reg::QUEUE) leads to the next. Causes
/// are where both machines have them.
pub(super) mod reg {
    pub use intel_offsets::igb::legacy::{IAM, ICR, ICS, IMC, IMS};
    pub use intel_offsets::igb::*;
}

//! Batches of frames, and the sinks that take them.
//!
//! A frame is a list of slices (most often the sender's own guest buffers) and an
//! [`wire::Offload`] note. Batches are what moves between a NIC model, the switch and the ports: a
//! sender fills one, a [`Sink`] copies what it wants out of it, once, into its own buffers.
#![forbid(unsafe_code)]

mod alike;
mod batch;
mod cursor;
mod cut;
mod expand;
mod finish;
mod run;
mod sink;
mod sum;
#[cfg(test)]
mod tests;
pub mod turn;

pub use alike::{Alike, HEAD};
pub use batch::{Batch, EACH, Frame, MAX_BATCH};
pub use cut::{Cut, Cutting};
pub use expand::{ExpandError, expand};
pub use finish::Finisher;
pub use guest_mem::{Head, Hot, Lines, work};
pub use run::{Mix, Run, header_of, same_header};
pub use sink::{Caps, Counted, Sink, Wake};
pub use sum::{l4_intact, sum_range};

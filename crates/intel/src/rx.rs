//! The receive side: what a frame is to a receiver, and its way into the buffers of a ring, for chips of all
//! descriptor formats.

mod accepted;
mod cut;
mod place;
mod publish;
mod run;
#[cfg(test)]
mod tests;
pub mod trace;
mod words;
mod writer;

pub use accepted::{Accepted, ETHERNET_HEADER, FrameSettings};
pub use cut::fill_cut;
pub use place::{Done, End, Fcs, Format, Laid, Legacy, Outcome, Placed, Put};
pub use publish::Publish;
pub use run::{
    Filled, Filler, Frames, Judge, Judged, JudgedOne, RunPlan, Said, SaidOf, fill_lengths,
    fill_one, fill_run,
};
pub use words::{Firsts, Says, Words};
pub use writer::{Room, Storage, Writer};

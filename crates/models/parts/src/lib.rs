//! What NIC models with descriptor rings have in common.
//!
//! [`Ring`] and [`Fetcher`] are rings of 16-byte descriptors as the guest places them. [`Gather`] is a
//! packet on its way out, [`offload`] what becomes of it there; [`Layout`] is a frame on its way into
//! buffers and [`Finish`] a checksum that is written on the way. [`Adaptive`] says when an interrupt pays.
//! [`wake`] is what wakes a sleeping guest, [`flow`] what pause frames are.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod adaptive;
mod finish;
pub mod flow;
mod gather;
mod layout;
pub mod offload;
mod ring;
pub mod verdict;
pub mod wake;

pub use adaptive::{Adaptive, Moderation};
pub use finish::{Finish, possible};
pub use gather::{Cursor, Gather};
pub use layout::{FCS, GLANCE, Layout, MIN_FRAME, fcs_of};
pub use ring::{DD, Fetcher, Ring, RingIds, SIZE};
pub use verdict::verdict;

//! What any NIC with rings needs and no vendor owns.
//!
//! [`Gather`] is a packet on its way out, [`offload`] what becomes of it there; [`Layout`] is a frame on
//! its way into buffers and [`Finish`] a checksum that is written on the way; [`with_expanded`] makes frames
//! of what is more than that. [`with_batch`] and [`with_places`] keep storage between views. [`Generation`] counts changes of a set-up, [`Habit`] says whether a sender tries runs. [`Adaptive`] says when an
//! interrupt pays, [`Toeplitz`] which queue a flow is for, [`RxThrottle`] when a guest needs time for what it
//! has received. [`csb`] is the NIC's side of a Communication Status Block. [`Waiters`] are senders that found no room. [`Aligned`] begins
//! with a cache line. [`kept`] is for models that outlive their process.
#![forbid(unsafe_code)]

pub mod adaptive;
mod aligned;
pub mod counters;
pub mod csb;
mod expand;
mod finish;
mod gather;
mod generation;
mod habit;
pub mod kept;
mod layout;
mod magic;
pub mod offload;
mod recycle;
mod rx_throttle;
mod toeplitz;
mod unsent;
mod waiters;

pub use adaptive::{Adaptive, Moderation, Nanos};
pub use aligned::Aligned;
pub use expand::{Offered, RECEIVED, buffers_for, with_expanded};
pub use finish::{Finish, copy_whole, possible};
pub use gather::{Cursor, Gather};
pub use generation::Generation;
pub use habit::Habit;
pub use layout::{FCS, GLANCE, Layout, MIN_FRAME, fcs_of};
pub use magic::is_magic;
pub use recycle::{with_batch, with_places};
pub use rx_throttle::RxThrottle;
pub use toeplitz::{INPUT, KEY, Toeplitz, toeplitz};
pub use unsent::{SHOWN, tell_unfinished};
pub use waiters::Waiters;

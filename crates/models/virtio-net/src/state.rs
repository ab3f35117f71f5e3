//! The whole device as plain data: saved, checked and loaded.
//!
//! In it is everything that the guest can find out, now or later. Not in it: what the operator configured, counters,
//! senders that wait for room. It lies between two batches: the locks of all queues are taken.

pub mod v1;

pub use v1::V1;

/// The version that is saved. Older ones are loaded, newer ones refused.
pub const VERSION: u32 = 1;

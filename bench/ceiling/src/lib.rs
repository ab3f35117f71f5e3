//! The ceiling: what is left of guest-to-guest traffic when everything is left out that is not the
//! moving of bytes.
//!
//! Two memories, each with an e1000-shaped transmit and receive ring (16-byte descriptors: address,
//! length, command, status). [`Loop::burst`] does what a device between them cannot do without:
//! read descriptors, translate addresses with a bounds check, look the destination up by its
//! address in a table, copy, write both descriptors back. No registers, counters, filters,
//! learning, offloads, interrupts, locks. It is staged as a good switch is: gather and prefetch,
//! look up, copy.
//!
//! [`Loop::burst`] alone is one thread with rings that are always ready (`c1`); [`across`] adds a
//! guest's thread that fills, drains and touches the head of every packet on both sides (`c2`).
//! Frames of up to 64 bytes are moved as 64 blindly, which no product may do (it would hand one
//! guest's bytes to another): it is the ceiling, not a proposal.
//!
//! `unsafe` because two threads write to the same memory, as guests do; every access is checked
//! against its bounds first.

mod across;
mod raw;

pub use across::across;
pub use raw::{Loop, MOST, Shape, alone, thread_time};

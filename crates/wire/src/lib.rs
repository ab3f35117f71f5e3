//! What is on the wire, and what a frame may still ask for before it gets there.
//!
//! No I/O, no allocation, no `unsafe`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod offload;

pub use offload::{Csum, Gso, Offload};

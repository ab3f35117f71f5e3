//! Models driven by a driver of ours, without sockets.
#![forbid(unsafe_code)]

mod e1000;
mod memory;
mod offsets;

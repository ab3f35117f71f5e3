//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod basics;
mod codec;
mod common;
mod cost;
mod descriptors;
mod dma;
mod doorbells;
mod facts;
mod malformed;
mod moving;
mod peer_crate;
mod qemu_qtest;
mod qemu_sequence;
mod slow_ends;
mod sriov;
mod tenants;

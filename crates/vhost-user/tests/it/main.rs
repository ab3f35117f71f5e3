//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod codec;
mod common;
mod hostile;
mod migration;
mod peer_crate;
mod qemu;
mod rings;
mod session;

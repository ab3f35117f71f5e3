//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
mod lease;
#[cfg(loom)]
mod loom;

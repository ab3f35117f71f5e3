//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
mod answer;
#[cfg(not(loom))]
mod capture;
#[cfg(not(loom))]
mod driver;
#[cfg(loom)]
mod loom;

//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod example;
mod msix;
mod nic;

//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod guest;
mod process;
mod user;

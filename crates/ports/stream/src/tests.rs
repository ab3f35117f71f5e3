//! What the crate does, seen from outside: one module for each subject.

pub mod death;
mod kept;
mod stream;

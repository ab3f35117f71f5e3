//! What the crate does, seen from outside: one module for each subject.

mod arbitrary;
mod deaths;
mod lists;
mod replay;

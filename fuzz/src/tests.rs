//! What the crate does, seen from outside: one module for each subject.

mod arbitrary;
mod lists;
mod replay;

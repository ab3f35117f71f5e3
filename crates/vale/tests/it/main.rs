//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod changing;
mod common;
mod guards;
mod learning;
mod mesh;
mod pools;
mod pressure;
mod threads;

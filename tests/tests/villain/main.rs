//! Hostile guests and VMMs: each costs nobody but itself.
#![forbid(unsafe_code)]

mod daemon;
mod functions;
mod model;
mod table;

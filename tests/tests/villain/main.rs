//! Hostile guests and VMMs: each harms only itself.
#![forbid(unsafe_code)]

mod bare;
mod daemon;
mod functions;
mod model;
mod net;
mod rtl;
mod table;

//! NICs over real sockets, driven without a guest.
#![forbid(unsafe_code)]

mod chip;
mod control;
mod csb;
mod doorbells;
mod e1000;
mod timeline;

//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod awake;
mod common;
mod control;
mod explained;
mod fabric;
mod failing;
mod pf;
mod toy;
mod vf;
mod vhost_user;
mod virtio_net;

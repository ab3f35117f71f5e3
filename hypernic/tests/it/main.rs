//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod awake;
mod changing;
mod common;
mod control;
mod crowd;
mod explained;
mod fabric;
mod failing;
mod foreign;
mod inspect;
mod lab;
mod metrics;
mod monitor;
mod pf;
mod roles;
mod toy;
mod vf;
mod vhost_user;
mod virtio_net;

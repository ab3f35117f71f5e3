//! What the crate does, seen from outside: one module for each subject.
#![forbid(unsafe_code)]

mod awake;
mod capture;
mod changing;
mod chips;
mod common;
mod control;
mod crowd;
mod explained;
mod exporter;
mod fabric;
mod failing;
mod foreign;
mod handed;
mod http;
mod inside;
mod inspect;
mod lab;
mod learned;
mod live;
mod man;
mod metrics;
mod migrate;
mod monitor;
mod moving;
mod pf;
mod report;
mod revisions;
mod roles;
mod top;
mod toy;
mod trace;
mod vf;
mod vhost_user;
mod virtio_net;
mod web;

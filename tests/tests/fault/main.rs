//! What fails around the daemon: VMMs, networks, disks. Apart from `daemon`, whose floods would starve these guests.
#![forbid(unsafe_code)]

mod ports;
mod vmm;

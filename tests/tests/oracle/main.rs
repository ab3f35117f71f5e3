//! Our models against QEMU's.
#![forbid(unsafe_code)]

mod e1000;
mod igb;
mod virtio;

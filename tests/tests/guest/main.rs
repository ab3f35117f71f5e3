//! Real guests with the drivers they have.
#![forbid(unsafe_code)]

mod apparmor;
mod architectures;
mod back_ends;
mod cells;
mod crash;
mod demo;
mod dpdk;
mod driver;
mod ending;
mod igb;
mod igbvf;
mod ipxe;
mod kernels;
mod known_faults;
mod kvm;
mod libvirt;
mod linux;
mod operators;
mod pages;
mod patched;
mod r8169;
mod service;
mod stream;
mod tap;
mod uboot;
mod upgrade;
mod variants;
mod vhost_user;
mod virtio_dpdk;
mod virtio_net;
mod xdp;

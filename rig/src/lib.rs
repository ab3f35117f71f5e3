#![forbid(unsafe_code)]
//! Boots real guests for tests and benches: stock kernels with their own drivers in QEMU, without root rights
//! and without touching the host's packages.
//!
//! ```no_run
//! use rig::{GuestConfig, Nic, Rig};
//!
//! # fn main() -> rig::Result<()> {
//! let rig = Rig::prepare()?;
//! let guest = rig.resume(GuestConfig::new("one").nic(Nic::vfio_user("n0", "/run/n0.sock")))?;
//! guest.run("mp e1000")?;
//! println!("{}", guest.run("dhcp eth0 && ping -c 3 10.0.2.2")?);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Rig::prepare`] finds or downloads QEMU, a kernel and a user space; [`CannotRun`] says why it cannot.
//! - [`Rig::start`] boots a guest (4 to 10 s under TCG), [`Rig::resume`] starts one from a machine that was booted
//!   and saved before (under a second). Dropping a [`Guest`] ends it; nothing outlives the process.
//! - [`Netns`] holds the host side of a test's network, [`Daemon`] a program beside the guests.
//! - [`Rig::module`] builds a driver for a guest's kernel.
//! - [`paired`] compares two candidates on a noisy machine.
//!
//! In the guest, `mp MODULE` loads a driver with what it needs and `dhcp IFACE` gets an address.
//!
//! Environment: `HYPERNIC_CACHE` (where things are kept), `HYPERNIC_ACCEL=kvm|tcg` (instead of trying),
//! `HYPERNIC_QEMU=private` (not the one on PATH), `HYPERNIC_KEEP_LOGS` (logs of successes too).

mod accel;
mod agent;
mod apt;
mod arguments;
mod cache;
mod config;
mod console;
mod cpio;
mod daemon;
mod dpdk;
mod error;
mod foreign;
mod guest;
mod image;
mod initramfs;
mod kernel;
mod kvm;
mod nested;
mod netns;
mod nic;
mod ovs;
mod packages;
pub mod paired;
mod process;
mod qemu;
mod qmp;
mod qtest;
mod rig;
mod root;
mod scratch;
mod snapshot;
mod sources;
mod start;
mod stock;
mod testpmd;
mod workshop;

pub use accel::Accel;
pub use agent::Output;
pub use arguments::CMDLINE;
pub use cache::Cache;
pub use config::{Boot, GuestConfig};
pub use daemon::Daemon;
pub use error::{CannotRun, Error, Result};
pub use foreign::Foreign;
pub use guest::inside::Job;
pub use guest::{Guest, ThreadCpu};
pub use image::Image;
pub use kernel::Kernel;
pub use kvm::{KvmHost, KvmInside, with_libraries};
pub use netns::Netns;
pub use nic::{Netdev, Nic};
pub use ovs::{Ovs, OvsSetup};
pub use qemu::Qemu;
pub use qtest::Qtest;
pub use rig::Rig;
pub use root::Root;
pub use testpmd::{Testpmd, TestpmdSetup};

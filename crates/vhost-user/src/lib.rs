//! vhost-user: virtio devices in a process of their own, without C.
//!
//! A VMM (QEMU, cloud-hypervisor, crosvm, libkrun) or a poll-mode driver (DPDK's virtio-user)
//! connects to a Unix socket and hands over its guest's memory and the device's rings. This crate is
//! both ends of that socket:
//!
//! - [`codec`]: the messages as bytes, pure.
//! - [`Server`]: serves a [`Backend`]. It keeps guest memory and the rings' addresses, and turns
//!   [`Calls`] into writes to the front end's eventfds.
//! - [`Client`]: what a front end does, for tests, generators and ports.
//!
//! The device itself (its rings, its frames) is not here: a [`Backend`] is told where a [`Ring`] lies
//! and reads it through [`guest_mem`].
#![forbid(unsafe_code)]

mod answer;
mod backend;
mod calls;
mod client;
pub mod codec;
mod counters;
mod dirty_log;
mod inflight;
mod memory;
mod opening;
mod server;
mod session;
mod stream;
mod transfer;

pub use backend::{Backend, ClientEvent, GoneReason, Refused, Ring, Work};
pub use calls::Calls;
pub use client::{Client, ClientError};
pub use dirty_log::{DirtyLog, LOG_PAGE};
pub use inflight::{InflightPacked, InflightRing};
pub use peer::{EventFd, EventSet, ListenError, Listener, MAX_SOCKET_PATH, SharedMem};
pub use server::{Look, Progress, Server, ServerError};

pub use guest_mem;

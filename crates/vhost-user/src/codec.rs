//! Messages as bytes, and bytes as messages. Pure: no socket, no descriptor, no allocation.
//!
//! A message is a 12-byte [`Header`] in host byte order and a payload that depends on the request
//! (vhost-user specification, "Message Specification"). [`Message::parse`] takes a header and exactly
//! its payload, and gives the whole message or [`Malformed`]; it never looks past the slice and never
//! trusts a length in it. [`Message::encode`] is its inverse.

mod header;
mod malformed;
mod message;
mod payload;
mod request;

pub use header::{HEADER_LEN, Header, MAX_PAYLOAD};
pub use malformed::Malformed;
pub use message::{Descriptors, Message, MessageBuffer};
pub use payload::{
    Config, DeviceState, Direction, Inflight, Iotlb, Log, LogBase, MAX_CONFIG, MAX_REGIONS,
    MemRegion, MemTable, VringAddr, VringFd, VringState, vring_flags,
};
pub use request::Request;

/// Virtio feature bits that belong to the protocol and not to the device.
pub mod feature {
    /// The back end notes the pages that it writes.
    pub const LOG_ALL: u64 = 1 << 26;
    /// Protocol features are negotiated.
    pub const PROTOCOL: u64 = 1 << 30;
    /// Ring addresses are I/O virtual addresses. Of the device, but it changes what messages mean.
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// Rings are packed. Of the device, but it changes what messages mean.
    pub const PACKED: u64 = 1 << 34;
}

/// Protocol feature bits.
pub mod protocol {
    /// More rings than two.
    pub const MQ: u64 = 1 << 0;
    /// The dirty log is a shared file.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// `SEND_RARP`.
    pub const RARP: u64 = 1 << 2;
    /// Any message may ask for a reply.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// `NET_SET_MTU`.
    pub const MTU: u64 = 1 << 4;
    /// The back end may send requests of its own.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// `SET_VRING_ENDIAN`.
    pub const CROSS_ENDIAN: u64 = 1 << 6;
    /// Postcopy migration.
    pub const PAGEFAULT: u64 = 1 << 8;
    /// The back end has the device's configuration space.
    pub const CONFIG: u64 = 1 << 9;
    /// The back end may send descriptors.
    pub const BACKEND_SEND_FD: u64 = 1 << 10;
    /// Notify pages of hardware.
    pub const HOST_NOTIFIER: u64 = 1 << 11;
    /// What is in flight is noted in a shared file.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    /// `RESET_DEVICE`.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Kicks and calls as messages.
    pub const INBAND_NOTIFICATIONS: u64 = 1 << 14;
    /// `ADD_MEM_REG`, `REM_MEM_REG`, `GET_MAX_MEM_SLOTS`.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    /// `SET_STATUS`, `GET_STATUS`.
    pub const STATUS: u64 = 1 << 16;
    /// Xen's mappings.
    pub const XEN_MMAP: u64 = 1 << 17;
    /// Shared virtio objects.
    pub const SHARED_OBJECT: u64 = 1 << 18;
    /// `SET_DEVICE_STATE_FD`, `CHECK_DEVICE_STATE`.
    pub const DEVICE_STATE: u64 = 1 << 19;
}

//! A virtio-net device as a pure state machine (virtio 1.4 §5.1).
//!
//! [`Device`] knows no transport: it is told what was agreed upon, where its queues are, and that they are notified.
//! [`Sender`] and [`Receiver`] move its frames.
#![forbid(unsafe_code)]

mod core;
mod filter;
mod irq;
pub mod regs;
mod rx;
mod tx;

pub use crate::core::config::Config;
pub use crate::core::device::{CTRL, Device, QUEUES, RX, TX, VECTORS};
pub use crate::core::ring::{Format, MAX_SIZE, Place, Position, Refused};
pub use crate::rx::Receiver;
pub use crate::tx::Sender;

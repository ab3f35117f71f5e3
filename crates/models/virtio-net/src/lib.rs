//! A virtio-net device as a pure state machine (virtio 1.4 §5.1).
//!
//! [`Device`] knows no transport: it is told what was agreed upon, where its queues are, and that they are notified.
//! [`Sender`] and [`Receiver`] move its frames.
#![forbid(unsafe_code)]

mod control;
mod core;
mod filter;
mod irq;
pub mod regs;
mod rx;
pub mod state;
mod tx;

use std::sync::Arc;

use model::Nic;

use crate::control::{Registers, identity};
pub use crate::core::chain::Part;
pub use crate::core::config::{Config, MAX_PAIRS};
pub use crate::core::device::{CTRL, Device, QUEUES, RX, Role, TX};
pub use crate::core::ring::{Format, MAX_SIZE, Place, Position, Refused};
pub use crate::core::station::{Station, Table};
pub use crate::rx::Receiver;
pub use crate::tx::Sender;

/// A PCI function fresh from power-up.
pub fn new(config: Config) -> Nic {
    let device = Arc::new(Device::new(config));
    Nic {
        identity: identity(device.vectors()),
        control: Box::new(Registers::new(Arc::clone(&device))),
        transmit: Box::new(Sender {
            device: Arc::clone(&device),
        }),
        receive: Arc::new(Receiver { device }),
    }
}

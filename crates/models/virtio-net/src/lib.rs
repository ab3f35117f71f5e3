//! A virtio-net device as a pure state machine (virtio 1.4 §5.1).
//!
//! [`Device`] knows no transport: it is told what was agreed upon, where its queues are, and that they are notified.
//! [`Sender`] and [`Receiver`] move its frames. [`new`] joins them to a PCI function; another transport does the same:
//!
//! 1. [`Device::agree`] on features, and [`Device::add_status`] that the driver is there (`DRIVER_OK`);
//!    [`Device::set_master`] lets it reach memory.
//! 2. [`Device::set_messages`] and [`Device::set_vector`]: which message of [`model::Interrupts`] calls the driver of a queue.
//! 3. [`Device::enable`] a queue where it is, at the position it has come to; [`Device::disable`] returns that position,
//!    and nothing touches the ring any more.
//! 4. [`Device::set_pairs`]: without a control queue the transport says how many are used.
//! 5. [`Device::notify`] says what to do for a queue that was notified: [`Sender`]'s `run` or [`Receiver`]'s `poll`. When the
//!    timer has come, [`Device::tick`], then both.
//! 6. [`Device::set_write_log`] while the guest moves.
#![forbid(unsafe_code)]

mod control;
mod core;
mod filter;
mod irq;
#[cfg(test)]
mod kept_tests;
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
pub use crate::core::journal::Journal;
pub use crate::core::ring::{Format, MAX_SIZE, Place, Position, Refused};
pub use crate::core::station::{Station, Table};
pub use crate::core::write_log::WriteLog;
pub use crate::rx::Receiver;
pub use crate::tx::Sender;
pub use datapath::Moderation;

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
        revision: 1,
    }
}

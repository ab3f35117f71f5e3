//! The Realtek RTL8168C, RTL8168H and RTL8169S as a pure state machine.
//!
//! [`new`] gives the three parts of [`model::Nic`]. Registers are described by one table ([`regs::REGISTERS`]), which
//! also writes `docs/registers/r8169.md`.
//!
//! Facts come from Realtek's data sheets of the RTL8169 (revision 1.21) and the RTL8111C, and from what the drivers of
//! Linux, FreeBSD, iPXE and U-Boot do.
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

pub use datapath::Moderation;
use model::{Nic, Watch};

use crate::control::Registers;
use crate::core::chip::Chip;
pub use crate::core::config::Config;
pub use crate::regs::variant::{BAR_IO, BAR_MMIO, Variant};

/// A NIC fresh from power-up: bus mastering off, link standing if the cable is in.
pub fn new(config: Config) -> Nic {
    let chip = Arc::new(Chip::new(&config));
    let mut identity = config.variant.identity();
    if config.csb {
        identity.subsystem = ::csb::SUBSYSTEM;
    }
    Nic {
        identity,
        control: Box::new(Registers::new(&config, Arc::clone(&chip))),
        transmit: Box::new(tx::Sender {
            chip: Arc::clone(&chip),
            watch: Watch::Off,
        }),
        receive: Arc::new(rx::Receiver { chip }),
        revision: 1,
    }
}

//! The Intel 82540EM as a pure state machine.
//!
//! [`new`] gives the three parts of [`model::Nic`]. Registers are described by one table
//! ([`regs::REGISTERS`]), which also writes `docs/registers/e1000.md`.
//!
//! Facts come from Intel's "PCI/PCI-X Family of Gigabit Ethernet Controllers Software Developer's
//! Manual" (317453 revision 4.0) and from what drivers do.
#![forbid(unsafe_code)]

mod control;
mod core;
mod filter;
mod irq;
#[cfg(test)]
mod kept_tests;
#[cfg(test)]
mod layout_tests;
pub mod regs;
mod rx;
pub mod state;
mod tx;

// The tests in here share their guest with those that see the crate from outside.
#[cfg(test)]
extern crate self as hypernic_e1000;

use std::sync::Arc;

pub use datapath::Moderation;
use intel::io::Window;
use intel::link::Port;
use model::{Nic, Watch, Work};

use crate::control::Registers;
use crate::control::eeprom::Eeprom;
use crate::core::chip::Chip;
pub use crate::core::config::{Config, FullFifo};
pub use crate::regs::eeprom::NVM_LEN;
pub use crate::regs::variant::{BAR_IO, BAR_MMIO, Variant};

/// A NIC fresh from power-up: bus mastering off, link standing if the cable is in.
pub fn new(config: Config) -> Nic {
    with(&config, Arc::new(Chip::new(&config)))
}

/// As [`new`], around this common state.
fn with(config: &Config, chip: Arc<Chip>) -> Nic {
    let mut control = Registers {
        chip: Arc::clone(&chip),
        variant: config.variant,
        eeprom: match &config.nvm {
            Some(image) => Eeprom::of_image(image),
            None => Eeprom::new(config.variant, config.mac, config.pause),
        },
        port: Port::new(
            config.variant.phy(),
            config.link,
            config.pause,
            config.negotiation,
        ),
        io: Window::default(),
        work: Work::default(),
        changed: true,
    };
    control.power_up();
    let mut identity = config.variant.identity();
    if config.csb {
        identity.subsystem = ::csb::SUBSYSTEM;
    }
    Nic {
        identity,
        control: Box::new(control),
        transmit: Box::new(tx::Sender {
            chip: Arc::clone(&chip),
            watch: Watch::Off,
        }),
        receive: chip,
        revision: 1,
    }
}

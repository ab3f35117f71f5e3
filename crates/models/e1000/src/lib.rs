//! The Intel 82540EM as a pure state machine.
//!
//! [`new`] gives the three parts of [`model::Nic`]. Registers are described by one table
//! ([`regs::REGISTERS`]), which also writes `docs/registers/e1000.md`.
//!
//! Facts come from Intel's "PCI/PCI-X Family of Gigabit Ethernet Controllers Software Developer's
//! Manual" (317453 revision 4.0) and from what drivers do.
#![forbid(unsafe_code)]

mod bits;
mod complete;
mod control;
mod csb;
mod desc;
mod eeprom;
mod eerd;
mod fast_path;
#[cfg(test)]
mod fast_path_tests;
mod fifo;
mod filter;
mod flow;
mod io;
mod irq;
mod l2_filter;
mod offer;
mod packet_buffer;
pub mod regs;
mod rx;
mod rx_write;
mod shared;
pub mod state;
mod stats;
mod tx;
mod tx_fast_path;
mod variant;
mod wake;
mod write_back;

// The tests in here share their guest with those that see the crate from outside.
#[cfg(test)]
extern crate self as hypernic_e1000;

use std::sync::Arc;
use std::time::Duration;

pub use datapath::Moderation;
use model::{Nic, Work};

use crate::control::Registers;
use crate::shared::Shared;
pub use crate::variant::Variant;

/// BAR of the registers.
pub const BAR_MMIO: u8 = 0;
/// BAR of the I/O window of the 82540EM and 82544GC. The manual has it at 2 or 4; 1 is where most guests have met it, and
/// drivers look for the first I/O BAR whatever its index.
pub const BAR_IO: u8 = 1;
/// Bytes of the I/O window.
const IO_SIZE: u64 = 64;

/// Bytes of an EEPROM image.
pub const NVM_LEN: usize = 2 * eeprom::WORDS;

/// What can be chosen of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which chip.
    pub variant: Variant,
    /// Station address, as the EEPROM holds it when it is new.
    pub mac: [u8; 6],
    /// The EEPROM's image, 64 little-endian words, as [`model::Control::take_nvm`] gave it; its
    /// address counts, not `mac`. `None` for a new one.
    pub nvm: Option<[u8; NVM_LEN]>,
    /// Whether the partner at the other end of the cable offers pause frames.
    pub pause: bool,
    /// Whether the cable is in from the start.
    pub link: bool,
    /// How long auto-negotiation takes. Seconds on a real wire; a guest waits for it at every
    /// boot. Zero negotiates within the register access.
    pub negotiation: Duration,
    /// Write the true frame check sequence behind frames when the guest asks for one
    /// (RCTL.SECRC = 0), at the cost of one pass over the frame. Otherwise four zeros.
    pub true_fcs: bool,
    /// When interrupts are raised.
    pub moderation: Moderation,
    /// A guest that only receives, and whose driver polls without end, gets 92 frames at a time, and its
    /// programs time between them.
    pub receive_throttling: bool,
    /// What becomes of frames when the packet FIFO is full.
    pub full_fifo: FullFifo,
    /// Offer the Communication Status Block of the e1000 that netmap's authors extended: subsystem id
    /// 1101h, and the registers CSBAH and CSBAL. Nothing changes until a driver uses them.
    pub csb: bool,
    /// With a CSB: the longest time the transmitter goes on looking for new tails before it sleeps.
    /// How much of it is used follows from how long the last sleeps were.
    pub csb_poll: Duration,
    /// Whether received pause frames are obeyed when the driver wants that (CTRL.RFCE). Otherwise
    /// they are only counted, and no partner can silence the NIC.
    pub obey_pause: bool,
}

/// What becomes of frames that find neither a descriptor nor room in the packet FIFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullFifo {
    /// They stay with their sender, as on a wire with back-pressure. A sender that gives them up
    /// says so ([`model::Receive::give_up`]); then they are missed.
    #[default]
    Wait,
    /// They are missed at once (MPC, RXO), as on a wire without flow control.
    Drop,
}

impl Config {
    /// The usual NIC with this address: cable in, true FCS.
    pub const fn new(mac: [u8; 6]) -> Self {
        Self::of(Variant::I82540Em, mac)
    }

    /// The same of another chip.
    pub const fn of(variant: Variant, mac: [u8; 6]) -> Self {
        Self {
            variant,
            mac,
            nvm: None,
            pause: false,
            link: true,
            negotiation: variant.negotiation(),
            true_fcs: true,
            moderation: Moderation::Guest,
            full_fifo: FullFifo::Wait,
            receive_throttling: false,
            csb: false,
            csb_poll: Duration::ZERO,
            obey_pause: true,
        }
    }
}

/// A NIC fresh from power-up: bus mastering off, link standing if the cable is in.
pub fn new(config: Config) -> Nic {
    with(&config, Arc::new(Shared::new(&config)))
}

/// As [`new`], around this common state.
fn with(config: &Config, shared: Arc<Shared>) -> Nic {
    let mut control = Registers {
        shared: Arc::clone(&shared),
        variant: config.variant,
        eeprom: match &config.nvm {
            Some(image) => eeprom::Eeprom::of_image(image),
            None => eeprom::Eeprom::new(config.variant, config.mac, config.pause),
        },
        phy: intel::phy::Phy::new(config.link, config.variant.phy(), config.pause),
        io: intel::io::Window::default(),
        work: Work::default(),
        negotiation: u64::try_from(config.negotiation.as_nanos()).unwrap_or(u64::MAX / 2),
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
            shared: Arc::clone(&shared),
            watch: model::Watch::Off,
        }),
        receive: Arc::new(rx::Receiver { shared }),
    }
}

//! What can be chosen of a NIC.

use std::time::Duration;

use datapath::Moderation;

use crate::regs::eeprom::NVM_LEN;
use crate::regs::variant::Variant;

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

//! What can be chosen when a NIC is made.

use std::time::Duration;

use datapath::Moderation;

use crate::regs::variant::Variant;

/// A NIC to be made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which chip it is.
    pub variant: Variant,
    /// Station address, as the EEPROM holds it.
    pub mac: [u8; 6],
    /// The cable is in.
    pub link: bool,
    /// How long auto-negotiation takes: less than on any wire, so that no guest waits for it.
    pub negotiation: Duration,
    /// When interrupts are raised.
    pub moderation: Moderation,
    /// Offer a Communication Status Block: the subsystem id is another then.
    pub csb: bool,
    /// With one: how long the transmitter looks for new packets before it sleeps.
    pub csb_poll: Duration,
}

impl Config {
    /// An RTL8168C with this address: cable in.
    pub const fn new(mac: [u8; 6]) -> Self {
        Self::of(Variant::Rtl8168C, mac)
    }

    /// The same of another chip.
    pub const fn of(variant: Variant, mac: [u8; 6]) -> Self {
        Self {
            variant,
            mac,
            link: true,
            negotiation: Duration::from_millis(10),
            moderation: Moderation::Guest,
            csb: false,
            csb_poll: Duration::ZERO,
        }
    }
}

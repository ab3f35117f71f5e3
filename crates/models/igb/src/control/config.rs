//! What can be chosen of a function.

use std::time::Duration;

pub use datapath::Moderation;

use crate::control::nvm::WORDS;

/// Bytes of an NVM image.
pub const NVM_LEN: usize = 2 * WORDS;

/// What can be chosen of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Station address: of a PF as the NVM holds it when it is new, of a VF as its PF tells it.
    pub mac: [u8; 6],
    /// The NVM's image, 512 little-endian words, as [`model::Control::take_nvm`] gave it; its address
    /// counts, not `mac`. `None` for a new one. A VF has none.
    pub nvm: Option<[u8; NVM_LEN]>,
    /// Whether the cable is in from the start.
    pub link: bool,
    /// Whether the partner at the other end of the cable offers pause frames.
    pub pause: bool,
    /// How long auto-negotiation takes. Zero negotiates within the register access.
    pub negotiation: Duration,
    /// Write the true frame check sequence behind frames when the guest asks for one, at the cost
    /// of one pass over the frame. Otherwise four zeros.
    pub true_fcs: bool,
    /// When interrupts are raised, by each vector.
    pub moderation: Moderation,
    /// Whether a PF may say where the rings of its VFs are, as on the chip (§7.10.2). Each VF has the memory
    /// of another guest, which a PF could so have read and written.
    pub pf_places_vf_rings: bool,
}

impl Config {
    /// The usual function with this address: cable in, no pause frames offered, 10 ms of
    /// negotiation, true FCS, VFs' rings their own.
    pub const fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            nvm: None,
            link: true,
            pause: false,
            negotiation: Duration::from_millis(10),
            true_fcs: true,
            moderation: Moderation::Guest,
            pf_places_vf_rings: false,
        }
    }
}

//! The Intel 82576 as a pure state machine: its physical function (PF) and its virtual functions
//! (VFs), each a [`model::Nic`] of its own with memory and interrupts of its own.
//!
//! What the functions have in common is a `Function`: queues and the registers that place them,
//! interrupts, counters. A queue belongs to one of them, and the parts that move its frames see no
//! other guest's memory than that of the [`model::Env`] they are handed: no descriptor of one
//! function is ever looked up in the memory of another.
//!
//! Facts come from Intel's "82576EB Gigabit Ethernet Controller Datasheet" (320961) and from what
//! drivers do.
#![forbid(unsafe_code)]
// The parts land one by one.
#![allow(dead_code)]

mod control;
mod core;
mod filter;
mod irq;
mod ptp;
pub mod regs;
mod rx;
mod sriov;
pub mod state;
#[cfg(test)]
mod testing;
mod tx;

use std::sync::Arc;
use std::time::Duration;

pub use datapath::Moderation;
use model::{Control, Identity, Nic};

pub use crate::control::pf::{pf, pf_with_vfs};
pub use crate::control::vf::vf;
use crate::core::function::Function;
pub use crate::regs::vf::{page as vf_registers, table as vf_table};
pub use crate::sriov::channel::{Event, Grant, VfChannel, VfListener};
pub use crate::sriov::hub::{Enforcer, Hub, MAX_VFS};
pub use crate::sriov::mailbox::Mailbox;
pub use crate::state::vf as vf_state;

/// BAR of the registers, of either kind of function.
pub const BAR_MMIO: u8 = 0;
/// BAR of the I/O window of a physical function.
pub const BAR_IO: u8 = 2;
/// BAR of the MSI-X table and its pending bits, of either kind of function.
pub const BAR_MSIX: u8 = 3;
/// Queues, in each direction, of the physical function.
pub const PF_QUEUES: usize = 16;
/// Queues, in each direction, of a virtual function.
pub const VF_QUEUES: usize = 2;

/// Bytes of an NVM image.
pub const NVM_LEN: usize = 2 * control::nvm::WORDS;

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
}

impl Config {
    /// The usual function with this address: cable in, no pause frames offered, 10 ms of
    /// negotiation, true FCS.
    pub const fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            nvm: None,
            link: true,
            pause: false,
            negotiation: Duration::from_millis(10),
            true_fcs: true,
            moderation: Moderation::Guest,
        }
    }
}

/// A function taken apart.
fn nic(identity: Identity, control: Box<dyn Control>, function: Arc<Function>) -> Nic {
    Nic {
        identity,
        control,
        transmit: Box::new(tx::Sender::new(Arc::clone(&function))),
        receive: Arc::new(rx::Receiver::new(function)),
    }
}

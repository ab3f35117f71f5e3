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

mod control;
mod core;
mod filter;
mod irq;
#[cfg(test)]
mod kept_tests;
#[cfg(test)]
mod layout_tests;
mod ptp;
pub mod regs;
mod rx;
mod sriov;
pub mod state;
#[cfg(test)]
mod testing;
mod tx;

pub use datapath::Moderation;

pub use crate::control::config::{Config, NVM_LEN};
pub use crate::control::pf::{pf, pf_with_vfs};
pub use crate::control::vf::vf;
pub use crate::regs::vf::{page as vf_registers, table as vf_table};
pub use crate::regs::{BAR_IO, BAR_MMIO, BAR_MSIX, PF_QUEUES, VF_QUEUES};
pub use crate::sriov::channel::{Event, Grant, VfChannel, VfListener};
pub use crate::sriov::hub::{Enforcer, Hub, MAX_VFS};
pub use crate::sriov::mailbox::Mailbox;
pub use crate::state::vf as vf_state;

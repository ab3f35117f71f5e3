//! The oracle: one script of register accesses, memory writes and frames goes through a NIC of ours
//! and through QEMU's of the same kind, and everything a guest or a wire could see is compared.
//!
//! Both machines get the same [`Script`] and give back a [`Trace`] each. [`compare`] explains every
//! difference by an entry of the list of its [`Chip`], which says which of the two is right and by which section
//! of the manual; a difference that no entry explains fails the test and is a bug of ours or of QEMU's.

mod base64;
mod chip;
mod compare;
mod context;
mod dice;
mod difference;
mod e1000;
mod functions;
mod igb;
mod layout;
mod ours;
mod packet;
mod page;
mod run;
mod script;
mod shrink;
mod theirs;
mod trace;
pub mod virtio;

pub use chip::Chip;
pub use compare::{Verdict, compare};
pub use difference::{Difference, Right};
pub use e1000::E1000;
pub use igb::{IGB, IGB_VF};
pub use layout::{ARENA, ARENA_LEN, MAC, RING_LEN, RX_BUFFERS, RX_RING, TX_BUFFERS, TX_RING};
pub use ours::Ours;
pub use page::page;
pub use run::{Pair, setting};
pub use script::{BadScript, Op, Script};
pub use shrink::shrink;
pub use theirs::Theirs;
pub use trace::{End, Look, Trace};

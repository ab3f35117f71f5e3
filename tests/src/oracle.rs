//! The oracle: one script of register accesses, memory writes and frames goes through a NIC of ours
//! and through QEMU's of the same kind, and everything a guest or a wire could see is compared.
//!
//! Both machines get the same [`Script`] and give back a [`Trace`] each. [`compare`] explains every
//! difference by an entry of the list of its [`Chip`], which says who is right and by which section of
//! the manual; a difference that no entry explains is a failure of the test and a bug of somebody's.

mod base64;
mod chip;
mod compare;
mod context;
mod dice;
mod difference;
mod e1000;
mod functions;
mod igb;
mod ours;
mod packet;
mod page;
mod run;
mod script;
mod shrink;
mod theirs;
mod trace;

pub use chip::Chip;
pub use compare::{Verdict, compare};
pub use difference::{Difference, Right};
pub use e1000::E1000;
pub use igb::{IGB, IGB_VF};
pub use ours::Ours;
pub use page::page;
pub use run::{Pair, setting};
pub use script::{BadScript, Op, Script};
pub use shrink::shrink;
pub use theirs::Theirs;
pub use trace::{End, Look, Trace};

/// The station address of both machines.
pub const MAC: [u8; 6] = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

/// Where the memory that scripts use begins: free RAM in both machines, zero when a script begins.
pub const ARENA: u64 = 0x10_0000;
/// Its bytes.
pub const ARENA_LEN: usize = 0x3_2000;
/// Memory from address 0 that is zero when a script begins and that no script writes: null addresses
/// lead there.
const LOW_ZEROS: u64 = 0x1_0000;
/// Where generated scripts put the transmit ring. Each look compares its first [`RING_LEN`] bytes.
pub const TX_RING: u64 = ARENA;
/// Where generated scripts put the receive ring.
pub const RX_RING: u64 = ARENA + 0x1000;
/// Bytes of each ring that are compared at each look; the rest is compared at the end.
pub const RING_LEN: usize = 0x400;
/// Where generated scripts put what they send.
pub const TX_BUFFERS: u64 = ARENA + 0x2000;
/// Where generated scripts receive.
pub const RX_BUFFERS: u64 = ARENA + 0x1_2000;

/// Virtual time that passes in each look, ns: longer than any delay timer, and than the second for
/// which QEMU's receiver stays shut after a write to RCTL.
const SETTLE: u64 = 1_100_000_000;
/// Where the registers of QEMU's are.
const BAR: u64 = 0xe000_0000;
/// Where its table of MSI-X is mapped, if it has one.
const MSIX_TABLE: u64 = BAR + 0x4_0000;
/// Where scripts find the registers of virtual functions, from those of the physical one on, and how
/// far it is from one's to the next's.
const VF_WINDOWS: u32 = 0x8_0000;
const VF_WINDOW: u32 = 0x4000;
/// Where the tables of MSI-X of QEMU's are.
const VF_TABLES: u64 = BAR + 0xc_0000;
/// Vectors of each that are looked at, behind those of the physical function.
const VF_VECTORS: u16 = 3;
/// Where messages of vectors are written to, [`MESSAGE_LEN`] bytes from one to the next.
const MESSAGES: u64 = 0x2_0000;
const MESSAGE_LEN: u64 = 16;
/// Vectors looked at.
const VECTORS: u16 = 10;

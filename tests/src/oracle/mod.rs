//! The oracle: one script of register accesses, memory writes and frames goes through our 82540EM
//! and through QEMU's `e1000`, and everything a guest or a wire could see is compared.
//!
//! Both machines get the same [`Script`] and give back a [`Trace`] each. [`compare`] explains every
//! difference by an entry of [`DIFFERENCES`], which says who is right and by which section of the
//! manual; a difference that no entry explains is a failure of the test and a bug of somebody's.

mod base64;
mod compare;
mod context;
mod differences;
mod generate;
mod ours;
mod page;
mod registers;
mod script;
mod shrink;
mod theirs;
mod trace;

pub use compare::{Verdict, compare};
pub use differences::{DIFFERENCES, Difference, Right};
pub use generate::generate;
pub use ours::Ours;
pub use page::page;
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
/// What both machines' CTRL holds when a script begins: link up (SLU), full duplex.
const LINK_UP: u32 = 0x41;

/// What both machines do before a script, unseen. QEMU's bus reset leaves half a packet and the
/// contexts of packets behind: a frame ends the packet, and both contexts are set.
fn prologue() -> Script {
    let write = |at, value: u32| Op::Write {
        at,
        size: 4,
        value: value.into(),
    };
    let mut ring = vec![0; 48];
    ring[..8].copy_from_slice(&TX_BUFFERS.to_le_bytes());
    ring[8..12].copy_from_slice(&[60, 0, 0, 3]);
    for (at, command) in [(16, 0x24), (32, 0x20)] {
        ring[at + 11] = command;
        ring[at + 13..at + 16].copy_from_slice(&[54, 0xb4, 0x05]);
    }
    let mut ops = vec![
        write(0, LINK_UP),
        Op::Mem {
            at: TX_RING,
            bytes: ring,
        },
        write(0x3800, TX_RING as u32),
        write(0x3808, 128),
        write(0x400, 2),
        write(0x3818, 3),
        write(0x400, 0),
    ];
    ops.extend([0x3800, 0x3808, 0x3818, 0x3810].map(|at| write(at, 0)));
    ops.push(Op::Mem {
        at: TX_RING,
        bytes: vec![0; 48],
    });
    // Statistics of sent frames, and the causes.
    let counts = [0x4080, 0x4090, 0x4094, 0x40c8, 0x40cc, 0x40d4, 0x40d8, 0xc0];
    ops.extend(counts.map(|at| Op::Read { at, size: 4 }));
    Script { ops }
}

//! What the receive side puts where, and what descriptors report.

mod any;
mod descriptors;
mod rings;
mod tails;
mod vfs;

use crate::testing::{Guest, packet};

const LEGACY: u32 = 0;
const WHOLE: u32 = 1 << 25;
const SPLIT: u32 = 2 << 25;
const ALWAYS: u32 = 5 << 25;
const DROP: u32 = 1 << 31;
/// Buffers of 1 KiB and headers of 128 bytes.
const SMALL: u32 = 2 << 8 | 1;
/// A counter, and what makes it count.
type Case = (&'static str, fn(&Guest));

/// RXCSUM as Linux's driver has it.
const ALL_SUMS: u32 = 0x2b00;

fn tcp() -> Vec<u8> {
    packet::v4([10, 0, 0, 1], [10, 0, 0, 2], true, 1000, 2000)
}

/// Status and errors, length, tag of an advanced descriptor.
fn upper(word: u64) -> (u32, usize, u16) {
    (
        word as u32,
        usize::from((word >> 32) as u16),
        (word >> 48) as u16,
    )
}

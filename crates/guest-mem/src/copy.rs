//! Copies of any length by the processor's vectors.

use std::ptr;

/// Longer copies go in pieces. From 2112 bytes on the C library leaves a copy to the processor's own instruction (`rep movsb`)
/// where that is said to be quick. On AMD's (family 25) it is, but for addresses whose last 12 bits are near each other: there
/// a jumbo frame took ten times as long.
const PIECE: usize = 2048;

/// Copies `len` bytes.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes. Others may access both meanwhile, and the two may overlap.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len > PIECE {
        // SAFETY: the caller's promise.
        unsafe { long(from, to, len) }
    } else {
        // SAFETY: the caller's promise; `ptr::copy` allows the overlap.
        unsafe { ptr::copy(from, to, len) }
    }
}

/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
    if from.addr().abs_diff(to.addr()) < len {
        // Two NICs of one guest: pieces would overwrite what is still to be read.
        // SAFETY: the caller's promise; `ptr::copy` allows the overlap.
        return unsafe { ptr::copy(from, to, len) };
    }
    for at in (0..len).step_by(PIECE) {
        let piece = PIECE.min(len - at);
        // SAFETY: the piece is a part of both, which do not overlap.
        unsafe { ptr::copy_nonoverlapping(from.add(at), to.add(at), piece) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_copy_is_that_of_its_bytes_also_where_both_overlap() {
        let bytes: Vec<u8> = (0..32 * 1024_u32).map(|n| (n % 251) as u8).collect();
        let lens = [
            0,
            1,
            PIECE - 1,
            PIECE,
            PIECE + 1,
            2 * PIECE,
            9014,
            9 * 1024 + 7,
        ];
        for len in lens {
            // Apart, then ever nearer, to both sides.
            for (from, to) in [
                (0, 16 << 10),
                (16 << 10, 3),
                (100, 4196),
                (4196, 100),
                (7, 8),
                (8, 7),
                (9, 9),
            ] {
                let mut memory = bytes.clone();
                let base = memory.as_mut_ptr();
                // SAFETY: both lie in the memory, which is ours.
                unsafe { copy(base.add(from), base.add(to), len) };
                let mut expected = bytes.clone();
                expected.copy_within(from..from + len, to);
                assert!(memory == expected, "{len} bytes from {from} to {to}");
            }
        }
    }
}

//! Checksums over frames made of slices.

use guest_mem::ReadSlice;
use wire::{Layers, Sum};

use crate::batch::Frame;

/// Adds a slice to a sum.
pub(crate) fn add_slice(sum: &mut Sum, slice: ReadSlice<'_>) {
    sum.add_part(slice.sum(), slice.len());
}

/// The sum of at most `len` bytes of `frame` from byte `start` on.
pub fn sum_range(frame: &Frame<'_>, start: usize, len: usize) -> Sum {
    let (mut skip, mut left) = (start, len);
    let mut sum = Sum::ZERO;
    for slice in frame.slices() {
        if left == 0 {
            break;
        }
        let part = slice.sub(skip, left);
        skip -= skip.min(slice.len());
        left -= part.len();
        add_slice(&mut sum, part);
    }
    sum
}

/// Whether the TCP or UDP checksum of `frame` is right, for receivers that report it. `headers` is
/// a copy of the first bytes of the frame and `layers` what was found there. `None` when it cannot
/// be told (see [`Layers::l4_intact`]).
pub fn l4_intact(frame: &Frame<'_>, headers: &[u8], layers: &Layers) -> Option<bool> {
    let span = layers.l4_span(frame.len())?;
    if !layers.l4_has_checksum(headers)? {
        return None;
    }
    let mut sum = layers.pseudo_sum(headers, span)?;
    let data = sum_range(frame, layers.l4?.offset, span);
    sum.add_word(data.value());
    Some(sum.is_intact())
}

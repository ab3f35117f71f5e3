//! A frame as it goes into the guest's buffers.

use frame::Frame;
use guest_mem::{WriteSlice, crc32_short};
use wire::Sum;

/// Shortest frame on the wire, without FCS.
pub const MIN_FRAME: usize = 60;
/// Bytes of the frame check sequence.
pub const FCS: usize = 4;

/// Bytes copied of every frame: addresses, tag, type.
pub const GLANCE: usize = 18;

/// The frame check sequence of these bytes, as it follows them.
#[inline]
pub fn fcs_of(bytes: &[u8]) -> [u8; FCS] {
    let crc = crc32_short(bytes).unwrap_or_else(|| crc32fast::hash(bytes));
    crc.to_le_bytes()
}

/// Some bytes of ours, a part of the frame, padding and FCS.
#[derive(Debug)]
pub struct Layout<'s, 'b> {
    /// What stands in front.
    pub head: &'s [u8],
    /// The frame.
    pub frame: &'s Frame<'b>,
    /// Where the part of the frame begins.
    pub from: usize,
    /// What follows.
    pub tail: &'s [u8],
}

impl Layout<'_, '_> {
    fn body(&self) -> usize {
        self.frame.len().saturating_sub(self.from)
    }

    /// Bytes in buffers.
    pub fn len(&self) -> usize {
        self.head.len() + self.body() + self.tail.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies from byte `at` on until `to` is full.
    pub fn copy(&self, mut at: usize, to: &WriteSlice<'_>) {
        let mut done = 0;
        if at < self.head.len() {
            done += to.copy_from(done, &self.head[at..]);
            at = 0;
        } else {
            at -= self.head.len();
        }
        let body = self.body();
        if at < body {
            let mut skip = self.from + at;
            for slice in self.frame.slices() {
                if done == to.len() {
                    return;
                }
                let part = slice.sub(skip, usize::MAX);
                skip -= skip.min(slice.len());
                done += to.copy_from_slice(done, part);
            }
            at = 0;
        } else {
            at -= body;
        }
        if let Some(rest) = self.tail.get(at..) {
            to.copy_from(done, rest);
        }
    }

    /// As [`Layout::copy`] for a place behind the head, and adds the bytes that are the frame's
    /// to `sum`.
    pub fn copy_summed(&self, at: usize, to: &WriteSlice<'_>, sum: &mut Sum) {
        let mut done = 0;
        let mut skip = self.from + at.saturating_sub(self.head.len());
        for slice in self.frame.slices() {
            if done == to.len() {
                return;
            }
            let part = slice.sub(skip, usize::MAX);
            skip -= skip.min(slice.len());
            if !part.is_empty() {
                let (n, summed) = to.copy_summed(done, part);
                sum.add_part(summed, n);
                done += n;
            }
        }
        if done < to.len() {
            self.copy(at + done, &to.sub(done, to.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_fcs_is_that_of_the_standard(bytes in proptest::collection::vec(any::<u8>(), 300)) {
            // Bit by bit (IEEE 802.3 §3.2.9).
            let mut crc = u32::MAX;
            for len in 0..=bytes.len() {
                prop_assert_eq!(fcs_of(&bytes[..len]), (!crc).to_le_bytes(), "{} bytes", len);
                let Some(byte) = bytes.get(len) else { break };
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
                }
            }
        }
    }
}

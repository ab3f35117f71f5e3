//! A frame as it goes into the guest's buffers.

use frame::Frame;
use guest_mem::WriteSlice;
use wire::Sum;

/// Shortest frame on the wire, without FCS.
pub(crate) const MIN_FRAME: usize = 60;
/// Bytes of the frame check sequence.
pub(crate) const FCS: usize = 4;
/// Bytes read from one copy.
const CHUNK: usize = 2048;

/// Some bytes of ours, a part of the frame, padding and FCS.
pub(crate) struct Layout<'s, 'b> {
    pub head: &'s [u8],
    pub frame: &'s Frame<'b>,
    /// Where the part of the frame begins.
    pub from: usize,
    pub tail: &'s [u8],
}

impl Layout<'_, '_> {
    fn body(&self) -> usize {
        self.frame.len().saturating_sub(self.from)
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.body() + self.tail.len()
    }

    /// Copies from byte `at` on until `to` is full.
    pub(crate) fn copy(&self, mut at: usize, to: &WriteSlice<'_>) {
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

    /// Visits all bytes, a copy of some at a time. `copy` is scratch space.
    fn walk(&self, copy: &mut Vec<u8>, mut visit: impl FnMut(&[u8])) {
        copy.resize(CHUNK, 0);
        visit(self.head);
        let mut skip = self.from;
        for slice in self.frame.slices() {
            let part = slice.sub(skip, usize::MAX);
            skip -= skip.min(slice.len());
            let mut start = 0;
            while start < part.len() {
                let n = part.copy_to(start, copy);
                visit(&copy[..n]);
                start += n;
            }
        }
        visit(self.tail);
    }

    /// The frame check sequence.
    pub(crate) fn crc32(&self, copy: &mut Vec<u8>) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        self.walk(copy, |bytes| hasher.update(bytes));
        hasher.finalize()
    }

    /// The packet checksum: the one's complement sum from byte `start` on (manual §3.2.9).
    pub(crate) fn checksum(&self, start: usize, copy: &mut Vec<u8>) -> u16 {
        let mut sum = Sum::ZERO;
        let mut skip = start;
        self.walk(copy, |bytes| {
            sum.add(bytes.get(skip..).unwrap_or(&[]));
            skip -= skip.min(bytes.len());
        });
        sum.finish()
    }
}

//! A checksum that the sender left to its NIC, written while the frame is copied.
//!
//! Always: a receiver whose descriptor says that the sum is right passes the frame on without another look
//! (it routes, bridges or captures it), and the sum would stay missing.

use frame::Frame;
use guest_mem::{ReadSlice, WriteSlice};
use wire::{Csum, Sum};

use crate::layout::{GLANCE, Layout};

/// The sum of a frame under way into buffers. Places are those of the [`Layout`].
#[derive(Clone, Copy, Debug)]
pub struct Finish {
    start: usize,
    field: usize,
    sum: Sum,
}

/// Whether the checksum noted for `frame` can be written during the copy: its notes are true, and
/// what it covers is not what tags are put in or taken out of.
pub fn possible(frame: &Frame<'_>) -> bool {
    frame.notes().csum.is_none_or(|csum| {
        usize::from(csum.start) >= GLANCE && frame.notes().check(frame.len()).is_ok()
    })
}

/// Copies a frame to the front of its one buffer; returns its length.
#[inline(always)]
pub fn copy_whole(frame: &Frame<'_>, to: &WriteSlice<'_>) -> usize {
    let mut at = to.copy_short(frame.head());
    for slice in frame.rest() {
        at += to.copy_from_slice(at, slice);
    }
    at
}

impl Finish {
    /// For a frame with a checksum noted and [`possible`].
    pub fn new(layout: &Layout<'_, '_>) -> Option<Finish> {
        let csum = layout.frame.notes().csum?;
        // The part of the frame begins at the glance at the latest.
        let start = (usize::from(csum.start) + layout.head.len()).checked_sub(layout.from)?;
        Some(Self::from(csum, start))
    }

    /// The same for a frame that goes into buffers as it is.
    #[inline]
    pub fn whole(frame: &Frame<'_>) -> Option<Finish> {
        let csum = frame.notes().csum?;
        Some(Self::from(csum, csum.start.into()))
    }

    #[inline]
    fn from(csum: Csum, start: usize) -> Finish {
        Finish {
            start,
            field: start + usize::from(csum.offset),
            sum: Sum::ZERO,
        }
    }

    /// Copies such a frame to the front of its one buffer and writes its checksum there.
    pub fn fill(mut self, frame: &Frame<'_>, to: &WriteSlice<'_>) {
        let head = frame.head();
        let mut at = to.copy_short(head);
        let covered = head.get(self.start..).unwrap_or(&[]);
        let part = ReadSlice::from_bytes(covered).sum();
        self.sum.add_part(part, covered.len());
        for slice in frame.rest() {
            let before = self.start.saturating_sub(at).min(slice.len());
            if before > 0 {
                at += to.copy_from_slice(at, slice.sub(0, before));
            }
            let (n, sum) = to.copy_summed(at, slice.sub(before, usize::MAX));
            self.sum.add_part(sum, n);
            at += n;
        }
        to.copy_from(self.field, &self.value());
    }

    /// Computes it over a copy of head and frame, and writes it there.
    pub fn write(&self, copy: &mut [u8]) {
        let Some(covered) = copy.get(self.start..) else {
            return;
        };
        let mut sum = Sum::ZERO;
        sum.add_part(ReadSlice::from_bytes(covered).sum(), covered.len());
        let value = Finish { sum, ..*self }.value();
        if let Some(field) = copy.get_mut(self.field..self.field + value.len()) {
            field.copy_from_slice(&value);
        }
    }

    /// Where the checksum goes.
    pub fn field(&self) -> usize {
        self.field
    }

    /// What goes there once all is copied.
    pub fn value(&self) -> [u8; 2] {
        self.sum.finish_nonzero().to_be_bytes()
    }

    /// Copies from byte `at` on until `to` is full, and sums what the checksum covers. To be called
    /// for one part after the other.
    pub fn copy(&mut self, layout: &Layout<'_, '_>, at: usize, to: &WriteSlice<'_>) {
        let before = self.start.saturating_sub(at).min(to.len());
        if before > 0 {
            layout.copy(at, &to.sub(0, before));
        }
        if before < to.len() {
            let to = to.sub(before, to.len());
            layout.copy_summed(at + before, &to, &mut self.sum);
        }
    }
}

impl Layout<'_, '_> {
    /// Makes a copy of ours of all of it at the front of `copy`, which is scratch space, with the
    /// checksum written that `finish` is for. Returns its length.
    pub fn stage(&self, copy: &mut Vec<u8>, finish: Option<Finish>) -> usize {
        let len = self.len();
        if copy.len() < len {
            copy.resize(len, 0);
        }
        let mut at = self.head.len();
        copy[..at].copy_from_slice(self.head);
        let mut skip = self.from;
        for slice in self.frame.slices() {
            at += slice.copy_to(skip, &mut copy[at..len]);
            skip -= skip.min(slice.len());
        }
        if let Some(finish) = finish {
            finish.write(&mut copy[..at]);
        }
        copy[len - self.tail.len()..len].copy_from_slice(self.tail);
        len
    }
}

#[cfg(test)]
mod tests {
    use frame::Batch;
    use guest_mem::Memory;
    use proptest::prelude::*;
    use wire::Offload;

    use super::*;

    /// The checksum word by word (RFC 1071 §1), never 0.
    fn naive(bytes: &[u8]) -> [u8; 2] {
        let words = bytes.chunks(2);
        let words = words.map(|w| u64::from(w[0]) << 8 | w.get(1).map_or(0, |low| (*low).into()));
        // What is 0 modulo FFFFh is FFFFh, unless all is 0.
        let sum = words.sum::<u64>();
        let folded = match sum % 0xffff {
            0 if sum > 0 => 0xffff,
            rest => rest as u16,
        };
        match !folded {
            0 => 0xffff_u16,
            other => other,
        }
        .to_be_bytes()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 }))]
        #[test]
        fn a_checksum_is_written_wherever_it_is_and_however_the_frame_lies(
            bytes in proptest::collection::vec(any::<u8>(), 14..400),
            start in 0usize..120, offset in 0usize..60,
            cuts in proptest::collection::vec(any::<usize>(), 0..5),
            step in 1usize..200,
        ) {
            let mut batch = Batch::new();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (piece, tail) = rest.split_at(cut % (rest.len() + 1));
                batch.push_slice(ReadSlice::from_bytes(piece));
                rest = tail;
            }
            batch.push_slice(ReadSlice::from_bytes(rest));
            let (from, at) = (start as u16, offset as u16);
            batch.end(Offload { csum: Some(Csum { start: from, offset: at }), ..Offload::NONE });
            let frame = batch.get(0).expect("pushed");
            let inside = start + offset + 2 <= bytes.len();
            prop_assert_eq!(possible(&frame), inside && start >= GLANCE);
            if !possible(&frame) {
                return Ok(());
            }
            let mut want = bytes.clone();
            want[start + offset..][..2].copy_from_slice(&naive(&bytes[start..]));

            // At once.
            let finish = Finish::whole(&frame).expect("noted");
            let memory = Memory::new();
            memory.map_anon(0, 0x1000).expect("map");
            let view = memory.view();
            let window = view.write_window(0).expect("mapped");
            let len = bytes.len();
            finish.fill(&frame, &window.at(0, len).expect("inside"));
            let mut got = vec![0; len + 8];
            view.read(0, &mut got).expect("mapped");
            prop_assert_eq!(&got[..len], &want[..]);
            prop_assert_eq!(&got[len..], &[0; 8]);

            // Behind the copy.
            let mut copy = bytes.clone();
            finish.write(&mut copy);
            prop_assert_eq!(&copy, &want);

            // Into several buffers.
            let layout = Layout { head: &[], frame: &frame, from: 0, tail: &[] };
            let mut finish = Finish::new(&layout).expect("noted");
            for at in (0..len).step_by(step) {
                let to = window.at(at as u64, step.min(len - at)).expect("inside");
                finish.copy(&layout, at, &to);
            }
            view.write(finish.field() as u64, &finish.value()).expect("mapped");
            view.read(0, &mut got).expect("mapped");
            prop_assert_eq!(&got[..len], &want[..]);
        }
    }
}

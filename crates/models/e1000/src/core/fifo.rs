//! The receive packet FIFO: where frames wait that found no descriptor (manual §13.4.16, §13.8).
//!
//! Their bytes lie in the packet buffer, which the guest may write to at any time through PBM.
//! Where they lie and how long they are stands here and nowhere else; what the guest writes into
//! the pointer registers is overwritten by the next frame that comes or goes.

use std::collections::VecDeque;

use frame::{Batch, Frame};
use guest_mem::ReadSlice;
use regs::File;
use wire::Offload;

use crate::core::packet_buffer::SIZE;
use crate::regs as r;
use crate::regs::bits::pba;

/// The FIFO is made of 64-bit words (manual §13.8.1).
const WORD: usize = 8;
/// Words kept of a frame beside its bytes.
const STATUS: u32 = 2;
/// Shortest frame and FCS: what a frame takes at least.
const MIN_FRAME: usize = 60;
const FCS: usize = 4;
/// As many as fit into all of the packet buffer.
const MAX_FRAMES: usize = SIZE / (MIN_FRAME + FCS + STATUS as usize * WORD);

/// A waiting frame. It has passed the filters, is finished, and carries its tag inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub len: u16,
    /// Its checksum has been verified, or written here.
    pub csum_valid: bool,
}

/// The FIFO's bookkeeping.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Fifo {
    /// Words that frames take. First: often it is all that is looked at.
    pub used: u32,
    /// Words the FIFO has, as PBA said when it was last empty.
    pub size: u32,
    pub head: u32,
    pub frames: VecDeque<Held>,
}

impl Default for Fifo {
    fn default() -> Self {
        Self {
            frames: VecDeque::with_capacity(MAX_FRAMES),
            size: 0,
            head: 0,
            used: 0,
        }
    }
}

/// Words that a frame of `len` bytes takes.
fn words(len: usize) -> u32 {
    STATUS + (len.max(MIN_FRAME) + FCS).div_ceil(WORD) as u32
}

/// Bytes of the FIFO: PBA.RXA in KiB (manual §13.4.16), and never more than there are.
pub(crate) fn capacity(file: &File) -> usize {
    ((file.get(r::PBA) & pba::RXA) as usize * 1024).min(SIZE)
}

impl Fifo {
    /// One with these frames in it; `None` when they do not fit or it is larger than can be.
    pub(crate) fn restored(
        size: u32,
        head: u32,
        frames: impl Iterator<Item = Held>,
    ) -> Option<Self> {
        let mut fifo = Self {
            size,
            head,
            ..Self::default()
        };
        for held in frames.take(MAX_FRAMES + 1) {
            fifo.used += words(held.len.into());
            fifo.frames.push_back(held);
        }
        let inside = size as usize <= SIZE / WORD && head < size.max(1);
        (inside && fifo.used <= size).then_some(fifo)
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Each frame takes some.
        self.used == 0
    }

    /// Bytes taken, as flow control compares them with its thresholds.
    pub(crate) fn fill(&self) -> usize {
        self.used as usize * WORD
    }

    /// Whether it is so full that those who wait for room need not be told yet.
    pub(crate) fn is_half_full(&self) -> bool {
        self.used > self.size / 2
    }

    /// Loses everything (CTRL.RST).
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.head = 0;
        self.used = 0;
    }

    /// Whether frames of these lengths find room. A change of PBA takes effect when the FIFO is
    /// empty.
    pub(crate) fn has_room(&mut self, file: &File, lens: impl Iterator<Item = usize>) -> bool {
        if self.is_empty() {
            self.size = (capacity(file) / WORD) as u32;
            self.head %= self.size.max(1);
            self.used = 0;
        }
        lens.fold(self.used, |sum, len| sum.saturating_add(words(len))) <= self.size
    }

    /// Takes a finished frame in. `false` when there is no room.
    pub(crate) fn push(&mut self, file: &File, memory: &mut [u8], frame: &Frame<'_>) -> bool {
        let len = frame.len();
        let Ok(held) = u16::try_from(len) else {
            return false;
        };
        if !self.has_room(file, std::iter::once(len)) || self.frames.len() >= MAX_FRAMES {
            return false;
        }
        let end = self.size as usize * WORD;
        let mut at = (self.head + self.used) as usize % self.size as usize * WORD;
        for slice in frame.slices() {
            let mut done = 0;
            while done < slice.len() {
                let room = (end - at).min(slice.len() - done);
                let Some(to) = memory.get_mut(at..at + room) else {
                    return false;
                };
                slice.copy_to(done, to);
                done += room;
                at = (at + room) % end;
            }
        }
        self.used += words(len);
        self.frames.push_back(Held {
            len: held,
            csum_valid: frame.notes().csum_valid,
        });
        true
    }

    /// Adds the oldest frame to `batch`. `false` when there is none.
    pub(crate) fn front<'m>(&self, memory: &'m [u8], batch: &mut Batch<'m>) -> bool {
        let Some(held) = self.frames.front() else {
            return false;
        };
        let at = self.head as usize * WORD;
        let end = self.size as usize * WORD;
        let len = usize::from(held.len);
        let first = len.min(end - at);
        for part in [at..at + first, 0..len - first] {
            if let Some(bytes) = memory.get(part) {
                batch.push_slice(ReadSlice::from_bytes(bytes));
            }
        }
        batch.end(Offload {
            csum_valid: held.csum_valid,
            ..Offload::NONE
        });
        true
    }

    /// Forgets the oldest frame.
    pub(crate) fn pop(&mut self) {
        if let Some(held) = self.frames.pop_front() {
            let words = words(held.len.into());
            self.head = (self.head + words) % self.size.max(1);
            self.used -= words;
        }
    }

    /// Puts what is true into the diagnostic registers (manual §13.8.1–5).
    pub(crate) fn show(&self, file: &File) {
        let tail = (self.head + self.used) % self.size.max(1);
        for (id, value) in [
            (r::RDFH, self.head),
            (r::RDFHS, self.head),
            (r::RDFT, tail),
            (r::RDFTS, tail),
            (r::RDFPC, self.frames.len() as u32),
        ] {
            file.set(id, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn file(kib: u32) -> File {
        let file = File::new(r::table());
        file.set(r::PBA, kib);
        file
    }

    fn batch(bytes: &[u8]) -> Batch<'_> {
        let mut batch = Batch::new();
        let (a, b) = bytes.split_at(bytes.len() / 3);
        batch.push_slice(ReadSlice::from_bytes(a));
        batch.push_slice(ReadSlice::from_bytes(b));
        batch.end(Offload::NONE);
        batch
    }

    fn push(fifo: &mut Fifo, file: &File, memory: &mut [u8], bytes: &[u8]) -> bool {
        let batch = batch(bytes);
        fifo.push(file, memory, &batch.get(0).expect("one"))
    }

    fn front(fifo: &Fifo, memory: &[u8]) -> Option<Vec<u8>> {
        let mut out = Batch::new();
        fifo.front(memory, &mut out)
            .then(|| out.get(0).expect("one").to_vec())
    }

    #[test]
    fn it_holds_what_pba_gives_it() {
        // Thousands of frames take Miri minutes.
        let sizes: &[u32] = if cfg!(miri) {
            &[0, 2]
        } else {
            &[0, 8, 48, 64, 0xffff]
        };
        for &kib in sizes {
            let (file, mut memory) = (file(kib), vec![0; SIZE]);
            let mut fifo = Fifo::default();
            let mut count = 0;
            while push(&mut fifo, &file, &mut memory, &[7; 60]) {
                count += 1;
            }
            assert_eq!(count, (kib as usize * 1024).min(SIZE) / 80, "{kib} KiB");
            assert!(fifo.used as usize * WORD <= SIZE);
        }
    }

    #[test]
    fn another_size_counts_once_it_is_empty() {
        let (file, mut memory) = (file(8), vec![0; SIZE]);
        let mut fifo = Fifo::default();
        assert!(push(&mut fifo, &file, &mut memory, &[1; 4000]));
        file.set(r::PBA, 64);
        assert!(push(&mut fifo, &file, &mut memory, &[2; 4000]));
        assert!(!push(&mut fifo, &file, &mut memory, &[3; 4000]));
        file.set(r::PBA, 1);
        fifo.pop();
        assert_eq!(front(&fifo, &memory), Some(vec![2; 4000]));
        fifo.pop();
        assert!(!push(&mut fifo, &file, &mut memory, &[4; 4000]));
        assert!(push(&mut fifo, &file, &mut memory, &[5; 900]));
    }

    const STEPS: usize = if cfg!(miri) { 20 } else { 400 };

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_whatever_is_done_to_the_registers(
            steps in prop::collection::vec((any::<bool>(), 0usize..3000, any::<u32>()), 0..STEPS),
        ) {
            let (file, mut memory) = (file(8), vec![0; SIZE]);
            let mut fifo = Fifo::default();
            let mut want = VecDeque::new();
            for (i, (take, len, noise)) in steps.into_iter().enumerate() {
                for id in [r::RDFH, r::RDFT, r::RDFHS, r::RDFTS, r::RDFPC, r::PBA] {
                    file.set(id, noise & 0x1fff);
                }
                if take {
                    prop_assert_eq!(front(&fifo, &memory), want.pop_front());
                    fifo.pop();
                } else {
                    let bytes: Vec<u8> = (0..len).map(|b| (b + i) as u8).collect();
                    if push(&mut fifo, &file, &mut memory, &bytes) {
                        want.push_back(bytes);
                    }
                }
                fifo.show(&file);
                prop_assert_eq!(file.get(r::RDFPC) as usize, want.len());
                prop_assert!(fifo.used as usize * WORD <= SIZE);
                prop_assert_eq!(fifo.is_empty(), want.is_empty());
            }
        }
    }
}

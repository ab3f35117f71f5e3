//! The guest's memory, and what has been written to it.

use guest_mem::{Access, Memory};

/// The guest's memory. Nothing is mapped in front of it, and nothing behind.
pub(crate) const RAM: u64 = 0x10_0000;
pub(crate) const RAM_LEN: u64 = 0x1_0000;
/// A page above 4 GiB, so that the high halves of addresses matter.
pub(crate) const HIGH: u64 = 0x2_0000_0000;
pub(crate) const HIGH_LEN: u64 = 0x1000;

pub(super) fn guest() -> Memory {
    let memory = Memory::new();
    memory.map_anon(RAM, RAM_LEN).expect("map");
    memory.map_anon(HIGH, HIGH_LEN).expect("map");
    memory.meter().record(true);
    memory
}

/// Bytes of guest memory that are clean or dirty together.
pub(super) const BLOCK: u64 = 256;

/// What has been written to the guest's memory, in blocks: first those of [`RAM`], then those at
/// [`HIGH`].
#[derive(Default)]
pub(super) struct Dirt([u64; ((RAM_LEN + HIGH_LEN) / BLOCK).div_ceil(64) as usize]);

impl Dirt {
    pub(super) fn note(&mut self, access: Access) {
        let at = if access.iova >= HIGH {
            access.iova - HIGH + RAM_LEN
        } else {
            access.iova - RAM
        };
        for block in at / BLOCK..(at + access.len).div_ceil(BLOCK) {
            self.0[block as usize / 64] |= 1 << (block % 64);
        }
    }

    /// Takes over what has been recorded.
    pub(super) fn take(&mut self, memory: &Memory) {
        memory.meter().drain(&mut |access| self.note(access));
    }

    /// The addresses of what is dirty.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u64> {
        let words = (0..).zip(&self.0);
        let blocks = words.flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some((at * 64 + u64::from(bit)) * BLOCK)
            })
        });
        blocks.map(|at| {
            if at >= RAM_LEN {
                at - RAM_LEN + HIGH
            } else {
                at + RAM
            }
        })
    }

    /// Makes everything zero again.
    pub(super) fn clean(&mut self, memory: &Memory) {
        self.take(memory);
        // The meter does not record the cleaning itself.
        memory.meter().record(false);
        let view = memory.view();
        for at in self.blocks() {
            let zeros = [0; BLOCK as usize];
            view.write(at, &zeros).expect("was there");
        }
        memory.meter().record(true);
        *self = Self::default();
    }
}

//! What the script has written so far: the same for both machines, whatever they made of it.

use std::collections::BTreeMap;

use crate::oracle::chip::Chip;
use crate::oracle::layout::{RX_RING, TX_RING};
use crate::oracle::script::Op;

/// Register values as last written.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub chip: &'static Chip,
    written: BTreeMap<u32, u32>,
    /// Guest memory of the two ring pages as the script wrote it.
    rings: BTreeMap<u64, u8>,
}

impl Context {
    /// That of a script which has done nothing yet.
    pub(super) fn new(chip: &'static Chip) -> Self {
        Self {
            chip,
            written: chip.standing.iter().copied().collect(),
            rings: BTreeMap::new(),
        }
    }

    /// Takes a step into account.
    pub(super) fn follow(&mut self, op: &Op) {
        match op {
            Op::Write { at, size, value } if at.is_multiple_of(4) && *size >= 4 => {
                self.written.insert(self.chip.home(*at), *value as u32);
                if *size == 8 {
                    let high = self.chip.home(at + 4);
                    self.written.insert(high, (value >> 32) as u32);
                }
            }
            Op::Mem { at, bytes } => {
                for (at, byte) in (*at..).zip(bytes) {
                    if (TX_RING..RX_RING + 0x1000).contains(&at) {
                        self.rings.insert(at, *byte);
                    }
                }
            }
            _ => {}
        }
    }

    /// What was last written to a register, if anything was.
    pub(super) fn written(&self, at: u32) -> Option<u32> {
        self.written.get(&at).copied()
    }

    /// What was last written to a register, or 0.
    pub(super) fn get(&self, at: u32) -> u32 {
        self.written(at).unwrap_or(0)
    }

    /// Whether bits of a register are set.
    pub(super) fn has(&self, at: u32, bits: u32) -> bool {
        self.get(at) & bits == bits
    }

    /// A byte of a ring as the guest wrote it.
    pub(super) fn ring_byte(&self, at: u64) -> u8 {
        self.rings.get(&at).copied().unwrap_or(0)
    }

    /// A head: where it was, unless it was written since `before`.
    pub(super) fn moved(&self, at: u32, before: &Context, head: u32) -> u32 {
        if self.written(at) == before.written(at) {
            head
        } else {
            self.get(at) & 0xffff
        }
    }
}

//! The MSI-X table and pending bits inside a BAR.
//!
//! QEMU and cloud-hypervisor emulate the table themselves and never forward it, so a vector counts
//! as masked by the guest only after the table's mask bit was written here: the mask that a reset
//! table shows would otherwise silence every vector for good.

use std::ops::Range;

use pci::Msix;

use crate::codec::irq;
use crate::interrupts::State;

pub(crate) struct Table {
    layout: Msix,
    entries: Box<[u8]>,
}

impl Table {
    pub fn new(layout: Msix) -> Self {
        let mut table = Self {
            layout,
            entries: vec![0; layout.table_len() as usize].into_boxed_slice(),
        };
        table.reset();
        table
    }

    /// Every vector reads as masked (PCI Local Bus 3.0 §6.8.2.9).
    pub fn reset(&mut self) {
        for entry in self.entries.chunks_exact_mut(16) {
            entry.fill(0);
            entry[12] = 1;
        }
    }

    /// The table as a guest reads it.
    pub fn entries(&self) -> &[u8] {
        &self.entries
    }

    /// Makes it one of the same length. Masks are the vectors' business.
    pub fn put(&mut self, entries: &[u8]) {
        self.entries.copy_from_slice(entries);
    }

    fn table_range(&self, bar: u8, offset: u64, len: usize) -> Option<Range<usize>> {
        let start = offset.checked_sub(u64::from(self.layout.table_offset))?;
        let hit = bar == self.layout.table_bar && start < self.layout.table_len();
        hit.then(|| start as usize..(start as usize + len).min(self.entries.len()))
    }

    fn pba_start(&self, bar: u8, offset: u64) -> Option<usize> {
        let start = offset.checked_sub(u64::from(self.layout.pba_offset))?;
        (bar == self.layout.pba_bar && start < self.layout.pba_len()).then_some(start as usize)
    }

    /// Answers a naturally aligned read of at most 8 bytes, if it is ours.
    pub fn read(&self, irq: &State, bar: u8, offset: u64, data: &mut [u8]) -> bool {
        if let Some(range) = self.table_range(bar, offset, data.len()) {
            let entries = &self.entries[range];
            data[..entries.len()].copy_from_slice(entries);
            return true;
        }
        let Some(start) = self.pba_start(bar, offset) else {
            return false;
        };
        let word = irq.pba(start / 8).to_le_bytes();
        let word = &word[start % 8..];
        let n = data.len().min(word.len());
        data[..n].copy_from_slice(&word[..n]);
        true
    }

    /// Takes a naturally aligned write of at most 8 bytes, if it is ours. Pending bits ignore it.
    pub fn write(&mut self, irq: &State, bar: u8, offset: u64, data: &[u8]) -> bool {
        let Some(range) = self.table_range(bar, offset, data.len()) else {
            return self.pba_start(bar, offset).is_some();
        };
        let control = range.start / 16 * 16 + 12;
        let vector = range.start / 16;
        let n = range.len();
        let touches_control = range.contains(&control);
        self.entries[range].copy_from_slice(&data[..n]);
        // Address bits 1:0 and all of the control word but the mask bit are reserved.
        self.entries[control - 12] &= !3;
        self.entries[control] &= 1;
        self.entries[control + 1..control + 4].fill(0);
        if touches_control {
            irq.guest_mask(irq::MSIX, vector as u32, self.entries[control] & 1 != 0);
        }
        true
    }
}

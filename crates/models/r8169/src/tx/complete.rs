//! What follows when packets are done with.

use datapath::counters::count_alone;
use guest_mem::View;

use crate::core::chip::Chip;
use crate::core::queues::{Desc, place};
use crate::regs::bits::desc;

/// Gives descriptors back to the driver. Returns the index behind them.
pub(super) fn give_back((chip, view): (&Chip, &View<'_>), base: u64, descs: &[Desc]) -> u32 {
    for desc in descs {
        let word = (desc.opts1 & !desc::OWN).to_le_bytes();
        if view.write_release(place(base, desc.index), &word).is_err() {
            count_alone(&chip.counters.tx_dma_fault, 1);
        }
    }
    descs.last().map_or(0, Desc::next)
}

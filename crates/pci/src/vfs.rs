//! What the SR-IOV capability of a space says of its virtual functions.

use crate::bar::BarKind;
use crate::space::ConfigSpace;
use crate::sriov::{Sriov, offset};

impl ConfigSpace {
    /// The SR-IOV capability and its offset.
    pub fn sriov(&self) -> Option<(usize, Sriov)> {
        self.layout.sriov.map(|placed| (placed.at, placed.cap))
    }

    /// Virtual functions that exist: NumVFs while VF Enable is set.
    pub fn vfs(&self) -> u16 {
        self.vfs_seen().vfs
    }

    /// The VFs' memory BARs decode.
    pub fn vf_memory(&self) -> bool {
        self.vfs_seen().memory
    }

    /// Where the VF BAR in slot `index` decodes for the first VF, and bytes for each VF. They follow
    /// each other without a gap.
    pub fn vf_bar(&self, index: u8) -> Option<(u64, u64)> {
        let placed = self.layout.sriov?;
        let bar = (*placed.cap.bars.get(usize::from(index))?)?;
        let at = offset::BAR0 + 4 * usize::from(index);
        let page = placed.held(&self.bytes).page;
        let low = u64::from(placed.u32(&self.bytes, at));
        let high = match bar.kind {
            BarKind::Memory64 => u64::from(placed.u32(&self.bytes, at + 4)) << 32,
            _ => 0,
        };
        let address = (high | low) & placed.cap.mask(bar, page);
        Some((address, placed.cap.size(bar, page)))
    }
}

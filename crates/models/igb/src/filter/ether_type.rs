//! Filters of a PF by EtherType (§7.1.1.4, §8.11).

use regs::File;
use wire::Layers;

use crate::regs as r;
use crate::regs::bits::etqf;

/// The Ethernet type filter that matches.
pub(crate) fn ethernet_type(file: &File, layers: &Layers) -> Option<(u16, u32)> {
    (0..file.table().register(r::ETQF).count).find_map(|i| {
        let filter = file.get_at(r::ETQF, i);
        let matches = filter & etqf::FILTER != 0 && filter as u16 == layers.ether_type.0;
        matches.then_some((i as u16, filter))
    })
}

/// Whether some Ethernet type filter is on.
pub(crate) fn filters_types(file: &File) -> bool {
    let count = file.table().register(r::ETQF).count;
    (0..count).any(|i| file.get_at(r::ETQF, i) & etqf::FILTER != 0)
}

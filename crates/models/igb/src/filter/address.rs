//! Which frames a PF lets in (§7.1.2, §8.10.15–8.10.19). What comes to a VF has passed its PF's filters.

use intel::filter::Filters;
pub(crate) use intel::filter::hashed;

use crate::regs as r;
use crate::regs::bits::rah;

/// The 24 receive addresses and the two tables. RAH.ASEL chooses what is compared: 00 the destination. Pools
/// are not.
pub(crate) static FILTERS: Filters = Filters {
    rctl: r::RCTL,
    vet: r::VET,
    addresses: &r::ADDRESSES,
    compared: rah::AV | rah::ASEL | rah::ADDRESS,
    mta: r::MTA,
    vfta: r::VFTA,
};

#[cfg(test)]
mod tests {
    use regs::File;

    use super::*;
    use crate::regs::bits::rctl;

    const US: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
    const GROUP: [u8; 6] = [0x01, 0, 0x5e, 0x40, 0x30, 0x20];

    fn pass(file: &File, rctl: u32, dst: [u8; 6]) -> bool {
        FILTERS.address(file, rctl, dst)
    }

    #[test]
    fn exact_addresses_in_either_array_whatever_their_pools() {
        for (ral, rah) in r::ADDRESSES {
            let file = File::new(r::table());
            file.set_at(ral, 3, 0x1200_5452);
            for (high, passes) in [
                (0x8000_5634, true),
                (0x8104_5634, true),
                (0x0000_5634, false),
                (0x8001_5634, false),
            ] {
                file.set_at(rah, 3, high);
                assert_eq!(pass(&file, 0, US), passes, "{high:x}");
            }
        }
    }

    #[test]
    fn promiscuity_is_per_kind() {
        let file = File::new(r::table());
        let of = |rctl| [US, GROUP, [0xff; 6]].map(|dst| pass(&file, rctl, dst));
        assert_eq!(of(0), [false, false, false]);
        assert_eq!(of(rctl::UPE), [true, false, false]);
        assert_eq!(of(rctl::MPE), [false, true, true]);
        assert_eq!(of(rctl::BAM), [false, false, true]);
    }

    #[test]
    fn the_multicast_offset_chooses_the_bits() {
        for (mo, index) in [(0, 0x203), (1, 0x406), (2, 0x80c), (3, 0x030)] {
            let file = File::new(r::table());
            file.set_at(r::MTA, index / 32, 1 << (index % 32));
            for other in 0..4 {
                let rctl = other << rctl::MO_SHIFT;
                assert_eq!(pass(&file, rctl, GROUP), other == mo, "MO {other}");
                assert!(FILTERS.inexact(&file, rctl, GROUP));
            }
            assert!(!FILTERS.inexact(&file, rctl::MPE, GROUP));
        }
    }

    #[test]
    fn vlan_filter_by_table_and_cfi() {
        let file = File::new(r::table());
        file.set_at(r::VFTA, 3, 1 << 4);
        let of = |rctl, tci| FILTERS.vlan(&file, rctl, tci);
        assert!(of(0, 5) && of(rctl::VFE, 100) && of(rctl::VFE, 0x1000 | 100));
        assert!(!of(rctl::VFE, 101));
        let strict = rctl::VFE | rctl::CFIEN;
        assert!(!of(strict, 0x1000 | 100));
        assert!(of(strict | rctl::CFI, 0x1000 | 100));
    }
}

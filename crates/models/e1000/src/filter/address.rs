//! Which frames the receiver lets in (manual §3.2.1, §13.5).

use intel::filter::Filters;

use crate::regs as r;
use crate::regs::bits::rctl;

/// Longest frame without LPE, FCS included (manual §13.4.22).
const MAX_STANDARD: usize = 1522;
/// Longest frame with LPE, FCS included.
pub(crate) const MAX_LONG: usize = 16384;

/// The 16 receive addresses and the two tables. RAH.AS chooses what is compared: 00 the destination, others
/// are reserved.
pub(crate) static FILTERS: Filters = Filters {
    rctl: r::RCTL,
    vet: r::VET,
    addresses: &[(r::RAL, r::RAH)],
    compared: !0,
    mta: r::MTA,
    vfta: r::VFTA,
};

/// Longest frame let in, FCS included.
pub(crate) fn max_len(rctl: u32) -> usize {
    if rctl & rctl::LPE != 0 {
        MAX_LONG
    } else {
        MAX_STANDARD
    }
}

/// Bytes of one receive buffer. BSEX with size 00 is reserved and taken as 2048.
pub(crate) fn buffer_size(rctl: u32) -> usize {
    let size = rctl >> rctl::BSIZE_SHIFT & rctl::BSIZE;
    match (rctl & rctl::BSEX != 0, size) {
        (true, 1) => 16384,
        (true, 2) => 8192,
        (true, 3) => 4096,
        (false, 1) => 1024,
        (false, 2) => 512,
        (false, 3) => 256,
        _ => 2048,
    }
}

#[cfg(test)]
mod tests {
    use regs::File;

    use super::*;
    use intel::bits::rah;

    const US: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
    const GROUP: [u8; 6] = [0x01, 0, 0x5e, 0x40, 0x30, 0x20];

    fn file() -> File {
        let file = File::new(r::table());
        file.set_at(r::RAL, 3, 0x1200_5452);
        file.set_at(r::RAH, 3, 0x8000_5634);
        file
    }

    #[test]
    fn exact_addresses_need_the_valid_bit_and_selector_0() {
        let file = file();
        assert!(FILTERS.address(&file, 0, US));
        file.set_at(r::RAH, 3, 0x5634);
        assert!(!FILTERS.address(&file, 0, US));
        file.set_at(r::RAH, 3, 0x8001_5634);
        assert!(!FILTERS.address(&file, 0, US));
    }

    #[test]
    fn promiscuity_is_per_kind() {
        let file = File::new(r::table());
        let pass = |rctl| {
            let of = |dst| FILTERS.address(&file, rctl, dst);
            (of(US), of(GROUP), of([0xff; 6]))
        };
        assert_eq!(pass(0), (false, false, false));
        assert_eq!(pass(rctl::UPE), (true, false, false));
        assert_eq!(pass(rctl::MPE), (false, true, true));
        assert_eq!(pass(rctl::BAM), (false, false, true));
    }

    #[test]
    fn only_what_the_table_alone_lets_in_is_inexact() {
        let file = file();
        assert!(FILTERS.inexact(&file, 0, GROUP));
        assert!(FILTERS.inexact(&file, rctl::BAM, GROUP));
        assert!(!FILTERS.inexact(&file, rctl::MPE, GROUP));
        assert!(FILTERS.inexact(&file, 0, [0xff; 6]));
        assert!(!FILTERS.inexact(&file, rctl::BAM, [0xff; 6]));
        assert!(!FILTERS.inexact(&file, rctl::UPE, US));
        let [a, b, c, d, e, f] = GROUP;
        file.set_at(r::RAL, 5, u32::from_le_bytes([a, b, c, d]));
        file.set_at(r::RAH, 5, u32::from_le_bytes([e, f, 0, 0]) | rah::AV);
        assert!(!FILTERS.inexact(&file, 0, GROUP));
    }

    #[test]
    fn the_multicast_offset_chooses_the_bits() {
        for (mo, index) in [(0, 0x203), (1, 0x406), (2, 0x80c), (3, 0x030)] {
            let file = File::new(r::table());
            file.set_at(r::MTA, index / 32, 1 << (index % 32));
            for other in 0..4 {
                let passes = FILTERS.address(&file, other << rctl::MO_SHIFT, GROUP);
                assert_eq!(passes, other == mo, "MO {other}, table of {mo}");
            }
        }
    }

    #[test]
    fn vlan_filter_by_table_and_cfi() {
        let file = File::new(r::table());
        file.set_at(r::VFTA, 3, 1 << 4);
        assert!(FILTERS.vlan(&file, 0, 5));
        assert!(FILTERS.vlan(&file, rctl::VFE, 100));
        assert!(!FILTERS.vlan(&file, rctl::VFE, 101));
        assert!(FILTERS.vlan(&file, rctl::VFE, 0x1000 | 100));
        let strict = rctl::VFE | rctl::CFIEN;
        assert!(!FILTERS.vlan(&file, strict, 0x1000 | 100));
        assert!(FILTERS.vlan(&file, strict | rctl::CFI, 0x1000 | 100));
        assert!(!FILTERS.vlan(&file, strict | rctl::CFI, 100));
    }

    #[test]
    fn buffer_sizes() {
        let of =
            |bsex: u32, size: u32| buffer_size((bsex * rctl::BSEX) | (size << rctl::BSIZE_SHIFT));
        assert_eq!([0, 1, 2, 3].map(|s| of(0, s)), [2048, 1024, 512, 256]);
        assert_eq!([0, 1, 2, 3].map(|s| of(1, s)), [2048, 16384, 8192, 4096]);
    }
}

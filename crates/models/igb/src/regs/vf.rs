//! Every register in a VF's window (datasheet §8.26).

use std::sync::Arc;

use regs::{Access, Shared, Status, Table};

use crate::regs::queues::QueueIds;

/// Bytes of the window, BAR 0.
pub(crate) const WINDOW: u32 = 16 * 1024;

use Access::{Command, Memory, ReadOnly as RO, ReadWrite as RW, Write1Clear, Write1Set};
use Status::{Implemented as YES, Stored};

const NO_DCA: Status = Stored("hints to a cache have no meaning here");
const NO_FETCH: Status = Stored("descriptors are fetched and written back per batch");

regs::registers! { pub(crate),
    VTCTRL       0x0000 Command 0x0000_0000 0x0400_0000 "8.26.1" YES;
    VTSTATUS     0x0008 RO 0x0000_0000 0x0000_0000 "8.26.2" YES;
    VTFRTIMER    0x1048 RO 0x0000_0000 0x0000_0000 "8.26.3" YES;
    VMBMEM       0x0800 [16 * 4] Memory 0x0000_0000 0xffff_ffff "8.14.5" YES;
    V2PMAILBOX   0x0c40 Command 0x0000_0000 0x0000_0007 "8.14.2" YES;
    PBACL        0x0f04 Command 0x0000_0000 0x0000_0007 "8.26.10" Stored("a message is pending only while its vector is masked");
    PSRTYPE      0x0f0c RW 0x0000_0000 0x0007_fffe "8.26.11" YES;
    VFGPRC       0x0f10 RO 0x0000_0000 0x0000_0000 "8.26.17" YES;
    VFGPTC       0x0f14 RO 0x0000_0000 0x0000_0000 "8.26.17" YES;
    VFGORC       0x0f18 RO 0x0000_0000 0x0000_0000 "8.26.17" YES;
    VFGOTC       0x0f34 RO 0x0000_0000 0x0000_0000 "8.26.17" YES;
    VFMPRC       0x0f3c RO 0x0000_0000 0x0000_0000 "8.26.17" YES;
    VFGPRLBC     0x0f40 RO 0x0000_0000 0x0000_0000 "8.26.17" Stored("the VF is not told where a frame came from");
    VFGPTLBC     0x0f44 RO 0x0000_0000 0x0000_0000 "8.26.17" Stored("the VF is not told where a frame goes");
    VFGORLBC     0x0f48 RO 0x0000_0000 0x0000_0000 "8.26.17" Stored("the VF is not told where a frame came from");
    VFGOTLBC     0x0f50 RO 0x0000_0000 0x0000_0000 "8.26.17" Stored("the VF is not told where a frame goes");
    VTEICS       0x1520 Write1Set 0x0000_0000 0x0000_0007 "8.26.4" YES;
    VTEIMS       0x1524 Write1Set 0x0000_0000 0x0000_0007 "8.26.5" YES;
    VTEIMC       0x1528 Write1Clear 0x0000_0000 0x0000_0007 "8.26.6" YES;
    VTEIAC       0x152c RW 0x0000_0000 0x0000_0007 "8.26.7" YES;
    VTEIAM       0x1530 RW 0x0000_0000 0x0000_0007 "8.26.8" YES;
    VTEICR       0x1580 Command 0x0000_0000 0x0000_0007 "8.26.9" YES;
    VTEITR       0x1680 [3 * 4] RW 0x0000_0000 0x0000_fffc "8.26.12" YES;
    VTIVAR       0x1700 RW 0x0000_0000 0x8383_8383 "8.26.13" YES;
    VTIVAR_MISC  0x1740 RW 0x0000_0000 0x0000_0083 "8.26.14" YES;
    RDBAL        0x2800 [2 * 256] RW 0x0000_0000 0xffff_ff80 "8.10.5" YES;
    RDBAH        0x2804 [2 * 256] RW 0x0000_0000 0xffff_ffff "8.10.6" YES;
    RDLEN        0x2808 [2 * 256] RW 0x0000_0000 0x000f_fff0 "8.10.7" YES;
    SRRCTL       0x280c [2 * 256] RW 0x0000_0400 0x8ff0_3f7f "8.10.2" YES;
    RDH          0x2810 [2 * 256] RW 0x0000_0000 0x0000_ffff "8.10.8" YES;
    DCA_RXCTRL   0x2814 [2 * 256] RW 0x0000_a200 0xff00_ffff "8.13.1" NO_DCA;
    RDT          0x2818 [2 * 256] RW 0x0000_0000 0x0000_ffff "8.10.9" YES;
    RXDCTL       0x2828 [2 * 256] RW 0x0001_0000 0x061f_1f1f "8.10.10" NO_FETCH;
    TDBAL        0x3800 [2 * 256] RW 0x0000_0000 0xffff_ff80 "8.12.8" YES;
    TDBAH        0x3804 [2 * 256] RW 0x0000_0000 0xffff_ffff "8.12.9" YES;
    TDLEN        0x3808 [2 * 256] RW 0x0000_0000 0x000f_fff0 "8.12.10" YES;
    TDH          0x3810 [2 * 256] RW 0x0000_0000 0x0000_ffff "8.12.11" YES;
    DCA_TXCTRL   0x3814 [2 * 256] RW 0x0000_2a00 0xff00_ffff "8.13.2" NO_DCA;
    TDT          0x3818 [2 * 256] RW 0x0000_0000 0x0000_ffff "8.12.12" YES;
    TXDCTL       0x3828 [2 * 256] RW 0x0000_0000 0x0e1f_1f1f "8.12.14" NO_FETCH;
    TDWBAL       0x3838 [2 * 256] RW 0x0000_0000 0xffff_ffff "8.12.15" YES;
    TDWBAH       0x383c [2 * 256] RW 0x0000_0000 0xffff_ffff "8.12.16" YES;
}

/// Where the queues' registers are.
pub(crate) static QUEUES: QueueIds = QueueIds {
    rdbal: RDBAL,
    rdbah: RDBAH,
    rdlen: RDLEN,
    srrctl: SRRCTL,
    rdh: RDH,
    rdt: RDT,
    rxdctl: RXDCTL,
    rxctl: DCA_RXCTRL,
    psrtype: PSRTYPE,
    tdbal: TDBAL,
    tdbah: TDBAH,
    tdlen: TDLEN,
    tdh: TDH,
    tdt: TDT,
    txdctl: TXDCTL,
    tdwbal: TDWBAL,
    tdwbah: TDWBAH,
    txctl: DCA_TXCTRL,
    eitr: VTEITR,
};

/// The look-up of the registers of every VF.
pub fn table() -> Arc<Table> {
    static TABLE: Shared = Shared::new(REGISTERS, &[], WINDOW);
    TABLE.get()
}

/// The text of `docs/registers/igbvf.md`.
pub fn page() -> String {
    let preface = "Generated from the register table of the model by `cargo run -p hypernic-igb --example vf_registers`;
a test fails when this page is stale. Sections are those of Intel's \"82576EB Gigabit Ethernet Controller Datasheet\", 320961.
\"Writable\" are the bits that keep what is written.

These are the registers in the window of a virtual function. Everything the table does not name reads 0 and ignores writes.

The table does not show the following:

- VTCTRL.RST resets queues, interrupts and mailbox, and tells the PF.
- Reading V2PMAILBOX clears PFSTS, PFACK and RSTD.
- VTSTATUS shows the PF's link as a full-duplex gigabit link.";
    regs::render("82576 virtual function registers", preface, REGISTERS, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux's igbvf reads or writes between its start and its end.
    const IGBVF: [u32; 36] = [
        0x0000, 0x0008, 0x0800, 0x083c, 0x0c40, 0x0f10, 0x0f14, 0x0f18, 0x0f34, 0x0f3c, 0x0f40,
        0x0f44, 0x0f48, 0x0f50, 0x1520, 0x1524, 0x1528, 0x152c, 0x1530, 0x1580, 0x1680, 0x1688,
        0x1700, 0x1740, 0x2800, 0x2804, 0x2808, 0x280c, 0x2810, 0x2818, 0x2828, 0x3800, 0x3808,
        0x3814, 0x3818, 0x3828,
    ];

    #[test]
    fn everything_the_stock_driver_touches_is_there_and_nothing_of_the_port() {
        let table = table();
        for offset in IGBVF {
            assert!(table.find(offset).is_some(), "{offset:#x}");
        }
        // RCTL, TCTL, RAL, the other functions' queues, P2VMAILBOX of others.
        for offset in [
            0x0100, 0x0400, 0x5400, 0x2a00, 0x3a00, 0xc000, 0x0c44, 0x0840,
        ] {
            assert!(table.find(offset).is_none(), "{offset:#x}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads a file")]
    fn the_page_is_what_the_table_says() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../docs/registers/igbvf.md"
        );
        let found = std::fs::read_to_string(path).expect("docs/registers/igbvf.md");
        assert!(
            found == page(),
            "docs/registers/igbvf.md is stale; run `cargo run -p hypernic-igb --example vf_registers \
             > docs/registers/igbvf.md`"
        );
    }
}

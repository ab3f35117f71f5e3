//! Every register of the chip, in the order of the manual.
//!
//! Sections are those of "PCI/PCI-X Family of Gigabit Ethernet Controllers Software Developer's
//! Manual", 317453 revision 4.0.

pub(crate) mod bits;
pub(crate) mod eeprom;
pub(crate) mod variant;

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use regs::{Access, Alias, Status, Table};

/// Bytes of the register window, BAR 0 (manual §4.1).
pub const WINDOW: u32 = 128 * 1024;
/// Where the statistics registers lie in it (manual §13.7).
pub(crate) const STATISTICS: Range<u32> = 0x4000..0x4100;

use Access::{
    Command, Memory, ReadClear as RC, ReadClearWrite1Clear, ReadOnly as RO, ReadWrite as RW,
    ReadWrite1Clear, Write1Clear, Write1Set,
};
use Status::{Implemented as YES, Stored};

const NO_DIAG: Status = Stored("sent frames do not wait in a packet FIFO");
const NO_TBI: Status = Stored("the chip has an internal PHY; TBI mode is not selectable");
const NO_MANAGEMENT: Status = Stored("there is no management controller");
const NO_EVENT: Status = Stored("stays 0: the event cannot happen on an emulated wire");

intel::registers! { pub, statistics "13.7",
    CTRL     0x0000 RW 0x0000_0201 0xdbfc_3bed "13.4.1" YES;
    STATUS   0x0008 RO 0x0000_0000 0x0000_0000 "13.4.2" YES;
    EECD     0x0010 RW 0x0000_0100 0x0000_0077 "13.4.3" YES;
    EERD     0x0014 Command 0x0000_0000 0x0000_0000 "13.4.4" YES;
    CTRL_EXT 0x0018 RW 0x0000_0000 0x00c2_8fff "13.4.6" Stored("no software-definable pins; EE_RST does reload the EEPROM");
    FLA      0x001c RW 0x0000_0000 0x0000_003f "13.4.5" Stored("there is no flash memory");
    MDIC     0x0020 Command 0x0000_0000 0x0000_0000 "13.4.7" YES;
    FCAL     0x0028 RW 0x0000_0000 0xffff_ffff "13.4.8" YES;
    FCAH     0x002c RW 0x0000_0000 0x0000_ffff "13.4.9" YES;
    FCT      0x0030 RW 0x0000_0000 0x0000_ffff "13.4.10" YES;
    VET      0x0038 RW 0x0000_8100 0x0000_ffff "13.4.11" YES;
    FCTTV    0x0170 RW 0x0000_0000 0x0000_ffff "13.4.12" YES;
    TXCW     0x0178 RW 0x0000_0000 0xc000_ffff "13.4.13" NO_TBI;
    RXCW     0x0180 RO 0x0000_0000 0x0000_0000 "13.4.14" NO_TBI;
    LEDCTL   0x0e00 RW 0x0706_1302 0xcfcf_cfcf "13.4.15" Stored("there is no LED to light");
    PBA      0x1000 RW 0x0010_0030 0x0000_ffff "13.4.16" YES;
    ICR      0x00c0 ReadClearWrite1Clear 0x0000_0000 0x0001_ffff "13.4.17" YES;
    ITR      0x00c4 RW 0x0000_0000 0x0000_ffff "13.4.18" YES;
    ICS      0x00c8 Write1Set 0x0000_0000 0x0001_ffff "13.4.19" YES;
    IMS      0x00d0 Write1Set 0x0000_0000 0x0001_ffff "13.4.20" YES;
    IMC      0x00d8 Write1Clear 0x0000_0000 0x0001_ffff "13.4.21" YES;
    RCTL     0x0100 RW 0x0000_0000 0x06df_b3fe "13.4.22" YES;
    FCRTL    0x2160 RW 0x0000_0000 0x8000_fff8 "13.4.23" YES;
    FCRTH    0x2168 RW 0x0000_0000 0x8000_fff8 "13.4.24" YES;
    RDBAL    0x2800 RW 0x0000_0000 0xffff_fff0 "13.4.25" YES;
    RDBAH    0x2804 RW 0x0000_0000 0xffff_ffff "13.4.26" YES;
    RDLEN    0x2808 RW 0x0000_0000 0x000f_ff80 "13.4.27" YES;
    RDH      0x2810 RW 0x0000_0000 0x0000_ffff "13.4.28" YES;
    RDT      0x2818 RW 0x0000_0000 0x0000_ffff "13.4.29" YES;
    RDTR     0x2820 RW 0x0000_0000 0x0000_ffff "13.4.30" YES;
    RXDCTL   0x2828 RW 0x0101_0000 0x013f_3f3f "13.4.46" Stored("descriptors are fetched and written back per batch");
    RADV     0x282c RW 0x0000_0000 0x0000_ffff "13.4.31" YES;
    CSBAL    0x2830 RW 0x0000_0000 0xffff_ffff "not Intel's; netmap net/paravirt.h" YES;
    CSBAH    0x2834 RW 0x0000_0000 0xffff_ffff "not Intel's; netmap net/paravirt.h" YES;
    RSRPD    0x2c00 RW 0x0000_0000 0x0000_0fff "13.4.32" YES;
    TCTL     0x0400 RW 0x0000_0000 0x03bf_fffa "13.4.33" YES;
    TIPG     0x0410 RW 0x0060_2008 0x3fff_ffff "13.4.34" Stored("an emulated wire needs no gap between frames");
    AIFS     0x0458 RW 0x0000_0000 0x0000_ffff "13.4.35" Stored("an emulated wire has no collisions");
    TXDMAC   0x3000 RW 0x0000_0000 0x0000_0001 "13.4.42" Stored("no prefetch to restrain");
    TDBAL    0x3800 RW 0x0000_0000 0xffff_fff0 "13.4.36" YES;
    TDBAH    0x3804 RW 0x0000_0000 0xffff_ffff "13.4.37" YES;
    TDLEN    0x3808 RW 0x0000_0000 0x000f_ff80 "13.4.38" YES;
    TDH      0x3810 RW 0x0000_0000 0x0000_ffff "13.4.39" YES;
    TDT      0x3818 RW 0x0000_0000 0x0000_ffff "13.4.40" YES;
    TIDV     0x3820 RW 0x0000_0000 0x0000_ffff "13.4.41" YES;
    TXDCTL   0x3828 RW 0x0000_0000 0xff3f_3f3f "13.4.43" YES;
    TADV     0x382c RW 0x0000_0000 0x0000_ffff "13.4.44" YES;
    TSPMT    0x3830 RW 0x0100_0400 0xffff_ffff "13.4.45" Stored("segmented frames need no room in a packet FIFO");
    RXCSUM   0x5000 RW 0x0000_0000 0x0000_07ff "13.4.47" YES;
    MTA      0x5200 [128 * 4] RW 0x0000_0000 0xffff_ffff "13.5.1" YES;
    RAL      0x5400 [16 * 8] RW 0x0000_0000 0xffff_ffff "13.5.2" YES;
    RAH      0x5404 [16 * 8] RW 0x0000_0000 0x8003_ffff "13.5.3" YES;
    VFTA     0x5600 [128 * 4] RW 0x0000_0000 0xffff_ffff "13.5.4" YES;
    WUC      0x5800 RW 0x0000_0000 0x8000_000f "13.6.1" YES;
    WUFC     0x5808 RW 0x0000_0000 0x000f_80ff "13.6.2" YES;
    WUS      0x5810 ReadWrite1Clear 0x0000_0000 0x000f_00ff "13.6.3" YES;
    IPAV     0x5838 RW 0x0000_0000 0x0001_000f "13.6.4" YES;
    IP4AT    0x5840 [4 * 8] RW 0x0000_0000 0xffff_ffff "13.6.5" YES;
    IP6AT    0x5880 [4 * 4] RW 0x0000_0000 0xffff_ffff "13.6.6" YES;
    WUPL     0x5900 RO 0x0000_0000 0x0000_0000 "13.6.7" YES;
    WUPM     0x5a00 [32 * 4] RO 0x0000_0000 0x0000_0000 "13.6.8" YES;
    FFLT     0x5f00 [4 * 8] RW 0x0000_0000 0x0000_07ff "13.6.9" YES;
    FFMT     0x9000 [128 * 8] RW 0x0000_0000 0x0000_000f "13.6.10" YES;
    FFVT     0x9800 [128 * 8] RW 0x0000_0000 0xffff_ffff "13.6.11" YES;
    SEC      0x4038 RC 0x0000_0000 0x0000_0000 "13.7" NO_EVENT;
    CEXTERR  0x403c RC 0x0000_0000 0x0000_0000 "13.7" NO_EVENT;
    MGTPRC   0x40b4 RC 0x0000_0000 0x0000_0000 "13.7" NO_MANAGEMENT;
    MGTPDC   0x40b8 RC 0x0000_0000 0x0000_0000 "13.7" NO_MANAGEMENT;
    MGTPTC   0x40bc RC 0x0000_0000 0x0000_0000 "13.7" NO_MANAGEMENT;
    TSCTFC   0x40fc RC 0x0000_0000 0x0000_0000 "13.7" YES;
    RDFH     0x2410 RW 0x0000_0000 0x0000_1fff "13.8.1" YES;
    RDFT     0x2418 RW 0x0000_0000 0x0000_1fff "13.8.2" YES;
    RDFHS    0x2420 RW 0x0000_0000 0x0000_1fff "13.8.3" YES;
    RDFTS    0x2428 RW 0x0000_0000 0x0000_1fff "13.8.4" YES;
    RDFPC    0x2430 RW 0x0000_0000 0x0000_1fff "13.8.5" YES;
    TDFH     0x3410 RW 0x0000_0000 0x0000_07ff "13.8.6" NO_DIAG;
    TDFT     0x3418 RW 0x0000_0000 0x0000_07ff "13.8.7" NO_DIAG;
    TDFHS    0x3420 RW 0x0000_0000 0x0000_1fff "13.8.8" NO_DIAG;
    TDFTS    0x3428 RW 0x0000_0000 0x0000_1fff "13.8.9" NO_DIAG;
    TDFPC    0x3430 RW 0x0000_0000 0x0000_1fff "13.8.10" NO_DIAG;
    PBM      0x10000 [16384 * 4] Memory 0x0000_0000 0xffff_ffff "13.8.11" YES;
    MANC     0x5820 RW 0x0000_0000 0xffff_ffff "not in the summary; driver e1000_hw.h, E1000_MANC" NO_MANAGEMENT;
    SWSM     0x5b50 RW 0x0000_0000 0x0000_000f "not in the summary; driver e1000_hw.c, e1000_get_software_semaphore" YES;
}

macro_rules! aliases {
    ($($name:literal $offset:literal $of:ident;)*) => {
        /// Second addresses: a register duplicated by the chip itself, and the places of the
        /// 82542, at which the later chips answer too (manual §13.4, driver `e1000_hw.h`,
        /// `E1000_82542_*`).
        pub static ALIASES: &[Alias] = &[$(Alias {
            name: $name,
            offset: $offset,
            count: REGISTERS[$of.index()].count,
            stride: REGISTERS[$of.index()].stride,
            of: $of,
        }),*];
    };
}

aliases! {
    "CTRL_DUP"      0x0004 CTRL;
    "RAL (82542)"   0x0040 RAL;
    "RAH (82542)"   0x0044 RAH;
    "RDTR (82542)"  0x0108 RDTR;
    "RDBAL (82542)" 0x0110 RDBAL;
    "RDBAH (82542)" 0x0114 RDBAH;
    "RDLEN (82542)" 0x0118 RDLEN;
    "RDH (82542)"   0x0120 RDH;
    "RDT (82542)"   0x0128 RDT;
    "FCRTH (82542)" 0x0160 FCRTH;
    "FCRTL (82542)" 0x0168 FCRTL;
    "MTA (82542)"   0x0200 MTA;
    "TDBAL (82542)" 0x0420 TDBAL;
    "TDBAH (82542)" 0x0424 TDBAH;
    "TDLEN (82542)" 0x0428 TDLEN;
    "TDH (82542)"   0x0430 TDH;
    "TDT (82542)"   0x0438 TDT;
    "TIDV (82542)"  0x0440 TIDV;
    "VFTA (82542)"  0x0600 VFTA;
    "RDFH (82542)"  0x8000 RDFH;
    "RDFT (82542)"  0x8008 RDFT;
    "TDFH (82542)"  0x8010 TDFH;
    "TDFT (82542)"  0x8018 TDFT;
}

/// The table, indexed once for all NICs of the process: the index alone is 128 KiB.
pub fn table() -> Arc<Table> {
    static TABLE: LazyLock<Arc<Table>> =
        LazyLock::new(|| Arc::new(Table::with_aliases(REGISTERS, ALIASES, WINDOW)));
    Arc::clone(&TABLE)
}

/// The text of `docs/registers/e1000.md`.
pub fn page() -> String {
    let preface = "Generated from the register table of the model by `cargo run -p hypernic-e1000 --example registers`;
a test fails when this page is stale. Sections are those of Intel's \"PCI/PCI-X Family of Gigabit Ethernet Controllers
Software Developer's Manual\", 317453 rev. 4.0.
\"Writable\" are the bits that keep what is written.

Everything the manual does not name reads 0 and ignores writes.

The table does not show the following:

- RCTL.LBM and PHY loopback send a frame back to the same NIC.
- The PHY negotiates with a partner that offers everything, including pause if configured.
- A frame waits in the packet FIFO only if it finds no receive descriptor. So RDFPC is 0 while there are any, and a new PBA takes
  effect once the FIFO is empty. Values written to RDFH, RDFT, RDFHS, RDFTS and RDFPC last until the next frame enters or leaves it.
- RCTL.SBP stores frames of illegal length up to 16384 bytes; frames have no other errors here.
- The packet checksum is reported if RXCSUM.PCSS is not 0.
- The thresholds of TXDCTL other than LWTHRESH are stored without effect.
- If a tag is stripped and SECRC is 0, the FCS is that of the frame without the tag.
- CSBAL and CSBAH read 0 and ignore writes unless the NIC is configured with a Communication Status Block (docs/csb.md).";
    regs::render("82540EM registers", preface, REGISTERS, ALIASES)
}

//! Every register of the chip: those of `intel`'s table, and here those of its own, by address.
//!
//! Sections are those of "PCI/PCI-X Family of Gigabit Ethernet Controllers Software Developer's
//! Manual", 317453 revision 4.0.

pub(crate) mod bits;
pub(crate) mod eeprom;
pub(crate) mod variant;

use std::ops::Range;
use std::sync::Arc;

use regs::{Access, Alias, Shared, Status, Table};

/// Bytes of the register window, BAR 0 (manual §4.1).
pub const WINDOW: u32 = 128 * 1024;
/// Where the statistics registers lie in it (manual §13.7).
pub(crate) const STATISTICS: Range<u32> = 0x4000..0x4100;

use Access::{
    Command, Memory, ReadClear as RC, ReadClearWrite1Clear, ReadOnly as RO, ReadWrite as RW,
    ReadWrite1Clear as W1C, Write1Clear, Write1Set,
};
use Status::{Implemented as YES, Stored};

const NO_DIAG: Status = Stored("sent frames do not wait in a packet FIFO");
const NO_TBI: Status = Stored("the chip has an internal PHY; TBI mode is not selectable");
const NO_MANAGEMENT: Status = Stored("there is no management controller");
const NO_EVENT: Status = Stored("stays 0: the event cannot happen on an emulated wire");

intel::registers! { pub, "8254x",
    ITR      0x00c4 RW 0x0000_0000 0x0000_ffff "13.4.18" YES;
    TXCW     0x0178 RW 0x0000_0000 0xc000_ffff "13.4.13" NO_TBI;
    RXCW     0x0180 RO 0x0000_0000 0x0000_0000 "13.4.14" NO_TBI;
    AIFS     0x0458 RW 0x0000_0000 0x0000_ffff "13.4.35" Stored("an emulated wire has no collisions");
    PBA      0x1000 RW 0x0010_0030 0x0000_ffff "13.4.16" YES;
    RDTR     0x2820 RW 0x0000_0000 0x0000_ffff "13.4.30" YES;
    RADV     0x282c RW 0x0000_0000 0x0000_ffff "13.4.31" YES;
    RSRPD    0x2c00 RW 0x0000_0000 0x0000_0fff "13.4.32" YES;
    TXDMAC   0x3000 RW 0x0000_0000 0x0000_0001 "13.4.42" Stored("no prefetch to restrain");
    TIDV     0x3820 RW 0x0000_0000 0x0000_ffff "13.4.41" YES;
    TADV     0x382c RW 0x0000_0000 0x0000_ffff "13.4.44" YES;
    TSPMT    0x3830 RW 0x0100_0400 0xffff_ffff "13.4.45" Stored("segmented frames need no room in a packet FIFO");
    SEC      0x4038 RC 0x0000_0000 0x0000_0000 "13.7" NO_EVENT;
    CEXTERR  0x403c RC 0x0000_0000 0x0000_0000 "13.7" NO_EVENT;
    TSCTFC   0x40fc RC 0x0000_0000 0x0000_0000 "13.7" YES;
    FFLT     0x5f00 [4 * 8] RW 0x0000_0000 0x0000_07ff "13.6.9" YES;
    FFMT     0x9000 [128 * 8] RW 0x0000_0000 0x0000_000f "13.6.10" YES;
    FFVT     0x9800 [128 * 8] RW 0x0000_0000 0xffff_ffff "13.6.11" YES;
    PBM      0x10000 [16384 * 4] Memory 0x0000_0000 0xffff_ffff "13.8.11" YES;

    CSBAL    0x2830 RW 0x0000_0000 0xffff_ffff "not Intel's; netmap net/paravirt.h" YES;
    CSBAH    0x2834 RW 0x0000_0000 0xffff_ffff "not Intel's; netmap net/paravirt.h" YES;
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

/// Where the tails are, which are written more often than all others, and their bits.
pub(crate) const TDT_AT: u64 = REGISTERS[TDT.index()].offset as u64;
pub(crate) const RDT_AT: u64 = REGISTERS[RDT.index()].offset as u64;
pub(crate) const TAIL: u32 = REGISTERS[TDT.index()].mask;
const _: () = assert!(REGISTERS[RDT.index()].mask == TAIL);

/// The table of all NICs of the process.
pub fn table() -> Arc<Table> {
    static TABLE: Shared = Shared::new(REGISTERS, ALIASES, WINDOW);
    TABLE.get()
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

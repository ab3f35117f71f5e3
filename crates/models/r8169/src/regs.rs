//! Every register of the chip, by the words in which they lie: many are bytes or halves, and drivers reach them by
//! accesses of any width.

pub(crate) mod bits;
pub(crate) mod variant;

use std::sync::Arc;

use regs::{Access, Shared, Status, Table};

/// Bytes of the registers: the I/O window, and the begin of the memory window.
pub const WINDOW: u32 = 256;

use Access::{Command, ReadOnly as RO, ReadWrite as RW, ReadWrite1Clear as W1C, WriteOnly as WO};
use Status::{Implemented as YES, Stored};

const NO_LED: Status = Stored("an emulated NIC has no LEDs");
const NO_HIGH_PRIORITY: Status = Stored("no driver uses the second transmit ring");
const NO_WAKE: Status = Stored("no pattern wakes");
const NO_MCU: Status = Stored("there is no microcontroller");
const NO_EPHY: Status = Stored("an emulated PCIe link needs no tuning");

regs::registers! { pub,
    IDR0_3        0x00 RW 0x0000_0000 0xffff_ffff "00h to 03h" YES;
    IDR4_5        0x04 RW 0x0000_0000 0x0000_ffff "04h, 05h" YES;
    MAR0_3        0x08 RW 0x0000_0000 0xffff_ffff "08h to 0Bh" YES;
    MAR4_7        0x0c RW 0x0000_0000 0xffff_ffff "0Ch to 0Fh" YES;
    DTCCR_LOW     0x10 Command 0x0000_0000 0xffff_ffc9 "10h" YES;
    DTCCR_HIGH    0x14 RW 0x0000_0000 0xffff_ffff "14h" YES;
    LED_SELECT    0x18 RW 0x0000_0000 0x0000_ffff "18h" NO_LED;
    TNPDS_LOW     0x20 RW 0x0000_0000 0xffff_ff00 "20h" YES;
    TNPDS_HIGH    0x24 RW 0x0000_0000 0xffff_ffff "24h" YES;
    THPDS_LOW     0x28 RW 0x0000_0000 0xffff_ff00 "28h" NO_HIGH_PRIORITY;
    THPDS_HIGH    0x2c RW 0x0000_0000 0xffff_ffff "2Ch" NO_HIGH_PRIORITY;
    CR            0x34 RW 0x0000_0000 0x8c00_0000 "37h" YES;
    TPPOLL        0x38 WO 0x0000_0000 0x0000_0000 "38h" YES;
    IMR_ISR       0x3c W1C 0x0000_0000 0x0000_0000 "3Ch, 3Eh" YES;
    TCR           0x40 RW 0x3c40_0000 0x030f_07fe "40h" YES;
    RCR           0x44 RW 0x0000_0000 0xffff_ffbf "44h" YES;
    TCTR          0x48 RO 0x0000_0000 0x0000_0000 "48h" YES;
    RX_MISSED     0x4c RO 0x0000_0000 0x0000_0000 "4Ch" YES;
    EECR_CONFIG   0x50 RW 0x0000_0000 0xffff_ffce "50h to 53h" YES;
    CONFIG3_5     0x54 RW 0x0000_0000 0x00ff_ffff "54h to 56h" YES;
    TIMER_INT     0x58 RW 0x0000_0000 0xffff_ffff "58h" YES;
    PHYAR         0x60 Command 0x0000_0000 0x801f_ffff "60h" YES;
    CSIDR         0x64 RW 0x0000_0000 0xffff_ffff "64h" NO_EPHY;
    CSIAR         0x68 Command 0x0000_0000 0xffff_ffff "68h" NO_EPHY;
    PHY_STATUS    0x6c RW 0x0000_0000 0xffff_ff00 "6Ch to 6Fh" YES;
    ERIDR         0x70 RW 0x0000_0000 0xffff_ffff "70h" NO_MCU;
    ERIAR         0x74 Command 0x0000_0000 0xffff_ffff "74h" NO_MCU;
    EPHY_RXER     0x7c RW 0x0000_0000 0xffff_ffff "7Ch" NO_EPHY;
    EPHYAR        0x80 Command 0x0000_0000 0x801f_ffff "80h" NO_EPHY;
    WAKE          0x84 [7 * 4] RW 0x0000_0000 0xffff_ffff "84h to 9Fh" NO_WAKE;
    CSBAL         0xa0 RW 0x0000_0000 0xffff_ffff "not Realtek's; docs/csb.md" YES;
    CSBAH         0xa4 RW 0x0000_0000 0xffff_ffff "not Realtek's; docs/csb.md" YES;
    RXKICK        0xa8 WO 0x0000_0000 0x0000_0000 "not Realtek's; docs/csb.md" YES;
    OCPDR         0xb0 Command 0x0000_0000 0xffff_ffff "8168H: B0h" YES;
    GPHY_OCP      0xb8 Command 0x0000_0000 0xffff_ffff "8168H: B8h" YES;
    MCU           0xd0 RW 0x0000_0000 0xffff_ffff "D0h to D3h" NO_MCU;
    RMS           0xd8 RW 0x0000_0000 0xffff_0000 "DAh" YES;
    EFUSEAR       0xdc Command 0x0000_0000 0xffff_ffff "DCh" NO_EPHY;
    CPCR_MITIGATE 0xe0 RW 0x0000_0000 0xffff_ffff "E0h, E2h" YES;
    RDSAR_LOW     0xe4 RW 0x0000_0000 0xffff_ff00 "E4h" YES;
    RDSAR_HIGH    0xe8 RW 0x0000_0000 0xffff_ffff "E8h" YES;
    MTPS          0xec RW 0x0000_003f 0x0000_00ff "ECh" Stored("no frame waits for the rest of it");
    FUNC_EVENT    0xf0 RW 0x0000_0000 0xffff_ffff "F0h" NO_MCU;
}

/// Where a driver says that there are packets, which is written more often than all others.
pub(crate) const TPPOLL_AT: u64 = REGISTERS[TPPOLL.index()].offset as u64;
/// Where the count is of frames that were missed.
pub(crate) const RX_MISSED_AT: u32 = REGISTERS[RX_MISSED.index()].offset;

/// The table of all NICs of the process.
pub fn table() -> Arc<Table> {
    static TABLE: Shared = Shared::new(REGISTERS, &[], WINDOW);
    TABLE.get()
}

/// The text of `docs/registers/r8169.md`.
pub fn page() -> String {
    let preface = "Generated from the register table of the model by `cargo run -p hypernic-r8169 --example registers`;
a test fails when this page is stale. Names are those of Realtek's RTL8169 data sheet; the last column names the registers
that lie in the word. Every byte can be read and written alone.
\"Writable\" are the bits that keep what is written.

Everything else reads 0 and ignores writes. No read has a side effect.

The table does not show the following:

- IDR and CONFIG0 to CONFIG5 (51h to 56h) change only while EECR (50h) is C0h.
- RST in CR (37h) clears RE, TE, IMR and ISR, and both rings begin at their first descriptor again. So does the ring whose
  address is written. Everything else stays.
- TCR shows the chip in bits that cannot be written: XID 3C4h, an RTL8168C. Loopback (bits 18:17) is stored without effect.
- IMR_ISR is IMR in its lower half, which keeps what is written, and ISR in its upper half: writing 1 clears a bit there,
  unless the cause came again after ISR was last read: the write may have been under way then.
- TCTR counts at 125 MHz from the last write to it. When it reaches TIMER_INT, ISR gets bit 14.
- RX_MISSED counts frames that their sender gave up for want of a descriptor. Any write clears it.
- EECR reaches a 93C46 by its pins; it cannot be written.
- PHYAR reaches the PHY, an RTL8211B. 1Fh selects one of its pages; those but the first keep what is written.
- CSIAR, ERIAR, EPHYAR and EFUSEAR finish every command at once. EPHYAR keeps what is written, the others read 0.
- CONFIG3 (54h) and CONFIG5 (56h) say what wakes the guest: a magic packet, the link, frames to the own address, to groups, to all.
- In the RTL8168H (`--model r8168h`), TCR shows XID 541h and an empty FIFO (bit 11), and D3h reads 32h and what is written. OCPDR
  reaches its MAC, GPHY_OCP its PHY, and ERIAR what its microcontroller has; all of them keep what is written. Bit 16 of DCh in ERI
  is its magic packet. FUNC_EVENT bit 19 closes the receiver. In the RTL8168C, OCPDR and GPHY_OCP read 0 and ignore writes.
- The RTL8169S (`--model r8169s`) has XID 008h. TCTR counts at 33 MHz, the hash in MAR has its bytes in the other order, and the units of
  IntrMitigate at 1 Gb/s are 0.32, 2.56, 5.12 and 10.24 us.
- RMS counts the FCS. Its lower 14 bits are the limit; 0 is none.
- CPCR_MITIGATE is CPlusCmd (E0h) and IntrMitigate (E2h).
- CSBAL and CSBAH read 0, and they and RXKICK ignore writes, unless the NIC is configured with a Communication Status Block
  (docs/csb.md). RST leaves them as they are.
- A received frame ends with four zero bytes where its FCS would be.";
    regs::render("RTL8168C registers", preface, REGISTERS, &[])
}

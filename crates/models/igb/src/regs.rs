//! Every register of the physical function: those of `intel`'s table, with what differs in them, and here those of its own,
//! by subject as in chapter 8 of the datasheet.
//!
//! Sections are those of Intel's "82576EB Gigabit Ethernet Controller Datasheet", 320961; offsets
//! and bits were checked against what drivers use.

pub(crate) mod bits;
mod pool_settings;
pub(crate) mod pools;
pub(crate) mod queues;
pub(crate) mod settings;
pub(crate) mod vf;

use std::ops::RangeInclusive;
use std::sync::Arc;

use regs::{Access, Alias, Id, Shared, Status, Table};

use self::queues::QueueIds;

/// BAR of the registers, of either kind of function.
pub const BAR_MMIO: u8 = 0;
/// BAR of the I/O window of a physical function.
pub const BAR_IO: u8 = 2;
/// BAR of the MSI-X table and its pending bits, of either kind of function.
pub const BAR_MSIX: u8 = 3;
/// Queues, in each direction, of the physical function.
pub const PF_QUEUES: usize = 16;
/// Queues, in each direction, of a virtual function.
pub const VF_QUEUES: usize = 2;
/// Vectors that EICR has bits for.
pub(crate) const VECTORS: usize = 25;
/// Messages in the MSI-X table of a PF (EEPROM default of the chip).
pub(crate) const PF_MESSAGES: u16 = 10;
/// Messages in the MSI-X table of a VF.
pub(crate) const VF_MESSAGES: u16 = 3;
/// The clock of IEEE 1588.
pub(crate) const CLOCK: RangeInclusive<Id> = SYSTIML..=RXSATRH;

/// Receive addresses, low and high, in as many arrays as they lie in.
pub(crate) const ADDRESSES: [(Id, Id); 2] = [(RAL, RAH), (RAL2, RAH2)];

/// Bytes of the register window, BAR 0.
pub const WINDOW: u32 = 128 * 1024;

use Access::{
    Command, ReadClear as RC, ReadClearWrite1Clear, ReadOnly as RO, ReadWrite as RW,
    ReadWrite1Clear as W1C, Write1Clear, Write1Set,
};
use Status::{Absent, Implemented as YES, Stored};

const NO_DCA: Status = Stored("there is no cache for direct writes");
const NO_DIAG: Status = Stored("frames do not wait in a packet buffer of the chip");
const NO_EVENT: Status = Stored("stays 0: the event cannot happen on an emulated wire");
const NO_FLASH: Status = Stored("there is no flash memory");
const NO_FILL: Status = Stored("frames wait with their senders: the packet buffer never fills");
const NO_LINKSEC: Status = Absent("no MACsec: frames are not encrypted by the NIC");
const NO_MANAGEMENT: Status = Stored("there is no management controller");
const NO_SERDES: Status = Stored("the link is copper");
const NO_SHAPING: Status = Stored("rates are exact over any time, without weights and windows");
const NO_STORM_NEWS: Status =
    Stored("the switch drops excess frames and reports them only in its counters");
intel::registers! { pub, "82576",
    differs {
        CTRL { reset: 0x0010_0201, mask: 0xd8ff_1bed }
        STATUS { reset: 0x8000_0000 }
        EECD { reset: 0x0000_0010 }
        CTRL_EXT { mask: 0x161f_cccc, status: YES }
        FCAL { reset: 0x00c2_8001 }
        FCAH { reset: 0x0000_0100 }
        FCT { reset: 0x0000_8808 }
        VET { reset: 0x8100_8100, mask: 0xffff_ffff }
        LEDCTL { reset: 0x0706_8302, mask: 0xefcf_cfef }
        ICR { offset: 0x01500, mask: 0x77d4_fbfd }
        ICS { offset: 0x01504, mask: 0x77d4_fbfd }
        IMS { offset: 0x01508, mask: 0x77d4_fbfd }
        IMC { offset: 0x0150c, mask: 0x77d4_fbfd }
        RCTL { mask: 0x04ff_b0fe }
        FCRTL { name: "FCRTL0", mask: 0x8000_fff0, status: NO_FILL }
        FCRTH { name: "FCRTH0", mask: 0x0000_fff0, status: NO_FILL }
        RDBAL { offset: 0x0c000, count: 16, stride: 64, mask: 0xffff_ff80 }
        RDBAH { offset: 0x0c004, count: 16, stride: 64 }
        RDLEN { offset: 0x0c008, count: 16, stride: 64, mask: 0x000f_fff0 }
        RDH { offset: 0x0c010, count: 16, stride: 64 }
        RDT { offset: 0x0c018, count: 16, stride: 64 }
        RXDCTL { offset: 0x0c028, count: 16, stride: 64, reset: 0x0001_0000, mask: 0x061f_1f1f, status: YES }
        TCTL { reset: 0xa404_00f8, mask: 0xfdbf_fffa }
        TIPG { reset: 0x0060_1008 }
        TDBAL { offset: 0x0e000, count: 16, stride: 64, mask: 0xffff_ff80 }
        TDBAH { offset: 0x0e004, count: 16, stride: 64 }
        TDLEN { offset: 0x0e008, count: 16, stride: 64, mask: 0x000f_fff0 }
        TDH { offset: 0x0e010, count: 16, stride: 64 }
        TDT { offset: 0x0e018, count: 16, stride: 64 }
        TXDCTL { offset: 0x0e028, count: 16, stride: 64, mask: 0x0e1f_1f1f }
        RXCSUM { reset: 0x0000_0300, mask: 0x0000_3bff }
        RAH { mask: 0x83ff_ffff }
        WUC { mask: 0x0000_001f }
        MGTPRC { name: "MNGPRC" }
        MGTPDC { name: "MPDC" }
        MGTPTC { name: "MNGPTC" }
        RDFH { status: NO_DIAG }
        RDFT { status: NO_DIAG }
        RDFHS { status: NO_DIAG }
        RDFTS { status: NO_DIAG }
        RDFPC { status: NO_DIAG }
        TDFH { mask: 0x0000_1fff }
        TDFT { mask: 0x0000_1fff }
    }
    SERDESCTL  0x00024 RW 0x0000_0000 0x0000_ffff "8.2.5" NO_SERDES;
    CONNSW     0x00034 RW 0x0000_0000 0x0000_0007 "8.2.6" NO_SERDES;
    SWPBS      0x03004 RW 0x0000_0014 0x0000_003f "8.3" NO_DIAG;
    RXPBS      0x02404 RW 0x0000_0040 0x0000_007f "8.3" NO_DIAG;
    TXPBS      0x03404 RW 0x0000_0028 0x0000_003f "8.3" NO_DIAG;
    EEMNGCTL   0x01010 RO 0x0004_0000 0x0000_0000 "8.4" YES;
    EEMNGDATA  0x01014 RW 0x0000_0000 0xffff_ffff "8.4" NO_MANAGEMENT;
    FLMNGCTL   0x01018 RW 0x0000_0000 0xffff_ffff "8.4" NO_MANAGEMENT;
    FLMNGDATA  0x0101c RW 0x0000_0000 0xffff_ffff "8.4" NO_MANAGEMENT;
    FLMNGCNT   0x01020 RW 0x0000_0000 0xffff_ffff "8.4" NO_MANAGEMENT;
    EEARBC     0x01024 RW 0x0000_0000 0xffff_ffff "8.4" NO_MANAGEMENT;
    I2CCMD     0x01028 RW 0x0000_0000 0x0fff_ffff "8.17" NO_SERDES;
    I2CPARAMS  0x0102c RW 0x0000_0000 0x0000_ff07 "8.17" NO_SERDES;
    FLASHOP    0x0103c RW 0x0000_0000 0x0000_ffff "8.4" NO_FLASH;
    FCRTV      0x02460 RW 0x0000_0000 0x0000_ffff "8.5.7" NO_FILL;
    FCSTS0     0x02464 RO 0x0000_0000 0x0000_0000 "8.5.8" NO_FILL;
    GCR        0x05b00 RW 0x0005_0200 0x0001_fe3f "8.6" Stored("the bus is not emulated below configuration space");
    FUNCTAG    0x05b08 RW 0x0000_0000 0xffff_ffff "8.6" Stored("no transactions to tag");
    GSCL       0x05b10 [4 * 4] RW 0x0000_0000 0xffff_ffff "8.6" Stored("no transactions to count");
    GSCN       0x05b20 [4 * 4] RO 0x0000_0000 0x0000_0000 "8.6" NO_EVENT;
    FACTPS     0x05b30 RO 0x0000_0000 0x0000_0000 "8.6" YES;
    GIOCTL     0x05b44 RW 0x0000_0000 0x0000_ffff "8.6" Stored("the bus has no analog side");
    CCMCTL     0x05b48 RW 0x0000_0000 0x0000_ffff "8.6" Stored("the bus has no analog side");
    SCCTL      0x05b4c RW 0x0000_0000 0x0000_ffff "8.6" Stored("the bus has no analog side");
    MREVID     0x05b64 RO 0x0000_0001 0x0000_0000 "8.6" YES;
    FWSM       0x05b54 RO 0x0000_0000 0x0000_0000 "8.7.2" NO_MANAGEMENT;
    SW_FW_SYNC 0x05b5c RW 0x0000_0000 0x0000_ffff "8.7.3" YES;
    EICR       0x01580 ReadClearWrite1Clear 0x0000_0000 0xc1ff_ffff "8.8.1" YES;
    EICS       0x01520 Write1Set 0x0000_0000 0xc1ff_ffff "8.8.2" YES;
    EIMS       0x01524 Write1Set 0x0000_0000 0xc1ff_ffff "8.8.3" YES;
    EIMC       0x01528 Write1Clear 0x0000_0000 0xc1ff_ffff "8.8.4" YES;
    EIAC       0x0152c RW 0x0000_0000 0x01ff_ffff "8.8.5" YES;
    EIAM       0x01530 RW 0x0000_0000 0xc1ff_ffff "8.8.6" YES;
    IAM        0x01510 RW 0x0000_0000 0x77d4_fbfd "8.8.11" YES;
    EITR       0x01680 [25 * 4] RW 0x0000_0000 0x0000_fffc "8.8.12" YES;
    IVAR       0x01700 [8 * 4] RW 0x0000_0000 0x9f9f_9f9f "8.8.13" YES;
    IVAR_MISC  0x01740 RW 0x0000_0000 0x0000_9f9f "8.8.14" YES;
    GPIE       0x01514 RW 0x0000_0000 0xc000_0f91 "8.8.15" YES;
    PBACL      0x05b68 W1C 0x0000_0000 0x0000_0000 "8.9" Stored("pending bits clear themselves when their message is sent");
    SRRCTL     0x0c00c [16 * 64] RW 0x0000_0400 0x8ff0_3f7f "8.10.2" YES;
    PSRTYPE    0x05480 [8 * 4] RW 0x0000_0000 0xe007_ffff "8.10.3" YES;
    RPLPSRTYPE 0x054c0 RW 0x0000_0000 0x0007_ffff "8.10.4" Stored("replicated frames are split as their pool says");
    RQDPC      0x0c030 [16 * 64] RC 0x0000_0000 0x0000_0fff "8.10.11" YES;
    RLPML      0x05004 RW 0x0000_2600 0x0000_3fff "8.10.15" YES;
    RFCTL      0x05008 RW 0x0000_0000 0x000f_ffff "8.10.16" YES;
    RAL2       0x054e0 [8 * 8] RW 0x0000_0000 0xffff_ffff "8.10.18" YES;
    RAH2       0x054e4 [8 * 8] RW 0x0000_0000 0x83ff_ffff "8.10.19" YES;
    MRQC       0x05818 RW 0x0000_0000 0xffff_003f "8.10.21" YES;
    RETA       0x05c00 [32 * 4] RW 0x0000_0000 0xffff_ffff "8.10.22" YES;
    RSSRK      0x05c80 [10 * 4] RW 0x0000_0000 0xffff_ffff "8.10.23" YES;
    IMIR       0x05a80 [8 * 4] RW 0x0000_0000 0xffff_ffff "8.11" YES;
    IMIREXT    0x05aa0 [8 * 4] RW 0x0000_0000 0x000f_ffff "8.11" YES;
    IMIRVP     0x05ac0 RW 0x0000_0000 0x0000_000f "8.11" YES;
    SAQF       0x05980 [8 * 4] RW 0x0000_0000 0xffff_ffff "8.11" YES;
    DAQF       0x059a0 [8 * 4] RW 0x0000_0000 0xffff_ffff "8.11" YES;
    SPQF       0x059c0 [8 * 4] RW 0x0000_0000 0xffff_ffff "8.11" YES;
    FTQF       0x059e0 [8 * 4] RW 0x0000_0000 0xffff_ffff "8.11" YES;
    SYNQF      0x055fc RW 0x0000_0000 0x0000_001f "8.11" YES;
    ETQF       0x05cb0 [8 * 4] RW 0x0000_0000 0xffff_ffff "8.11" YES;
    TCTL_EXT   0x00404 RW 0x0001_0840 0x000f_ffff "8.12.2" Stored("an emulated wire has no collisions");
    DTXCTL     0x03590 RW 0x0000_0044 0x0000_007f "8.12.5" Stored("sent frames are copied once, from guest memory");
    DTXTCPFLGL 0x0359c RW 0x0ff6_0ff6 0x0fff_0fff "8.12.6" Stored("FIN and PSH go with the last segment, CWR with the first");
    DTXTCPFLGH 0x035a0 RW 0x0000_0f7f 0x0000_0fff "8.12.7" Stored("FIN and PSH go with the last segment, CWR with the first");
    DTXMXSZRQ  0x03540 RW 0x0000_0010 0x0000_0fff "8.12" Stored("no requests to limit");
    TDWBAL     0x0e038 [16 * 64] RW 0x0000_0000 0xffff_ffff "8.12.15" YES;
    TDWBAH     0x0e03c [16 * 64] RW 0x0000_0000 0xffff_ffff "8.12.16" YES;
    DCA_RXCTRL 0x0c014 [16 * 64] RW 0x0000_a200 0xff00_ffff "8.13.1" NO_DCA;
    DCA_TXCTRL 0x0e014 [16 * 64] RW 0x0000_2a00 0xff00_ffff "8.13.2" NO_DCA;
    DCA_ID     0x05b70 RO 0x0000_0000 0x0000_0000 "8.13.3" NO_DCA;
    DCA_CTRL   0x05b74 RW 0x0000_0001 0x0000_001f "8.13.4" NO_DCA;
    VT_CTL     0x0581c RW 0x0000_0000 0x7000_0380 "8.14" YES;
    VMBMEM     0x00800 [128 * 4] RW 0x0000_0000 0xffff_ffff "8.14" YES;
    P2VMAILBOX 0x00c00 [8 * 4] Command 0x0000_0000 0x0000_001f "8.14" YES;
    MBVFICR    0x00c80 W1C 0x0000_0000 0x00ff_00ff "8.14" YES;
    MBVFIMR    0x00c84 RW 0x0000_00ff 0x0000_00ff "8.14" YES;
    VFLRE      0x00c88 W1C 0x0000_0000 0x0000_00ff "8.14" YES;
    VFRE       0x00c8c RW 0x0000_00ff 0x0000_00ff "8.14" YES;
    VFTE       0x00c90 RW 0x0000_00ff 0x0000_00ff "8.14" YES;
    QDE        0x02408 RW 0x0000_0000 0x0000_ffff "8.14" YES;
    DTXSWC     0x03500 RW 0x0000_0000 0x80ff_ffff "8.14" YES;
    LVMMC      0x03548 RC 0x0000_0000 0x0000_0000 "8.14" NO_EVENT;
    WVBR       0x03554 RC 0x0000_0000 0x0000_0000 "8.14" YES;
    VMVIR      0x03700 [8 * 4] RW 0x0000_0000 0xc000_ffff "8.14" YES;
    VMOLR      0x05ad0 [8 * 4] RW 0x8000_2600 0xdf03_3fff "8.14" YES;
    RPLOLR     0x05af0 RW 0x8000_0000 0xc000_0000 "8.14" YES;
    IOVCTL     0x05bbc RW 0x0000_0000 0x0000_0001 "8.14" Stored("a queue never belongs to another function");
    VLVF       0x05d00 [32 * 4] RW 0x0000_0000 0x801f_ffff "8.14" YES;
    UTA        0x0a000 [128 * 4] RW 0x0000_0000 0xffff_ffff "8.14" YES;
    VMRCTL     0x05d80 [4 * 4] RW 0x0000_0000 0x0000_070f "8.14" YES;
    VMRVLAN    0x05d90 [4 * 4] RW 0x0000_0000 0xffff_ffff "8.14" YES;
    VMRVM      0x05da0 [4 * 4] RW 0x0000_0000 0x0000_00ff "8.14" YES;
    SCCRL      0x05db0 RW 0x0000_0000 0x0007_ff1f "8.14" YES;
    SCSTS      0x05db4 RO 0x0000_0000 0x0000_0000 "8.14" NO_STORM_NEWS;
    BSCTRH     0x05db8 RW 0x0000_0000 0x0007_ffff "8.14" YES;
    MSCTRH     0x05dbc RW 0x0000_0000 0x0007_ffff "8.14" YES;
    RTTDCS     0x03600 RW 0x0000_0000 0xffff_ffff "8.15" NO_SHAPING;
    RTTDQSEL   0x03604 RW 0x0000_0000 0x0000_000f "8.15" YES;
    RTTBCNRM   0x03690 RW 0x0000_0000 0xffff_ffff "8.15" NO_SHAPING;
    RTTBCNRC   0x036b0 [16 * 0] RW 0x0000_0000 0xffff_ffff "8.15" YES;
    WDSTP      0x01040 RW 0x0000_0000 0x00ff_0003 "8.16" Stored("nothing waits for a keep-alive");
    WDSWSTS    0x01044 RW 0x0000_0000 0xff00_0003 "8.16" Stored("nothing waits for a keep-alive");
    FRTIMER    0x01048 RO 0x0000_0000 0x0000_0000 "8.16" YES;
    TCPTIMER   0x0104c RW 0x0000_0000 0x0000_07ff "8.16" Stored("the timer does not run");
    SYSTIML    0x0b600 RW 0x0000_0000 0xffff_ffff "8.16" YES;
    SYSTIMH    0x0b604 RW 0x0000_0000 0xffff_ffff "8.16" YES;
    TIMINCA    0x0b608 RW 0x0000_0000 0xffff_ffff "8.16" YES;
    TIMADJL    0x0b60c RW 0x0000_0000 0xffff_ffff "8.16" YES;
    TIMADJH    0x0b610 RW 0x0000_0000 0xffff_ffff "8.16" YES;
    TSYNCTXCTL 0x0b614 RW 0x0000_0000 0x0000_0010 "8.16" YES;
    TXSTMPL    0x0b618 RO 0x0000_0000 0x0000_0000 "8.16" YES;
    TXSTMPH    0x0b61c RO 0x0000_0000 0x0000_0000 "8.16" YES;
    TSYNCRXCTL 0x0b620 RW 0x0000_0000 0x0000_001e "8.16" YES;
    RXSTMPL    0x0b624 RO 0x0000_0000 0x0000_0000 "8.16" YES;
    RXSTMPH    0x0b628 RO 0x0000_0000 0x0000_0000 "8.16" YES;
    RXSATRL    0x0b62c RO 0x0000_0000 0x0000_0000 "8.16" YES;
    RXSATRH    0x0b630 RO 0x0000_0000 0x0000_0000 "8.16" YES;
    TSYNCRXCFG 0x05f50 RW 0x0000_0000 0x0000_ffff "8.16" YES;
    PCS_CFG    0x04200 RW 0x0000_0008 0xffff_ffff "8.17" NO_SERDES;
    PCS_LCTL   0x04208 RW 0x0000_0000 0xffff_ffff "8.17" NO_SERDES;
    PCS_LSTS   0x0420c RO 0x0000_0000 0x0000_0000 "8.17" NO_SERDES;
    PCS_ANADV  0x04218 RW 0x0000_0000 0xffff_ffff "8.17" NO_SERDES;
    PCS_LPAB   0x0421c RO 0x0000_0000 0x0000_0000 "8.17" NO_SERDES;
    PCS_NPTX   0x04220 RW 0x0000_0000 0xffff_ffff "8.17" NO_SERDES;
    PCS_LPABNP 0x04224 RO 0x0000_0000 0x0000_0000 "8.17" NO_SERDES;
    CBTMPC     0x0402c RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    HTDPMC     0x0403c RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    CBRDPC     0x04044 RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    CBRMPC     0x040fc RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    IAC        0x04100 RC 0x0000_0000 0x0000_0000 "8.18" YES;
    RPTHC      0x04104 RC 0x0000_0000 0x0000_0000 "8.18" YES;
    ICRXATC    0x04108 RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    ICTXPTC    0x0410c RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    ICTXATC    0x04110 RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    HGPTC      0x04118 RC 0x0000_0000 0x0000_0000 "8.18" YES;
    ICTXQMTC   0x0411c RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    RXDMTC     0x04120 RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    HTCBDPC    0x04124 RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    HGORCL     0x04128 RO 0x0000_0000 0x0000_0000 "8.18" YES;
    HGORCH     0x0412c RC 0x0000_0000 0x0000_0000 "8.18" YES;
    HGOTCL     0x04130 RO 0x0000_0000 0x0000_0000 "8.18" YES;
    HGOTCH     0x04134 RC 0x0000_0000 0x0000_0000 "8.18" YES;
    LENERRS    0x04138 RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    SSVPC      0x041a0 RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    SCVPC      0x04228 RC 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    PVFGPRC    0x10010 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" YES;
    PVFGPTC    0x10014 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" YES;
    PVFGORC    0x10018 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" YES;
    PVFGOTC    0x10034 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" YES;
    PVFMPRC    0x10038 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" YES;
    PVFGPRLBC  0x10040 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    PVFGPTLBC  0x10044 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    PVFGORLBC  0x10048 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    PVFGOTLBC  0x10050 [8 * 256] RO 0x0000_0000 0x0000_0000 "8.18" NO_EVENT;
    FHFT       0x09000 [256 * 4] RW 0x0000_0000 0xffff_ffff "8.20" YES;
    MANC2H     0x05860 RW 0x0000_0000 0xffff_ffff "8.21" NO_MANAGEMENT;
    MFVAL      0x05824 RW 0x0000_0000 0xffff_ffff "8.21" NO_MANAGEMENT;
    MDEF       0x05890 [8 * 4] RW 0x0000_0000 0xffff_ffff "8.21" NO_MANAGEMENT;
    FTFT       0x09400 [256 * 4] RW 0x0000_0000 0xffff_ffff "8.21" NO_MANAGEMENT;
    LSECTXCAP  0x0b000 RO 0x0000_0000 0x0000_0000 "8.22" NO_LINKSEC;
    LSECTXCTRL 0x0b004 RW 0x0000_0000 0x0000_0000 "8.22" NO_LINKSEC;
    LSECRXCAP  0x0b300 RO 0x0000_0000 0x0000_0000 "8.22" NO_LINKSEC;
    LSECRXCTRL 0x0b304 RW 0x0000_0000 0x0000_0000 "8.22" NO_LINKSEC;
    IPSCTRL    0x0b430 RW 0x0000_0000 0x0000_0000 "8.23" Absent("no IPsec: frames are not encrypted by the NIC");
}

/// Registers of queues, as `Function` finds them here.
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
    eitr: EITR,
};

macro_rules! aliases {
    ($($name:literal $offset:literal [$count:literal * $stride:literal] $of:ident;)*) => {
        /// Second addresses: those of earlier chips, at which interrupts and the first four queues
        /// answer too (driver `igb/e1000_regs.h`).
        pub static ALIASES: &[Alias] = &[$(Alias {
            name: $name,
            offset: $offset,
            count: $count,
            stride: $stride,
            of: $of,
        }),*];
    };
}

aliases! {
    "ICR_A"        0x00c0 [1 * 4] ICR;
    "ICS_A"        0x00c8 [1 * 4] ICS;
    "IMS_A"        0x00d0 [1 * 4] IMS;
    "IMC_A"        0x00d8 [1 * 4] IMC;
    "IAM_A"        0x00e0 [1 * 4] IAM;
    "RDBAL_A"      0x2800 [4 * 256] RDBAL;
    "RDBAH_A"      0x2804 [4 * 256] RDBAH;
    "RDLEN_A"      0x2808 [4 * 256] RDLEN;
    "SRRCTL_A"     0x280c [4 * 256] SRRCTL;
    "RDH_A"        0x2810 [4 * 256] RDH;
    "DCA_RXCTRL_A" 0x2814 [4 * 256] DCA_RXCTRL;
    "RDT_A"        0x2818 [4 * 256] RDT;
    "RXDCTL_A"     0x2828 [4 * 256] RXDCTL;
    "RQDPC_A"      0x2830 [4 * 256] RQDPC;
    "TDBAL_A"      0x3800 [4 * 256] TDBAL;
    "TDBAH_A"      0x3804 [4 * 256] TDBAH;
    "TDLEN_A"      0x3808 [4 * 256] TDLEN;
    "TDH_A"        0x3810 [4 * 256] TDH;
    "DCA_TXCTRL_A" 0x3814 [4 * 256] DCA_TXCTRL;
    "TDT_A"        0x3818 [4 * 256] TDT;
    "TXDCTL_A"     0x3828 [4 * 256] TXDCTL;
    "TDWBAL_A"     0x3838 [4 * 256] TDWBAL;
    "TDWBAH_A"     0x383c [4 * 256] TDWBAH;
}

/// The table of all NICs of the process.
pub fn table() -> Arc<Table> {
    static TABLE: Shared = Shared::new(REGISTERS, ALIASES, WINDOW);
    TABLE.get()
}

/// The text of `docs/registers/igb.md`.
pub fn page() -> String {
    let preface = "Generated from the register table of the model by `cargo run -p hypernic-igb --example registers`;
a test fails when this page is stale. Sections are those of Intel's \"82576EB Gigabit Ethernet Controller Datasheet\", 320961.
\"Writable\" are the bits that keep what is written.

These are the registers of the physical function. Everything the table does not name reads 0 and ignores writes.

The table does not show the following:

- After a reset, queue 0 is enabled in both directions (RXDCTL, TXDCTL), and RAL0 and RAH0 hold the address of the NVM.
- Headers are parsed behind tags of the types 8100h and 88A8h, whatever VET says.
- RXPBS, TXPBS, SWPBS, EITR, WUFC and the report of the last wake-up keep their values across CTRL.RST.
- RCTL.LBM and PHY loopback send a frame back to the same NIC.
- The PHY negotiates with a partner that offers everything, including pause if configured. Without VFs the NIC obeys pause frames. It
  sends one if software requests it (TCTL.SWXOFF).
- The registers of VFs (8.14) control VFs if the PF has some (`pf = \"guest\"`); P2VMAILBOX, VMBMEM, MBVFICR and VFLRE are then the VFs'
  mailboxes. Otherwise they only keep what is written.
- EITR shows the credits for immediate interrupts in bits 20:16 if LLI_EN is set. The NIC earns and spends them as in the data sheet of
  the I210 (333016, 7.3.6.1), which has the same fields.";
    regs::render("82576 registers", preface, REGISTERS, ALIASES)
}

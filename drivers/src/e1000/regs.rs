//! Registers of the 82540EM, from the software developer's manual for the PCI/PCI-X family of
//! gigabit controllers (317453, rev 4.0): offsets from table 13-2, bits from section 13.4.

/// Device control (13.4.1).
pub const CTRL: u32 = 0x0000;
/// Device status (13.4.2).
pub const STATUS: u32 = 0x0008;
/// EEPROM/flash control and data: the microwire pins (13.4.3).
pub const EECD: u32 = 0x0010;
/// EEPROM read (13.4.4).
pub const EERD: u32 = 0x0014;
/// MDI control: the PHY's registers (13.4.8).
pub const MDIC: u32 = 0x0020;
/// Flow control address, low.
pub const FCAL: u32 = 0x0028;
/// Flow control address, high.
pub const FCAH: u32 = 0x002c;
/// Flow control type.
pub const FCT: u32 = 0x0030;
/// VLAN ether type.
pub const VET: u32 = 0x0038;
/// Interrupt causes, cleared by reading.
pub const ICR: u32 = 0x00c0;
/// Interrupt throttling: minimum gap in 256 ns.
pub const ITR: u32 = 0x00c4;
/// Interrupt cause set.
pub const ICS: u32 = 0x00c8;
/// Interrupt mask set and read.
pub const IMS: u32 = 0x00d0;
/// Interrupt mask clear.
pub const IMC: u32 = 0x00d8;
/// Receive control.
pub const RCTL: u32 = 0x0100;
/// Flow control transmit timer value.
pub const FCTTV: u32 = 0x0170;
/// Transmit control.
pub const TCTL: u32 = 0x0400;
/// Transmit inter-packet gap.
pub const TIPG: u32 = 0x0410;
/// Packet buffer allocation.
pub const PBA: u32 = 0x1000;
/// Receive descriptor base, low.
pub const RDBAL: u32 = 0x2800;
/// Receive descriptor base, high.
pub const RDBAH: u32 = 0x2804;
/// Receive ring length in bytes, a multiple of 128.
pub const RDLEN: u32 = 0x2808;
/// Receive descriptor head.
pub const RDH: u32 = 0x2810;
/// Receive descriptor tail.
pub const RDT: u32 = 0x2818;
/// Receive delay timer in 1.024 us.
pub const RDTR: u32 = 0x2820;
/// Receive descriptor control.
pub const RXDCTL: u32 = 0x2828;
/// Receive absolute delay in 1.024 us.
pub const RADV: u32 = 0x282c;
/// Transmit descriptor base, low.
pub const TDBAL: u32 = 0x3800;
/// Transmit descriptor base, high.
pub const TDBAH: u32 = 0x3804;
/// Transmit ring length in bytes, a multiple of 128.
pub const TDLEN: u32 = 0x3808;
/// Transmit descriptor head.
pub const TDH: u32 = 0x3810;
/// Transmit descriptor tail.
pub const TDT: u32 = 0x3818;
/// Transmit interrupt delay in 1.024 us.
pub const TIDV: u32 = 0x3820;
/// Transmit descriptor control.
pub const TXDCTL: u32 = 0x3828;
/// Transmit absolute delay in 1.024 us.
pub const TADV: u32 = 0x382c;
/// Receive checksum control.
pub const RXCSUM: u32 = 0x5000;
/// Multicast table, 128 words.
pub const MTA: u32 = 0x5200;
/// Receive address 0, low; sixteen pairs, 8 bytes apart.
pub const RAL: u32 = 0x5400;
/// Receive address 0, high.
pub const RAH: u32 = 0x5404;
/// VLAN filter table, 128 words.
pub const VFTA: u32 = 0x5600;
/// Wake-up control.
pub const WUC: u32 = 0x5800;
/// Management control.
pub const MANC: u32 = 0x5820;

/// Offset of IOADDR in the I/O BAR (13.2.2).
pub const IOADDR: u64 = 0;
/// Offset of IODATA in the I/O BAR.
pub const IODATA: u64 = 4;

/// Bits of CTRL.
pub mod ctrl {
    /// Full duplex.
    pub const FD: u32 = 1 << 0;
    /// Auto-speed detection.
    pub const ASDE: u32 = 1 << 5;
    /// Set link up.
    pub const SLU: u32 = 1 << 6;
    /// Force speed.
    pub const FRCSPD: u32 = 1 << 11;
    /// Force duplex.
    pub const FRCDPX: u32 = 1 << 12;
    /// Software reset; clears itself.
    pub const RST: u32 = 1 << 26;
    /// Receive flow control.
    pub const RFCE: u32 = 1 << 27;
    /// Transmit flow control.
    pub const TFCE: u32 = 1 << 28;
    /// VLAN mode: strip and insert tags.
    pub const VME: u32 = 1 << 30;
    /// PHY reset.
    pub const PHY_RST: u32 = 1 << 31;
}

/// Bits of STATUS.
pub mod status {
    /// Full duplex.
    pub const FD: u32 = 1 << 0;
    /// Link up.
    pub const LU: u32 = 1 << 1;
    /// Speed: 00 10, 01 100, 1x 1000 Mbit/s.
    pub const SPEED: u32 = 3 << 6;
}

/// Bits of EECD.
pub mod eecd {
    /// Clock.
    pub const SK: u32 = 1 << 0;
    /// Chip select.
    pub const CS: u32 = 1 << 1;
    /// Data to the EEPROM.
    pub const DI: u32 = 1 << 2;
    /// Data from the EEPROM.
    pub const DO: u32 = 1 << 3;
    /// Request access.
    pub const REQ: u32 = 1 << 6;
    /// Access granted.
    pub const GNT: u32 = 1 << 7;
    /// EEPROM present.
    pub const PRES: u32 = 1 << 8;
    /// 256 words rather than 64.
    pub const SIZE: u32 = 1 << 9;
}

/// Bits of EERD, as on the 82540EM.
pub mod eerd {
    /// Start.
    pub const START: u32 = 1 << 0;
    /// Done.
    pub const DONE: u32 = 1 << 4;
    /// Word address.
    pub const ADDR_SHIFT: u32 = 8;
    /// Data.
    pub const DATA_SHIFT: u32 = 16;
}

/// Bits of MDIC.
pub mod mdic {
    /// PHY register address.
    pub const REG_SHIFT: u32 = 16;
    /// PHY address.
    pub const PHY_SHIFT: u32 = 21;
    /// Write operation.
    pub const OP_WRITE: u32 = 1 << 26;
    /// Read operation.
    pub const OP_READ: u32 = 2 << 26;
    /// Done.
    pub const READY: u32 = 1 << 28;
    /// Interrupt at the end.
    pub const INT: u32 = 1 << 29;
    /// Failed.
    pub const ERROR: u32 = 1 << 30;
}

/// Interrupt causes: the bits of ICR, ICS, IMS and IMC.
pub mod cause {
    /// Transmit descriptor written back.
    pub const TXDW: u32 = 1 << 0;
    /// Transmit queue empty.
    pub const TXQE: u32 = 1 << 1;
    /// Link status change.
    pub const LSC: u32 = 1 << 2;
    /// Receive sequence error.
    pub const RXSEQ: u32 = 1 << 3;
    /// Receive descriptors at the minimum threshold.
    pub const RXDMT0: u32 = 1 << 4;
    /// Receive overrun.
    pub const RXO: u32 = 1 << 6;
    /// Receive timer.
    pub const RXT0: u32 = 1 << 7;
    /// MDIO access complete.
    pub const MDAC: u32 = 1 << 9;
    /// Transmit descriptors low.
    pub const TXD_LOW: u32 = 1 << 15;
    /// Small receive packet.
    pub const SRPD: u32 = 1 << 16;
    /// What the stock driver unmasks.
    pub const USUAL: u32 = TXDW | RXT0 | RXDMT0 | RXSEQ | LSC;
}

/// Bits of RCTL.
pub mod rctl {
    /// Enable.
    pub const EN: u32 = 1 << 1;
    /// Store bad packets.
    pub const SBP: u32 = 1 << 2;
    /// Unicast promiscuous.
    pub const UPE: u32 = 1 << 3;
    /// Multicast promiscuous.
    pub const MPE: u32 = 1 << 4;
    /// Long packets.
    pub const LPE: u32 = 1 << 5;
    /// Loopback mode.
    pub const LBM: u32 = 3 << 6;
    /// Free-descriptor threshold of RXDMT0: 1/2, 1/4, 1/8 of the ring.
    pub const RDMTS_SHIFT: u32 = 8;
    /// Which 12 bits of the address index the multicast table.
    pub const MO_SHIFT: u32 = 12;
    /// Accept broadcast.
    pub const BAM: u32 = 1 << 15;
    /// Buffer size.
    pub const BSIZE_SHIFT: u32 = 16;
    /// VLAN filter.
    pub const VFE: u32 = 1 << 18;
    /// Buffer size times 16.
    pub const BSEX: u32 = 1 << 25;
    /// Strip the CRC.
    pub const SECRC: u32 = 1 << 26;
}

/// Bits of TCTL.
pub mod tctl {
    /// Enable.
    pub const EN: u32 = 1 << 1;
    /// Pad short packets.
    pub const PSP: u32 = 1 << 3;
    /// Collision threshold.
    pub const CT_SHIFT: u32 = 4;
    /// Collision distance.
    pub const COLD_SHIFT: u32 = 12;
    /// Retransmit on late collision.
    pub const RTLC: u32 = 1 << 24;
}

/// Bits of RXCSUM (13.4.52).
pub mod rxcsum {
    /// IP checksum.
    pub const IPOFL: u32 = 1 << 8;
    /// TCP and UDP checksum.
    pub const TUOFL: u32 = 1 << 9;
}

/// RAH: address valid.
pub const RAH_AV: u32 = 1 << 31;

/// RDTR: deliver what is pending at once.
pub const RDTR_FPD: u32 = 1 << 31;

/// MANC: answer ARP for the management controller.
pub const MANC_ARP_EN: u32 = 1 << 13;

/// PHY registers of the integrated transceiver (IEEE 802.3 clause 22, and its own).
pub mod phy {
    /// Address of the internal PHY.
    pub const ADDRESS: u32 = 1;
    /// Control.
    pub const CONTROL: u8 = 0;
    /// Status.
    pub const STATUS: u8 = 1;
    /// Identifier, high.
    pub const ID1: u8 = 2;
    /// Identifier, low.
    pub const ID2: u8 = 3;
    /// Advertisement.
    pub const AUTONEG_ADV: u8 = 4;
    /// Link partner.
    pub const LP_ABILITY: u8 = 5;
    /// 1000BASE-T control.
    pub const CTRL_1000T: u8 = 9;
    /// 1000BASE-T status.
    pub const STATUS_1000T: u8 = 10;
    /// Specific control.
    pub const SPEC_CTRL: u8 = 16;
    /// Specific status.
    pub const SPEC_STATUS: u8 = 17;
    /// Extended specific control.
    pub const EXT_SPEC_CTRL: u8 = 20;
    /// Control: restart auto-negotiation.
    pub const RESTART_AUTONEG: u16 = 1 << 9;
    /// Control: auto-negotiation on.
    pub const AUTONEG_EN: u16 = 1 << 12;
    /// Control: loopback.
    pub const LOOPBACK: u16 = 1 << 14;
    /// Control: reset.
    pub const RESET: u16 = 1 << 15;
    /// Status: link (latched low).
    pub const LINK: u16 = 1 << 2;
    /// Status: auto-negotiation complete.
    pub const AUTONEG_DONE: u16 = 1 << 5;
    /// Identifier of the integrated PHY without its revision (ID1 << 16 | ID2).
    pub const ID: u32 = 0x0141_0c20;
}

/// A statistics counter (13.7): cleared when read, stuck at its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// The manual's name, in lower case.
    pub name: &'static str,
    /// Offset; of the low half for 64-bit counters, whose high half follows and clears both.
    pub offset: u32,
    /// 64 bits.
    pub wide: bool,
}

const fn narrow(name: &'static str, offset: u32) -> Statistic {
    Statistic {
        name,
        offset,
        wide: false,
    }
}

const fn wide(name: &'static str, offset: u32) -> Statistic {
    Statistic {
        name,
        offset,
        wide: true,
    }
}

/// All statistics counters.
pub const STATISTICS: [Statistic; 54] = [
    narrow("crcerrs", 0x4000),
    narrow("algnerrc", 0x4004),
    narrow("symerrs", 0x4008),
    narrow("rxerrc", 0x400c),
    narrow("mpc", 0x4010),
    narrow("scc", 0x4014),
    narrow("ecol", 0x4018),
    narrow("mcc", 0x401c),
    narrow("latecol", 0x4020),
    narrow("colc", 0x4028),
    narrow("dc", 0x4030),
    narrow("tncrs", 0x4034),
    narrow("sec", 0x4038),
    narrow("cexterr", 0x403c),
    narrow("rlec", 0x4040),
    narrow("xonrxc", 0x4048),
    narrow("xontxc", 0x404c),
    narrow("xoffrxc", 0x4050),
    narrow("xofftxc", 0x4054),
    narrow("fcruc", 0x4058),
    narrow("prc64", 0x405c),
    narrow("prc127", 0x4060),
    narrow("prc255", 0x4064),
    narrow("prc511", 0x4068),
    narrow("prc1023", 0x406c),
    narrow("prc1522", 0x4070),
    narrow("gprc", 0x4074),
    narrow("bprc", 0x4078),
    narrow("mprc", 0x407c),
    narrow("gptc", 0x4080),
    wide("gorc", 0x4088),
    wide("gotc", 0x4090),
    narrow("rnbc", 0x40a0),
    narrow("ruc", 0x40a4),
    narrow("rfc", 0x40a8),
    narrow("roc", 0x40ac),
    narrow("rjc", 0x40b0),
    narrow("mgtprc", 0x40b4),
    narrow("mgtpdc", 0x40b8),
    narrow("mgtptc", 0x40bc),
    wide("tor", 0x40c0),
    wide("tot", 0x40c8),
    narrow("tpr", 0x40d0),
    narrow("tpt", 0x40d4),
    narrow("ptc64", 0x40d8),
    narrow("ptc127", 0x40dc),
    narrow("ptc255", 0x40e0),
    narrow("ptc511", 0x40e4),
    narrow("ptc1023", 0x40e8),
    narrow("ptc1522", 0x40ec),
    narrow("mptc", 0x40f0),
    narrow("bptc", 0x40f4),
    narrow("tsctc", 0x40f8),
    narrow("tsctfc", 0x40fc),
];

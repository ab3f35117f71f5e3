//! Registers of the 82540EM, from the software developer's manual for the PCI/PCI-X family of
//! gigabit controllers (317453, rev 4.0): offsets from table 13-2, bits from section 13.4.

offsets! {
    CTRL 0x00000 "Device control (13.4.1).";
    STATUS 0x00008 "Device status (13.4.2).";
    EECD 0x00010 "EEPROM/flash control and data: the microwire pins (13.4.3).";
    EERD 0x00014 "EEPROM read (13.4.4).";
    MDIC 0x00020 "MDI control: the PHY's registers (13.4.8).";
    FCAL 0x00028 "Flow control address, low.";
    FCAH 0x0002c "Flow control address, high.";
    FCT 0x00030 "Flow control type.";
    VET 0x00038 "VLAN ether type.";
    ICR 0x000c0 "Interrupt causes, cleared by reading.";
    ITR 0x000c4 "Interrupt throttling: minimum gap in 256 ns.";
    ICS 0x000c8 "Interrupt cause set.";
    IMS 0x000d0 "Interrupt mask set and read.";
    IMC 0x000d8 "Interrupt mask clear.";
    RCTL 0x00100 "Receive control.";
    FCTTV 0x00170 "Flow control transmit timer value.";
    TCTL 0x00400 "Transmit control.";
    TIPG 0x00410 "Transmit inter-packet gap.";
    PBA 0x01000 "Packet buffer allocation.";
    FCRTL 0x02160 "Flow control receive threshold, low.";
    FCRTH 0x02168 "Flow control receive threshold, high.";
    RDFH 0x02410 "Receive FIFO head.";
    RDFT 0x02418 "Receive FIFO tail.";
    RDFPC 0x02430 "Packets in the receive FIFO.";
    RDBAL 0x02800 "Receive descriptor base, low.";
    RDBAH 0x02804 "Receive descriptor base, high.";
    RDLEN 0x02808 "Receive ring length in bytes, a multiple of 128.";
    RDH 0x02810 "Receive descriptor head.";
    RDT 0x02818 "Receive descriptor tail.";
    RDTR 0x02820 "Receive delay timer in 1.024 us.";
    RXDCTL 0x02828 "Receive descriptor control.";
    RADV 0x0282c "Receive absolute delay in 1.024 us.";
    TDBAL 0x03800 "Transmit descriptor base, low.";
    TDBAH 0x03804 "Transmit descriptor base, high.";
    TDLEN 0x03808 "Transmit ring length in bytes, a multiple of 128.";
    TDH 0x03810 "Transmit descriptor head.";
    TDT 0x03818 "Transmit descriptor tail.";
    TIDV 0x03820 "Transmit interrupt delay in 1.024 us.";
    TXDCTL 0x03828 "Transmit descriptor control.";
    TADV 0x0382c "Transmit absolute delay in 1.024 us.";
    CRCERRS 0x04000 "Statistic (13.7).";
    ALGNERRC 0x04004 "Statistic (13.7).";
    SYMERRS 0x04008 "Statistic (13.7).";
    RXERRC 0x0400c "Statistic (13.7).";
    MPC 0x04010 "Missed packets.";
    SCC 0x04014 "Statistic (13.7).";
    ECOL 0x04018 "Statistic (13.7).";
    MCC 0x0401c "Statistic (13.7).";
    LATECOL 0x04020 "Statistic (13.7).";
    COLC 0x04028 "Statistic (13.7).";
    DC 0x04030 "Statistic (13.7).";
    TNCRS 0x04034 "Statistic (13.7).";
    SEC 0x04038 "Statistic (13.7).";
    CEXTERR 0x0403c "Statistic (13.7).";
    RLEC 0x04040 "Statistic (13.7).";
    XONRXC 0x04048 "XON received.";
    XONTXC 0x0404c "XON sent.";
    XOFFRXC 0x04050 "XOFF received.";
    XOFFTXC 0x04054 "XOFF sent.";
    FCRUC 0x04058 "Unsupported MAC control frames received.";
    PRC64 0x0405c "Statistic (13.7).";
    PRC127 0x04060 "Statistic (13.7).";
    PRC255 0x04064 "Statistic (13.7).";
    PRC511 0x04068 "Statistic (13.7).";
    PRC1023 0x0406c "Statistic (13.7).";
    PRC1522 0x04070 "Statistic (13.7).";
    GPRC 0x04074 "Good packets received.";
    BPRC 0x04078 "Statistic (13.7).";
    MPRC 0x0407c "Statistic (13.7).";
    GPTC 0x04080 "Good packets sent.";
    GORCL 0x04088 "Statistic, low half (13.7).";
    GORCH 0x0408c "Statistic, high half (13.7).";
    GOTCL 0x04090 "Statistic, low half (13.7).";
    GOTCH 0x04094 "Statistic, high half (13.7).";
    RNBC 0x040a0 "Frames that found no buffer.";
    RUC 0x040a4 "Statistic (13.7).";
    RFC 0x040a8 "Statistic (13.7).";
    ROC 0x040ac "Statistic (13.7).";
    RJC 0x040b0 "Statistic (13.7).";
    MGTPRC 0x040b4 "Statistic (13.7).";
    MGTPDC 0x040b8 "Statistic (13.7).";
    MGTPTC 0x040bc "Statistic (13.7).";
    TORL 0x040c0 "Octets received, low.";
    TORH 0x040c4 "Octets received, high.";
    TOTL 0x040c8 "Statistic, low half (13.7).";
    TOTH 0x040cc "Statistic, high half (13.7).";
    TPR 0x040d0 "Packets received.";
    TPT 0x040d4 "Packets sent.";
    PTC64 0x040d8 "Statistic (13.7).";
    PTC127 0x040dc "Statistic (13.7).";
    PTC255 0x040e0 "Statistic (13.7).";
    PTC511 0x040e4 "Statistic (13.7).";
    PTC1023 0x040e8 "Statistic (13.7).";
    PTC1522 0x040ec "Statistic (13.7).";
    MPTC 0x040f0 "Statistic (13.7).";
    BPTC 0x040f4 "Statistic (13.7).";
    TSCTC 0x040f8 "Statistic (13.7).";
    TSCTFC 0x040fc "Statistic (13.7).";
    RXCSUM 0x05000 "Receive checksum control.";
    MTA 0x05200 "Multicast table, 128 words.";
    RAL 0x05400 "Receive address 0, low; sixteen pairs, 8 bytes apart.";
    RAH 0x05404 "Receive address 0, high.";
    VFTA 0x05600 "VLAN filter table, 128 words.";
    WUC 0x05800 "Wake-up control.";
    WUFC 0x05808 "Wake-up filter control.";
    WUS 0x05810 "Wake-up status.";
    MANC 0x05820 "Management control.";
    IPAV 0x05838 "Valid IP addresses.";
    IP4AT 0x05840 "IPv4 address table, four addresses, 8 bytes apart.";
    IP6AT 0x05880 "IPv6 address, four words.";
    WUPL 0x05900 "Wake-up packet length.";
    WUPM 0x05a00 "Wake-up packet, 32 words.";
    FFLT 0x05f00 "Flexible filter lengths, four, 8 bytes apart.";
    FFMT 0x09000 "Flexible filter masks, 128, 8 bytes apart.";
    FFVT 0x09800 "Flexible filter values, 128, 8 bytes apart.";
}

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

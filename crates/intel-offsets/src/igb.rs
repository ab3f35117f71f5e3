//! Registers of the 82576's physical function, from its datasheet (320961): offsets and bits from chapter 8.

offsets! {
    CTRL 0x00000 "Device control: SLU is bit 6, RST bit 26.";
    STATUS 0x00008 "Device status: LU is bit 1.";
    EECD 0x00010 "EEPROM control and data.";
    EERD 0x00014 "EEPROM read.";
    CTRL_EXT 0x00018 "PFRSTD is bit 14.";
    MDIC 0x00020 "MDI control: the PHY's registers.";
    VET 0x00038 "VLAN ether type.";
    RCTL 0x00100 "Receive control.";
    FCTTV 0x00170 "Flow control transmit timer value.";
    TCTL 0x00400 "Transmit control.";
    VMBMEM 0x00800 "The VFs' mailboxes, 64 bytes each.";
    P2VMAILBOX 0x00c00 "Who has the buffer of a mailbox, one word for each VF.";
    MBVFICR 0x00c80 "VFs that have sent a message, and behind bit 16 that have read one.";
    MBVFIMR 0x00c84 "VFs whose messages interrupt.";
    VFLRE 0x00c88 "VFs that were reset.";
    VFRE 0x00c8c "Pools that receive.";
    VFTE 0x00c90 "Pools that send.";
    EEMNGCTL 0x01010 "Management EEPROM control.";
    ICR 0x01500 "Causes; VMMB is bit 8, DOUTSYNC bit 28.";
    ICS 0x01504 "Causes, set.";
    IMS 0x01508 "Causes that interrupt, set.";
    IMC 0x0150c "Causes that interrupt, cleared.";
    IAM 0x01510 "Causes masked by reading ICR.";
    GPIE 0x01514 "General purpose interrupt enable: MSI-X, EIAME, credits.";
    EICS 0x01520 "Vectors, set.";
    EIMS 0x01524 "Vectors that interrupt, set.";
    EIMC 0x01528 "Vectors that interrupt, cleared.";
    EIAC 0x0152c "Vectors cleared by their message.";
    EIAM 0x01530 "Vectors masked by their message.";
    EICR 0x01580 "Vectors.";
    EITR 0x01680 "Least time between two interrupts, a register for each vector.";
    IVAR 0x01700 "Vectors of the queues.";
    IVAR_MISC 0x01740 "Vectors of other causes.";
    FCRTH0 0x02168 "Flow control receive threshold, high.";
    QDE 0x02408 "Queues that drop what finds no descriptor.";
    DTXSWC 0x03500 "Anti-spoofing, loopback.";
    WVBR 0x03554 "Queues that have sent what they may not; cleared by reading.";
    RTTDQSEL 0x03604 "The queue that RTTBCNRC is of.";
    RTTBCNRC 0x036b0 "The link's speed divided by a queue's most, 14 bits behind the point; bit 31: there is a limit.";
    VMVIR 0x03700 "The tag of what a pool sends.";
    MPC 0x04010 "Missed packets.";
    XONRXC 0x04048 "XON received.";
    XONTXC 0x0404c "XON sent.";
    XOFFRXC 0x04050 "XOFF received.";
    XOFFTXC 0x04054 "XOFF sent.";
    FCRUC 0x04058 "Unsupported MAC control frames received.";
    GPRC 0x04074 "Good packets received.";
    GPTC 0x04080 "Good packets sent.";
    TPR 0x040d0 "Packets received.";
    TPT 0x040d4 "Packets sent.";
    IAC 0x04100 "Interrupts asserted.";
    RXCSUM 0x05000 "Receive checksum control.";
    RLPML 0x05004 "Longest packet.";
    RFCTL 0x05008 "Receive filter control.";
    MTA 0x05200 "The table of groups.";
    RAL 0x05400 "Addresses: 16, low and high, the pools from bit 18 of the high half on.";
    RAH 0x05404 "Addresses, high half.";
    PSRTYPE 0x05480 "Where packets are split, a register for each pool.";
    RAL2 0x054e0 "Addresses 16 to 23.";
    VFTA 0x05600 "VLANs that come inside, 32 a register.";
    WUC 0x05800 "Wake-up control.";
    WUFC 0x05808 "Wake-up filter control.";
    WUS 0x05810 "Wake-up status.";
    MRQC 0x05818 "How queues are found.";
    VT_CTL 0x0581c "Default pool and replication.";
    IPAV 0x05838 "Valid IP addresses.";
    IP4AT 0x05840 "IPv4 address table, four addresses, 8 bytes apart.";
    IP6AT 0x05880 "IPv6 address, four words.";
    WUPL 0x05900 "Wake-up packet length.";
    WUPM 0x05a00 "Wake-up packet, 32 words.";
    VMOLR 0x05ad0 "What a pool gets.";
    RPLOLR 0x05af0 "What a copy gets.";
    SWSM 0x05b50 "Software semaphore.";
    SW_FW_SYNC 0x05b5c "Semaphore of software and firmware.";
    RETA 0x05c00 "Redirection table.";
    RSSRK 0x05c80 "Key of the hash, ten words.";
    ETQF 0x05cb0 "Ether type filters, eight.";
    VLVF 0x05d00 "VLANs and their pools.";
    VMRCTL 0x05d80 "Rules for copies: four, what is copied and to which pool.";
    VMRVLAN 0x05d90 "The VLANs whose frames a rule copies.";
    VMRVM 0x05da0 "The pools whose frames a rule copies.";
    SCCRL 0x05db0 "Storm control: the window, and what is dropped.";
    BSCTRH 0x05db8 "Blocks of 64 bytes for everybody that may come in a window.";
    MSCTRH 0x05dbc "Blocks of 64 bytes for groups that may come in a window.";
    TSYNCRXCFG 0x05f50 "Which messages of IEEE 1588 are stamped.";
    FHFT 0x09000 "Flexible host filters, 256 bytes each.";
    UTA 0x0a000 "The table of stations that nobody has.";
    SYSTIML 0x0b600 "The clock, low.";
    SYSTIMH 0x0b604 "The clock, high.";
    TIMINCA 0x0b608 "The clock's rate.";
    TSYNCTXCTL 0x0b614 "Time stamps of sent frames.";
    TXSTMPL 0x0b618 "Time stamp of a sent frame, low.";
    TSYNCRXCTL 0x0b620 "Time stamps of received frames.";
    RXSTMPL 0x0b624 "Time stamp of a received frame, low.";
    RXSATRL 0x0b62c "Who sent a stamped frame, low.";
    RDBAL 0x0c000 "Receive queue 0: base, low. Queues are [`QUEUE`] bytes apart.";
    RDBAH 0x0c004 "Receive base, high.";
    RDLEN 0x0c008 "Bytes of the receive ring.";
    SRRCTL 0x0c00c "Split and replication control.";
    RDH 0x0c010 "Receive head.";
    RDT 0x0c018 "Receive tail.";
    RXDCTL 0x0c028 "Receive queue control; enable is bit 25.";
    TDBAL 0x0e000 "Transmit queue 0: base, low.";
    TDBAH 0x0e004 "Transmit base, high.";
    TDLEN 0x0e008 "Bytes of the transmit ring.";
    TDH 0x0e010 "Transmit head.";
    TDT 0x0e018 "Transmit tail.";
    TXDCTL 0x0e028 "Transmit queue control; enable is bit 25.";
    TDWBAL 0x0e038 "Where the head is written back, low.";
}

/// Bytes from a register of a queue to that of the next.
pub const QUEUE: u32 = 0x40;

/// Where causes and the first four queues answer too, as in older chips. Queues are 0x100 bytes apart.
pub mod legacy {
    offsets! {
        ICR 0x000c0 "Causes.";
        ICS 0x000c8 "Causes, set.";
        IMS 0x000d0 "Causes that interrupt, set.";
        IMC 0x000d8 "Causes that interrupt, cleared.";
        IAM 0x000e0 "Causes masked by reading ICR.";
        RDBAL 0x02800 "Receive queue 0: base, low.";
        TDBAL 0x03800 "Transmit queue 0: base, low.";
    }
}

/// Registers of a queue of either kind of function, from its first on.
pub mod queue {
    offsets! {
        BASE 0x00 "Base, low.";
        BASE_HIGH 0x04 "Base, high.";
        LEN 0x08 "Bytes of the ring.";
        SRRCTL 0x0c "Split and replication control.";
        HEAD 0x10 "Head.";
        TAIL 0x18 "Tail.";
        XDCTL 0x28 "RXDCTL or TXDCTL; enable is bit 25.";
        HEAD_WB 0x38 "Where the head is written back, low.";
    }
}

/// Bits of P2VMAILBOX.
pub mod p2v {
    /// A message for the VF.
    pub const STS: u32 = 1 << 0;
    /// The VF's message was read.
    pub const ACK: u32 = 1 << 1;
    /// The buffer is the PF's.
    pub const PFU: u32 = 1 << 3;
}

/// Bits of VMOLR.
pub mod vmolr {
    /// Frames longer than usual, up to what the low bits say.
    pub const LPE: u32 = 1 << 16;
    /// Frames without a tag.
    pub const AUPE: u32 = 1 << 24;
    /// Groups of the table.
    pub const ROMPE: u32 = 1 << 25;
    /// Stations of the table.
    pub const ROPE: u32 = 1 << 26;
    /// Broadcasts.
    pub const BAM: u32 = 1 << 27;
    /// All groups.
    pub const MPME: u32 = 1 << 28;
    /// Tags are taken out.
    pub const STRVLAN: u32 = 1 << 30;
    /// No frame check sequence.
    pub const STRCRC: u32 = 1 << 31;
}

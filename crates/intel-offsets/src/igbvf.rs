//! Registers in the window of a virtual function of the 82576, from its datasheet (320961), §8.26.

offsets! {
    VTCTRL 0x0000 "Device control: RST is bit 26.";
    VTSTATUS 0x0008 "Device status: LU is bit 1.";
    VMBMEM 0x0800 "Mailbox memory, sixteen words.";
    V2PMAILBOX 0x0c40 "Mailbox control.";
    PBACL 0x0f04 "Pending messages, cleared.";
    PSRTYPE 0x0f0c "Where packets are split.";
    VFGPRC 0x0f10 "Good packets received.";
    VFGPTC 0x0f14 "Good packets sent.";
    VFGORC 0x0f18 "Good octets received.";
    VFGOTC 0x0f34 "Good octets sent.";
    VFMPRC 0x0f3c "Groups received.";
    VTFRTIMER 0x1048 "Free running timer, microseconds.";
    VTEICS 0x1520 "Causes, set.";
    VTEIMS 0x1524 "Causes that interrupt, set.";
    VTEIMC 0x1528 "Causes that interrupt, cleared.";
    VTEIAC 0x152c "Causes cleared by their message.";
    VTEIAM 0x1530 "Causes masked by their message.";
    VTEICR 0x1580 "Causes.";
    VTEITR 0x1680 "Least time between two interrupts, a register for each vector; microseconds from bit 2 on.";
    VTIVAR 0x1700 "Vectors of the queues.";
    VTIVAR_MISC 0x1740 "Vector of the mailbox.";
    RDBAL 0x2800 "Receive queue 0: base low, high, length, control, head, tail, enable.";
    RDBAH 0x2804 "High half of the base.";
    RDLEN 0x2808 "Bytes of the ring.";
    SRRCTL 0x280c "Split and replication control.";
    RDH 0x2810 "Head.";
    RDT 0x2818 "Tail.";
    RXDCTL 0x2828 "Enable is bit 25.";
    TDBAL 0x3800 "Transmit queue 0.";
    TDBAH 0x3804 "High half of the base.";
    TDLEN 0x3808 "Bytes of the ring.";
    TDH 0x3810 "Head.";
    TDT 0x3818 "Tail.";
    TXDCTL 0x3828 "Enable is bit 25.";
}

/// Bytes from a register of a queue to that of the next.
pub const QUEUE: u32 = 0x100;

/// Bits of V2PMAILBOX.
pub mod mailbox {
    /// There is a message.
    pub const REQ: u32 = 1 << 0;
    /// The other's message was read.
    pub const ACK: u32 = 1 << 1;
    /// The buffer is the VF's.
    pub const VFU: u32 = 1 << 2;
    /// The buffer is the PF's.
    pub const PFU: u32 = 1 << 3;
    /// The PF has written; cleared by reading.
    pub const PFSTS: u32 = 1 << 4;
    /// The PF has read; cleared by reading.
    pub const PFACK: u32 = 1 << 5;
    /// The PF is in reset.
    pub const RSTI: u32 = 1 << 6;
    /// The PF has come out of reset; cleared by reading.
    pub const RSTD: u32 = 1 << 7;
    /// In a message: done.
    pub const DONE: u32 = 0x8000_0000;
    /// In a message: refused.
    pub const REFUSED: u32 = 0x4000_0000;
    /// In a message: we may go on sending.
    pub const CTS: u32 = 0x2000_0000;
}

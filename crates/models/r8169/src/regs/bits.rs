//! Names for the bits that the model looks at. Where a register is a byte or a half of its word, the bits are those of
//! the register, and `SHIFT` says where it lies.

/// Commands of DTCCR (10h).
pub mod dtccr {
    pub const RESET: u32 = 1;
    pub const DUMP: u32 = 1 << 3;
    pub const COMMANDS: u32 = RESET | DUMP;
    /// The address, in units of 64 bytes.
    pub const ADDRESS: u64 = !0x3f;
}

/// CR (37h).
pub mod cr {
    pub const SHIFT: u32 = 24;
    pub const TE: u32 = 1 << 2;
    pub const RE: u32 = 1 << 3;
    pub const RST: u32 = 1 << 4;
    pub const STOP: u32 = 1 << 7;
}

/// TPPoll (38h).
pub mod poll {
    pub const SOFTWARE_INTERRUPT: u32 = 1;
    pub const NORMAL: u32 = 1 << 6;
    pub const HIGH: u32 = 1 << 7;
}

/// Interrupt causes (IMR and ISR).
pub mod cause {
    pub const ROK: u16 = 1;
    pub const RER: u16 = 1 << 1;
    pub const TOK: u16 = 1 << 2;
    pub const TER: u16 = 1 << 3;
    pub const RDU: u16 = 1 << 4;
    pub const LINK: u16 = 1 << 5;
    pub const TDU: u16 = 1 << 7;
    pub const SOFTWARE: u16 = 1 << 8;
    pub const TIMEOUT: u16 = 1 << 14;
    pub const SYSTEM_ERROR: u16 = 1 << 15;
    /// Those that there are.
    pub const ALL: u16 =
        ROK | RER | TOK | TER | RDU | LINK | 1 << 6 | TDU | SOFTWARE | TIMEOUT | SYSTEM_ERROR;
}

/// RCR (44h).
pub mod rcr {
    /// All frames to single stations.
    pub const AAP: u32 = 1;
    /// Frames to the own address.
    pub const APM: u32 = 1 << 1;
    /// Groups by their hash.
    pub const AM: u32 = 1 << 2;
    /// Broadcasts.
    pub const AB: u32 = 1 << 3;
}

/// EECR (50h).
pub mod eecr {
    pub const MODE: u32 = 0xc0;
    pub const UNLOCKED: u32 = 0xc0;
    pub const EEPROM: u32 = 0x80;
    pub const AUTO_LOAD: u32 = 0x40;
    pub const CS: u32 = 1 << 3;
    pub const SK: u32 = 1 << 2;
    pub const DI: u32 = 1 << 1;
    pub const DO: u32 = 1;
    pub const PINS: u32 = CS | SK | DI;
}

/// CONFIG3 (54h).
pub mod config3 {
    pub const LINK_UP: u32 = 1 << 4;
    pub const MAGIC: u32 = 1 << 5;
}

/// CONFIG5 (56h).
pub mod config5 {
    pub const STATION: u32 = 1 << 4;
    pub const MULTICAST: u32 = 1 << 5;
    pub const BROADCAST: u32 = 1 << 6;
}

/// What words of the 8168H show beside what is written: FIFOs are empty (TCR, D3h), the list of their links is ready (D3h).
pub mod ready {
    pub const TCR: u32 = 1 << 11;
    pub const MCU: u32 = 0x3200_0000;
}

/// FUNC_EVENT (F0h) of the 8168H.
pub mod misc {
    /// The receiver is closed.
    pub const RXDV_GATE: u32 = 1 << 19;
}

/// The address in OCPDR and GPHY_OCP.
pub mod ocp {
    pub const ADDRESS_SHIFT: u32 = 15;
    pub const ADDRESS: u32 = 0xfffe;
}

/// ERIAR.
pub mod eri {
    pub const ADDRESS: u32 = 0xffc;
    /// Which bytes.
    pub const LANES_SHIFT: u32 = 12;
    /// Which space; 0 is the MAC's. Drivers of the 8168H use no other.
    pub const SPACE: u32 = 0x00ff_0000;
}

/// The command bit of PHYAR, OCPDR, GPHY_OCP, CSIAR, ERIAR, EPHYAR and EFUSEAR: written 1 for a write, which clears it, and 0
/// for a read, which sets it.
pub const FLAG: u32 = 1 << 31;

/// PHYAR and EPHYAR.
pub mod mii {
    pub const REGISTER_SHIFT: u32 = 16;
    pub const REGISTER: u32 = 0x1f;
    pub const DATA: u32 = 0xffff;
}

/// PHYStatus (6Ch).
pub mod phy_status {
    pub const FULL_DUPLEX: u32 = 1;
    pub const LINK: u32 = 1 << 1;
    pub const M10: u32 = 1 << 2;
    pub const M100: u32 = 1 << 3;
    pub const M1000: u32 = 1 << 4;
}

/// CPlusCmd (E0h).
pub mod cpcr {
    /// The scale of IntrMitigate.
    pub const SCALE: u32 = 3;
    pub const RX_CHECKSUM: u32 = 1 << 5;
    pub const RX_VLAN: u32 = 1 << 6;
}

/// IntrMitigate (E2h).
pub mod mitigate {
    pub const SHIFT: u32 = 16;
    /// Frames per unit.
    pub const FRAMES: u32 = 4;
}

/// The first word of a descriptor, both ways.
pub mod desc {
    pub const OWN: u32 = 1 << 31;
    pub const EOR: u32 = 1 << 30;
    pub const FS: u32 = 1 << 29;
    pub const LS: u32 = 1 << 28;
}

/// Transmit descriptors.
pub mod tx {
    pub const LENGTH: u32 = 0xffff;
    /// Segmentation as FreeBSD asks for it: the headers say of what.
    pub const LARGE: u32 = 1 << 27;
    pub const LARGE_V4: u32 = 1 << 26;
    pub const LARGE_V6: u32 = 1 << 25;
    /// Second word, without segmentation: checksums.
    pub const UDP: u32 = 1 << 31;
    pub const TCP: u32 = 1 << 30;
    pub const IPV4: u32 = 1 << 29;
    /// Second word, with segmentation: MSS.
    pub const MSS_SHIFT: u32 = 18;
    pub const MSS: u32 = 0x7ff;
    /// Second word: a tag, its bytes swapped.
    pub const TAG: u32 = 1 << 17;

    /// Version 1, first word.
    pub mod v1 {
        pub const MSS_SHIFT: u32 = 16;
        pub const IPV4: u32 = 1 << 18;
        pub const UDP: u32 = 1 << 17;
        pub const TCP: u32 = 1 << 16;
    }
}

/// Receive descriptors.
pub mod rx {
    /// Bytes of the buffer, or of the frame.
    pub const LENGTH: u32 = 0x3fff;
    pub const MULTICAST: u32 = 1 << 27;
    pub const STATION: u32 = 1 << 26;
    pub const BROADCAST: u32 = 1 << 25;
    pub const ERROR: u32 = 1 << 21;
    pub const UDP: u32 = 1 << 18;
    pub const TCP: u32 = 1 << 17;
    pub const IP: u32 = UDP | TCP;
    pub const IP_FAIL: u32 = 1 << 16;
    pub const UDP_FAIL: u32 = 1 << 15;
    pub const TCP_FAIL: u32 = 1 << 14;
    /// Second word: a tag was taken out, its bytes swapped.
    pub const TAG: u32 = 1 << 16;
    /// Second word: which IP.
    pub const V4: u32 = 1 << 30;
    pub const V6: u32 = 1 << 31;
}

//! Bits of registers that mean the same in all chips: sections of the 8254x manual, then of the 82576 datasheet.

/// Device Control (§13.4.1, §8.2.1).
pub mod ctrl {
    /// Full duplex, where it is forced.
    pub const FD: u32 = 1;
    /// The link is set up.
    pub const SLU: u32 = 1 << 6;
    /// The speed, where it is forced: as STATUS.SPEED.
    pub const SPD_SHIFT: u32 = 8;
    /// Its two bits, behind the shift.
    pub const SPD: u32 = 3;
    /// The speed is forced.
    pub const FRCSPD: u32 = 1 << 11;
    /// Duplex is forced.
    pub const FRCDPX: u32 = 1 << 12;
    /// Reset.
    pub const RST: u32 = 1 << 26;
    /// VLAN tags are stripped and inserted.
    pub const VME: u32 = 1 << 30;
    /// The PHY is reset.
    pub const PHY_RST: u32 = 1 << 31;
}

/// Device Status (§13.4.2, §8.2.2).
pub mod status {
    /// Full duplex.
    pub const FD: u32 = 1;
    /// The link is up.
    pub const LU: u32 = 1 << 1;
    /// The partner's pause frames stop the transmitter.
    pub const TXOFF: u32 = 1 << 4;
    /// 10, 100 or 1000 Mbit/s: 0, 1, 2.
    pub const SPEED_SHIFT: u32 = 6;
    /// Its two bits, behind the shift.
    pub const SPEED: u32 = 3;
    /// The same as it was detected.
    pub const ASDV_SHIFT: u32 = 8;
}

/// Extended Device Control (§13.4.6, §8.2.3).
pub mod ctrl_ext {
    /// The EEPROM is loaded again.
    pub const EE_RST: u32 = 1 << 13;
}

/// EEPROM/Flash Control (§13.4.3, §8.4.1).
pub mod eecd {
    /// The clock.
    pub const SK: u32 = 1;
    /// The level of the wire that selects.
    pub const CS: u32 = 1 << 1;
    /// To the EEPROM.
    pub const DI: u32 = 1 << 2;
    /// From the EEPROM.
    pub const DO: u32 = 1 << 3;
    /// Software wants the wires,
    pub const REQ: u32 = 1 << 6;
    /// and has them.
    pub const GNT: u32 = 1 << 7;
    /// There is an EEPROM.
    pub const PRES: u32 = 1 << 8;
}

/// Interrupt Cause, and the registers with the same bits (§13.4.17, §8.8.7).
pub mod cause {
    /// A transmit descriptor that asked for a report has one.
    pub const TXDW: u32 = 1;
    /// The link has come or gone.
    pub const LSC: u32 = 1 << 2;
    /// Few receive descriptors are left.
    pub const RXDMT0: u32 = 1 << 4;
    /// Frames were missed.
    pub const RXO: u32 = 1 << 6;
    /// Frames were received: the receive timer of the one manual, RXDW of the other.
    pub const RXT0: u32 = 1 << 7;
    /// A command to the PHY is done.
    pub const MDAC: u32 = 1 << 9;
}

/// Receive Control (§13.4.22, §8.10.1).
pub mod rctl {
    /// All that is for one station.
    pub const UPE: u32 = 1 << 3;
    /// All that is for a group.
    pub const MPE: u32 = 1 << 4;
    /// Which 12 bits of a group's address index the multicast table.
    pub const MO_SHIFT: u32 = 12;
    /// Broadcasts.
    pub const BAM: u32 = 1 << 15;
    /// Tags are filtered by VFTA.
    pub const VFE: u32 = 1 << 18;
    /// And by their CFI bit,
    pub const CFIEN: u32 = 1 << 19;
    /// which is to be this.
    pub const CFI: u32 = 1 << 20;
    /// The receiver is on.
    pub const EN: u32 = 1 << 1;
    /// Bad frames are stored too.
    pub const SBP: u32 = 1 << 2;
    /// Long frames are let in.
    pub const LPE: u32 = 1 << 5;
    /// Loopback.
    pub const LBM: u32 = 3 << 6;
    /// Bytes of a packet buffer: 2048, 1024, 512, 256.
    pub const BSIZE_SHIFT: u32 = 16;
    /// Its two bits, behind the shift.
    pub const BSIZE: u32 = 3;
    /// The FCS is stripped.
    pub const SECRC: u32 = 1 << 26;
}

/// Receive Checksum Control (§13.4.47, §8.10.14).
pub mod rxcsum {
    /// The first byte that the packet checksum covers.
    pub const PCSS: u32 = 0xff;
    /// IPv4's checksum is looked at.
    pub const IPOFL: u32 = 1 << 8;
    /// Those of TCP and UDP are.
    pub const TUOFL: u32 = 1 << 9;
}

/// Transmit Control (§13.4.33, §8.12.1).
pub mod tctl {
    /// The transmitter is on.
    pub const EN: u32 = 1 << 1;
    /// Short packets are padded.
    pub const PSP: u32 = 1 << 3;
    /// Send a pause frame.
    pub const SWXOFF: u32 = 1 << 22;
}

/// Receive Address High (§13.5.3, §8.10.19).
pub mod rah {
    /// The last two bytes of the address.
    pub const ADDRESS: u32 = 0xffff;
    /// The entry is valid.
    pub const AV: u32 = 1 << 31;
}

/// Software Semaphore (driver `e1000_hw.c`, `e1000_get_software_semaphore`; §8.7.1).
pub mod swsm {
    /// Taken by reading it 0.
    pub const SMBI: u32 = 1;
}

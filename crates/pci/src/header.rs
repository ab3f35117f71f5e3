//! The type 0 header: offsets and bits (PCI Local Bus 3.0 §6.1).

/// Offsets of the type 0 header (PCI Local Bus 3.0 figure 6-1).
pub mod offset {
    /// Vendor id, 16 bits.
    pub const VENDOR: usize = 0x00;
    /// Device id, 16 bits.
    pub const DEVICE: usize = 0x02;
    /// Command register, 16 bits (§6.2.2).
    pub const COMMAND: usize = 0x04;
    /// Status register, 16 bits (§6.2.3).
    pub const STATUS: usize = 0x06;
    /// Revision id, 8 bits.
    pub const REVISION: usize = 0x08;
    /// Class code, 24 bits: interface, subclass, class.
    pub const CLASS: usize = 0x09;
    /// First base address register; six of 32 bits follow each other.
    pub const BAR0: usize = 0x10;
    /// Subsystem vendor id, 16 bits.
    pub const SUBSYSTEM_VENDOR: usize = 0x2c;
    /// Subsystem id, 16 bits.
    pub const SUBSYSTEM: usize = 0x2e;
    /// Expansion ROM base address, 32 bits (§6.2.5.2).
    pub const ROM: usize = 0x30;
    /// First capability, 8 bits.
    pub const CAPABILITIES: usize = 0x34;
    /// Interrupt line, 8 bits, software's scratch.
    pub const INTERRUPT_LINE: usize = 0x3c;
    /// Interrupt pin, 8 bits: 0 none, 1 INTA#.
    pub const INTERRUPT_PIN: usize = 0x3d;
}

/// Bits of the command register (PCI Local Bus 3.0 §6.2.2).
pub mod command {
    /// The device answers I/O accesses.
    pub const IO: u16 = 1 << 0;
    /// The device answers memory accesses.
    pub const MEMORY: u16 = 1 << 1;
    /// The device may master the bus.
    pub const MASTER: u16 = 1 << 2;
    /// The device must not assert INTx#.
    pub const INTX_DISABLE: u16 = 1 << 10;
}

/// Bits of the status register (PCI Local Bus 3.0 §6.2.3).
pub mod status {
    /// INTx# is pending inside the device, whatever the command register allows.
    pub const INTERRUPT: u16 = 1 << 3;
    /// The device has a capability list.
    pub const CAPABILITIES: u16 = 1 << 4;
    /// The error bits that a written one clears.
    pub const ERRORS: u16 = 0xf900;
}

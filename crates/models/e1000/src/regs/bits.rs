//! Names for the bits that the model looks at (manual §13.4, §3.2, §3.3).

pub use intel::bits::{ctrl, ctrl_ext, eecd, rxcsum, swsm, tctl};

/// Device Status (§13.4.2).
pub mod status {
    pub use intel::bits::status::*;

    pub const MTXCKOK: u32 = 1 << 10;
}

/// Interrupt causes (§13.4.17).
pub mod cause {
    pub use intel::bits::cause::*;

    pub const TXQE: u32 = 1 << 1;
    pub const PHYINT: u32 = 1 << 12;
    pub const TXD_LOW: u32 = 1 << 15;
    pub const SRPD: u32 = 1 << 16;
    /// Every bit that ICS can set: 0 to 16, reserved ones included (the drivers' self-test sets
    /// bits 5 and 8 and wants to see them).
    pub const ALL: u32 = 0x0001_ffff;
}

/// Receive Control (§13.4.22).
pub mod rctl {
    pub use intel::bits::rctl::*;

    pub const RDMTS_SHIFT: u32 = 8;
    /// Its two bits, behind the shift: a half, a quarter, an eighth of the ring.
    pub const RDMTS: u32 = 3;
    pub const BSEX: u32 = 1 << 25;
}

/// Status bits of a receive descriptor beside DD (manual §3.2.3.1).
pub mod rx_status {
    pub const EOP: u8 = 1 << 1;
    pub const IXSM: u8 = 1 << 2;
    pub const VP: u8 = 1 << 3;
    pub const PIF: u8 = 1 << 7;
}

/// Error bits of a receive descriptor (manual §3.2.3.2).
pub mod rx_error {
    pub const RXE: u8 = 1 << 7;
}

/// Receive Delay Timer (§13.4.30).
pub mod rdtr {
    /// Flush partial descriptor block, which fires the timer now.
    pub const FPD: u32 = 1 << 31;
}

/// Transmit Descriptor Control (§13.4.43).
pub mod txdctl {
    /// Descriptors left, in units, at which an interrupt says so.
    pub const LWTHRESH_SHIFT: u32 = 25;
    pub const LWTHRESH_UNIT: u32 = 8;
}

/// Packet Buffer Allocation (§13.4.16): KiB of the receiver; the transmitter has the rest.
pub mod pba {
    pub const RXA: u32 = 0xffff;
    pub const TXA_SHIFT: u32 = 16;
    pub const BOTH: u32 = 64;
}

/// EERD (manual §13.4.4).
pub mod eerd {
    pub const START: u32 = 1;
    pub const DONE: u32 = 1 << 4;
    pub const ADDRESS: u32 = 0xff00;
    pub const ADDRESS_SHIFT: u32 = 8;
    pub const DATA_SHIFT: u32 = 16;
}

/// FCRTL and FCRTH (manual §13.4.23, §13.4.24).
pub mod fcrtl {
    pub const XONE: u32 = 1 << 31;
    /// Bytes, in eights.
    pub const THRESHOLD: u32 = 0xfff8;
}

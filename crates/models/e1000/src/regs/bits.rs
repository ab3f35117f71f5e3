//! Names for the bits that the model looks at (manual §13.4, §3.2, §3.3).

pub mod ctrl {
    pub const FD: u32 = 1;
    pub const SLU: u32 = 1 << 6;
    pub const SPD_SHIFT: u32 = 8;
    pub const FRCSPD: u32 = 1 << 11;
    pub const FRCDPX: u32 = 1 << 12;
    pub const RST: u32 = 1 << 26;
    pub const VME: u32 = 1 << 30;
    pub const PHY_RST: u32 = 1 << 31;
}

pub mod ctrl_ext {
    pub const EE_RST: u32 = 1 << 13;
}

pub mod status {
    pub const FD: u32 = 1;
    pub const LU: u32 = 1 << 1;
    pub const TXOFF: u32 = 1 << 4;
    pub const SPEED_SHIFT: u32 = 6;
    pub const ASDV_SHIFT: u32 = 8;
    pub const MTXCKOK: u32 = 1 << 10;
}

/// Interrupt causes.
pub mod cause {
    pub const TXDW: u32 = 1;
    pub const TXQE: u32 = 1 << 1;
    pub const LSC: u32 = 1 << 2;
    pub const RXDMT0: u32 = 1 << 4;
    pub const RXO: u32 = 1 << 6;
    pub const RXT0: u32 = 1 << 7;
    pub const MDAC: u32 = 1 << 9;
    pub const PHYINT: u32 = 1 << 12;
    pub const TXD_LOW: u32 = 1 << 15;
    pub const SRPD: u32 = 1 << 16;
    /// Every bit that ICS can set: 0 to 16, reserved ones included (the drivers' self-test sets
    /// bits 5 and 8 and wants to see them).
    pub const ALL: u32 = 0x0001_ffff;
}

pub mod rctl {
    pub use intel::filter::rctl::*;

    pub const EN: u32 = 1 << 1;
    pub const SBP: u32 = 1 << 2;
    pub const LPE: u32 = 1 << 5;
    pub const LBM: u32 = 3 << 6;
    pub const RDMTS_SHIFT: u32 = 8;
    pub const BSIZE_SHIFT: u32 = 16;
    pub const BSEX: u32 = 1 << 25;
    pub const SECRC: u32 = 1 << 26;
}

pub mod rxcsum {
    pub const PCSS: u32 = 0xff;
    pub const IPOFL: u32 = 1 << 8;
    pub const TUOFL: u32 = 1 << 9;
}

pub mod tctl {
    pub const EN: u32 = 1 << 1;
    pub const PSP: u32 = 1 << 3;
    pub const SWXOFF: u32 = 1 << 22;
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

/// RDTR.FPD: flush partial descriptor block, which fires the timer now.
pub const RDTR_FPD: u32 = 1 << 31;
/// RAH.AV: the entry is valid.
pub const RAH_AV: u32 = 1 << 31;
/// SWSM.SMBI: the software semaphore, taken by reading it 0.
pub const SWSM_SMBI: u32 = 1;

/// EECD (manual §13.4.3).
pub(crate) mod eecd {
    pub const SK: u32 = 1;
    pub const CS: u32 = 1 << 1;
    pub const DI: u32 = 1 << 2;
    pub const DO: u32 = 1 << 3;
    pub const REQ: u32 = 1 << 6;
    pub const GNT: u32 = 1 << 7;
    pub const PRES: u32 = 1 << 8;
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

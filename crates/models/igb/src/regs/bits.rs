//! Names for the bits that the register side looks at (§8.2 to §8.10).

pub mod ctrl {
    pub const FD: u32 = 1;
    /// No new requests on the bus.
    pub const GIO_MASTER_DISABLE: u32 = 1 << 2;
    pub const SLU: u32 = 1 << 6;
    pub const SPD_SHIFT: u32 = 8;
    pub const FRCSPD: u32 = 1 << 11;
    pub const FRCDPX: u32 = 1 << 12;
    pub const RST: u32 = 1 << 26;
    pub const PHY_RST: u32 = 1 << 31;
}

pub mod ctrl_ext {
    pub const EE_RST: u32 = 1 << 13;
    /// The speed is what CTRL says, whatever was detected.
    pub const SPD_BYPS: u32 = 1 << 15;
    /// Written: the PF has come out of reset, and its VFs may go on.
    pub const PFRSTD: u32 = 1 << 14;
}

pub mod status {
    pub const FD: u32 = 1;
    pub const LU: u32 = 1 << 1;
    /// The transmitter is silent at the partner's wish.
    pub const TXOFF: u32 = 1 << 4;
    pub const SPEED_SHIFT: u32 = 6;
    pub const ASDV_SHIFT: u32 = 8;
    /// The PHY was reset; cleared by writing 0.
    pub const PHYRA: u32 = 1 << 10;
    /// Virtual functions that SR-IOV's registers have enabled, and that they have.
    pub const NUM_VFS_SHIFT: u32 = 14;
    pub const IOV_MODE: u32 = 1 << 18;
    pub const GIO_MASTER_ENABLE: u32 = 1 << 19;
}

pub mod eitr {
    /// Immediate interrupts that the vector may still raise beside its gap.
    pub const CREDITS_SHIFT: u32 = 16;
    /// Written: the counters stay as they are.
    pub const CNT_INGR: u32 = 1 << 31;
}

pub mod rctl {
    pub const EN: u32 = 1 << 1;
    pub const LBM: u32 = 3 << 6;
}

/// TCTL.SWXOFF: send a pause frame.
pub const TCTL_SWXOFF: u32 = 1 << 22;
/// SWSM.SMBI: the software semaphore, taken by reading it 0.
pub const SWSM_SMBI: u32 = 1;
/// RAH.AV: the entry is valid.
pub const RAH_AV: u32 = 1 << 31;

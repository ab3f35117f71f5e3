//! Tests that hold for every model with the registers that they name. Each takes a type that says how this
//! chip differs; a model's test of the same name runs it.

pub mod pause;
pub mod wake;

/// Registers that the scripts use, at the same offset in each of these chips.
mod reg {
    pub const CTRL: u64 = 0x0;
    pub const STATUS: u64 = 0x8;
    pub const FCTTV: u64 = 0x170;
    pub const TCTL: u64 = 0x400;
    pub const XONRXC: u64 = 0x4048;
    pub const XONTXC: u64 = 0x404c;
    pub const XOFFRXC: u64 = 0x4050;
    pub const XOFFTXC: u64 = 0x4054;
    pub const FCRUC: u64 = 0x4058;
    pub const GPRC: u64 = 0x4074;
    pub const GPTC: u64 = 0x4080;
    pub const TPR: u64 = 0x40d0;
    pub const TPT: u64 = 0x40d4;
    pub const MTA: u64 = 0x5200;
    pub const WUC: u64 = 0x5800;
    pub const WUFC: u64 = 0x5808;
    pub const WUS: u64 = 0x5810;
    pub const IPAV: u64 = 0x5838;
    pub const IP4AT: u64 = 0x5840;
    pub const IP6AT: u64 = 0x5880;
    pub const WUPL: u64 = 0x5900;
    pub const WUPM: u64 = 0x5a00;
}

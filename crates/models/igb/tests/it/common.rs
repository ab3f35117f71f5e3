//! A guest, a wire and a clock for the physical function, all fake.

use hypernic_igb::{Config, pf};
use model::PciState;

pub use model_testkit::packet::{MAC, PEER, control, pause, plain};
pub use model_testkit::{Machine, Wire, memory};

pub mod reg {
    pub const CTRL: u64 = 0x0;
    pub const STATUS: u64 = 0x8;
    pub const EECD: u64 = 0x10;
    pub const EERD: u64 = 0x14;
    pub const MDIC: u64 = 0x20;
    pub const RCTL: u64 = 0x100;
    pub const TCTL: u64 = 0x400;
    pub const EEMNGCTL: u64 = 0x1010;
    pub const ICR: u64 = 0x1500;
    pub const ICS: u64 = 0x1504;
    pub const IMS: u64 = 0x1508;
    pub const IMC: u64 = 0x150c;
    pub const IAM: u64 = 0x1510;
    pub const GPIE: u64 = 0x1514;
    pub const EICS: u64 = 0x1520;
    pub const EIMS: u64 = 0x1524;
    pub const EIMC: u64 = 0x1528;
    pub const EIAC: u64 = 0x152c;
    pub const EIAM: u64 = 0x1530;
    pub const EICR: u64 = 0x1580;
    pub const EITR: u64 = 0x1680;
    pub const IVAR: u64 = 0x1700;
    pub const IVAR_MISC: u64 = 0x1740;
    pub const RAL: u64 = 0x5400;
    pub const RAH: u64 = 0x5404;
    pub const SWSM: u64 = 0x5b50;
    pub const SW_FW_SYNC: u64 = 0x5b5c;
    pub const RXDCTL: u64 = 0xc028;
    pub const TXDCTL: u64 = 0xe028;
    pub const SYSTIML: u64 = 0xb600;
    pub const SYSTIMH: u64 = 0xb604;
    pub const TIMINCA: u64 = 0xb608;
}

/// A guest of a physical function. The machine is of every model.
pub trait MachineExt: Sized {
    fn new(config: &Config) -> Self;
    fn default() -> Self;
    /// With bus mastering on, and MSI or MSI-X if asked for.
    fn pci(&mut self, msi: bool, msix: bool);
    fn eerd(&mut self, word: u32) -> u16;
    fn phy(&mut self, register: u32) -> u16;
}

impl MachineExt for Machine {
    fn new(config: &Config) -> Self {
        let memory = guest_mem::Memory::default();
        Self::of(pf(config), memory, Wire::default(), 10_000_000_000)
    }

    fn default() -> Self {
        Self::new(&Config::new(MAC))
    }

    fn pci(&mut self, msi: bool, msix: bool) {
        self.set_pci(PciState {
            bus_master: true,
            msi,
            msix,
            ..PciState::default()
        });
    }

    fn eerd(&mut self, word: u32) -> u16 {
        self.w(reg::EERD, word << 2 | 1);
        let value = self.r(reg::EERD);
        assert_eq!(value & 2, 2, "done");
        (value >> 16) as u16
    }

    fn phy(&mut self, register: u32) -> u16 {
        self.w(reg::MDIC, 2 << 26 | 1 << 21 | register << 16);
        let value = self.r(reg::MDIC);
        assert_eq!(value & 5 << 28, 1 << 28, "ready, without error");
        value as u16
    }
}

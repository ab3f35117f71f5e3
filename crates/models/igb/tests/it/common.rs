//! A guest, a wire and a clock for the physical function, all fake.

use hypernic_igb::{Config, pf};
use model::PciState;

pub use model_testkit::packet::{MAC, PEER, control, pause, plain};
pub use model_testkit::{Machine, Wire, a_look_is_a_read_without_effect, memory, peeked};

pub use intel_offsets::igb::long as reg;

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

//! The chips of the family that can be chosen, and all in which they differ here.

use std::time::Duration;

use model::{Bar, Identity, Space};

use crate::regs;

/// BAR of the registers.
pub const BAR_MMIO: u8 = 0;
/// BAR of the I/O window of the 82540EM and 82544GC. The manual has it at 2 or 4; 1 is where most guests have met it, and
/// drivers look for the first I/O BAR whatever its index.
pub const BAR_IO: u8 = 1;
/// Bytes of the I/O window.
const IO_SIZE: u64 = 64;

/// Which chip of the 8254x family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// 82540EM, 8086:100e: the one that every hypervisor has.
    #[default]
    I82540Em,
    /// 82545EM, 8086:100f: a 64-bit device on a PCI-X bus (STATUS.PCIX_MODE), which drivers let
    /// reach memory above 4 GiB; its registers are a 64-bit BAR.
    I82545Em,
    /// 82544GC, 8086:100c: an older chip with the PHY 88E1000 revision 3 (id 0x01410C3x), whose
    /// driver reloads the EEPROM through CTRL_EXT.EE_RST and selects it without asking.
    I82544Gc,
}

/// STATUS bits that tell of the bus (manual §13.4.2).
mod bus {
    pub const WIDE: u32 = 1 << 12;
    pub const PCIX: u32 = 1 << 13;
    /// 100 to 133 MHz.
    pub const PCIX_133: u32 = 2 << 14;
}

impl Variant {
    /// As users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::I82540Em => "e1000",
            Variant::I82545Em => "82545em",
            Variant::I82544Gc => "82544gc",
        }
    }

    /// PCI device id.
    pub const fn device(self) -> u16 {
        match self {
            Variant::I82540Em => 0x100e,
            Variant::I82545Em => 0x100f,
            Variant::I82544Gc => 0x100c,
        }
    }

    /// PCI subsystem id, below Intel's vendor id.
    pub(crate) const fn subsystem(self) -> u16 {
        match self {
            Variant::I82540Em => 0x001e,
            Variant::I82545Em => 0x1001,
            Variant::I82544Gc => 0x110c,
        }
    }

    /// How long auto-negotiation takes unless said otherwise: less than on any wire, so that no guest waits
    /// for it. iPXE looks after 20 ms. Linux puts the PHY to sleep before its register test and so has no
    /// link come up in it, but on chips before the 82540 (driver `e1000_power_down_phy`): that test
    /// must be over before the link is there, as it is on a wire.
    pub(crate) const fn negotiation(self) -> Duration {
        Duration::from_millis(match self {
            Variant::I82544Gc => 500,
            _ => 10,
        })
    }

    /// Which BAR the I/O window is: behind a 64-bit register BAR and a flash BAR of as many bits it
    /// is the fifth (manual §4.1).
    pub(crate) const fn io_bar(self) -> u8 {
        match self {
            Variant::I82545Em => 4,
            _ => BAR_IO,
        }
    }

    /// What STATUS tells of the bus.
    pub(crate) const fn bus_status(self) -> u32 {
        match self {
            Variant::I82545Em => bus::WIDE | bus::PCIX | bus::PCIX_133,
            _ => 0,
        }
    }

    /// Its PHY, by the low half of the id, revision 0 (driver `e1000_hw.h`, `M88E1011_I_PHY_ID`,
    /// `M88E1000_I_PHY_ID`).
    pub(crate) const fn phy(self) -> intel::phy::PhyModel {
        let id = match self {
            Variant::I82544Gc => 0x0c30,
            _ => 0x0c20,
        };
        intel::phy::PhyModel::M88 { id }
    }

    /// The EEPROM word and bit that enable wake-up by magic packet from power-up on (driver
    /// `e1000_main.c`, `EEPROM_82544_APM` and `EEPROM_APME`).
    pub(crate) const fn apm(self) -> (usize, u16) {
        match self {
            Variant::I82544Gc => (0x0f, 0x0004),
            _ => (0x24, 0x0400),
        }
    }

    /// What the bus scan finds (manual §4.1).
    pub fn identity(self) -> Identity {
        let bar = |index, space, size| Bar { index, space, size };
        let registers = match self {
            Variant::I82545Em => Space::Memory64,
            _ => Space::Memory32,
        };
        Identity {
            model: self.name(),
            vendor: 0x8086,
            device: self.device(),
            subsystem_vendor: 0x8086,
            subsystem: self.subsystem(),
            revision: match self {
                Variant::I82540Em => 3,
                Variant::I82545Em => 1,
                Variant::I82544Gc => 2,
            },
            class: [0x02, 0x00, 0x00],
            bars: vec![
                bar(BAR_MMIO, registers, regs::WINDOW.into()),
                bar(self.io_bar(), Space::Io, IO_SIZE),
            ],
            intx: true,
            msi: 1,
            pm: true,
            pme: 0b1_1001, // D0, D3 hot, D3 cold
            ..Identity::default()
        }
    }
}

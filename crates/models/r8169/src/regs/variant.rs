//! The chips of the family that can be chosen, and all in which they differ here.

use model::{Bar, Identity, Msix, Places, Space};

use crate::regs::WINDOW;

/// The I/O window of the registers.
pub const BAR_IO: u8 = 0;
/// The memory window of the registers. It is 64 bits wide.
pub const BAR_MMIO: u8 = 2;
/// The MSI-X table, where FreeBSD wants it.
const BAR_MSIX: u8 = 4;

const REALTEK: u16 = 0x10ec;
const RTL8168: u16 = 0x8168;
const RTL8169: u16 = 0x8169;
/// The states from which PME can be asserted: D0, D3 hot, D3 cold.
const PME: u8 = 0b1_1001;

/// Which chip of the family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// RTL8168C, XID 3C4h: needs no firmware, and every driver of the family has it.
    #[default]
    Rtl8168C,
    /// RTL8168H, XID 541h: MAC and PHY behind OCP, as drivers of newer chips want it (DPDK's has no older ones).
    Rtl8168H,
    /// RTL8169S, XID 008h, on a PCI bus: descriptors of version 1, INTx, 32-bit addresses.
    Rtl8169S,
}

impl Variant {
    /// As users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Rtl8168C => "r8168",
            Variant::Rtl8168H => "r8168h",
            Variant::Rtl8169S => "r8169s",
        }
    }

    /// What TCR shows of the chip in its upper bits.
    pub const fn xid(self) -> u16 {
        match self {
            Variant::Rtl8168C => 0x3c4,
            Variant::Rtl8168H => 0x541,
            Variant::Rtl8169S => 0x008,
        }
    }

    /// Whether MAC and PHY are reached through OCP, and ERI keeps what is written.
    pub(crate) const fn has_ocp(self) -> bool {
        matches!(self, Variant::Rtl8168H)
    }

    /// Whether descriptors are of version 1, the hash is in its first order, and times are those of a PCI bus.
    pub(crate) const fn is_first(self) -> bool {
        matches!(self, Variant::Rtl8169S)
    }

    /// Whether the last descriptor of a received frame says how long all of it is, and not how much is in it. Drivers differ, and
    /// no data sheet of a newer chip was read: FreeBSD's takes the first from older chips, DPDK's the other from newer ones.
    pub(crate) const fn last_says_all(self) -> bool {
        !self.has_ocp()
    }

    /// Which BAR the memory window of the registers is.
    pub const fn mmio_bar(self) -> u8 {
        match self {
            Variant::Rtl8169S => 1,
            _ => BAR_MMIO,
        }
    }

    /// The lower half of the PHY's id: an RTL8211B, or the one that is part of newer or of older chips.
    pub(crate) const fn phy(self) -> u16 {
        match self {
            Variant::Rtl8168C => 0xc912,
            Variant::Rtl8168H => 0xc800,
            Variant::Rtl8169S => 0xc910,
        }
    }

    /// What the bus scan finds.
    pub fn identity(self) -> Identity {
        let device = if self.is_first() { RTL8169 } else { RTL8168 };
        let common = Identity {
            model: self.name(),
            vendor: REALTEK,
            device,
            subsystem_vendor: REALTEK,
            subsystem: device,
            revision: match self {
                Variant::Rtl8168C => 2,
                Variant::Rtl8168H => 0x15,
                Variant::Rtl8169S => 0x10,
            },
            class: [2, 0, 0],
            intx: true,
            pm: true,
            pme: PME,
            ..Identity::default()
        };
        let io = Bar {
            index: BAR_IO,
            space: Space::Io,
            size: WINDOW.into(),
        };
        if self.is_first() {
            let memory = Bar {
                index: self.mmio_bar(),
                space: Space::Memory32,
                size: WINDOW.into(),
            };
            let places = Places {
                pm: 0xdc,
                ..Places::default()
            };
            return Identity {
                bars: vec![io, memory],
                places,
                ..common
            };
        }
        let memory = |index| Bar {
            index,
            space: Space::Memory64,
            size: 0x1000,
        };
        Identity {
            bars: vec![io, memory(BAR_MMIO), memory(BAR_MSIX)],
            msi: 1,
            msix: Some(Msix {
                vectors: 2,
                table_bar: BAR_MSIX,
                table_offset: 0,
                pba_bar: BAR_MSIX,
                pba_offset: 0x800,
            }),
            pcie: true,
            places: Places {
                pm: 0x40,
                msi: 0x50,
                pcie: 0x70,
                msix: 0xb0,
            },
            ..common
        }
    }
}

//! The chips of the family that can be chosen, and all in which they differ here.

use model::{Bar, Identity, Msix, Places, Space};

/// The I/O window of the registers.
pub const BAR_IO: u8 = 0;
/// The memory window of the registers. It is 64 bits wide.
pub const BAR_MMIO: u8 = 2;
/// The MSI-X table, where FreeBSD wants it.
const BAR_MSIX: u8 = 4;

const REALTEK: u16 = 0x10ec;
const RTL8168: u16 = 0x8168;
/// The states from which PME can be asserted: D0, D3 hot, D3 cold.
const PME: u8 = 0b1_1001;

/// Which chip of the RTL8168 family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// RTL8168C, XID 3C4h: needs no firmware, and every driver of the family has it.
    #[default]
    Rtl8168C,
    /// RTL8168H, XID 541h: MAC and PHY behind OCP, as drivers of newer chips want it (DPDK's has no older ones).
    Rtl8168H,
}

impl Variant {
    /// As users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Rtl8168C => "r8168",
            Variant::Rtl8168H => "r8168h",
        }
    }

    /// What TCR shows of the chip in its upper bits.
    pub const fn xid(self) -> u16 {
        match self {
            Variant::Rtl8168C => 0x3c4,
            Variant::Rtl8168H => 0x541,
        }
    }

    /// Whether MAC and PHY are reached through OCP, and ERI keeps what is written.
    pub(crate) const fn has_ocp(self) -> bool {
        matches!(self, Variant::Rtl8168H)
    }

    /// The lower half of the PHY's id: an RTL8211B, or the one that is part of newer chips.
    pub(crate) const fn phy(self) -> u16 {
        match self {
            Variant::Rtl8168C => 0xc912,
            Variant::Rtl8168H => 0xc800,
        }
    }

    /// What the bus scan finds.
    pub fn identity(self) -> Identity {
        let memory = |index| Bar {
            index,
            space: Space::Memory64,
            size: 0x1000,
        };
        Identity {
            model: self.name(),
            vendor: REALTEK,
            device: RTL8168,
            subsystem_vendor: REALTEK,
            subsystem: RTL8168,
            revision: match self {
                Variant::Rtl8168C => 2,
                Variant::Rtl8168H => 0x15,
            },
            class: [2, 0, 0],
            bars: vec![
                Bar {
                    index: BAR_IO,
                    space: Space::Io,
                    size: crate::regs::WINDOW.into(),
                },
                memory(BAR_MMIO),
                memory(BAR_MSIX),
            ],
            intx: true,
            msi: 1,
            msix: Some(Msix {
                vectors: 2,
                table_bar: BAR_MSIX,
                table_offset: 0,
                pba_bar: BAR_MSIX,
                pba_offset: 0x800,
            }),
            pm: true,
            pme: PME,
            pcie: true,
            places: Places {
                pm: 0x40,
                msi: 0x50,
                pcie: 0x70,
                msix: 0xb0,
            },
            ..Identity::default()
        }
    }
}

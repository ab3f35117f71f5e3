//! What the bus scan finds.

use model::{Bar, Identity, Msix, Places, Space};

/// The I/O window of the registers.
pub const BAR_IO: u8 = 0;
/// The memory window of the registers. It is 64 bits wide.
pub const BAR_MMIO: u8 = 2;
/// The MSI-X table, where FreeBSD wants it.
const BAR_MSIX: u8 = 4;

const REALTEK: u16 = 0x10ec;
const RTL8168: u16 = 0x8168;

/// The function.
pub(crate) fn identity() -> Identity {
    let memory = |index| Bar {
        index,
        space: Space::Memory64,
        size: 0x1000,
    };
    Identity {
        model: "r8168",
        vendor: REALTEK,
        device: RTL8168,
        subsystem_vendor: REALTEK,
        subsystem: RTL8168,
        revision: 2,
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

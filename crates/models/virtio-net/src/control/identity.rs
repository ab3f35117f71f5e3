//! What the bus scan finds (virtio 1.4 §4.1.2, §4.1.4).

use model::{Bar, Capability, Identity, Msix, Raw, Space, Window};

use crate::regs::page;

/// The BAR of the configuration structures. It is 64 bits wide.
pub(crate) const BAR: u8 = 0;
/// The BAR of the MSI-X table.
const MSIX_BAR: u8 = 2;

/// A capability that says where a structure is: `len` bytes at `offset`. `more` follows.
fn structure(kind: u8, offset: u64, len: u64, more: &[u8]) -> Capability {
    let mut body = vec![16 + more.len() as u8, kind, BAR, 0, 0, 0];
    body.extend((offset as u32).to_le_bytes());
    body.extend((len as u32).to_le_bytes());
    body.extend(more);
    Capability::Raw(Raw {
        id: 9,
        body,
        ..Raw::default()
    })
}

/// The function.
pub(crate) fn identity(vectors: u16) -> Identity {
    Identity {
        model: "virtio-net",
        vendor: 0x1af4,
        device: 0x1041,
        subsystem_vendor: 0x1af4,
        subsystem: 0x1100,
        revision: 1,
        class: [2, 0, 0],
        bars: vec![
            Bar {
                index: BAR,
                space: Space::Memory64,
                size: page::ALL,
            },
            Bar {
                index: MSIX_BAR,
                space: Space::Memory32,
                size: 0x1000,
            },
        ],
        intx: true,
        msix: Some(Msix {
            vectors,
            table_bar: MSIX_BAR,
            table_offset: 0,
            pba_bar: MSIX_BAR,
            pba_offset: 0x800,
        }),
        pcie: true,
        pm: true,
        others: vec![
            structure(1, page::COMMON, crate::regs::common::LEN, &[]),
            structure(2, page::NOTIFY, page::LEN, &page::NOTIFY_STEP.to_le_bytes()),
            structure(3, page::ISR, page::LEN, &[]),
            structure(4, page::DEVICE, page::LEN, &[]),
            Capability::Window(Window),
        ],
        ..Identity::default()
    }
}

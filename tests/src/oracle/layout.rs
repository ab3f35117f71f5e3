//! Where things are: in the memory and among the registers of both machines.

/// The station address of both machines.
pub const MAC: [u8; 6] = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

/// Where the memory that scripts use begins: free RAM in both machines, zero when a script begins.
pub const ARENA: u64 = 0x10_0000;
/// Its bytes.
pub const ARENA_LEN: usize = 0x3_2000;
/// Memory from address 0 that is zero when a script begins and that no script writes: null addresses
/// lead there.
pub(in crate::oracle) const LOW_ZEROS: u64 = 0x1_0000;
/// Where generated scripts put the transmit ring. Each look compares its first [`RING_LEN`] bytes.
pub const TX_RING: u64 = ARENA;
/// Where generated scripts put the receive ring.
pub const RX_RING: u64 = ARENA + 0x1000;
/// Bytes of each ring that are compared at each look; the rest is compared at the end.
pub const RING_LEN: usize = 0x400;
/// Where generated scripts put what they send.
pub const TX_BUFFERS: u64 = ARENA + 0x2000;
/// Where generated scripts receive.
pub const RX_BUFFERS: u64 = ARENA + 0x1_2000;

/// Virtual time that passes in each look, ns: longer than any delay timer, and than the second for
/// which QEMU's receiver stays shut after a write to RCTL.
pub(in crate::oracle) const SETTLE: u64 = 1_100_000_000;
/// Where the registers of QEMU's are.
pub(in crate::oracle) const BAR: u64 = 0xe000_0000;
/// Where its table of MSI-X is mapped, if it has one.
pub(in crate::oracle) const MSIX_TABLE: u64 = BAR + 0x4_0000;
/// Where scripts find the registers of virtual functions, from those of the physical one on, and how
/// far it is from one's to the next's.
pub(in crate::oracle) const VF_WINDOWS: u32 = 0x8_0000;
pub(in crate::oracle) const VF_WINDOW: u32 = 0x4000;
/// Where the tables of MSI-X of QEMU's are.
pub(in crate::oracle) const VF_TABLES: u64 = BAR + 0xc_0000;
/// Vectors of each that are looked at, behind those of the physical function.
pub(in crate::oracle) const VF_VECTORS: u16 = 3;
/// Where messages of vectors are written to, [`MESSAGE_LEN`] bytes from one to the next.
pub(in crate::oracle) const MESSAGES: u64 = 0x2_0000;
pub(in crate::oracle) const MESSAGE_LEN: u64 = 16;
/// Vectors looked at.
pub(in crate::oracle) const VECTORS: u16 = 10;

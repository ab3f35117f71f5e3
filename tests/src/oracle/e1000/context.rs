//! What the registers of a script say.

pub(super) use crate::oracle::context::Context;

/// Registers by their offset.
pub(super) mod reg {
    pub const CTRL: u32 = 0x0;
    pub const STATUS: u32 = 0x8;
    pub const EECD: u32 = 0x10;
    pub const EERD: u32 = 0x14;
    pub const MDIC: u32 = 0x20;
    pub const VET: u32 = 0x38;
    pub const ICR: u32 = 0xc0;
    pub const ITR: u32 = 0xc4;
    pub const ICS: u32 = 0xc8;
    pub const IMS: u32 = 0xd0;
    pub const IMC: u32 = 0xd8;
    pub const RCTL: u32 = 0x100;
    pub const TCTL: u32 = 0x400;
    pub const RDBAL: u32 = 0x2800;
    pub const RDBAH: u32 = 0x2804;
    pub const RDLEN: u32 = 0x2808;
    pub const RDH: u32 = 0x2810;
    pub const RDT: u32 = 0x2818;
    pub const RDTR: u32 = 0x2820;
    pub const RADV: u32 = 0x282c;
    pub const TDBAL: u32 = 0x3800;
    pub const TDBAH: u32 = 0x3804;
    pub const TDLEN: u32 = 0x3808;
    pub const TDH: u32 = 0x3810;
    pub const TDT: u32 = 0x3818;
    pub const TIDV: u32 = 0x3820;
    pub const TADV: u32 = 0x382c;
    pub const RXCSUM: u32 = 0x5000;
    pub const MTA: u32 = 0x5200;
    pub const RAL: u32 = 0x5400;
    pub const RAH: u32 = 0x5404;
    pub const VFTA: u32 = 0x5600;
}

impl Context {
    /// VLAN ether type.
    pub(in crate::oracle) fn vet(&self) -> u16 {
        self.written(reg::VET).unwrap_or(0x8100) as u16
    }

    /// Bytes of a receive buffer.
    pub(in crate::oracle) fn buffer(&self) -> usize {
        let rctl = self.get(reg::RCTL);
        match (rctl >> 25 & 1, rctl >> 16 & 3) {
            (1, 1) => 16384,
            (1, 2) => 8192,
            (1, 3) => 4096,
            (0, 1) => 1024,
            (0, 2) => 512,
            (0, 3) => 256,
            _ => 2048,
        }
    }

    /// Whether the receive registers describe a ring.
    pub(in crate::oracle) fn rx_ring_is_one(&self, head: u32) -> bool {
        let len = (self.get(reg::RDLEN) & 0xf_ff80) / 16;
        self.get(reg::RDT) & 0xffff < len && head < len
    }

    /// Whether the transmit registers describe a ring.
    pub(in crate::oracle) fn tx_ring_is_one(&self, head: u32) -> bool {
        let len = (self.get(reg::TDLEN) & 0xf_ff80) / 16;
        self.get(reg::TDT) & 0xffff < len && head < len
    }
}

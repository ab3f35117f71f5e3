//! What the registers of a script say.

pub(super) use crate::oracle::context::Context;

pub(super) use intel_offsets::e1000 as reg;

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

//! What no driver does.

use super::super::context::reg;
use super::super::registers;
use super::{Generator, RING};
use crate::oracle::layout::{RX_RING, TX_BUFFERS, TX_RING};
use crate::oracle::script::{Op, Script};

impl Generator {
    pub(super) fn wild(&mut self) {
        self.look_first();
        match self.dice.below(6) {
            0 | 1 => {
                let offsets = registers::sweep(&Script::default());
                let at = self.dice.pick(&offsets);
                let mut value = self.dice.next() as u32;
                // A ring over all memory would send all memory.
                if matches!(at, reg::TDLEN | reg::RDLEN) {
                    value &= 0xff;
                }
                self.write(at, value);
            }
            2 => {
                // Anything in a descriptor of either ring.
                let ring = self.dice.pick(&[TX_RING, RX_RING]);
                let at = ring + 16 * self.dice.below(RING.into()) + self.dice.pick(&[8, 8, 12]);
                let bytes = self.dice.next().to_le_bytes();
                self.ops.push(Op::Mem {
                    at,
                    bytes: bytes[..4].to_vec(),
                });
            }
            3 => {
                let at = self.dice.pick(&[reg::TDT, reg::RDT, reg::TDH, reg::RDH]);
                let value = self.dice.below(20) as u32;
                self.write(at, value);
            }
            4 => {
                // A command for another PHY, or none.
                let command = self.dice.next() as u32 & 0x0fff_ffff;
                self.write(reg::MDIC, command);
                self.read(reg::MDIC);
            }
            _ => {
                // A legacy descriptor.
                let mut desc = [0; 16];
                desc[..8].copy_from_slice(&TX_BUFFERS.to_le_bytes());
                desc[8] = 60 + self.dice.below(40) as u8;
                desc[11] = 0x0b;
                self.descs.push(desc);
                self.post(0);
            }
        }
    }
}

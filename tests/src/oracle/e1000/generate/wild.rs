//! What no driver does.

use super::super::context::reg;
use super::super::registers;
use super::Generator;
use crate::oracle::layout::{RX_RING, TX_BUFFERS, TX_RING};
use crate::oracle::script::{Op, Script};

impl Generator {
    pub(super) fn wild(&mut self) {
        self.look_first();
        match self.dice.below(7) {
            0 | 1 => {
                let offsets = registers::sweep(&Script::default());
                let at = self.dice.pick(&offsets);
                let mut value = self.dice.next() as u32;
                // A ring over all memory would send all memory.
                if matches!(at, reg::TDLEN | reg::RDLEN) {
                    value &= 0x7ff;
                }
                self.write(at, value);
            }
            2 => {
                // Anything in a descriptor of either ring.
                let (ring, len) = self
                    .dice
                    .pick(&[(TX_RING, self.tx_len), (RX_RING, self.rx_len)]);
                let at = ring + 16 * self.dice.below(len.into()) + self.dice.pick(&[8, 8, 12]);
                let bytes = self.dice.next().to_le_bytes();
                self.ops.push(Op::Mem {
                    at,
                    bytes: bytes[..4].to_vec(),
                });
            }
            3 => {
                let at = self.dice.pick(&[reg::TDT, reg::RDT, reg::TDH, reg::RDH]);
                let value = self.dice.below(70) as u32;
                self.write(at, value);
            }
            4 => {
                // A command for another PHY, or none.
                let command = self.dice.next() as u32 & 0x0fff_ffff;
                let at = 1 << 21;
                let command = self.dice.pick(&[command, command & !0x03e0_0000 | at]);
                let interrupt = self.dice.pick(&[0, 1 << 29]);
                self.write(reg::MDIC, command | interrupt);
                self.read(reg::MDIC);
            }
            5 => self.odd_packet(),
            _ => {
                let at = self.dice.pick(&[
                    reg::RCTL,
                    reg::TCTL,
                    reg::CTRL,
                    reg::RXCSUM,
                    reg::TIDV,
                    reg::RDBAL,
                    reg::TDBAH,
                ]);
                let value = self.dice.next() as u32 & 0x7bff_ffff;
                self.write(at, value);
            }
        }
    }

    /// A packet too short to be one, or one whose legacy descriptor inserts a checksum.
    fn odd_packet(&mut self) {
        let mut desc = [0; 16];
        desc[..8].copy_from_slice(&TX_BUFFERS.to_le_bytes());
        desc[11] = 0x0b;
        if self.dice.chance(50) {
            desc[8] = 1 + self.dice.below(13) as u8;
        } else {
            desc[8] = 100;
            desc[10] = 40;
            desc[11] |= 4;
            desc[13] = 20;
        }
        desc[12] = self.dice.pick(&[0, 0x80]);
        self.descs.push(desc);
        self.post();
    }
}

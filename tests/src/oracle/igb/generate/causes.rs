//! Interrupts: causes, masks, vectors.

use super::super::context::reg;
use super::{Generator, QUEUES};
use crate::oracle::script::Op;

/// Interrupt causes the chip has (manual §8.8.7).
const CAUSES: u32 = 0x77d4_fbfd;
/// Causes that drivers see: sent, link, threshold, missed, received, mailbox, PHY, device reset.
const USUAL: u32 = 0x4000_03d5;
/// Vectors that can send a message.
const VECTORS: u32 = 0x3ff;

impl Generator {
    /// Which queue has which vector, and who is told how.
    pub(super) fn vectors(&mut self) {
        self.messages = self.dice.chance(50);
        if self.messages {
            self.ops.push(Op::Msix);
            let gpie = 0x10 | self.dice.bits(0x8000_0001, 40);
            self.write(reg::GPIE, gpie);
        }
        for queue in 0..QUEUES {
            let mut entries = [0; 4];
            for entry in &mut entries[..2] {
                *entry = 0x80 | self.dice.below(10) as u8;
            }
            self.write(reg::IVAR + 4 * queue, u32::from_le_bytes(entries));
        }
        let other = 0x80 | self.dice.below(10) as u32;
        self.write(reg::IVAR_MISC, other << 8);
        if self.messages {
            let open = self.dice.bits(VECTORS, 70);
            self.write(reg::EIMS, open);
            if self.dice.chance(40) {
                let clear = self.dice.bits(VECTORS, 50);
                self.write(reg::EIAC, clear);
            }
        }
        let ims = self.dice.bits(USUAL, 40);
        self.write(reg::IMS, ims);
    }

    /// One or two accesses as an interrupt handler makes them.
    pub(super) fn interrupts(&mut self) {
        let causes = if self.dice.chance(80) { USUAL } else { CAUSES };
        match self.dice.below(8) {
            0 => {
                let bits = self.dice.bits(causes, 30);
                self.write(reg::ICS, bits);
            }
            1 => {
                let bits = self.dice.bits(causes, 30);
                self.write(reg::IMS, bits);
            }
            2 => {
                let bits = self.dice.bits(causes, 50);
                self.write(reg::IMC, bits);
            }
            3 if self.messages => {
                let (at, bits) = (
                    self.dice
                        .pick(&[reg::EIMS, reg::EIMC, reg::EICS, reg::EICR]),
                    self.dice.bits(VECTORS, 30),
                );
                self.write(at, bits);
            }
            4 => {
                let bits = self.dice.bits(causes, 50);
                self.write(reg::ICR, bits);
            }
            5 | 6 => self.read(reg::ICR),
            _ => self.read(reg::EICR),
        }
        if self.dice.chance(40) {
            self.ops.push(Op::Look);
        }
    }

    /// Nothing but causes.
    pub(super) fn causes_alone(&mut self) {
        self.vectors();
        if self.dice.chance(20) {
            let bits = self.dice.bits(CAUSES, 30);
            self.write(reg::IAM, bits);
        }
        if self.messages && self.dice.chance(20) {
            let bits = self.dice.bits(VECTORS, 30);
            self.write(reg::EIAM, bits);
        }
        self.ops.push(Op::Look);
        for _ in 0..2 + self.dice.below(10) {
            self.interrupts();
        }
    }
}

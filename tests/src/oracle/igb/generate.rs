//! New scripts from a seed: mostly what a driver would do, with every setting drawn, and now and then
//! something no driver does.

mod causes;

use super::context::reg;
use super::registers;
use super::script::{Op, Script};
use crate::oracle::dice::Dice;

/// Queues that have vectors.
const QUEUES: u32 = 4;

struct Generator {
    dice: Dice,
    ops: Vec<Op>,
    messages: bool,
}

/// The script of a seed.
pub(super) fn generate(seed: u64) -> Script {
    let mut g = Generator {
        dice: Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        ops: Vec::new(),
        messages: false,
    };
    match g.dice.below(2) {
        0 => g.registers_alone(),
        _ => g.causes_alone(),
    }
    Script { ops: g.ops }
}

impl Generator {
    fn write(&mut self, at: u32, value: u32) {
        self.ops.push(Op::write(at, value));
    }

    fn read(&mut self, at: u32) {
        self.ops.push(Op::read(at));
    }

    /// Any registers, with nothing sent or received.
    fn registers_alone(&mut self) {
        let offsets = registers::sweep(&Script::default());
        for _ in 0..2 + self.dice.below(12) {
            match self.dice.below(20) {
                0 => self.phy(),
                1 => self.nvm(),
                _ => {}
            }
            let at = self.dice.pick(&offsets);
            if self.dice.chance(50) {
                let value = registers::harmless(at, self.dice.next() as u32);
                self.write(at, value);
            }
            self.read(at);
        }
    }

    fn phy(&mut self) {
        let number = self.dice.below(32) as u32;
        self.write(reg::MDIC, 2 << 26 | 1 << 21 | number << 16);
        self.read(reg::MDIC);
        if self.dice.chance(10) {
            // No such command.
            let op = self.dice.pick(&[0, 3]);
            self.write(reg::MDIC, op << 26 | 1 << 21 | number << 16);
            self.read(reg::MDIC);
        }
        if self.dice.chance(20) {
            let (number, value) = self.dice.pick(&[(4, 0x01e1), (9, 0x0300), (0, 0x1140)]);
            self.write(reg::MDIC, 1 << 26 | 1 << 21 | number << 16 | value);
            self.read(reg::MDIC);
        }
    }

    fn nvm(&mut self) {
        let word = self.dice.below(64) as u32;
        self.write(reg::EERD, word << 2 | 1);
        self.read(reg::EERD);
    }
}

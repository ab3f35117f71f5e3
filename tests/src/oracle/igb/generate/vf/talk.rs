//! Messages between VFs and their PF, and interrupts.

use super::super::super::context::reg;
use super::super::super::vf::{of, vreg};
use super::{MBVFICR, P2VMAILBOX, VFLRE, VMBMEM, Vfs};
use crate::oracle::script::Op;

/// Bits of V2PMAILBOX that a VF writes: a message, one was read, the buffer is mine.
const REQ: u32 = 1;
const ACK: u32 = 2;
const VFU: u32 = 4;
/// Bits of P2VMAILBOX that a PF writes: the same, and that the VF has to let go.
const STS: u32 = 1;
const PFU: u32 = 8;
const RVFU: u32 = 16;

impl Vfs {
    /// A step or two of a talk, as drivers do them or not.
    pub(super) fn talk(&mut self) {
        let vf = self.vf();
        let word = 4 * self.dice().below(16) as u32;
        let (v2p, p2v) = (of(vf, vreg::V2PMAILBOX), P2VMAILBOX + 4 * vf);
        match self.dice().below(10) {
            0 | 1 => {
                // The VF has a message.
                self.write(v2p, VFU);
                self.read(v2p);
                self.say(of(vf, vreg::VMBMEM));
                self.write(v2p, REQ);
            }
            2 | 3 => {
                // The PF reads it.
                self.read(MBVFICR);
                self.write(MBVFICR, 1 << vf);
                self.write(p2v, PFU);
                self.read(p2v);
                for at in 0..2 {
                    self.read(VMBMEM + 0x40 * vf + 4 * at);
                }
                self.write(p2v, ACK);
            }
            4 | 5 => {
                // The PF has one.
                self.write(p2v, PFU);
                self.say(VMBMEM + 0x40 * vf);
                self.write(p2v, STS);
            }
            6 => {
                // The VF reads it.
                self.read(v2p);
                self.read(of(vf, vreg::VMBMEM) + word);
                self.write(v2p, ACK);
                self.read(v2p);
            }
            7 => {
                let bits = self.dice().bits(REQ | ACK | VFU, 40);
                self.write(v2p, bits);
                self.read(p2v);
            }
            8 => {
                let bits = self.dice().bits(STS | ACK | PFU, 40) | self.dice().bits(RVFU, 15);
                self.write(p2v, bits);
                self.read(v2p);
            }
            _ => {
                let (at, bits) = (
                    self.g.dice.pick(&[MBVFICR, VFLRE]),
                    self.g.dice.bits(0x3_0003, 50),
                );
                self.read(at);
                self.write(at, bits);
                self.read(at);
            }
        }
        if self.dice().chance(60) {
            self.g.ops.push(Op::Look);
        }
    }

    fn say(&mut self, words: u32) {
        for at in 0..1 + self.dice().below(3) as u32 {
            let value = self.dice().next() as u32;
            self.write(words + 4 * at, value);
        }
    }

    /// One or two accesses as an interrupt handler makes them, of a VF or the PF.
    pub(super) fn causes(&mut self) {
        let vf = self.vf();
        let bits = self.dice().bits(7, 40);
        match self.dice().below(8) {
            0 | 1 => self.write(of(vf, vreg::VTEICS), bits),
            2 => self.write(of(vf, vreg::VTEIMS), bits),
            3 => self.write(of(vf, vreg::VTEIMC), bits),
            4 => self.write(of(vf, vreg::VTEICR), bits),
            5 => self.read(of(vf, vreg::VTEIMS)),
            6 => self.read(reg::ICR),
            _ => {
                let (at, bits) = (
                    self.g.dice.pick(&[reg::EIMS, reg::EIMC, reg::EICS]),
                    self.g.dice.bits(0x3ff, 30),
                );
                self.write(at, bits);
            }
        }
        if self.dice().chance(50) {
            self.g.ops.push(Op::Look);
        }
    }
}

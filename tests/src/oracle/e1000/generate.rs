//! New scripts from a seed: mostly what a driver would do, with every setting drawn, and now and then
//! something no driver does.

mod packets;
mod wild;

use super::context::reg;
use super::registers;
use crate::oracle::dice::Dice;
use crate::oracle::layout::{MAC, RX_BUFFERS, RX_RING, TX_BUFFERS, TX_RING};
use crate::oracle::packet::Packet;
use crate::oracle::script::{Op, Script};

/// Multicast and other addresses that scripts meet.
const GROUPS: [[u8; 6]; 4] = [
    [0x01, 0x00, 0x5e, 0x00, 0x00, 0xfb],
    [0x01, 0x00, 0x5e, 0x40, 0x30, 0x20],
    [0x33, 0x33, 0x00, 0x00, 0x00, 0x01],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e],
];
const OTHERS: [[u8; 6]; 3] = [
    [0x52, 0x54, 0x00, 0x12, 0x34, 0x57],
    [0x02, 0x00, 0x00, 0x00, 0x00, 0x01],
    [0x00, 0x1b, 0x21, 0xaa, 0xbb, 0xcc],
];
const BROADCAST: [u8; 6] = [0xff; 6];
const VLANS: [u16; 4] = [0, 5, 100, 4095];

/// Interrupt causes the chip has (manual §13.4.17).
const CAUSES: u32 = 0x1_f6df;

struct Generator {
    dice: Dice,
    ops: Vec<Op>,
    tx_len: u32,
    tx_tail: u32,
    /// The next free byte of the transmit buffers.
    tx_at: u64,
    rx_len: u32,
    rx_tail: u32,
    rctl: u32,
    ctrl: u32,
    vet: u16,
    tctl: u32,
    /// Descriptors of a packet in the making.
    descs: Vec<[u8; 16]>,
    /// What was sent so far, so that QEMU's wire is never filled.
    volume: usize,
}

/// The script of a seed.
pub fn generate(seed: u64) -> Script {
    let mut g = Generator {
        dice: Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        ops: Vec::new(),
        tx_len: 8,
        tx_tail: 0,
        tx_at: TX_BUFFERS,
        rx_len: 8,
        rx_tail: 0,
        rctl: 0,
        ctrl: 0,
        vet: 0x8100,
        tctl: 0,
        descs: Vec::new(),
        volume: 0,
    };
    g.setup();
    for _ in 0..3 + g.dice.below(10) {
        g.action();
        if g.dice.chance(90) {
            g.ops.push(Op::Look);
        }
    }
    Script { ops: g.ops }
}

impl Generator {
    fn write(&mut self, at: u32, value: u32) {
        let value = value.into();
        self.ops.push(Op::Write { at, size: 4, value });
    }

    fn read(&mut self, at: u32) {
        self.ops.push(Op::Read { at, size: 4 });
    }

    fn setup(&mut self) {
        self.ctrl = 0x41 | self.dice.bits(0x20, 50) | self.dice.bits(0x4000_0000, 30);
        let ctrl = self.ctrl;
        self.write(reg::CTRL, ctrl);
        if self.dice.chance(10) {
            self.vet = self.dice.pick(&[0x88a8, 0x9100, 0x0800]);
            let vet = self.vet.into();
            self.write(reg::VET, vet);
        }
        self.filters();
        let ims = self.dice.bits(CAUSES, 40);
        self.write(reg::IMS, ims);
        if self.dice.chance(15) {
            self.moderation();
        }
        self.tx_setup();
        self.rx_setup();
        self.ops.push(Op::Look);
    }

    fn filters(&mut self) {
        if self.dice.chance(30) {
            let address = self.any_address();
            let entry = 8 * self.dice.below(16) as u32;
            let [a, b, c, d, e, f] = address;
            self.write(reg::RAL + entry, u32::from_le_bytes([a, b, c, d]));
            let valid = self.dice.pick(&[0x8000_0000, 0x8000_0000, 0x8000_0000, 0]);
            self.write(reg::RAH + entry, u32::from_le_bytes([e, f, 0, 0]) | valid);
        }
        for _ in 0..self.dice.below(4) {
            let group = self.dice.pick(&GROUPS);
            let shift = self.dice.pick(&[4, 3, 2, 0]);
            let index = (u32::from(group[5]) << 8 | u32::from(group[4])) >> shift & 0xfff;
            self.write(reg::MTA + index / 32 * 4, 1 << (index % 32));
        }
        for _ in 0..self.dice.below(3) {
            let id = u32::from(self.dice.pick(&VLANS));
            self.write(reg::VFTA + id / 32 * 4, 1 << (id % 32));
        }
    }

    fn moderation(&mut self) {
        for at in [reg::ITR, reg::RDTR, reg::RADV, reg::TADV] {
            if self.dice.chance(50) {
                let value = self.dice.below(1000) as u32;
                self.write(at, value);
            }
        }
    }

    fn tx_setup(&mut self) {
        self.tx_len = 8 * self.dice.pick(&[1, 2, 4, 8]);
        self.tx_tail = if self.dice.chance(20) {
            self.dice.below(self.tx_len.into()) as u32
        } else {
            0
        };
        let (len, tail) = (self.tx_len * 16, self.tx_tail);
        self.write(reg::TDBAL, TX_RING as u32);
        self.write(reg::TDBAH, 0);
        self.write(reg::TDLEN, len);
        self.write(reg::TDH, tail);
        self.write(reg::TDT, tail);
        self.tctl = 0x3_f0f2 | self.dice.bits(8, 60);
        let tctl = self.tctl;
        self.write(reg::TCTL, tctl);
    }

    fn rx_setup(&mut self) {
        let size_bits = self.dice.pick(&[
            0, 0, 0, 0x1_0000, 0x2_0000, 0x3_0000, 0x201_0000, 0x202_0000, 0x203_0000,
        ]);
        let size: u64 = match size_bits {
            0x1_0000 => 1024,
            0x2_0000 => 512,
            0x3_0000 => 256,
            0x201_0000 => 16384,
            0x202_0000 => 8192,
            0x203_0000 => 4096,
            _ => 2048,
        };
        let most = (0x2_0000 / size).min(64) as u32;
        self.rx_len = (8 * self.dice.pick(&[1, 2, 4, 8])).min(most);
        let odd = if self.dice.chance(10) { 1 } else { 0 };
        let null = self.dice.chance(5);
        let mut ring = Vec::new();
        for i in 0..u64::from(self.rx_len) {
            let mut address = RX_BUFFERS + i * size - odd;
            if null && self.dice.chance(30) {
                address = 0;
            }
            ring.extend_from_slice(&address.to_le_bytes());
            ring.extend_from_slice(&[0; 8]);
        }
        self.ops.push(Op::Mem {
            at: RX_RING,
            bytes: ring,
        });
        let head = if self.dice.chance(20) {
            self.dice.below(self.rx_len.into()) as u32
        } else {
            0
        };
        let given = if self.dice.chance(12) {
            self.dice.below(3) as u32
        } else {
            self.rx_len - 1
        };
        self.rx_tail = (head + given) % self.rx_len;
        let (len, tail) = (self.rx_len * 16, self.rx_tail);
        self.write(reg::RDBAL, RX_RING as u32);
        self.write(reg::RDBAH, 0);
        self.write(reg::RDLEN, len);
        self.write(reg::RDH, head);
        self.write(reg::RDT, tail);
        self.rctl = 2 | size_bits;
        self.draw_filters();
        let rctl = self.rctl;
        self.write(reg::RCTL, rctl);
    }

    /// The bits of RCTL that may change while frames come.
    fn draw_filters(&mut self) {
        let keep = self.rctl & 0x203_0002;
        self.rctl = keep
            | self.dice.bits(0x0400_0000, 60)
            | self.dice.bits(0x8000, 80)
            | self.dice.bits(0x18, 20)
            | self.dice.bits(0x20, 40)
            | self.dice.bits(0x4_0000, 25)
            | self.dice.bits(0x3000, 30)
            | self.dice.bits(0x300, 30);
        if self.dice.chance(3) {
            self.rctl |= self.dice.bits(0x18_0004, 50);
        }
    }

    fn action(&mut self) {
        match self.dice.below(100) {
            0..30 => self.receive(),
            30..45 => self.send_plain(),
            45..58 => self.send_with_context(),
            58..66 => self.give_buffers(),
            66..76 => self.look_around(),
            76..82 => self.interrupts(),
            82..88 => self.reconfigure(),
            88..92 => self.phy(),
            92..95 => self.eeprom(),
            _ => self.wild(),
        }
    }

    fn any_address(&mut self) -> [u8; 6] {
        match self.dice.below(10) {
            0..5 => MAC,
            5..7 => self.dice.pick(&GROUPS),
            7 => BROADCAST,
            _ => self.dice.pick(&OTHERS),
        }
    }

    fn receive(&mut self) {
        let mut frames = Vec::new();
        for _ in 0..1 + self.dice.below(3) {
            let dst = self.any_address();
            frames.push(self.frame(dst));
        }
        self.ops.push(Op::Frames(frames));
    }

    /// A frame as it may come from the wire or go to it, without FCS.
    fn frame(&mut self, dst: [u8; 6]) -> Vec<u8> {
        if self.dice.chance(25) {
            return Packet::draw(&mut self.dice, dst).whole();
        }
        let long = self.rctl & 0x20 != 0 && self.dice.chance(30);
        let len = match self.dice.below(10) {
            _ if long => self
                .dice
                .pick(&[1519, 1523, 2048, 4000, 9000, 16380, 16381]),
            0 => self.dice.pick(&[18, 20, 42, 59]),
            1..4 => 60,
            4 => self
                .dice
                .pick(&[61, 64, 124, 252, 256, 508, 512, 1020, 1024]),
            5 => self.dice.pick(&[1514, 1515, 1518, 1519, 1522]),
            _ => 60 + self.dice.below(500) as usize,
        };
        let mut frame = dst.to_vec();
        frame.extend_from_slice(&[0x52, 0x54, 0, 0x12, 0x34, 0x99]);
        if self.dice.chance(30) {
            let tag = self.dice.pick(&[self.vet, self.vet, 0x8100]);
            let tci = self.dice.pick(&VLANS) | self.dice.pick(&[0, 0, 0x1000, 0x6000]);
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(&tci.to_be_bytes());
        }
        frame.extend_from_slice(&[0x88, 0xb5]);
        let fill = self.dice.next() as u8;
        let counting = self.dice.chance(50);
        while frame.len() < len {
            frame.push(if counting {
                frame.len() as u8 ^ fill
            } else {
                fill
            });
        }
        frame.truncate(len.max(18));
        frame
    }

    /// What happened is looked at before the guest writes over it.
    fn look_first(&mut self) {
        if self.ops.last() != Some(&Op::Look) {
            self.ops.push(Op::Look);
        }
    }

    fn give_buffers(&mut self) {
        self.look_first();
        let n = 1 + self.dice.below(u64::from(self.rx_len) - 1) as u32;
        for i in 0..n.min(4) {
            let index = (self.rx_tail + i) % self.rx_len;
            let at = RX_RING + u64::from(index) * 16 + 8;
            self.ops.push(Op::Mem {
                at,
                bytes: vec![0; 8],
            });
        }
        self.rx_tail = (self.rx_tail + n.min(4)) % self.rx_len;
        let tail = self.rx_tail;
        self.write(reg::RDT, tail);
    }

    fn look_around(&mut self) {
        for _ in 0..1 + self.dice.below(4) {
            let at = if self.dice.chance(40) {
                self.dice
                    .pick(&[reg::ICR, reg::ICS, reg::IMS, 0x4074, 0x4080, 0x40c0, 0x40c4])
            } else {
                let offsets = registers::sweep(&Script::default());
                self.dice.pick(&offsets)
            };
            if self.dice.chance(5) && at.is_multiple_of(8) {
                self.ops.push(Op::Read { at, size: 8 });
            } else {
                self.read(at);
            }
        }
    }

    fn interrupts(&mut self) {
        let bits = self.dice.bits(CAUSES, 30);
        let at = self.dice.pick(&[reg::ICR, reg::ICS, reg::IMS, reg::IMC]);
        self.write(at, bits);
        if self.dice.chance(30) {
            self.ops.push(Op::Look);
            self.read(reg::ICR);
        }
    }

    fn reconfigure(&mut self) {
        match self.dice.below(7) {
            6 => {
                // The receiver off while frames come, and on again.
                let rctl = self.rctl;
                self.write(reg::RCTL, rctl & !2);
                self.receive();
                self.ops.push(Op::Look);
                self.write(reg::RCTL, rctl);
            }
            0 => self.filters(),
            1 | 2 => {
                self.draw_filters();
                let rctl = self.rctl;
                self.write(reg::RCTL, rctl);
            }
            3 => {
                self.ctrl ^= self.dice.bits(0x4000_0020, 50);
                let ctrl = self.ctrl;
                self.write(reg::CTRL, ctrl);
            }
            4 => {
                // The transmitter off, a packet waiting, and on again.
                let tctl = self.tctl;
                self.write(reg::TCTL, tctl & !2);
                self.send_plain();
                self.ops.push(Op::Look);
                self.write(reg::TCTL, tctl);
            }
            _ => self.moderation(),
        }
    }

    fn phy(&mut self) {
        let number = self
            .dice
            .pick(&[0, 1, 2, 3, 4, 5, 6, 9, 10, 16, 17, 20, 21]);
        self.write(reg::MDIC, 2 << 26 | 1 << 21 | number << 16);
        self.read(reg::MDIC);
        if self.dice.chance(20) {
            let (number, value) = self.dice.pick(&[
                (4, 0x01e1),
                (9, 0x0300),
                (16, 0x0360),
                (20, 0x0d60),
                (0, 0x1340),
            ]);
            self.write(reg::MDIC, 1 << 26 | 1 << 21 | number << 16 | value);
            self.read(reg::MDIC);
        }
    }

    fn eeprom(&mut self) {
        if self.dice.chance(70) {
            let word = self.dice.below(64) as u32;
            self.write(reg::EERD, word << 8 | 1);
            self.read(reg::EERD);
            return;
        }
        // A microwire read: request, select, opcode and address, sixteen bits out.
        let word = self.dice.below(3) as u32;
        self.write(reg::EECD, 0x40);
        self.write(reg::EECD, 0x42);
        for bit in (0..9).rev() {
            let data = (0b110 << 6 | word) >> bit & 1;
            self.write(reg::EECD, 0x42 | data << 2);
            self.write(reg::EECD, 0x43 | data << 2);
        }
        for _ in 0..16 {
            self.write(reg::EECD, 0x42);
            self.write(reg::EECD, 0x43);
            self.read(reg::EECD);
        }
        self.write(reg::EECD, 0x40);
        self.write(reg::EECD, 0);
    }
}

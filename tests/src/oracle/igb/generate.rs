//! New scripts from a seed: mostly what a driver would do, with every setting drawn, and now and then
//! something no driver does.

mod causes;
mod frames;
mod packets;
mod seldom;
mod vf;
mod wild;

pub(super) use vf::generate as with_vfs;

use super::context::reg;
use super::registers;
use super::{QUEUES, RING};
use crate::oracle::dice::Dice;
use crate::oracle::layout::{RX_BUFFERS, RX_RING, TX_BUFFERS, TX_RING};
use crate::oracle::script::{Op, Script};
use seldom::Seldom;

/// Bytes of the place of a receive descriptor's buffers: packet and, from the middle on, header.
pub(super) const SLOT: u64 = 2048;
/// Bits of SRRCTL that choose how a frame lies in its buffers.
const ONE_BUFFER: u32 = 1 << 25;

#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    on: bool,
    len: u32,
    tail: u32,
}

struct Generator {
    dice: Dice,
    seldom: Seldom,
    ops: Vec<Op>,
    tx: [Ring; QUEUES as usize],
    rx: [Ring; QUEUES as usize],
    /// The next free byte of the transmit buffers.
    tx_at: u64,
    rctl: u32,
    ctrl: u32,
    tctl: u32,
    vet: u16,
    messages: bool,
    /// Descriptors of a packet in the making.
    descs: Vec<[u8; 16]>,
    /// What was sent so far, so that QEMU's wire is never filled.
    volume: usize,
    /// Bytes of a packet's first piece, at least.
    least: usize,
}

/// The script of a seed.
pub(super) fn generate(seed: u64) -> Script {
    let dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut g = Generator::new(dice, Seldom::of(seed));
    match g.dice.below(10) {
        0 => g.registers_alone(),
        1 => g.causes_alone(),
        _ => g.at_work(),
    }
    Script { ops: g.ops }
}

impl Generator {
    fn new(dice: Dice, seldom: Seldom) -> Self {
        Self {
            dice,
            seldom,
            ops: Vec::new(),
            tx: Default::default(),
            rx: Default::default(),
            tx_at: TX_BUFFERS,
            rctl: 0,
            ctrl: 0,
            tctl: 0,
            vet: 0x8100,
            messages: false,
            descs: Vec::new(),
            volume: 0,
            least: 1,
        }
    }

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

    /// A NIC that sends and receives.
    fn at_work(&mut self) {
        self.setup();
        for _ in 0..3 + self.dice.below(10) {
            self.action();
            if self.dice.chance(90) {
                self.ops.push(Op::Look);
            }
        }
    }

    fn setup(&mut self) {
        self.ctrl = 0x41 | self.dice.bits(0x4000_0000, 40);
        let ctrl = self.ctrl;
        self.write(reg::CTRL, ctrl);
        if self.dice.chance(10) {
            self.vet = self.dice.pick(&[0x88a8, 0x9100]);
            let vet = self.vet;
            self.write(reg::VET, 0x8100_0000 | u32::from(vet));
        }
        self.filters();
        if self.dice.chance(60) {
            self.vectors();
        }
        let more = self.dice.chance(40);
        for queue in 0..QUEUES as usize {
            let on = queue == 0 || more && self.dice.chance(60);
            self.tx_setup(queue, on);
            self.rx_setup(queue, on);
        }
        self.tctl = 0x0403_f0f2 | self.dice.bits(8, 70);
        let tctl = self.tctl;
        self.write(reg::TCTL, tctl);
        self.rx_start();
        self.set_up_seldom();
        self.ops.push(Op::Look);
    }

    fn filters(&mut self) {
        if self.dice.chance(30) {
            let [a, b, c, d, e, f] = self.any_address();
            let entry = 8 * self.dice.below(16) as u32;
            let base = self.dice.pick(&[reg::RAL, reg::RAL, reg::RAL2]);
            let entry = if base == reg::RAL {
                entry
            } else {
                entry & 0x38
            };
            self.write(base + entry, u32::from_le_bytes([a, b, c, d]));
            let valid = self.dice.pick(&[0x8000_0000, 0x8000_0000, 0x8000_0000, 0]);
            let high = u32::from_le_bytes([e, f, 0, 0]) | valid;
            self.write(base + entry + 4, high);
        }
        for _ in 0..self.dice.below(4) {
            let group = self.dice.pick(&frames::GROUPS);
            let shift = self.dice.pick(&[4, 3, 2, 0]);
            let index = (u32::from(group[5]) << 8 | u32::from(group[4])) >> shift & 0xfff;
            self.write(reg::MTA + index / 32 * 4, 1 << (index % 32));
        }
        for _ in 0..self.dice.below(3) {
            let id = u32::from(self.dice.pick(&frames::VLANS));
            self.write(reg::VFTA + id / 32 * 4, 1 << (id % 32));
        }
    }

    fn tx_setup(&mut self, queue: usize, on: bool) {
        let len = 8 * self.dice.pick(&[1, 2]).min(RING / 8);
        self.tx[queue] = Ring { on, len, tail: 0 };
        if !on {
            return;
        }
        let at = reg::QUEUE * queue as u32;
        let ring = TX_RING as u32 + queue as u32 * RING * 16;
        self.write(reg::TDBAL + at, ring);
        self.write(reg::TDBAH + at, 0);
        self.write(reg::TDLEN + at, len * 16);
        if self.dice.chance(10) {
            // The head is written to memory, behind the rings.
            let place = TX_RING as u32 + 0x800 + 16 * queue as u32;
            self.write(reg::TDWBAL + at, place | 1);
        }
        self.write(reg::TXDCTL + at, 0x0200_0000);
    }

    fn rx_setup(&mut self, queue: usize, on: bool) {
        let len = 8 * self.dice.pick(&[1, 2]).min(RING / 8);
        self.rx[queue] = Ring {
            on,
            len,
            tail: len - 1,
        };
        if !on {
            return;
        }
        let at = reg::QUEUE * queue as u32;
        let ring = RX_RING + u64::from(queue as u32 * RING * 16);
        let kind = self.dice.pick(&[1, 1, 1, 1, 1, 1, 2, 5]) << 25;
        let header = self.dice.pick(&[0x100, 0x200, 0x400]);
        let srrctl = if kind == ONE_BUFFER {
            kind | self.dice.pick(&[1, 2])
        } else {
            kind | header | 1
        };
        let srrctl = srrctl | self.dice.bits(1 << 31, 15);
        let odd = u64::from(self.dice.chance(10));
        self.rx_descriptors(queue, 0, len, odd);
        self.write(reg::RDBAL + at, ring as u32);
        self.write(reg::RDBAH + at, 0);
        self.write(reg::RDLEN + at, len * 16);
        self.write(reg::SRRCTL + at, srrctl);
        if kind != ONE_BUFFER {
            let all = 0x7_ffff;
            let types = self.dice.pick(&[all, all, all, 0, 0x30c]);
            self.write(reg::PSRTYPE + 4 * queue as u32, types);
        }
        self.write(reg::RXDCTL + at, 0x0200_0000);
    }

    /// Fresh descriptors from one on.
    fn rx_descriptors(&mut self, queue: usize, from: u32, count: u32, odd: u64) {
        let ring = RX_RING + u64::from(queue as u32 * RING * 16);
        for i in from..from + count {
            let index = i % self.rx[queue].len;
            let slot = RX_BUFFERS + u64::from(queue as u32 * RING + index) * SLOT - odd;
            let mut bytes = slot.to_le_bytes().to_vec();
            bytes.extend_from_slice(&((slot + SLOT / 2) & !1).to_le_bytes());
            self.ops.push(Op::Mem {
                at: ring + u64::from(index) * 16,
                bytes,
            });
        }
    }

    fn rx_start(&mut self) {
        let spread = self.spread();
        let sums = 0x300 & !self.dice.bits(0x300, 15);
        let rxcsum =
            sums | self.dice.bits(0x800, 30) | self.dice.bits(0x2000, if spread { 90 } else { 40 });
        self.write(reg::RXCSUM, rxcsum);
        self.rctl = 2;
        self.draw_filters();
        if self.dice.chance(20) {
            let most = self.dice.pick(&[1518, 2000, 9018, 9728]);
            self.write(reg::RLPML, most);
        }
        let rctl = self.rctl;
        self.write(reg::RCTL, rctl);
        for queue in 0..QUEUES {
            let ring = self.rx[queue as usize];
            if ring.on {
                self.write(reg::RDT + reg::QUEUE * queue, ring.tail);
            }
        }
    }

    /// Receive side scaling over the queues there are.
    fn spread(&mut self) -> bool {
        let on: Vec<u32> = (0..QUEUES)
            .filter(|queue| self.rx[*queue as usize].on)
            .collect();
        if !self.dice.chance(if on.len() > 1 { 80 } else { 15 }) {
            return false;
        }
        // Of IPv6 mostly those that are hashed alike with and without extensions.
        let mut fields = self.dice.next() as u32 & 0x01ff_0000;
        if self.dice.chance(80) {
            fields = self.dice.bits(0x43_0000, 70);
            for both in [0x24_0000, 0x10_0000, 0x80_0000] {
                fields |= self.dice.pick(&[0, both]);
            }
        }
        self.write(reg::MRQC, 2 | fields);
        for word in 0..10 {
            let key = self.dice.next() as u32;
            self.write(reg::RSSRK + 4 * word, key);
        }
        for word in 0..32 {
            let entries = [0; 4].map(|_: u8| self.dice.pick(&on) as u8);
            self.write(reg::RETA + 4 * word, u32::from_le_bytes(entries));
        }
        true
    }

    /// The bits of RCTL that may change while frames come.
    fn draw_filters(&mut self) {
        self.rctl = 2
            | self.dice.bits(0x0400_0000, 60)
            | self.dice.bits(0x8000, 80)
            | self.dice.bits(0x18, 20)
            | self.dice.bits(0x20, 40)
            | self.dice.bits(0x4_0000, 25)
            | self.dice.bits(0x3000, 30);
        if self.dice.chance(3) {
            self.rctl |= self.dice.bits(0x18_0004, 50);
        }
        self.rctl |= self.always_stripped();
    }

    fn action(&mut self) {
        match self.dice.below(100) {
            0..32 => self.receive(),
            32..45 => self.send_plain(),
            45..60 => self.send_with_context(),
            60..68 => self.give_buffers(),
            68..76 => self.look_around(),
            76..84 => self.interrupts(),
            84..89 => self.reconfigure(),
            89..92 => self.phy(),
            92..95 => self.nvm(),
            _ => self.wild(),
        }
    }

    /// What happened is looked at before the guest writes over it.
    fn look_first(&mut self) {
        if self.ops.last() != Some(&Op::Look) {
            self.ops.push(Op::Look);
        }
    }

    /// A queue that is on.
    fn queue(&mut self, rings: [Ring; QUEUES as usize]) -> usize {
        let on: Vec<usize> = (0..rings.len()).filter(|queue| rings[*queue].on).collect();
        self.dice.pick(&on)
    }

    /// Buffers for what has been received: the rings are filled up again from their tails on.
    fn give_buffers(&mut self) {
        self.look_first();
        let queue = self.queue(self.rx);
        let ring = self.rx[queue];
        let n = 1 + self.dice.below(4) as u32;
        self.rx_descriptors(queue, ring.tail, n, 0);
        let tail = (ring.tail + n) % ring.len;
        self.rx[queue].tail = tail;
        self.write(reg::RDT + reg::QUEUE * queue as u32, tail);
    }

    fn look_around(&mut self) {
        if self.read_stamps() {
            return;
        }
        for _ in 0..1 + self.dice.below(4) {
            let at = if self.dice.chance(40) {
                self.dice.pick(&[
                    reg::ICR,
                    reg::EICR,
                    reg::IMS,
                    0x4074,
                    0x4080,
                    0x40c0,
                    0x40c4,
                ])
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

    fn reconfigure(&mut self) {
        match self.dice.below(6) {
            0 => self.filters(),
            1 | 2 => {
                self.draw_filters();
                let rctl = self.rctl;
                self.write(reg::RCTL, rctl);
            }
            3 => {
                self.ctrl ^= self.dice.bits(0x4000_0000, 50);
                let ctrl = self.ctrl;
                self.write(reg::CTRL, ctrl);
            }
            4 => {
                // A queue off and on again: it starts anew.
                let queue = self.queue(self.tx);
                let at = reg::TXDCTL + reg::QUEUE * queue as u32;
                self.write(at, 0);
                self.ops.push(Op::Look);
                self.write(at, 0x0200_0000);
            }
            _ => {
                let sums = 0x2000 | self.dice.next() as u32 & 0xb00;
                self.write(reg::RXCSUM, sums);
            }
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

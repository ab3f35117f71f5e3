//! The serial EEPROM, 512 words: read by EERD, and read and written bit by bit through EECD as a
//! 25xx080 with SPI (§3.3, §6, §8.4.1; driver `igb/e1000_nvm.c`).

mod state;

use intel::nvm::{self, ERASED, Edge, Image, Wires, word};

use crate::regs::bits::{eecd, eerd};

pub(crate) const WORDS: usize = 512;
const BYTES: usize = 2 * WORDS;
/// Init control 3: a magic packet wakes (§6.2.19).
const APM: u16 = 1 << 10;
/// A write wraps within so many bytes.
const PAGE: usize = 32;

/// Commands of the memory.
mod op {
    pub const WRITE: u8 = 2;
    pub const READ: u8 = 3;
    pub const WRITE_DISABLE: u8 = 4;
    pub const STATUS: u8 = 5;
    pub const WRITE_ENABLE: u8 = 6;
}

/// The memory and the state of its wire.
#[derive(Debug)]
pub(crate) struct Nvm {
    bytes: Box<[u8; BYTES]>,
    wires: Wires,
    writable: bool,
    phase: Phase,
    /// Bits of the byte under way, and how many.
    shift: u8,
    bits: u8,
    /// Its owner does not know these contents yet.
    changed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Command,
    /// The address of this command, `left` bytes of it to come.
    Address {
        command: u8,
        at: usize,
        left: u8,
    },
    /// Sending bytes from `at` on.
    Read {
        at: usize,
    },
    Status,
    /// Taking bytes into the page of `at`.
    Write {
        at: usize,
    },
    /// Nothing more until it is deselected.
    Spent,
}

impl Nvm {
    /// A new one, of a NIC with this MAC address and these PCI ids.
    pub(crate) fn new(mac: [u8; 6], device: u16, subsystem: u16, pause: bool) -> Self {
        let image = Image {
            mac,
            device,
            subsystem,
            version: 0x2010, // 2.1.0
            init_1: 0x4002,  // signature; ids are loaded from here
            pause,
        };
        let mut words: [u16; WORDS] = image.words();
        words[word::INIT_3_SECOND] = 0;
        nvm::sign(&mut words);
        let mut bytes = Box::new([0; BYTES]);
        for (pair, word) in bytes.chunks_exact_mut(2).zip(words) {
            pair.copy_from_slice(&word.to_le_bytes());
        }
        Self::with(bytes, true)
    }

    /// One with these contents, as [`Nvm::take_changed`] gave them.
    pub(crate) fn of_image(image: &[u8; BYTES]) -> Self {
        Self::with(Box::new(*image), false)
    }

    fn with(bytes: Box<[u8; BYTES]>, changed: bool) -> Self {
        Self {
            bytes,
            wires: Wires::default(),
            writable: false,
            phase: Phase::Command,
            shift: 0,
            bits: 0,
            changed,
        }
    }

    /// The contents, if they have changed since they were last taken.
    pub(crate) fn take_changed(&mut self) -> Option<Vec<u8>> {
        std::mem::take(&mut self.changed).then(|| self.bytes.to_vec())
    }

    /// Whether the chip believes the contents: the signature of word 0x0A (§6.2.2).
    pub(crate) fn signed(&self) -> bool {
        nvm::is_signed(self.word(word::INIT_1))
    }

    /// The word at `at`; beyond the end the address wraps.
    pub(crate) fn word(&self, at: usize) -> u16 {
        let at = at % WORDS * 2;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Init control 3: a magic packet wakes from power-up on.
    pub(crate) fn apm(&self) -> bool {
        self.word(word::INIT_3) & APM != 0
    }

    /// The station address (words 0 to 2).
    pub(crate) fn mac(&self) -> [u8; 6] {
        nvm::mac([0, 1, 2].map(|at| self.word(word::MAC + at)))
    }

    /// Carries out an EERD read at once. Returns what EERD reads afterwards.
    pub(crate) fn eerd(&self, value: u32) -> u32 {
        let address = value & eerd::ADDRESS;
        if value & eerd::START == 0 {
            return address;
        }
        let at = (address >> eerd::ADDRESS_SHIFT) as usize;
        // Beyond the memory nothing drives the wire.
        let data = if at < WORDS { self.word(at) } else { ERASED };
        u32::from(data) << eerd::DATA_SHIFT | address | eerd::DONE
    }

    /// What EECD reads when `stored` was written to it.
    pub(crate) fn eecd(&self, stored: u32) -> u32 {
        self.wires.eecd(stored)
            | eecd::AUTO_RD
            | eecd::ADDR_BITS
            | (WORDS.ilog2() - 6) << eecd::SIZE_SHIFT
    }

    /// EECD was written: the wires have these levels now. Without REQ they are not connected.
    pub(crate) fn wires(&mut self, value: u32) {
        let selected = value & (eecd::CS | eecd::REQ) == eecd::REQ;
        match self.wires.set(selected, value) {
            Edge::None => {}
            Edge::Select => {
                self.phase = Phase::Command;
                (self.shift, self.bits) = (0, 0);
            }
            Edge::Rise => self.sample(value & eecd::DI != 0),
            Edge::Fall => self.present(),
        }
    }

    /// The clock has risen: the memory takes a bit.
    fn sample(&mut self, di: bool) {
        self.shift = self.shift << 1 | u8::from(di);
        self.bits += 1;
        if self.bits < 8 {
            return;
        }
        self.bits = 0;
        let byte = self.shift;
        self.phase = match self.phase {
            Phase::Command => self.command(byte),
            Phase::Address { command, at, left } => {
                let at = at << 8 | usize::from(byte);
                match (left, command) {
                    (1, op::READ) => Phase::Read { at: at % BYTES },
                    (1, _) => Phase::Write { at: at % BYTES },
                    _ => Phase::Address {
                        command,
                        at,
                        left: left - 1,
                    },
                }
            }
            Phase::Read { at } => Phase::Read {
                at: (at + 1) % BYTES,
            },
            Phase::Write { at } => {
                if self.bytes[at] != byte {
                    self.bytes[at] = byte;
                    self.changed = true;
                }
                Phase::Write {
                    at: at / PAGE * PAGE + (at + 1) % PAGE,
                }
            }
            rest @ (Phase::Status | Phase::Spent) => rest,
        };
    }

    /// The clock has fallen: the memory shows a bit.
    fn present(&mut self) {
        let byte = match self.phase {
            Phase::Read { at } => self.bytes[at],
            // Never busy.
            Phase::Status => u8::from(self.writable) << 1,
            _ => return,
        };
        self.wires.data_out = byte >> (7 - self.bits) & 1 == 1;
    }

    fn command(&mut self, byte: u8) -> Phase {
        match byte {
            op::READ => Phase::Address {
                command: byte,
                at: 0,
                left: 2,
            },
            // A write that is not enabled is not listened to; one that is, disables the next.
            op::WRITE if std::mem::take(&mut self.writable) => Phase::Address {
                command: byte,
                at: 0,
                left: 2,
            },
            op::STATUS => Phase::Status,
            op::WRITE_ENABLE | op::WRITE_DISABLE => {
                self.writable = byte == op::WRITE_ENABLE;
                Phase::Spent
            }
            _ => Phase::Spent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

    fn new() -> Wire {
        Wire(Nvm::new(MAC, 0x10c9, 0xa03c, false))
    }

    struct Wire(Nvm);

    impl Wire {
        fn select(&mut self) {
            self.0.wires(eecd::REQ | eecd::CS);
            self.0.wires(eecd::REQ);
        }

        fn out(&mut self, value: u32, count: u32) {
            for i in (0..count).rev() {
                let di = if value >> i & 1 == 1 { eecd::DI } else { 0 };
                self.0.wires(eecd::REQ | di);
                self.0.wires(eecd::REQ | di | eecd::SK);
                self.0.wires(eecd::REQ | di);
            }
        }

        fn take(&mut self, count: u32) -> u32 {
            let mut value = 0;
            for _ in 0..count {
                self.0.wires(eecd::REQ | eecd::SK);
                value = value << 1 | self.0.eecd(0) >> 3 & 1;
                self.0.wires(eecd::REQ);
            }
            value
        }

        fn command(&mut self, byte: u8) {
            self.select();
            self.out(byte.into(), 8);
        }

        fn read(&mut self, word: u32) -> u16 {
            self.command(op::READ);
            self.out(2 * word, 16);
            (self.take(16) as u16).swap_bytes()
        }

        fn write(&mut self, word: u32, values: &[u16]) {
            self.command(op::WRITE);
            self.out(2 * word, 16);
            for value in values {
                self.out(value.swap_bytes().into(), 16);
            }
        }
    }

    #[test]
    fn the_image_has_mac_ids_and_checksum_both_ways() {
        let mut wire = new();
        assert_eq!(wire.0.mac(), MAC);
        assert!(wire.0.signed());
        let sum = (0..64).fold(0u16, |sum, at| sum.wrapping_add(wire.read(at)));
        assert_eq!(sum, 0xbaba);
        for at in [0, 0x0d, 0x37, 0x3f, 511] {
            let eerd = wire.0.eerd(at << 2 | 1);
            assert_eq!(eerd & 0xffff, at << 2 | 2);
            assert_eq!((eerd >> 16) as u16, wire.read(at));
        }
        assert_eq!(wire.0.eerd(512 << 2 | 1), 0xffff_0000 | 512 << 2 | 2);
        assert_eq!(wire.0.eerd(0x0d << 2), 0x0d << 2);
    }

    #[test]
    fn eecd_tells_size_presence_and_grants() {
        let eecd = new().0.eecd(eecd::REQ);
        assert_eq!(eecd & 0x3c0, 0x3c0);
        // The drivers' reading of the size.
        assert_eq!(1 << ((eecd >> 11 & 0xf) + 6), WORDS);
    }

    #[test]
    fn each_write_needs_its_enable_and_stays_within_a_page() {
        let mut wire = new();
        assert!(wire.0.take_changed().is_some());
        wire.write(5, &[0x1234]);
        assert_eq!(wire.read(5), 0x2010);
        wire.command(op::WRITE_ENABLE);
        wire.command(op::STATUS);
        assert_eq!(wire.take(8), 2);
        wire.write(0x10f, &[0xaaaa, 0xbbbb]);
        assert_eq!(
            [0x10f, 0x100, 0x110].map(|w| wire.read(w)),
            [0xaaaa, 0xbbbb, 0xffff]
        );
        wire.command(op::STATUS);
        assert_eq!(wire.take(8), 0);
        wire.write(5, &[0x1234]);
        assert_eq!(wire.read(5), 0x2010);
        let image = wire.0.take_changed().expect("changed");
        assert_eq!(wire.0.take_changed(), None);
        let again = Nvm::of_image(&image.try_into().expect("1024 bytes"));
        assert_eq!(again.word(0x10f), 0xaaaa);
    }

    #[test]
    fn without_request_nothing_is_heard() {
        let mut wire = new();
        wire.0.wires(eecd::CS);
        for _ in 0..100 {
            wire.0.wires(eecd::DI | eecd::SK);
            wire.0.wires(eecd::DI);
        }
        assert_eq!(wire.read(0x0d), 0x10c9);
    }
}

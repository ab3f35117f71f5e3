//! The serial EEPROM, 64 words, read and written bit by bit through EECD (manual §5.3, §5.6,
//! §13.4.3; the wire protocol is that of a 93C46).

use intel::nvm::{self, ERASED, Edge, Image, Wires, word};

use crate::regs::bits::eecd;
use crate::regs::eeprom::WORDS;
use crate::regs::variant::Variant;

/// Bits of a command: two of opcode, six of address.
const COMMAND: u8 = 8;
const ADDRESS_BITS: u16 = 6;
const ADDRESS: u16 = 0x3f;
/// Bits of a word.
const WORD: u8 = 16;

/// The memory and the state of its wire.
#[derive(Debug)]
pub(crate) struct Eeprom {
    pub(crate) words: [u16; WORDS],
    pub(crate) wires: Wires,
    pub(crate) writable: bool,
    pub(crate) phase: Phase,
    /// Its owner does not know these contents yet.
    pub(crate) changed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// Waiting for the start bit.
    Idle,
    /// Two bits of opcode and six of address.
    Command { bits: u8, value: u16 },
    /// Sending the word at `at`, `left` bits of it to go.
    Read { at: usize, left: u8 },
    /// Taking 16 bits.
    Data {
        bits: u8,
        value: u16,
        target: Target,
    },
    /// Complete; done when chip select falls.
    Commit { value: u16, target: Target },
    /// Nothing more until chip select falls.
    Spent,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Word(usize),
    All,
}

impl Eeprom {
    /// A new one, of a NIC with this MAC address.
    pub(crate) fn new(variant: Variant, mac: [u8; 6], pause: bool) -> Self {
        let image = Image {
            mac,
            device: variant.device(),
            subsystem: variant.subsystem(),
            version: 0x0100, // 1.0
            init_1: 0x4003,  // signature; ids are loaded from here
            pause,
        };
        let mut words = image.words();
        nvm::sign(&mut words);
        Self::of_words(words, true)
    }

    /// One with these contents, as [`Eeprom::take_changed`] gave them.
    pub(crate) fn of_image(image: &[u8; 2 * WORDS]) -> Self {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(image.as_chunks::<2>().0) {
            *word = u16::from_le_bytes(*bytes);
        }
        Self::of_words(words, false)
    }

    fn of_words(words: [u16; WORDS], changed: bool) -> Self {
        Self {
            words,
            wires: Wires::default(),
            writable: false,
            phase: Phase::Idle,
            changed,
        }
    }

    /// The contents, if they have changed since they were last taken.
    pub(crate) fn take_changed(&mut self) -> Option<Vec<u8>> {
        let changed = std::mem::take(&mut self.changed);
        changed.then(|| self.words.iter().flat_map(|w| w.to_le_bytes()).collect())
    }

    /// Whether the chip believes the contents: the signature of word 0x0A (manual §5.6.10).
    pub(crate) fn signed(&self) -> bool {
        nvm::is_signed(self.words[word::INIT_1])
    }

    /// The word at `at`, as EERD sees it; beyond the end the address wraps.
    pub(crate) fn word(&self, at: usize) -> u16 {
        self.words[at % WORDS]
    }

    /// The station address (words 0 to 2).
    pub(crate) fn mac(&self) -> [u8; 6] {
        let [a, b, c, ..] = self.words;
        nvm::mac([a, b, c])
    }

    /// EECD was written: the wires have these levels now.
    pub(crate) fn wires(&mut self, value: u32) {
        match self.wires.set(value & eecd::CS != 0, value) {
            Edge::None | Edge::Fall => {}
            Edge::Select => {
                if let Phase::Commit { value, target } = self.phase {
                    self.commit(target, value);
                }
                self.phase = Phase::Idle;
            }
            Edge::Rise => self.clock(value & eecd::DI != 0),
        }
    }

    fn clock(&mut self, di: bool) {
        self.phase = match self.phase {
            Phase::Idle if di => Phase::Command { bits: 0, value: 0 },
            Phase::Idle => Phase::Idle,
            Phase::Command { bits, value } => {
                let value = value << 1 | u16::from(di);
                if bits + 1 < COMMAND {
                    Phase::Command {
                        bits: bits + 1,
                        value,
                    }
                } else {
                    self.decode(value)
                }
            }
            Phase::Read { at, left } => {
                let (at, left) = if left == 0 {
                    ((at + 1) % WORDS, WORD)
                } else {
                    (at, left)
                };
                self.wires.data_out = self.words[at] >> (left - 1) & 1 == 1;
                Phase::Read { at, left: left - 1 }
            }
            Phase::Data {
                bits,
                value,
                target,
            } => {
                let value = value << 1 | u16::from(di);
                if bits + 1 < WORD {
                    Phase::Data {
                        bits: bits + 1,
                        value,
                        target,
                    }
                } else {
                    Phase::Commit { value, target }
                }
            }
            done @ (Phase::Commit { .. } | Phase::Spent) => done,
        };
    }

    fn decode(&mut self, command: u16) -> Phase {
        let at = usize::from(command & ADDRESS);
        let data = |target| Phase::Data {
            bits: 0,
            value: 0,
            target,
        };
        match (command >> ADDRESS_BITS, at >> 4) {
            (0b10, _) => {
                // A 0 bit goes before the data.
                self.wires.data_out = false;
                Phase::Read { at, left: WORD }
            }
            (0b01, _) => data(Target::Word(at)),
            (0b11, _) => Phase::Commit {
                value: ERASED,
                target: Target::Word(at),
            },
            (_, 0b11) => {
                self.writable = true;
                Phase::Spent
            }
            (_, 0b00) => {
                self.writable = false;
                Phase::Spent
            }
            (_, 0b10) => Phase::Commit {
                value: ERASED,
                target: Target::All,
            },
            (_, _) => data(Target::All),
        }
    }

    fn commit(&mut self, target: Target, value: u16) {
        if !self.writable {
            return;
        }
        let before = self.words;
        match target {
            Target::Word(at) => self.words[at] = value,
            Target::All => self.words = [value; WORDS],
        }
        self.changed |= self.words != before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

    const EWEN: u32 = 0b1_0011_0000;
    const EWDS: u32 = 0b1_0000_0000;
    const WRAL: u32 = 0b1_0001_0000;
    const ERAL: u32 = 0b1_0010_0000;

    struct Wire(Eeprom);

    impl Wire {
        fn bits(&mut self, value: u32, count: u32) {
            for i in (0..count).rev() {
                let di = if value >> i & 1 == 1 { eecd::DI } else { 0 };
                self.0.wires(eecd::CS | di);
                self.0.wires(eecd::CS | di | eecd::SK);
                self.0.wires(eecd::CS | di);
            }
        }

        fn read_bits(&mut self) -> u16 {
            let mut value = 0;
            for _ in 0..16 {
                self.0.wires(eecd::CS | eecd::SK);
                value = value << 1 | u16::from(self.0.wires.data_out);
                self.0.wires(eecd::CS);
            }
            value
        }

        fn read(&mut self, at: u32) -> u16 {
            self.0.wires(eecd::CS);
            self.bits(0b110, 3);
            self.bits(at, 6);
            assert!(!self.0.wires.data_out, "a 0 goes before the data");
            let value = self.read_bits();
            self.0.wires(0);
            value
        }

        fn command(&mut self, bits: u32, count: u32) {
            self.0.wires(eecd::CS);
            self.bits(bits, count);
            self.0.wires(0);
        }

        fn write(&mut self, at: u32, value: u16) {
            self.command((0b101 << 6 | at) << 16 | u32::from(value), 25);
        }
    }

    #[test]
    fn the_image_has_mac_ids_and_checksum() {
        let mut wire = Wire(Eeprom::new(Variant::I82540Em, MAC, false));
        assert_eq!(wire.read(0), 0x5452);
        assert_eq!(wire.read(0x0d), 0x100e);
        let sum = (0..64).fold(0u16, |sum, at| sum.wrapping_add(wire.read(at)));
        assert_eq!(sum, 0xbaba);
        assert_eq!(wire.0.mac(), MAC);
    }

    #[test]
    fn reading_on_gives_the_next_word() {
        let mut wire = Wire(Eeprom::new(Variant::I82540Em, MAC, false));
        wire.0.wires(eecd::CS);
        wire.bits(0b110, 3);
        wire.bits(63, 6);
        let last = wire.read_bits();
        assert_eq!(last, wire.0.word(63));
        assert_eq!(wire.read_bits(), 0x5452, "wraps to word 0");
    }

    #[test]
    fn writes_need_the_enable_command() {
        let mut wire = Wire(Eeprom::new(Variant::I82540Em, MAC, false));
        wire.write(5, 0x1234);
        assert_eq!(wire.read(5), 0x0100);
        wire.command(EWEN, 9);
        wire.write(5, 0x1234);
        assert_eq!(wire.read(5), 0x1234);
        wire.command(0b111 << 6 | 5, 9);
        assert_eq!(wire.read(5), 0xffff);
        wire.command(EWDS, 9);
        wire.write(5, 0x1234);
        assert_eq!(wire.read(5), 0xffff);
    }

    #[test]
    fn bulk_write_and_erase_reach_every_word() {
        let mut wire = Wire(Eeprom::new(Variant::I82540Em, MAC, false));
        wire.command(EWEN, 9);
        wire.command((WRAL << 16) | 0xa5a5, 25);
        assert!((0..64).all(|at| wire.read(at) == 0xa5a5));
        wire.command(ERAL, 9);
        assert!((0..64).all(|at| wire.read(at) == 0xffff));
    }

    #[test]
    fn its_owner_is_told_of_changes_once() {
        let mut wire = Wire(Eeprom::new(Variant::I82545Em, MAC, true));
        let new = wire.0.take_changed().expect("a new image");
        assert_eq!(new[..6], MAC);
        assert_eq!(new[0x1a..0x1c], [0x0f, 0x10]);
        assert_eq!(wire.0.take_changed(), None);
        wire.command(EWEN, 9);
        wire.write(5, 0x0100);
        assert_eq!(wire.0.take_changed(), None, "the word was that before");
        wire.write(5, 0x1234);
        let image = wire.0.take_changed().expect("changed");
        assert_eq!(image[10..12], [0x34, 0x12]);
        let mut again = Eeprom::of_image(&image.try_into().expect("128 bytes"));
        assert_eq!(again.words, wire.0.words);
        assert!(again.signed());
        assert_eq!(again.take_changed(), None);
        wire.command(ERAL, 9);
        assert!(!wire.0.signed());
    }

    #[test]
    fn a_command_cut_short_does_nothing() {
        let mut wire = Wire(Eeprom::new(Variant::I82540Em, MAC, false));
        wire.command(EWEN, 9);
        wire.command(0b101 << 6 | 5, 9);
        wire.command((0b101 << 6 | 5) << 8 | 0xff, 17);
        assert_eq!(wire.read(5), 0x0100);
    }
}

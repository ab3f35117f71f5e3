//! The 93C46: 64 words, read bit by bit through EECR (50h). It is write-protected.

use crate::regs::bits::eecr;

/// Words.
pub(crate) const WORDS: usize = 64;
/// Bits of a command: two of opcode, six of address.
const COMMAND: u8 = 8;
const ADDRESS: u16 = 0x3f;
/// Bits of a word.
const WORD: u8 = 16;
/// What the chip believes an image by.
const SIGNATURE: u16 = 0x8129;
/// Where the station address is.
const MAC: usize = 7;

/// Where a command has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for the start bit.
    #[default]
    Idle,
    /// Taking opcode and address.
    Command { bits: u8, value: u16 },
    /// Sending the word at `at`, `left` bits of it to go.
    Read { at: u8, left: u8 },
    /// Nothing more until it is selected anew.
    Spent,
}

/// The memory, and the state of its wires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eeprom {
    mac: [u8; 6],
    pub phase: Phase,
    /// The levels of chip select and clock.
    pub cs: bool,
    pub sk: bool,
    /// What it shows.
    pub data_out: bool,
}

impl Eeprom {
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            phase: Phase::Idle,
            cs: false,
            sk: false,
            data_out: true,
        }
    }

    /// The station address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn word(&self, at: usize) -> u16 {
        match at {
            0 => SIGNATURE,
            1 | 3 => 0x10ec,
            2 | 4 => 0x8168,
            _ => {
                let pair = at
                    .checked_sub(MAC)
                    .and_then(|i| self.mac.as_chunks::<2>().0.get(i));
                pair.map_or(0xffff, |pair| u16::from_le_bytes(*pair))
            }
        }
    }

    /// The pins have these levels now. `true`: a command would have changed the contents.
    pub fn wires(&mut self, value: u32) -> bool {
        let (cs, sk) = (value & eecr::CS != 0, value & eecr::SK != 0);
        let rises = cs && self.cs && sk && !self.sk;
        if cs != self.cs {
            self.phase = Phase::Idle;
            self.data_out = true;
        }
        (self.cs, self.sk) = (cs, sk);
        rises && self.take(value & eecr::DI != 0)
    }

    /// The clock has risen.
    fn take(&mut self, bit: bool) -> bool {
        match self.phase {
            Phase::Idle if bit => self.phase = Phase::Command { bits: 0, value: 0 },
            Phase::Idle | Phase::Spent => {}
            Phase::Command { bits, value } => {
                let (bits, value) = (bits + 1, value << 1 | u16::from(bit));
                if bits < COMMAND {
                    self.phase = Phase::Command { bits, value };
                    return false;
                }
                self.phase = Phase::Spent;
                match value >> 6 {
                    0b10 => {
                        // A zero goes before the word.
                        self.data_out = false;
                        self.phase = Phase::Read {
                            at: (value & ADDRESS) as u8,
                            left: WORD,
                        };
                    }
                    // Of the others only EWDS changes nothing.
                    0b00 => return value & ADDRESS >> 4 << 4 != 0,
                    _ => return true,
                }
            }
            Phase::Read { at, left } => {
                let left = left - 1;
                self.data_out = self.word(at.into()) >> left & 1 != 0;
                // The next word follows.
                self.phase = match left {
                    0 => Phase::Read {
                        at: (at + 1) % WORDS as u8,
                        left: WORD,
                    },
                    left => Phase::Read { at, left },
                };
            }
        }
        false
    }
}

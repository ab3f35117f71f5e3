//! What the EEPROMs of all chips hold in their first 64 words (8254x manual §5.6, 82576 datasheet §6). How they
//! are read and written on the wire differs.

use crate::bits::eecd;

/// Addresses of words.
pub mod word {
    /// The station address, three words.
    pub const MAC: usize = 0;
    /// Compatibility.
    pub const COMPATIBILITY: usize = 0x03;
    /// Version of the image.
    pub const VERSION: usize = 0x05;
    /// PBA number, two words.
    pub const PBA: usize = 0x08;
    /// Init control 1: the signature, and what is loaded from here.
    pub const INIT_1: usize = 0x0a;
    /// Subsystem id.
    pub const SUBSYSTEM: usize = 0x0b;
    /// Subsystem vendor.
    pub const SUBSYSTEM_VENDOR: usize = 0x0c;
    /// Device id.
    pub const DEVICE: usize = 0x0d;
    /// Vendor.
    pub const VENDOR: usize = 0x0e;
    /// Init control 2.
    pub const INIT_2: usize = 0x0f;
    /// Init control 3 of the second function.
    pub const INIT_3_SECOND: usize = 0x14;
    /// Init control 3 of the (first) function.
    pub const INIT_3: usize = 0x24;
    /// What makes the sum right.
    pub const CHECKSUM: usize = 0x3f;
}

/// What the words up to the checksum sum to.
pub const SUM: u16 = 0xbaba;
/// What is not written.
pub const ERASED: u16 = 0xffff;

const INTEL: u16 = 0x8086;
/// Init control 2: pause both ways.
const PAUSE: u16 = 0x3000;
/// Init control 1: where the signature is, and what it is.
const SIGNATURE_SHIFT: u32 = 14;
const SIGNATURE: u16 = 0b01;

/// The wires of an EEPROM: two that EECD drives, as they are, and the one that the EEPROM drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wires {
    /// The level of the clock.
    pub sk: bool,
    /// The EEPROM is selected.
    pub selected: bool,
    /// What it shows.
    pub data_out: bool,
}

impl Default for Wires {
    fn default() -> Self {
        Self {
            sk: false,
            selected: false,
            data_out: true,
        }
    }
}

/// What new levels are to an EEPROM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Nothing.
    None,
    /// It is selected, or is so no more; it shows nothing yet.
    Select,
    /// The clock rises: it takes a bit.
    Rise,
    /// The clock falls.
    Fall,
}

impl Wires {
    /// EECD has been written: these are the levels. The clock of an EEPROM that is not selected means nothing.
    pub fn set(&mut self, selected: bool, eecd: u32) -> Edge {
        let sk = eecd & eecd::SK != 0;
        let edge = match (self.selected, selected) {
            (true, true) if sk && !self.sk => Edge::Rise,
            (true, true) if !sk && self.sk => Edge::Fall,
            (was, is) if was != is => Edge::Select,
            _ => Edge::None,
        };
        if edge == Edge::Select {
            self.data_out = true;
        }
        self.sk = sk;
        self.selected = selected;
        edge
    }

    /// What EECD reads when `stored` was written to it. Access is granted at once: there is no other user of
    /// the memory.
    pub fn eecd(&self, stored: u32) -> u32 {
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        stored
            | eecd::PRES
            | flag(stored & eecd::REQ != 0, eecd::GNT)
            | flag(self.data_out, eecd::DO)
    }
}

/// What is a chip's own in a new image.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// Station address.
    pub mac: [u8; 6],
    /// PCI device.
    pub device: u16,
    /// PCI subsystem, of Intel.
    pub subsystem: u16,
    /// Version of the image.
    pub version: u16,
    /// Init control 1.
    pub init_1: u16,
    /// Pause frames are offered.
    pub pause: bool,
}

impl Image {
    /// The words of a new EEPROM. What an image does not set is as erased; no magic packet wakes.
    pub fn words<const WORDS: usize>(&self) -> [u16; WORDS] {
        let mut words = [ERASED; WORDS];
        for (word, pair) in words.iter_mut().zip(self.mac.as_chunks::<2>().0) {
            *word = u16::from_le_bytes(*pair);
        }
        let fixed = [
            (word::COMPATIBILITY, 0),
            (word::VERSION, self.version),
            (word::PBA, 0),
            (word::PBA + 1, 0),
            (word::INIT_1, self.init_1),
            (word::SUBSYSTEM, self.subsystem),
            (word::SUBSYSTEM_VENDOR, INTEL),
            (word::DEVICE, self.device),
            (word::VENDOR, INTEL),
            (word::INIT_2, if self.pause { PAUSE } else { 0 }),
            (word::INIT_3, 0),
        ];
        for (at, value) in fixed {
            words[at] = value;
        }
        words
    }
}

/// Makes the sum of an image right.
pub fn sign(words: &mut [u16]) {
    let others = words[..word::CHECKSUM].iter();
    words[word::CHECKSUM] = others.fold(SUM, |sum, word| sum.wrapping_sub(*word));
}

/// Whether the chip believes an image with this word at [`word::INIT_1`].
pub fn is_signed(init_1: u16) -> bool {
    init_1 >> SIGNATURE_SHIFT == SIGNATURE
}

/// The station address in the first three words.
pub fn mac(words: [u16; 3]) -> [u8; 6] {
    let [[a, b], [c, d], [e, f]] = words.map(u16::to_le_bytes);
    [a, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_counts_while_the_memory_stays_selected() {
        let mut wires = Wires::default();
        assert_eq!(wires.set(false, eecd::SK), Edge::None);
        assert_eq!(wires.set(true, 0), Edge::Select);
        wires.data_out = false;
        assert_eq!(wires.set(true, eecd::SK), Edge::Rise);
        assert_eq!(wires.set(true, eecd::SK), Edge::None);
        assert_eq!(wires.set(true, 0), Edge::Fall);
        assert_eq!(wires.eecd(0), eecd::PRES);
        assert_eq!(wires.set(false, eecd::SK), Edge::Select);
        let granted = eecd::REQ | eecd::GNT;
        assert_eq!(wires.eecd(eecd::REQ), granted | eecd::PRES | eecd::DO);
    }

    #[test]
    fn a_new_image_is_signed_and_sums_up() {
        let image = Image {
            mac: [2, 1, 2, 3, 4, 5],
            device: 0x1234,
            subsystem: 0x5678,
            version: 0x0100,
            init_1: 0x4000,
            pause: true,
        };
        let mut words = image.words::<64>();
        sign(&mut words);
        assert_eq!(mac([words[0], words[1], words[2]]), image.mac);
        assert_eq!(words[word::DEVICE], 0x1234);
        assert_eq!(words[word::INIT_2], PAUSE);
        assert_eq!(words[0x20], ERASED);
        assert!(is_signed(words[word::INIT_1]) && !is_signed(ERASED));
        assert_eq!(words.iter().fold(0u16, |sum, w| sum.wrapping_add(*w)), SUM);
    }
}

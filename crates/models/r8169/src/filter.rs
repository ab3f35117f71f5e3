//! Which frames are received (RCR, IDR, MAR).

pub(crate) mod wake;

use regs::File;

use crate::core::queues::Group;
use crate::regs as r;
use crate::regs::bits::rcr;
use crate::regs::variant::Variant;

/// Whether frames to `dst` are received.
#[inline]
pub(crate) fn accepts(variant: Variant, file: &File, dst: [u8; 6]) -> bool {
    let on = |bit| file.get(r::RCR) & bit != 0;
    match Group::of(dst) {
        Group::Station => on(rcr::AAP) || on(rcr::APM) && is_station(file, dst),
        Group::Broadcast => on(rcr::AB),
        Group::Multicast => on(rcr::AM) && is_hashed(variant, file, dst),
    }
}

/// Whether it is the own address.
#[inline]
pub(crate) fn is_station(file: &File, dst: [u8; 6]) -> bool {
    let [a, b, c, d, e, f] = dst;
    file.get(r::IDR0_3) == u32::from_le_bytes([a, b, c, d])
        && file.get(r::IDR4_5) == u32::from_le_bytes([e, f, 0, 0])
}

/// The own address.
pub(crate) fn station(file: &File) -> [u8; 6] {
    let [a, b, c, d] = file.get(r::IDR0_3).to_le_bytes();
    let [e, f, ..] = file.get(r::IDR4_5).to_le_bytes();
    [a, b, c, d, e, f]
}

/// Which of the 64 bits of MAR an address has: the upper six of its big-endian CRC.
fn hash(dst: [u8; 6]) -> u32 {
    let crc = u32::from_le_bytes(datapath::fcs_of(&dst));
    (!crc).reverse_bits() >> 26
}

/// Unlike the 8169, the 8168 has the eight bytes of MAR in the order of a big-endian number.
fn is_hashed(variant: Variant, file: &File, dst: [u8; 6]) -> bool {
    let bit = hash(dst);
    let byte = if variant.is_first() {
        bit / 8
    } else {
        7 - bit / 8
    };
    let word = file.get(if byte < 4 { r::MAR0_3 } else { r::MAR4_7 });
    word >> (byte % 4 * 8 + bit % 8) & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: Variant = Variant::Rtl8168C;

    /// As Linux sets it: bit b of two words, which for the 8168 are swapped, and so are their bytes.
    fn set(variant: Variant, file: &File, dst: [u8; 6]) {
        let mut crc = u32::MAX;
        for byte in dst {
            for bit in 0..8 {
                let carry = (crc >> 31) ^ u32::from(byte >> bit & 1);
                crc = crc << 1 ^ if carry & 1 != 0 { 0x04c1_1db7 } else { 0 };
            }
        }
        let bit = crc >> 26;
        let mut filter = [0u32; 2];
        filter[bit as usize >> 5] |= 1 << (bit & 31);
        if variant != Variant::Rtl8169S {
            filter = [filter[1].swap_bytes(), filter[0].swap_bytes()];
        }
        file.set(r::MAR0_3, filter[0]);
        file.set(r::MAR4_7, filter[1]);
    }

    #[test]
    fn groups_are_let_in_by_the_hash_that_linux_writes() {
        for variant in [C, Variant::Rtl8168H, Variant::Rtl8169S] {
            let file = File::new(r::table());
            for last in 0..=255 {
                let dst = [1, 0, 0x5e, 0, 0, last];
                set(variant, &file, dst);
                assert!(!accepts(variant, &file, dst), "AM is off");
                file.set(r::RCR, rcr::AM);
                assert!(accepts(variant, &file, dst));
                let others = (0..=255).filter(|i| accepts(variant, &file, [1, 0, 0x5e, 0, 0, *i]));
                assert!(others.count() < 20, "one bit of 64");
                file.set(r::RCR, 0);
            }
        }
    }

    #[test]
    fn each_kind_of_address_has_a_bit_of_its_own() {
        let file = File::new(r::table());
        file.set(r::IDR0_3, 0x0403_0201);
        file.set(r::IDR4_5, 0x0605);
        // An even first byte is a single station's.
        file.set(r::IDR0_3, 0x0403_0202);
        let (own, other) = ([2, 2, 3, 4, 5, 6], [2, 2, 3, 4, 5, 7]);
        let all = |bits| {
            file.set(r::RCR, bits);
            [own, other, [0xff; 6], [1, 0, 0x5e, 0, 0, 1]].map(|dst| accepts(C, &file, dst))
        };
        file.set(r::MAR0_3, u32::MAX);
        file.set(r::MAR4_7, u32::MAX);
        assert_eq!(all(rcr::APM), [true, false, false, false]);
        assert_eq!(all(rcr::AAP), [true, true, false, false]);
        assert_eq!(all(rcr::AB), [false, false, true, false]);
        assert_eq!(all(rcr::AM), [false, false, false, true]);
        assert_eq!(all(0), [false; 4]);
    }
}

//! The Internet checksum (RFC 1071), whole, in parts and by difference.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A ones' complement sum in the making.
///
/// Parts may be of any length: a part that begins at an odd byte of the whole is folded in with
/// its bytes swapped (RFC 1071 §2 (B)), so the sum of slices is the sum of their concatenation.
///
/// ```
/// use hypernic_wire::Sum;
/// let bytes = [0x45, 0x00, 0x00, 0x73, 0x12];
/// let mut parts = Sum::ZERO;
/// parts.add(&bytes[..3]);
/// parts.add(&bytes[3..]);
/// assert_eq!(parts.finish(), Sum::of(&bytes).finish());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    folded: u16,
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum {
        folded: 0,
        odd: false,
    };

    /// The sum of `bytes`.
    pub fn of(bytes: &[u8]) -> Sum {
        Sum {
            folded: partial(bytes),
            odd: bytes.len() % 2 == 1,
        }
    }

    /// A sum that starts from `value`, for instance one found in a checksum field.
    pub const fn from_value(value: u16) -> Sum {
        Sum {
            folded: value,
            odd: false,
        }
    }

    /// The pseudo-header of TCP or UDP over IPv4 (RFC 793 §3.1); `len` is header plus payload.
    pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u32) -> Sum {
        let mut sum = Sum::of(&src.octets());
        sum.add(&dst.octets());
        sum.tail(protocol, len);
        sum
    }

    /// The pseudo-header of TCP or UDP over IPv6 (RFC 8200 §8.1); `len` is header plus payload.
    pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: u32) -> Sum {
        let mut sum = Sum::of(&src.octets());
        sum.add(&dst.octets());
        sum.tail(protocol, len);
        sum
    }

    fn tail(&mut self, protocol: u8, len: u32) {
        self.add_word(protocol.into());
        self.add_word((len >> 16) as u16);
        self.add_word(len as u16);
    }

    /// Adds the bytes that follow those added so far.
    pub fn add(&mut self, bytes: &[u8]) {
        self.add_part(partial(bytes), bytes.len());
    }

    /// Adds `len` bytes that follow those added so far and were summed elsewhere: `part` is their
    /// sum as [`Sum::value`] gives it.
    pub fn add_part(&mut self, part: u16, len: usize) {
        let part = if self.odd { part.swap_bytes() } else { part };
        self.folded = add16(self.folded, part);
        self.odd ^= len % 2 == 1;
    }

    /// Adds a 16-bit word that stands at an even place, wherever the bytes have got to.
    pub fn add_word(&mut self, word: u16) {
        self.folded = add16(self.folded, word);
    }

    /// The sum, not complemented: what a pseudo-header seed holds.
    pub const fn value(self) -> u16 {
        self.folded
    }

    /// The checksum: the complement of the sum.
    pub const fn finish(self) -> u16 {
        !self.folded
    }

    /// The checksum as it is sent, where 0 would mean "none": 0 is sent as 0xFFFF (RFC 768).
    /// Both stand for the same number, so it is right for TCP too.
    pub const fn finish_nonzero(self) -> u16 {
        match !self.folded {
            0 => 0xffff,
            other => other,
        }
    }

    /// Whether data summed together with its checksum is intact.
    pub const fn is_intact(self) -> bool {
        self.folded == 0xffff
    }
}

/// The checksum of data in which `old` at an even place became `new` (RFC 1624, equation 3).
///
/// ```
/// use hypernic_wire::{Sum, update};
/// let before = Sum::of(&[0x12, 0x34, 0x56, 0x78]).finish();
/// let after = Sum::of(&[0x12, 0x34, 0x9a, 0xbc]).finish();
/// assert_eq!(update(before, 0x5678, 0x9abc), after);
/// ```
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !add16(add16(!checksum, !old), new)
}

/// Whether the bytes of an IPv4 header sum up.
pub fn ipv4_header_intact(header: &[u8]) -> bool {
    Sum::of(header).is_intact()
}

const fn add16(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

/// Big-endian ones' complement sum of `bytes`, padded with a zero byte when odd.
fn partial(bytes: &[u8]) -> u16 {
    // The sum does not depend on byte order but for one swap at the end (RFC 1071 §2 (B)), nor on
    // word size as long as carries are kept, so whole native words go into wide lanes.
    let mut lanes = [0u64; 4];
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            *lane += wide(word);
        }
    }
    let mut total: u64 = lanes.into_iter().sum();
    let mut words = blocks.remainder().chunks_exact(8);
    for word in &mut words {
        total += wide(word);
    }
    let mut rest = words.remainder();
    if let Some((four, behind)) = rest.split_first_chunk::<4>() {
        total += u64::from(u32::from_ne_bytes(*four));
        rest = behind;
    }
    if let Some((two, behind)) = rest.split_first_chunk::<2>() {
        total += u64::from(u16::from_ne_bytes(*two));
        rest = behind;
    }
    if let [last] = rest {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    // 64 bits become 33, then those words are added up.
    total = (total & 0xffff_ffff) + (total >> 32);
    u16::from_be(folded(total))
}

/// The words of fewer than 48 bits, added up with the carries.
#[inline]
pub(crate) const fn folded(total: u64) -> u16 {
    // 33 bits, 18, 17, 16.
    let total = (total & 0xffff) + (total >> 16);
    let total = (total & 0xffff) + (total >> 16);
    (total + (total >> 16)) as u16
}

/// The two halves of eight bytes, added so that no carry is lost.
fn wide(word: &[u8]) -> u64 {
    let word = word
        .first_chunk::<8>()
        .map_or(0, |eight| u64::from_ne_bytes(*eight));
    (word & 0xffff_ffff) + (word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_ipv4_header_is_intact_until_a_bit_of_it_changes() {
        let mut header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 192, 168, 0, 1, 192, 168, 0,
            199,
        ];
        assert!(ipv4_header_intact(&header));
        for at in 0..20 {
            header[at] ^= 0x10;
            assert!(!ipv4_header_intact(&header), "{at}");
            header[at] ^= 0x10;
        }
    }

    /// RFC 1071 §1 word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).value(), 0xddf2);
    }

    #[test]
    fn zero_is_never_sent() {
        assert_eq!(Sum::from_value(0xffff).finish(), 0);
        assert_eq!(Sum::from_value(0xffff).finish_nonzero(), 0xffff);
        assert_eq!(Sum::from_value(0x1234).finish_nonzero(), !0x1234);
    }

    #[test]
    fn carries_survive_the_longest_frames() {
        assert_eq!(Sum::of(&[0xff; 1 << 17]).value(), 0xffff);
    }

    proptest! {
        #[test]
        fn any_bytes_as_the_naive_sum(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Sum::of(&bytes).value(), naive(&bytes));
        }

        #[test]
        fn parts_sum_to_the_whole(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8)
        ) {
            let mut sum = Sum::ZERO;
            parts.iter().for_each(|part| sum.add(part));
            prop_assert_eq!(sum.value(), naive(&parts.concat()));
            let mut sum = Sum::ZERO;
            parts.iter().for_each(|part| sum.add_part(Sum::of(part).value(), part.len()));
            prop_assert_eq!(sum.value(), naive(&parts.concat()));
        }

        #[test]
        fn difference_as_anew(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..64), at: usize, new: u16
        ) {
            let at = at % (bytes.len() / 2) * 2;
            let before = Sum::of(&bytes).finish();
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let mut sum = Sum::of(&bytes);
            // 0 and 0xFFFF are the same number; compare by whether the receiver is content.
            sum.folded = add16(sum.folded, update(before, old, new));
            prop_assert!(sum.is_intact() || sum.folded == 0);
        }
    }
}

//! The checksum of SCTP (RFC 9260 appendix A): CRC-32 with Castagnoli's polynomial.

/// A CRC32c in the making.
///
/// ```
/// use hypernic_wire::Crc32c;
/// let mut crc = Crc32c::new();
/// crc.add(b"1234");
/// crc.add(b"56789");
/// assert_eq!(crc.finish(), 0xe306_9283);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc32c {
    /// Of nothing.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds the bytes that follow.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The checksum. SCTP sends its least significant byte first.
    pub const fn finish(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Castagnoli's polynomial, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    #[test]
    fn it_is_that_of_the_standard() {
        // RFC 3720 appendix B.4.
        let of = |bytes: &[u8]| {
            let mut crc = Crc32c::new();
            crc.add(bytes);
            crc.finish()
        };
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(of(&up), 0x46dd_794e);
    }

    proptest! {
        #[test]
        fn in_parts_and_bit_by_bit_it_is_the_same(bytes: Vec<u8>, cut: usize) {
            let (a, b) = bytes.split_at(cut % (bytes.len() + 1));
            let mut parts = Crc32c::new();
            parts.add(a);
            parts.add(b);
            let mut crc = u32::MAX;
            for byte in &bytes {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
                }
            }
            prop_assert_eq!(parts.finish(), !crc);
        }
    }
}

//! The checksum of SCTP (RFC 9260 appendix A): CRC-32 with Castagnoli's polynomial.

/// Castagnoli's polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What a byte does to the remainder when 0 to 7 more follow it.
const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut more = 1;
    while more < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[more - 1][byte];
            tables[more][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        more += 1;
    }
    tables
};

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
        Self(u32::MAX)
    }

    /// Adds the bytes that follow.
    pub fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word) ^ u64::from(self.0);
            self.0 = word
                .to_le_bytes()
                .iter()
                .zip(TABLES.iter().rev())
                .fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)]);
        }
        for byte in rest {
            let at = (self.0 ^ u32::from(*byte)) & 0xff;
            self.0 = (self.0 >> 8) ^ TABLES[0][at as usize];
        }
    }

    /// The checksum. SCTP sends its least significant byte first.
    pub const fn finish(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

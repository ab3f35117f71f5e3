//! The Toeplitz hash, by which receivers spread flows over queues (Microsoft's RSS).

/// Bytes of a key.
pub const KEY: usize = 40;
/// Bytes hashed at most: two IPv6 addresses and the ports.
pub const INPUT: usize = 36;

/// The hash of `input`, at most [`INPUT`] bytes.
pub fn toeplitz(key: &[u8; KEY], input: &[u8]) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (byte, next) in input.iter().zip(&key[4..]) {
        for bit in (0..8).rev() {
            // All ones where the bit is set.
            hash ^= window & 0u32.wrapping_sub(u32::from(byte >> bit & 1));
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

/// The same with a key that stays: half a byte costs one load.
#[derive(Clone)]
pub struct Toeplitz {
    /// The hash of each value of each half byte, the upper half of a byte first.
    halves: Box<[[u32; 16]; 2 * INPUT]>,
}

impl Toeplitz {
    /// By this key.
    pub fn new(key: &[u8; KEY]) -> Self {
        let mut halves = Box::new([[0; 16]; 2 * INPUT]);
        for (at, row) in halves.iter_mut().enumerate() {
            for (value, hash) in (0..).zip(row) {
                let mut input = [0; INPUT];
                let byte: &mut u8 = &mut input[at / 2];
                *byte = if at.is_multiple_of(2) {
                    value << 4
                } else {
                    value
                };
                *hash = toeplitz(key, &input);
            }
        }
        Self { halves }
    }

    /// The hash of `input`, at most [`INPUT`] bytes.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let (rows, _) = self.halves.as_chunks::<2>();
        input.iter().zip(rows).fold(0, |hash, (byte, [high, low])| {
            hash ^ high[usize::from(byte >> 4)] ^ low[usize::from(byte & 15)]
        })
    }
}

impl std::fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Toeplitz")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The key of Microsoft's verification suite.
    const SUITE: [u8; KEY] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn hashes_are_those_of_the_verification_suite() {
        let addresses = [66, 9, 149, 187, 161, 142, 100, 80];
        let ports = [2794u16.to_be_bytes(), 1766u16.to_be_bytes()].concat();
        let both = [&addresses[..], &ports].concat();
        for (input, hash) in [(&addresses[..], 0x323e_8fc2), (&both, 0x51cc_c178)] {
            assert_eq!(toeplitz(&SUITE, input), hash);
            assert_eq!(Toeplitz::new(&SUITE).hash(input), hash);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]
        #[test]
        fn by_halves_of_bytes_it_is_the_same(
            key in any::<[u8; KEY]>(),
            input in proptest::collection::vec(any::<u8>(), 0..=INPUT),
        ) {
            prop_assert_eq!(Toeplitz::new(&key).hash(&input), toeplitz(&key, &input));
        }
    }
}

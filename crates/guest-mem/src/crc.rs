//! The CRC of short runs by carry-less multiplication. Tables are as fast only while they are in the
//! nearest cache, which they leave for frames.

/// The CRC-32 of IEEE 802.3 (§3.2.9) of 16 to 127 bytes. `None` for others, for which a general
/// routine is as good, and on processors that cannot do it.
#[inline]
pub fn crc32_short(bytes: &[u8]) -> Option<u32> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if (16..128).contains(&bytes.len())
        && std::arch::is_x86_feature_detected!("pclmulqdq")
        && std::arch::is_x86_feature_detected!("sse4.1")
    {
        // SAFETY: the processor has what it needs.
        return Some(unsafe { x86::fold(bytes) });
    }
    let _ = bytes;
    None
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_clmulepi64_si128, _mm_extract_epi32, _mm_set_epi32,
        _mm_set_epi64x, _mm_srli_si128, _mm_xor_si128,
    };

    const BLOCK: usize = 16;

    /// Reduces by 16 bytes at a time, then to 64 and to 32 bits (Gopal et al., Fast CRC Computation
    /// for Generic Polynomials Using PCLMULQDQ Instruction, Intel 2009; the constants are remainders
    /// of powers of x for the reflected polynomial).
    ///
    /// Zeros in front change nothing, so what is no multiple of 16 bytes long gets some.
    #[target_feature(enable = "pclmulqdq,sse4.1")]
    pub(super) fn fold(bytes: &[u8]) -> u32 {
        let odd = bytes.len() % BLOCK;
        // The register starts with all ones, which is to say that the first four bytes are inverted.
        let ones = u128::from(u32::MAX);
        let mut blocks = bytes[odd..].as_chunks::<BLOCK>().0.iter();
        let mut folded;
        if odd == 0 {
            folded = vector(blocks.next().map_or(0, |b| u128::from_le_bytes(*b)) ^ ones);
        } else {
            let first = bytes.first_chunk().map_or(0, |b| u128::from_le_bytes(*b));
            folded = vector((first ^ ones) << (8 * (BLOCK - odd)));
            let next = blocks.next().map_or(0, |b| u128::from_le_bytes(*b));
            folded = onto(folded, vector(next ^ (ones >> (8 * odd))));
        }
        for block in blocks {
            folded = onto(folded, vector(u128::from_le_bytes(*block)));
        }
        let low = _mm_set_epi32(0, 0, 0, -1);
        let to_96 = _mm_clmulepi64_si128::<0x10>(folded, by_128());
        let x = _mm_xor_si128(to_96, _mm_srli_si128::<8>(folded));
        let by_64 = _mm_set_epi64x(0, 0x1_63cd_6124);
        let to_64 = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(x, low), by_64);
        let x = _mm_xor_si128(to_64, _mm_srli_si128::<4>(x));
        // Barrett: the quotient's factor above, the polynomial below.
        let barrett = _mm_set_epi64x(0x1_f701_1641, 0x1_db71_0641);
        let quotient = _mm_clmulepi64_si128::<0x10>(_mm_and_si128(x, low), barrett);
        let product = _mm_clmulepi64_si128::<0x00>(_mm_and_si128(quotient, low), barrett);
        !_mm_extract_epi32::<1>(_mm_xor_si128(x, product)).cast_unsigned()
    }

    #[target_feature(enable = "sse2")]
    fn vector(block: u128) -> __m128i {
        _mm_set_epi64x((block >> 64) as i64, block as i64)
    }

    /// What moves a block on by one.
    #[target_feature(enable = "sse2")]
    fn by_128() -> __m128i {
        _mm_set_epi64x(0x0_ccaa_009e, 0x1_7519_97d0)
    }

    #[target_feature(enable = "pclmulqdq,sse4.1")]
    fn onto(folded: __m128i, next: __m128i) -> __m128i {
        let low = _mm_clmulepi64_si128::<0x00>(folded, by_128());
        let high = _mm_clmulepi64_si128::<0x11>(folded, by_128());
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit (IEEE 802.3 §3.2.9).
    fn plain(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            }
        }
        !crc
    }

    #[test]
    fn the_check_value() {
        assert_eq!(plain(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the processor's instruction")]
    fn what_it_takes() {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("pclmulqdq") {
            for len in 0..300 {
                let answered = crc32_short(&vec![7; len]).is_some();
                assert_eq!(answered, (16..128).contains(&len), "{len}");
            }
        }
    }

    #[test]
    fn as_bit_by_bit_at_every_length() {
        let mut random = 1u64;
        for _ in 0..20 {
            let bytes: Vec<u8> = (0..300)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (random >> 56) as u8
                })
                .collect();
            for len in 0..=bytes.len() {
                if let Some(crc) = crc32_short(&bytes[..len]) {
                    assert_eq!(crc, plain(&bytes[..len]), "{len} bytes");
                }
            }
        }
    }
}

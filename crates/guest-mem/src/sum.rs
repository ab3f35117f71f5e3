//! The Internet checksum of memory that others may write to, alone and during the copy.
//!
//! The sum does not depend on byte order but for one swap at the end (RFC 1071 §2 (B)), nor on word
//! size as long as carries are kept: wide native words are added half by half in 64 bits.

use std::ptr;

/// The least bytes for which vectors pay.
#[cfg(target_arch = "x86_64")]
const LEAST: usize = 64;

/// The sum of `len` bytes, padded with a zero byte when odd.
///
/// # Safety
/// `from` must be readable for `len` bytes. Others may write there meanwhile.
pub(crate) unsafe fn read(from: *const u8, len: usize) -> u16 {
    #[cfg(target_arch = "x86_64")]
    if len >= LEAST && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it; the rest is the caller's promise.
        return unsafe { walk_avx2::<false>(from, ptr::null_mut(), len) };
    }
    // SAFETY: the caller's promise.
    unsafe { walk::<false>(from, ptr::null_mut(), len) }
}

/// Copies `len` bytes and returns the sum of what it wrote. Each byte is read once. The runs may
/// overlap.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes. Others may access both meanwhile.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> u16 {
    if from.addr().abs_diff(to.addr()) < len {
        // Two NICs of one guest. Nothing but the order of loads and stores would go wrong.
        // SAFETY: the caller's promise; `ptr::copy` allows the overlap.
        unsafe { ptr::copy(from, to, len) };
        // SAFETY: just written.
        return unsafe { read(to, len) };
    }
    #[cfg(target_arch = "x86_64")]
    if len >= LEAST && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it; the rest is the caller's promise.
        return unsafe { walk_avx2::<true>(from, to, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { walk::<true>(from, to, len) }
}

/// [`walk`] with vectors of 32 bytes, which compilers do not make of it by themselves.
///
/// # Safety
/// As [`walk`]; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn walk_avx2<const COPY: bool>(from: *const u8, to: *mut u8, len: usize) -> u16 {
    let (mut done, mut total) = (0, 0);
    while len - done >= VECTOR {
        let block = BLOCK.min(len - done) / VECTOR * VECTOR;
        // SAFETY: a block is left of both runs (promise of this function).
        total += unsafe { block_avx2::<COPY>(from.add(done), to.wrapping_add(done), block) };
        done += block;
    }
    // A vector is even, so words stay words.
    if len & 16 != 0 {
        for _ in 0..2 {
            // SAFETY: the bits of `len` below a vector are what the loop has left of both runs.
            let word: u64 = unsafe { one::<_, COPY>(from.add(done), to.wrapping_add(done)) };
            total += (word & 0xffff_ffff) + (word >> 32);
            done += 8;
        }
    }
    if len & 8 != 0 {
        // SAFETY: as above.
        let word: u64 = unsafe { one::<_, COPY>(from.add(done), to.wrapping_add(done)) };
        total += (word & 0xffff_ffff) + (word >> 32);
        done += 8;
    }
    // SAFETY: as above.
    fold(total + unsafe { last::<COPY>(from.add(done), to.wrapping_add(done), len) })
}

#[cfg(target_arch = "x86_64")]
const VECTOR: usize = size_of::<std::arch::x86_64::__m256i>();
/// Bytes whose words add up to less than 2^31.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 1 << 16;

/// The sum of the native 16-bit words of a block, at most [`BLOCK`] bytes and whole vectors.
///
/// # Safety
/// As [`walk_avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn block_avx2<const COPY: bool>(from: *const u8, to: *mut u8, len: usize) -> u64 {
    use std::arch::x86_64::{
        __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_shuffle_epi32, _mm256_add_epi32,
        _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
        _mm256_set1_epi16, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
    };
    const TURN: usize = 4 * VECTOR;
    // Pairs of words are added up by a multiplication, which takes them as signed: by as much too little.
    const TOO_LITTLE: i16 = i16::MIN;
    let (flip, ones) = (_mm256_set1_epi16(TOO_LITTLE), _mm256_set1_epi16(1));
    let pairs = |at: usize| {
        // SAFETY: the caller asks for vectors that both runs have; the accesses need no alignment.
        let words: __m256i = unsafe { _mm256_loadu_si256(from.add(at).cast()) };
        if COPY {
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(to.add(at).cast(), words) };
        }
        _mm256_madd_epi16(_mm256_xor_si256(words, flip), ones)
    };
    // Four sums, so that no addition waits for the last.
    let mut sums = [_mm256_setzero_si256(); TURN / VECTOR];
    let turns = len / TURN;
    for turn in 0..turns {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_add_epi32(*sum, pairs(turn * TURN + i * VECTOR));
        }
    }
    for (i, sum) in sums.iter_mut().enumerate().take(len % TURN / VECTOR) {
        *sum = _mm256_add_epi32(*sum, pairs(turns * TURN + i * VECTOR));
    }
    let [a, b, c, d] = sums;
    let sum = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    let (low, high) = (
        _mm256_castsi256_si128(sum),
        _mm256_extracti128_si256::<1>(sum),
    );
    let sum = _mm_add_epi32(low, high);
    let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b01_00_11_10>(sum));
    let sum = _mm_add_epi32(sum, _mm_shuffle_epi32::<0b10_11_00_01>(sum));
    let missing = len as i64 / 2 * -i64::from(TOO_LITTLE);
    (i64::from(_mm_cvtsi128_si32(sum)) + missing) as u64
}

/// Sums, and with `COPY` writes what it has read to `to`.
///
/// # Safety
/// As [`read`], and with `COPY` as [`copy`] for runs that do not overlap.
#[inline(always)]
unsafe fn walk<const COPY: bool>(from: *const u8, to: *mut u8, len: usize) -> u16 {
    // Two totals, so that no addition waits for the last.
    let (mut low, mut high) = (0, 0);
    let mut done = 0;
    while len - done >= 8 {
        // SAFETY: so many bytes are left of both runs (promise of this function).
        let word: u64 = unsafe { one::<_, COPY>(from.add(done), to.wrapping_add(done)) };
        low += word & 0xffff_ffff;
        high += word >> 32;
        done += 8;
    }
    // SAFETY: as above: the bits of `len` below 8 are what the loop has left.
    low += unsafe { last::<COPY>(from.add(done), to.wrapping_add(done), len) };
    // A word adds less than 2^32 to a total; a run that could overflow their sum has 2^34 bytes.
    fold(low + high)
}

/// The last bytes, as many as the bits of `len` below 8 say: their words, added up.
///
/// # Safety
/// As [`walk`], for so many bytes.
#[inline(always)]
unsafe fn last<const COPY: bool>(from: *const u8, to: *mut u8, len: usize) -> u64 {
    let (mut sum, mut done) = (0, 0);
    if len & 4 != 0 {
        // SAFETY: there are so many (promise of this function).
        let word: u32 = unsafe { one::<_, COPY>(from, to) };
        sum += u64::from(word);
        done += 4;
    }
    if len & 2 != 0 {
        // SAFETY: as above.
        let word: u16 = unsafe { one::<_, COPY>(from.add(done), to.wrapping_add(done)) };
        sum += u64::from(word);
        done += 2;
    }
    if len & 1 != 0 {
        // SAFETY: as above.
        let byte: u8 = unsafe { one::<_, COPY>(from.add(done), to.wrapping_add(done)) };
        sum += u64::from(u16::from_ne_bytes([byte, 0]));
    }
    sum
}

/// Reads a word, and with `COPY` writes it.
///
/// # Safety
/// `from` must be readable, and with `COPY` `to` writable, for a `T`, which is an integer.
#[inline(always)]
unsafe fn one<T: Copy, const COPY: bool>(from: *const u8, to: *mut u8) -> T {
    // SAFETY: the caller's promise; the accesses need no alignment.
    let word = unsafe { from.cast::<T>().read_unaligned() };
    if COPY {
        // SAFETY: as above.
        unsafe { to.cast::<T>().write_unaligned(word) };
    }
    word
}

/// What native words of any width have added up to, as one big-endian word.
#[inline(always)]
fn fold(total: u64) -> u16 {
    // 33 bits, 32 and a carry; then 17 bits, 16 and a carry.
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16 & 0xffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16);
    u16::from_be((total + (total >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, ReadSlice};

    /// RFC 1071 §1 word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = |_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(next).collect()
    }

    /// All lengths up to `most`, and a frame's; under Miri, where a byte takes long, some of each kind.
    fn lengths(most: usize) -> impl Iterator<Item = usize> {
        let all = if cfg!(miri) { 0 } else { most };
        let some = [0, 1, 6, 7, 8, 31, 33, 127, 130].into_iter();
        (0..all).chain(some.filter(move |_| all == 0)).chain([1460])
    }

    #[test]
    fn sums_are_the_naive_ones_with_and_without_vectors() {
        let bytes = noise(2000);
        let most = vec![0xff; 2000];
        for source in [&bytes, &most] {
            for len in lengths(300).chain([1999]) {
                for at in [0, 1, 7] {
                    let part = &source[at..(at + len).min(2000)];
                    let want = naive(part);
                    assert_eq!(ReadSlice::from_bytes(part).sum(), want, "{len} at {at}");
                    // SAFETY: a slice of ours.
                    let plain =
                        unsafe { walk::<false>(part.as_ptr(), ptr::null_mut(), part.len()) };
                    assert_eq!(plain, want, "{len} at {at}");
                }
            }
        }
    }

    #[test]
    fn the_longest_frames_keep_their_carries() {
        assert_eq!(ReadSlice::from_bytes(&vec![0xff; 1 << 17]).sum(), 0xffff);
        for most in [0x00, 0x7f, 0x80, 0xff] {
            let bytes = vec![most; (1 << 17) + 100];
            assert_eq!(ReadSlice::from_bytes(&bytes).sum(), naive(&bytes));
        }
    }

    #[test]
    fn the_copy_is_whole_and_writes_nothing_beside_it() {
        let memory = Memory::new();
        memory.map_anon(0, 0x2000).expect("map");
        let view = memory.view();
        let bytes = noise(1600);
        for len in lengths(200).chain([1600]) {
            for at in [0x100, 0x101, 0x13f] {
                view.write(0, &[0xee; 0x1000]).expect("clear");
                let mut got = (0, 0);
                view.write_slices(at, 1600, &mut |to| {
                    got = to.copy_summed(0, ReadSlice::from_bytes(&bytes[..len]));
                })
                .expect("mapped");
                assert_eq!(got, (len, naive(&bytes[..len])));
                let mut back = vec![0; 0x1000];
                view.read(0, &mut back).expect("read");
                let at = at as usize;
                assert_eq!(back[at..at + len], bytes[..len]);
                let beside = back[..at].iter().chain(&back[at + len..]);
                assert!(beside.copied().all(|b| b == 0xee), "{len} at {at:#x}");
            }
        }
        // SAFETY: both are ours and long enough.
        let mut to = vec![0; 1600];
        let sum = unsafe { walk::<true>(bytes.as_ptr(), to.as_mut_ptr(), 1600) };
        assert_eq!((sum, to), (naive(&bytes), bytes));
    }

    #[test]
    fn runs_that_overlap_are_moved() {
        let bytes = noise(1000);
        for (from, to) in [(0, 1), (1, 0), (0, 70), (70, 0), (5, 5)] {
            let memory = Memory::new();
            memory.map_anon(0, 0x1000).expect("map");
            let view = memory.view();
            view.write(from, &bytes).expect("write");
            view.read_slices(from, 1000, &mut |source| {
                view.write_slices(to, 1000, &mut |target| {
                    assert_eq!(target.copy_summed(0, source), (1000, naive(&bytes)));
                })
                .expect("mapped");
            })
            .expect("mapped");
            let mut back = vec![0; 1000];
            view.read(to, &mut back).expect("read");
            assert_eq!(back, bytes, "{from} to {to}");
        }
    }
}

//! Borrowed runs of guest (or host) memory that can only be copied.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

use crate::copy::copy;
use crate::sum;

/// A run of bytes that can be read, in guest memory or in our own.
///
/// It is `Copy` and as short-lived as the [`View`](crate::view::View) or slice it came from. Bytes may
/// change between two reads; copy once what you decide upon.
#[derive(Clone, Copy, Debug)]
pub struct ReadSlice<'v> {
    ptr: NonNull<u8>,
    len: usize,
    _life: PhantomData<&'v [u8]>,
}

// SAFETY: a `ReadSlice` is a shared borrow of bytes that stay mapped for `'v` (promise of `new`, or
// the `&'v [u8]` of `from_bytes`, itself `Send` and `Sync`). It can only be copied from, and others
// may write meanwhile from any thread as it is, so one more reading thread changes nothing. Senders
// keep emptied batches between calls and are themselves `Send`.
unsafe impl Send for ReadSlice<'_> {}
// SAFETY: as above; it has no interior state.
unsafe impl Sync for ReadSlice<'_> {}

/// A run of guest memory that can be written.
#[derive(Clone, Copy, Debug)]
pub struct WriteSlice<'v> {
    ptr: NonNull<u8>,
    len: usize,
    _life: PhantomData<&'v ()>,
}

/// Moves the first `N` and the last `N` of `n` bytes.
///
/// # Safety
/// `from` must be readable and `to` writable for `n` bytes, `n >= N`; they must not overlap.
#[inline(always)]
unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise; both are read before either is written, and neither passes `n`.
    unsafe {
        let first = from.cast::<[u8; N]>().read();
        let last = from.add(n - N).cast::<[u8; N]>().read();
        to.cast::<[u8; N]>().write(first);
        to.add(n - N).cast::<[u8; N]>().write(last);
    }
}

/// Longest copy that is read word by word: descriptors and headers, which are decided upon.
const DECIDED: usize = 128;

/// What one instruction reads.
#[cfg(target_arch = "x86_64")]
pub(crate) type Wide = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type Wide = u128;

/// A word at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub(crate) struct At<T>(pub(crate) T);

/// Copies the word at `offset`, read once: the compiler may neither repeat the read nor assume that the memory stays as
/// it is.
///
/// # Safety
/// The word must be readable in `from` and writable in `to`; any bits must be a value of `T`.
#[inline(always)]
unsafe fn copy_word<T: Copy>(from: *const u8, to: *mut u8, offset: usize) {
    // SAFETY: the caller's promise; the type has no alignment.
    unsafe {
        let word = ptr::read_volatile(from.add(offset).cast::<At<T>>());
        to.add(offset).cast::<At<T>>().write(word);
    }
}

/// Copies out of memory that others may write meanwhile, each byte as it was at one moment.
///
/// # Safety
/// `from` must be readable and `to` writable for `n` bytes; they must not overlap.
#[inline(always)]
unsafe fn copy_out(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise; no access passes `n`. What is read twice is taken from the second time.
    unsafe {
        if n > DECIDED {
            return copy(from, to, n);
        }
        if n < 8 {
            for at in 0..n {
                copy_word::<u8>(from, to, at);
            }
        } else if n < 16 {
            copy_word::<u64>(from, to, 0);
            copy_word::<u64>(from, to, n - 8);
        } else {
            let mut at = 0;
            while at + 16 <= n {
                copy_word::<Wide>(from, to, at);
                at += 16;
            }
            if at < n {
                copy_word::<Wide>(from, to, n - 16);
            }
        }
    }
}

impl<'v> ReadSlice<'v> {
    /// # Safety
    /// `ptr..ptr+len` must stay mapped and readable for `'v`. Others may write to it meanwhile.
    #[inline]
    pub(crate) unsafe fn new(ptr: NonNull<u8>, len: usize) -> Self {
        Self {
            ptr,
            len,
            _life: PhantomData,
        }
    }

    /// A slice of our own memory, so that frames of mixed origin have one type.
    #[inline]
    pub fn from_bytes(bytes: &'v [u8]) -> Self {
        let ptr = NonNull::from(bytes).cast();
        Self {
            ptr,
            len: bytes.len(),
            _life: PhantomData,
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part `start..start+len`, cut at the end of the slice.
    #[inline]
    pub fn sub(&self, start: usize, len: usize) -> ReadSlice<'v> {
        let start = start.min(self.len);
        let len = len.min(self.len - start);
        // SAFETY: start <= self.len, so the pointer stays within (or one past) the same run, and
        // start + len <= self.len keeps the promise of `new`.
        unsafe { ReadSlice::new(self.ptr.add(start), len) }
    }

    /// Copies from `start` on into `out`; returns how many bytes there were.
    #[inline]
    pub fn copy_to(&self, start: usize, out: &mut [u8]) -> usize {
        let part = self.sub(start, out.len());
        // SAFETY: `part` is readable for its length (promise of `new`), `out` is ours and at least
        // as long; our own exclusive buffer cannot overlap guest memory.
        unsafe { copy_out(part.ptr.as_ptr(), out.as_mut_ptr(), part.len) };
        part.len
    }

    /// The ones' complement sum of its bytes as big-endian words (RFC 1071), padded with a zero
    /// byte when they are odd in number. One pass, no copy.
    pub fn sum(&self) -> u16 {
        // SAFETY: readable for its length (promise of `new`).
        unsafe { sum::read(self.ptr.as_ptr(), self.len) }
    }

    /// Copies the first 64 bytes, or all there are; returns how many. Without a call: a switch does
    /// this for every frame.
    #[inline]
    pub fn copy_head(&self, out: &mut [u8; 64]) -> usize {
        let n = self.len.min(out.len());
        if n < 32 {
            return self.copy_to(0, out);
        }
        let (from, to) = (self.ptr.as_ptr(), out.as_mut_ptr());
        // SAFETY: 32 <= n <= 64 bytes are readable (promise of `new`) and `out` has room for as many;
        // first and last 32 of them are all of them, and none beyond. Our own exclusive buffer cannot
        // overlap guest memory.
        unsafe {
            for at in [0, 16, n - 32, n - 16] {
                copy_word::<Wide>(from, to, at);
            }
        }
        n
    }

    /// Has the processor fetch the first cache line for reading. Only a hint.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads and writes nothing, whatever the address is.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.ptr.as_ptr().cast_const().cast());
        }
    }

    /// Address and length for a system call (`writev`) that reads the bytes itself.
    pub fn as_raw(&self) -> (*const u8, usize) {
        (self.ptr.as_ptr(), self.len)
    }
}

impl<'v> WriteSlice<'v> {
    /// # Safety
    /// `ptr..ptr+len` must stay mapped and writable for `'v`. Others may access it meanwhile.
    #[inline]
    pub(crate) unsafe fn new(ptr: NonNull<u8>, len: usize) -> Self {
        Self {
            ptr,
            len,
            _life: PhantomData,
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part `start..start+len`, cut at the end of the slice.
    #[inline]
    pub fn sub(&self, start: usize, len: usize) -> WriteSlice<'v> {
        let start = start.min(self.len);
        let len = len.min(self.len - start);
        // SAFETY: as in `ReadSlice::sub`.
        unsafe { WriteSlice::new(self.ptr.add(start), len) }
    }

    /// Copies `bytes` to `start`; returns how many fitted.
    #[inline]
    pub fn copy_from(&self, start: usize, bytes: &[u8]) -> usize {
        let part = self.sub(start, bytes.len());
        // SAFETY: `part` is writable for its length (promise of `new`), `bytes` is ours and at
        // least as long; our shared borrow of `bytes` cannot be guest memory.
        unsafe { copy(bytes.as_ptr(), part.ptr.as_ptr(), part.len) };
        part.len
    }

    /// As [`WriteSlice::copy_from`] to the start, for the heads of frames: up to 64 bytes without a
    /// call, by moves that overlap and touch nothing beyond.
    #[inline]
    pub fn copy_short(&self, bytes: &[u8]) -> usize {
        let n = bytes.len();
        if n > self.len || !(8..=64).contains(&n) {
            return self.copy_from(0, bytes);
        }
        let (from, to) = (bytes.as_ptr(), self.ptr.as_ptr());
        // SAFETY: `from` is readable and `to` writable for `n` bytes (the slice, and the promise of
        // `new` with `n <= self.len`); each pair of moves covers the first and the last bytes of
        // these, which is all of them as `n` is at least half of what the two move together.
        unsafe {
            match n {
                32.. => ends::<32>(from, to, n),
                16.. => ends::<16>(from, to, n),
                _ => ends::<8>(from, to, n),
            }
        }
        n
    }

    /// As [`WriteSlice::copy_short`], of up to 128 bytes.
    #[inline]
    pub fn copy_headers(&self, bytes: &[u8]) -> usize {
        let n = bytes.len();
        if n <= 64 || n > 128 || n > self.len {
            return self.copy_short(bytes);
        }
        // In two halves, which overlap where there are fewer.
        let behind = (n - 64).max(32);
        self.copy_short(&bytes[..64]);
        self.sub(n - behind, behind)
            .copy_short(&bytes[n - behind..]);
        n
    }

    /// Writes zeros from byte `at` on.
    #[inline]
    pub fn clear_behind(&self, at: usize) {
        let rest = self.sub(at, usize::MAX);
        if rest.len == size_of::<u32>() {
            // SAFETY: the rest has room for the word, writable for `'v`; the type has no alignment.
            return unsafe { rest.ptr.cast::<At<u32>>().write(At(0)) };
        }
        // SAFETY: the rest is writable for `'v`.
        unsafe { rest.ptr.write_bytes(0, rest.len) };
    }

    /// Has the processor fetch the first cache line for writing. Only a hint.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads and writes nothing, whatever the address is.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_ET0>(self.ptr.as_ptr().cast());
        }
    }

    /// Stores bytes at the start of the slice: with one store when they are an aligned word of
    /// 1, 2, 4 or 8 bytes, else as [`WriteSlice::copy_from`].
    #[inline]
    pub(crate) fn store(&self, bytes: &[u8]) {
        let at = self.ptr.as_ptr();
        if bytes.len() > self.len || !at.addr().is_multiple_of(bytes.len().max(1)) {
            self.copy_from(0, bytes);
            return;
        }
        // SAFETY: `at` is writable for `bytes.len()` bytes (promise of `new`, checked above) and
        // aligned for a word of that size; other users of the memory see single stores.
        unsafe {
            match *bytes {
                [a] => at.write_volatile(a),
                [a, b] => at.cast::<u16>().write_volatile(u16::from_ne_bytes([a, b])),
                [a, b, c, d] => {
                    at.cast::<u32>()
                        .write_volatile(u32::from_ne_bytes([a, b, c, d]));
                }
                [a, b, c, d, e, f, g, h] => at
                    .cast::<u64>()
                    .write_volatile(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
                _ => {
                    self.copy_from(0, bytes);
                }
            }
        }
    }

    /// Stores rows of words, a row every `step` bytes, each word by one store and after everything
    /// written before it. `false`, and nothing stored, when they do not all lie in the slice or are not
    /// aligned.
    #[inline]
    pub(crate) fn store_rows<const W: usize>(
        &self,
        step: usize,
        rows: impl ExactSizeIterator<Item = [u64; W]>,
    ) -> bool {
        let n = rows.len();
        let at = self.ptr.as_ptr();
        if !self.has_rows(n, step, 8 * W) || !(at.addr() | step).is_multiple_of(8) {
            return false;
        }
        for (i, row) in rows.take(n).enumerate() {
            for (j, word) in row.into_iter().enumerate() {
                fence(Ordering::Release);
                // SAFETY: row `i` is one of `n`, so its words are inside of the slice, writable (promise
                // of `new`) and aligned (both checked above); other users of the memory see single
                // stores.
                unsafe { at.add(i * step + 8 * j).cast::<u64>().write_volatile(word) };
            }
        }
        true
    }

    /// As [`WriteSlice::store_rows`], of one byte each.
    #[inline]
    pub(crate) fn store_bytes(&self, step: usize, n: usize, byte: u8) -> bool {
        if !self.has_rows(n, step, 1) {
            return false;
        }
        for i in 0..n {
            fence(Ordering::Release);
            // SAFETY: byte `i` of `n` is inside of the slice (checked above) and writable (promise of
            // `new`).
            unsafe { self.ptr.as_ptr().add(i * step).write_volatile(byte) };
        }
        true
    }

    /// Whether `n` rows of `len` bytes, `step` bytes apart, lie in the slice.
    #[inline]
    pub(crate) fn has_rows(&self, n: usize, step: usize, len: usize) -> bool {
        let Some(last) = n.checked_sub(1) else {
            return true;
        };
        let end = step.checked_mul(last).and_then(|at| at.checked_add(len));
        end.is_some_and(|end| end <= self.len)
    }

    /// Copies a whole source slice to `start`: the one copy of a frame between two guests.
    /// Returns how many bytes fitted.
    #[inline]
    pub fn copy_from_slice(&self, start: usize, source: ReadSlice<'_>) -> usize {
        let part = self.sub(start, source.len);
        // SAFETY: both runs are mapped for `part.len` bytes (promises of the two `new`s). Two
        // NICs may share one guest's memory, so they may overlap: `copy` allows that.
        unsafe { copy(source.ptr.as_ptr(), part.ptr.as_ptr(), part.len) };
        part.len
    }

    /// As [`WriteSlice::copy_from_slice`], and sums what it copies in the same pass: each byte is
    /// read once, so the sum is that of the bytes written, whatever others do to the source
    /// meanwhile. Returns how many bytes fitted and their sum as [`ReadSlice::sum`] has it.
    pub fn copy_summed(&self, start: usize, source: ReadSlice<'_>) -> (usize, u16) {
        let part = self.sub(start, source.len);
        let (from, to) = (source.ptr.as_ptr(), part.ptr.as_ptr());
        // SAFETY: both runs are mapped for `part.len` bytes (promises of the two `new`s), and may
        // overlap or be written to by others meanwhile, which `copy` allows.
        let sum = unsafe { sum::copy(from, to, part.len) };
        (part.len, sum)
    }

    /// Address and length for a system call (`readv`) that writes the bytes itself.
    pub fn as_raw(&self) -> (*mut u8, usize) {
        (self.ptr.as_ptr(), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_stored_whatever_their_size_and_place() {
        let memory = crate::memory::Memory::new();
        memory.map_anon(0x1000, 0x1000).expect("map");
        let view = memory.view();
        for len in 0..=16 {
            for at in 0x1100..0x1108 {
                let bytes: Vec<u8> = (1..=len).collect();
                view.write_release(at, &bytes).expect("write");
                let mut back = vec![0; bytes.len() + 1];
                view.read(at, &mut back).expect("read");
                assert_eq!(back[..bytes.len()], bytes);
                assert_eq!(back[bytes.len()], 0, "{len} bytes at {at:#x}");
                view.write(0x1100, &[0; 64]).expect("clear");
            }
        }
    }

    #[test]
    fn a_head_is_copied_up_to_its_end() {
        let bytes: Vec<u8> = (1..=100).collect();
        for len in 0..=100 {
            let mut out = [0xee; 64];
            let slice = ReadSlice::from_bytes(&bytes[..len]);
            slice.prefetch();
            let n = slice.copy_head(&mut out);
            assert_eq!(n, len.min(64));
            assert_eq!(out[..n], bytes[..n]);
            assert!(out[n..].iter().all(|b| *b == 0xee), "{len} bytes");
        }
    }

    #[test]
    fn short_copies_move_exactly_what_is_there() {
        let memory = crate::memory::Memory::new();
        memory.map_anon(0x1000, 0x1000).expect("map");
        let view = memory.view();
        let window = view.write_window(0x1800).expect("mapped");
        let bytes: Vec<u8> = (1..=80).collect();
        for len in 0..=80 {
            for room in [len, 100] {
                view.write(0x1100, &[0xee; 120]).expect("clear");
                let to = window.at(0x1101, room).expect("inside");
                to.prefetch();
                assert_eq!(to.copy_short(&bytes[..len]), len);
                let mut back = [0; 120];
                view.read(0x1100, &mut back).expect("read");
                assert_eq!(back[1..=len], bytes[..len]);
                assert!(back[len + 1..].iter().all(|b| *b == 0xee) && back[0] == 0xee);
            }
        }
        let bytes: Vec<u8> = (0..150).map(|i| i | 1).collect();
        for len in 0..=140 {
            view.write(0x1100, &[0xee; 160]).expect("clear");
            let to = window.at(0x1101, len + len % 7).expect("inside");
            assert_eq!(to.copy_headers(&bytes[..len]), len);
            to.clear_behind(len);
            let mut back = [0; 160];
            view.read(0x1100, &mut back).expect("read");
            assert_eq!(back[1..=len], bytes[..len]);
            let (behind, beyond) = back[len + 1..].split_at(len % 7);
            assert!(behind.iter().all(|b| *b == 0) && beyond.iter().all(|b| *b == 0xee));
            assert_eq!(back[0], 0xee);
        }
        let short = window.at(0x1100, 10).expect("inside");
        assert_eq!(
            short.copy_headers(&bytes[..100]),
            10,
            "cut at the end of the slice"
        );
        assert_eq!(
            short.copy_short(&bytes[..20]),
            10,
            "cut at the end of the slice"
        );
    }

    #[test]
    fn a_window_ends_where_its_region_does() {
        let memory = crate::memory::Memory::new();
        memory.map_anon(0x1000, 0x1000).expect("map");
        memory.map_anon(0x2000, 0x1000).expect("map");
        let view = memory.view();
        let window = view.write_window(0x1fff).expect("mapped");
        assert!(window.at(0x1000, 0x1000).is_some() && window.at(0x2000, 0).is_some());
        for (at, len) in [
            (0xfff, 1),
            (0x1ff9, 8),
            (0x2000, 1),
            (u64::MAX, 1),
            (0x1000, usize::MAX),
        ] {
            assert!(window.at(at, len).is_none(), "{len} bytes at {at:#x}");
        }
        assert!(window.store_words(0x1ff8, 16, &[0x0807_0605_0403_0201]));
        assert!(!window.store_words(0x1ffc, 16, &[1]));
        assert!(!window.store_words(0x1004, 16, &[1]), "not aligned");
        assert!(!window.store_words(0x1ff0, 16, &[1, 2]));
        assert!(window.store_words(0x3000, 16, &[]));
        let pairs = |at, first: &[u64]| window.store_pairs(at, 16, first, &[0x11, 0x22, 0x33]);
        assert!(pairs(0x1fd0, &[1, 2, 3]), "up to the end");
        assert!(!pairs(0x1fe0, &[4, 5, 6]), "beyond the end");
        assert!(pairs(0x1fe0, &[7, 8]), "as many as there are of both");
        assert!(window.store_bytes(0x1fcf, 16, 2, 9) && !window.store_bytes(0x1ff0, 16, 2, 9));
        let mut back = [0; 0x31];
        view.read(0x1fcf, &mut back).expect("read");
        let words: Vec<_> = back[1..].chunks(8).map(|word| word[0]).collect();
        assert_eq!((back[0], words), (9, vec![1, 0x11, 7, 0x11, 8, 0x22]));
        assert_eq!(back[0x10], 9);
        assert!(window.store_words(0x1ff8, 16, &[0x0807_0605_0403_0201]));
        let mut back = [0; 9];
        view.read(0x1ff8, &mut back).expect("read");
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8, 0]);
        assert!(view.write_window(0x3000).is_none());
    }

    #[test]
    fn sub_never_leaves_the_slice() {
        let bytes = [1u8, 2, 3, 4];
        let slice = ReadSlice::from_bytes(&bytes);
        assert_eq!(slice.sub(1, 2).len(), 2);
        assert_eq!(slice.sub(3, 9).len(), 1);
        assert_eq!(slice.sub(9, 9).len(), 0);
        let mut out = [0u8; 8];
        assert_eq!(slice.copy_to(2, &mut out), 2);
        assert_eq!(out[..2], [3, 4]);
    }
}

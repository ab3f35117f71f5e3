//! Places of one length in one region, for frames and buffers that come in runs: a subtraction and a comparison find
//! each, and a place is no more than its offset.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use crate::copy::copy;
use crate::slice::{At, ReadSlice, Wide, WriteSlice};

/// Bytes at the start of each frame of a run that its sender has read already, as two words.
pub type Head = [u64; 2];

/// Bytes of a [`Head`].
const HEAD: usize = 16;
/// Frames of this length are copied by moves of 16 bytes: the shortest there are, with and without tag.
const SHORT: std::ops::RangeInclusive<usize> = 48..=64;

/// Where places are.
#[derive(Clone, Copy, Debug)]
struct Region<'v> {
    /// The IOVA of the region's first byte, and where that is.
    first: u64,
    base: NonNull<u8>,
    /// The last offset at which a place begins.
    most: u64,
    len: usize,
    _life: PhantomData<&'v ()>,
    #[cfg(feature = "meter")]
    meter: &'v crate::meter::Meter,
}

// SAFETY: as for `ReadSlice`: it borrows memory that stays mapped for `'v`, which others may access meanwhile from any
// thread as it is.
unsafe impl Send for Region<'_> {}
// SAFETY: as above; it has no interior state.
unsafe impl Sync for Region<'_> {}

impl<'v> Region<'v> {
    #[inline(always)]
    fn find(&self, iova: u64) -> Option<u64> {
        let at = iova.wrapping_sub(self.first);
        (at <= self.most).then_some(at)
    }

    /// Where the place at this offset is.
    #[inline(always)]
    fn place(&self, at: u64) -> Option<*mut u8> {
        // SAFETY: `at + len` is inside of the region, which is mapped whole (promise of `View::read_places` and
        // `View::write_places`); mappings are not longer than an address is.
        (at <= self.most).then(|| unsafe { self.base.as_ptr().add(at as usize) })
    }

    /// The same of a place of `len` bytes.
    #[inline(always)]
    fn place_of(&self, at: u64, len: usize) -> Option<*mut u8> {
        let room = self.most + self.len as u64;
        let most = room.checked_sub(len as u64)?;
        // SAFETY: as for `place`, since `most` and `len` make up the length of the region.
        (at <= most).then(|| unsafe { self.base.as_ptr().add(at as usize) })
    }

    #[inline(always)]
    fn note(&self, at: u64, len: usize, write: bool) {
        #[cfg(feature = "meter")]
        self.meter.note(self.first + at, len as u64, write);
        let _ = (at, len, write);
    }
}

/// Places to read from.
#[derive(Clone, Copy, Debug)]
pub struct ReadPlaces<'v>(Region<'v>);

/// Places to write to.
#[derive(Clone, Copy, Debug)]
pub struct WritePlaces<'v>(Region<'v>);

macro_rules! places {
    ($places:ident, $hint:ident) => {
        impl<'v> $places<'v> {
            /// Places of `len` bytes in `room` bytes from `base` on, which `first` is the IOVA of. `None` when the
            /// region is too short for one.
            ///
            /// # Safety
            /// `base..base + room` must stay mapped for `'v`, and may be accessed for what these places are for.
            #[inline(always)]
            pub(crate) unsafe fn new(
                first: u64,
                (base, room): (NonNull<u8>, u64),
                len: usize,
                #[cfg(feature = "meter")] meter: &'v crate::meter::Meter,
            ) -> Option<Self> {
                Some(Self(Region {
                    first,
                    base,
                    most: room.checked_sub(len as u64)?,
                    len,
                    _life: PhantomData,
                    #[cfg(feature = "meter")]
                    meter,
                }))
            }

            /// The offset of the place at `iova`, if all of it is in the region.
            #[inline(always)]
            pub fn find(&self, iova: u64) -> Option<u64> {
                self.0.find(iova)
            }

            /// Bytes of each, where nothing else is said.
            #[inline(always)]
            pub fn bytes(&self) -> usize {
                self.0.len
            }

            /// Has the processor fetch the first cache line of a place. Only a hint.
            #[inline(always)]
            pub fn prefetch(&self, at: u64) {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                // SAFETY: a prefetch reads and writes nothing, whatever the address is.
                unsafe {
                    use std::arch::x86_64::{_mm_prefetch, $hint};
                    let base = self.0.base.as_ptr().cast_const();
                    _mm_prefetch::<$hint>(base.wrapping_add(at as usize).cast());
                }
                let _ = at;
            }
        }
    };
}

places!(ReadPlaces, _MM_HINT_T0);
places!(WritePlaces, _MM_HINT_ET0);

impl<'v> ReadPlaces<'v> {
    /// As [`ReadPlaces::find`], of a place of `len` bytes.
    #[inline(always)]
    pub fn find_of(&self, iova: u64, len: usize) -> Option<u64> {
        let at = iova.wrapping_sub(self.0.first);
        self.0.place_of(at, len).map(|_| at)
    }

    /// The first 16 bytes of a place, each read once. `None` where no place is, or a shorter one.
    #[inline(always)]
    pub fn head(&self, at: u64) -> Option<Head> {
        self.head_of(at, self.0.len)
    }

    /// As [`ReadPlaces::head`], of a place of `len` bytes.
    #[inline(always)]
    pub fn head_of(&self, at: u64, len: usize) -> Option<Head> {
        let place = self.0.place_of(at, len).filter(|_| len >= HEAD)?;
        let word = place.cast_const().cast::<At<u64>>();
        // SAFETY: 16 bytes of the place are readable (promise of `new`); the type has no alignment.
        let head = unsafe { [word.read_volatile().0, word.add(1).read_volatile().0] };
        Some(head)
    }

    /// Pairs of words from `at` on, one every 16 bytes, at most `n` and as far as the region goes: descriptors whose first word
    /// says whether the second counts. Each word is read once, the second of a pair after the first.
    #[inline(always)]
    pub fn pairs(&self, at: u64, n: usize) -> impl Iterator<Item = Head> + use<'v> {
        let room = (self.0.most + self.0.len as u64).saturating_sub(at) / HEAD as u64;
        let base = self.0.base.as_ptr().cast_const();
        let _life: PhantomData<&'v ()> = PhantomData;
        (0..room.min(n as u64)).map(move |i| {
            // SAFETY: pair `i` lies inside of the region, which is readable for `'v` (promise of `new`); the type has no
            // alignment.
            unsafe {
                let word = base.add((at + i * HEAD as u64) as usize).cast::<At<u64>>();
                let first = word.read_volatile().0;
                fence(Ordering::Acquire);
                [first, word.add(1).read_volatile().0]
            }
        })
    }

    /// A place as a slice.
    #[inline(always)]
    pub fn get(&self, at: u64) -> Option<ReadSlice<'v>> {
        self.get_of(at, self.0.len)
    }

    /// A place of `len` bytes as a slice.
    #[inline(always)]
    pub fn get_of(&self, at: u64, len: usize) -> Option<ReadSlice<'v>> {
        let place = NonNull::new(self.0.place_of(at, len)?)?;
        self.0.note(at, len, false);
        // SAFETY: the promise of `new`, for the place.
        Some(unsafe { ReadSlice::new(place, len) })
    }
}

impl<'v> WritePlaces<'v> {
    /// A place as a slice.
    #[inline(always)]
    pub fn get(&self, at: u64) -> Option<WriteSlice<'v>> {
        let place = NonNull::new(self.0.place(at)?)?;
        self.0.note(at, self.0.len, true);
        // SAFETY: the promise of `new`, for the place.
        Some(unsafe { WriteSlice::new(place, self.0.len) })
    }
}

/// Copies frames of one length, each from a place of `from` to a place of `to`: its first 16 bytes are those of its
/// head, the others are read once. Zeros fill what a place to write to has more. Returns how many were copied: it ends
/// at an offset where no place is, and copies none when the places do not fit each other.
#[inline(always)]
pub fn copy_run<'r>(
    (from, from_at): (&'r ReadPlaces<'r>, &'r [u64]),
    heads: &'r [Head],
    (to, to_at): (&'r WritePlaces<'r>, &'r [u64]),
) -> usize {
    let len = from.0.len;
    let Some(more) = to.0.len.checked_sub(len) else {
        return 0;
    };
    if len < HEAD || more > size_of::<u32>() && more > len {
        return 0;
    }
    // One loop for each kind, so that none decides for each frame.
    let places = ((from, from_at), heads, (to, to_at));
    match (SHORT.contains(&len), more) {
        (true, 0) => copy_each(places, |read, write| {
            // SAFETY: the promise of `copy_each`.
            unsafe { copy_short(read, write, len) }
        }),
        (false, 0) => copy_each(places, |read, write| {
            // SAFETY: as above; frames may overlap.
            unsafe { copy(read.add(HEAD), write.add(HEAD), len - HEAD) }
        }),
        (short, _) => copy_each(places, |read, write| {
            // SAFETY: as above; `more` bytes are writable behind the frame.
            unsafe {
                if short {
                    copy_short(read, write, len);
                } else {
                    copy(read.add(HEAD), write.add(HEAD), len - HEAD);
                }
                if more == size_of::<u32>() {
                    write.add(len).cast::<At<u32>>().write(At(0));
                } else {
                    write.add(len).write_bytes(0, more);
                }
            }
        }),
    }
}

/// Copies all of a short frame but its head.
///
/// # Safety
/// `len` bytes, as many as [`SHORT`] has it, must be readable at `read` and writable at `write`.
#[inline(always)]
unsafe fn copy_short(read: *const u8, write: *mut u8, len: usize) {
    let places = [HEAD, len - 2 * HEAD, len - HEAD];
    // SAFETY: no access passes `len`. All is read before any is written, so the two may overlap. The type has no
    // alignment.
    unsafe {
        let parts = places.map(|at| read.add(at).cast::<At<Wide>>().read_volatile());
        for (part, at) in parts.into_iter().zip(places) {
            write.add(at).cast::<At<Wide>>().write(part);
        }
    }
}

/// Writes the head of each frame, and has `rest` copy what is behind it: from its first argument, where all bytes of a
/// place of `from` are readable, to the second, where those of a place of `to` are writable. Returns how many frames there
/// were.
#[inline(always)]
fn copy_each(
    ((from, from_at), heads, (to, to_at)): Places<'_>,
    rest: impl Fn(*const u8, *mut u8),
) -> usize {
    let mut done = 0;
    for ((a, head), b) in from_at.iter().zip(heads).zip(to_at) {
        let (Some(read), Some(write)) = (from.0.place(*a), to.0.place(*b)) else {
            break;
        };
        // The rest first: the two may overlap, and the head is our own copy.
        rest(read, write);
        let words = write.cast::<At<u64>>();
        // SAFETY: a place is at least as long as a head (checked by the caller) and writable; the type has no alignment.
        unsafe {
            words.write(At(head[0]));
            words.add(1).write(At(head[1]));
        }
        from.0.note(*a, from.0.len, false);
        to.0.note(*b, to.0.len, true);
        done += 1;
    }
    done
}

/// Copies frames as [`copy_run`] does, of which each has a length of its own, with `more` zeros behind each, four at most.
/// It ends at one that is shorter than a head, or longer than a place to write to.
#[inline(always)]
pub fn copy_lengths<'r>(
    ((from, from_at), lens): ((&'r ReadPlaces<'r>, &'r [u64]), &'r [u16]),
    heads: &'r [Head],
    ((to, to_at), more): ((&'r WritePlaces<'r>, &'r [u64]), usize),
) -> usize {
    let mut done = 0;
    let Some(longest) = to.0.len.checked_sub(more) else {
        return 0;
    };
    for (((a, len), head), b) in from_at.iter().zip(lens).zip(heads).zip(to_at) {
        let len = usize::from(*len);
        if len < HEAD || len > longest || more > size_of::<u32>() {
            break;
        }
        let (Some(read), Some(write)) = (from.0.place_of(*a, len), to.0.place(*b)) else {
            break;
        };
        let words = write.cast::<At<u64>>();
        // SAFETY: `len` bytes are readable at `read`, and `longest + more` writable at `write`, so that what is written stays
        // inside: `len` is at least a head and at most `longest`. The types have no alignment. The head comes last: the two
        // may overlap, and it is our own copy.
        unsafe {
            if SHORT.contains(&len) {
                copy_short(read, write, len);
            } else {
                copy(read.add(HEAD), write.add(HEAD), len - HEAD);
            }
            match more {
                0 => {}
                // The type has four bytes.
                4 => write.add(len).cast::<At<u32>>().write(At(0)),
                _ => write.add(len).write_bytes(0, more),
            }
            words.write(At(head[0]));
            words.add(1).write(At(head[1]));
        }
        from.0.note(*a, len, false);
        to.0.note(*b, len + more, true);
        done += 1;
    }
    done
}

/// What a run is copied from, its heads, and what to.
type Places<'r> = (
    (&'r ReadPlaces<'r>, &'r [u64]),
    &'r [Head],
    (&'r WritePlaces<'r>, &'r [u64]),
);

impl<'v> ReadSlice<'v> {
    /// Pairs of words, one every 16 bytes: descriptors. Each word is read once, whatever the guest does meanwhile.
    #[inline(always)]
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = Head> + use<'v> {
        let (at, len) = self.as_raw();
        let _life: PhantomData<&'v ()> = PhantomData;
        (0..len / HEAD).map(move |i| {
            // SAFETY: pair `i` lies inside of the slice, which is readable for `'v` (promise of its `new`).
            unsafe {
                let word = at.add(i * HEAD).cast::<At<u64>>();
                [word.read_volatile().0, word.add(1).read_volatile().0]
            }
        })
    }

    /// The same of descriptors whose second word says whether the first counts: of each pair the first is read after the second.
    #[inline(always)]
    pub fn pairs_by_second(&self) -> impl ExactSizeIterator<Item = Head> + use<'v> {
        let (at, len) = self.as_raw();
        let _life: PhantomData<&'v ()> = PhantomData;
        (0..len / HEAD).map(move |i| {
            // SAFETY: as above.
            unsafe {
                let word = at.add(i * HEAD).cast::<At<u64>>();
                let second = word.add(1).read_volatile().0;
                fence(Ordering::Acquire);
                [word.read_volatile().0, second]
            }
        })
    }

    /// The first word of each pair.
    #[inline(always)]
    pub fn firsts(&self) -> impl ExactSizeIterator<Item = u64> + use<'v> {
        let (at, len) = self.as_raw();
        let _life: PhantomData<&'v ()> = PhantomData;
        // SAFETY: as above.
        (0..len / HEAD)
            .map(move |i| unsafe { at.add(i * HEAD).cast::<At<u64>>().read_volatile().0 })
    }
}

impl WriteSlice<'_> {
    /// Stores the same words in `n` rows, a row every `step` bytes: the first row after everything written before it,
    /// and in each row a word after the one before it. `false`, and nothing stored, when they do not all lie in the
    /// slice or are not aligned.
    #[inline(always)]
    pub(crate) fn store_same<const W: usize>(
        &self,
        step: usize,
        n: usize,
        words: [u64; W],
    ) -> bool {
        let (at, _) = self.as_raw();
        if !self.has_rows(n, step, 8 * W) || !(at.addr() | step).is_multiple_of(8) {
            return false;
        }
        fence(Ordering::Release);
        for i in 0..n {
            for (j, word) in words.into_iter().enumerate() {
                if j > 0 {
                    fence(Ordering::Release);
                }
                // SAFETY: row `i` is one of `n`, so its words are inside of the slice, writable (promise of its
                // `new`) and aligned (both checked above); other users of the memory see single stores.
                unsafe { at.add(i * step + 8 * j).cast::<u64>().write_volatile(word) };
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::Memory;

    const BASE: u64 = 0x1_0000;
    const SIZE: u64 = 0x4000;

    fn filled() -> Memory {
        let memory = Memory::new();
        memory.map_anon(BASE, SIZE).expect("map");
        let bytes: Vec<u8> = (0..SIZE).map(|i| (i * 7 + i / 256) as u8).collect();
        memory.view().write(BASE, &bytes).expect("write");
        memory
    }

    #[test]
    fn a_place_is_whole_or_not_there() {
        let memory = filled();
        let view = memory.view();
        let from = view.read_places(BASE + 5, 100).expect("mapped");
        assert_eq!(from.find(BASE), Some(0));
        assert_eq!(from.find(BASE + SIZE - 100), Some(SIZE - 100));
        for none in [BASE - 1, BASE + SIZE - 99, BASE + SIZE, 0, u64::MAX] {
            assert_eq!(from.find(none), None);
        }
        assert!(from.head(SIZE - 100).is_some() && from.head(SIZE - 99).is_none());
        assert!(from.get(u64::MAX).is_none());
        let short = view.read_places(BASE, 15).expect("mapped");
        assert_eq!(short.head(0), None, "shorter than a head");
        assert!(view.read_places(BASE, SIZE as usize + 1).is_none());
        assert!(view.read_places(BASE + SIZE, 1).is_none());
        assert!(view.write_places(BASE + SIZE, 1).is_none());
    }

    #[test]
    fn rows_and_places_are_found_in_regions_that_were_not_used_yet() {
        let memory = Memory::new();
        // Two larger ones, which every view has at hand.
        for (at, len) in [(1, 4), (2, 4), (3, 1), (4, 1), (5, 1)] {
            memory.map_anon(at << 20, len * 0x1000).expect("map");
        }
        let view = memory.view();
        for at in [3, 4, 5, 3, 1, 2, 5] {
            let iova = at << 20;
            let row = view.read_run(iova + 0xf0, 0x10).expect("mapped");
            let places = view.read_places(iova, 60).expect("mapped");
            assert_eq!((row.len(), places.find(iova + 60)), (0x10, Some(60)));
            assert!(view.read_run(iova + 0xff8, 0x10).is_none() || at < 3);
        }
        assert!(view.read_run(6 << 20, 1).is_none() && view.read_places(6 << 20, 1).is_none());
    }

    #[test]
    fn rows_of_the_same_words() {
        let memory = filled();
        let view = memory.view();
        let window = view.write_window(BASE).expect("mapped");
        let word = |at: u64| {
            let mut out = [0; 8];
            view.read(at, &mut out).expect("read");
            u64::from_le_bytes(out)
        };
        let before = word(BASE + 0x10);
        assert!(window.store_same(BASE + 8, 16, 3, [0x11]));
        assert!(window.store_same(BASE + SIZE - 32, 16, 2, [0x22, 0x33]));
        assert!(!window.store_same(BASE + SIZE - 32, 16, 3, [0x44, 0x55]));
        assert!(!window.store_same(BASE + 4, 16, 1, [0x44]), "not aligned");
        assert!(window.store_same(BASE + 4, 16, 0, [0x44]), "none");
        let seen = [8, 0x18, 0x28].map(|at| word(BASE + at));
        assert_eq!((seen, word(BASE + 0x10)), ([0x11; 3], before));
        let last = [32, 24, 16, 8].map(|back| word(BASE + SIZE - back));
        assert_eq!(last, [0x22, 0x33, 0x22, 0x33]);
    }

    proptest! {
        #[test]
        fn what_is_copied_is_the_head_and_the_rest(
            len in 0usize..300,
            more in 0usize..9,
            at in proptest::collection::vec((0u64..SIZE / 2, 0u64..SIZE / 2), 0..6),
        ) {
            let (source, sink) = (filled(), filled());
            let (a, b) = (source.view(), sink.view());
            let from = a.read_places(BASE, len).expect("mapped");
            let to = b.write_places(BASE, len + more).expect("mapped");
            let (from_at, to_at): (Vec<_>, Vec<_>) = at.into_iter().unzip();
            let heads: Vec<Head> = (0..from_at.len() as u64).map(|i| [i, !i]).collect();
            let mut want = vec![0; SIZE as usize];
            b.read(BASE, &mut want).expect("read");
            let n = copy_run((&from, &from_at), &heads, (&to, &to_at));
            if len < HEAD || more > 4 && more > len {
                prop_assert_eq!(n, 0);
            } else {
                prop_assert_eq!(n, from_at.len());
                for i in 0..n {
                    let mut frame = vec![0; len];
                    a.read(BASE + from_at[i], &mut frame).expect("read");
                    frame[..8].copy_from_slice(&heads[i][0].to_le_bytes());
                    frame[8..16].copy_from_slice(&heads[i][1].to_le_bytes());
                    frame.resize(len + more, 0);
                    want[to_at[i] as usize..][..len + more].copy_from_slice(&frame);
                }
            }
            let mut seen = vec![0; SIZE as usize];
            b.read(BASE, &mut seen).expect("read");
            prop_assert_eq!(seen, want);
        }

        #[test]
        fn each_is_copied_in_its_own_length(
            more in 0usize..5,
            frames in proptest::collection::vec((0u16..200, 0u64..SIZE / 2, 0u64..SIZE / 2), 0..6),
        ) {
            const LONGEST: usize = 150;
            let (source, sink) = (filled(), filled());
            let (a, b) = (source.view(), sink.view());
            // What its places have as their length counts for nothing.
            let from = a.read_places(BASE, 77).expect("mapped");
            let to = b.write_places(BASE, LONGEST + more).expect("mapped");
            let lens: Vec<u16> = frames.iter().map(|frame| frame.0).collect();
            let from_at: Vec<u64> = frames.iter().map(|frame| frame.1).collect();
            let to_at: Vec<u64> = frames.iter().map(|frame| frame.2).collect();
            let heads: Vec<Head> = (0..frames.len() as u64).map(|i| [i, !i]).collect();
            let mut want = vec![0; SIZE as usize];
            b.read(BASE, &mut want).expect("read");
            let n = copy_lengths(((&from, &from_at), &lens), &heads, ((&to, &to_at), more));
            let fits = |len: &&u16| (HEAD..=LONGEST).contains(&usize::from(**len));
            prop_assert_eq!(n, lens.iter().take_while(fits).count());
            for i in 0..n {
                let mut frame = vec![0; lens[i].into()];
                a.read(BASE + from_at[i], &mut frame).expect("read");
                frame[..8].copy_from_slice(&heads[i][0].to_le_bytes());
                frame[8..16].copy_from_slice(&heads[i][1].to_le_bytes());
                frame.resize(frame.len() + more, 0);
                want[to_at[i] as usize..][..frame.len()].copy_from_slice(&frame);
            }
            let mut seen = vec![0; SIZE as usize];
            b.read(BASE, &mut seen).expect("read");
            prop_assert_eq!(seen, want);
        }

        #[test]
        fn places_that_are_not_there_end_a_run(len in 16usize..200, bad in 0usize..3) {
            let memory = filled();
            let view = memory.view();
            let from = view.read_places(BASE, len).expect("mapped");
            let to = view.write_places(BASE, len).expect("mapped");
            let mut from_at = [0; 3];
            from_at[bad] = SIZE - len as u64 + 1;
            prop_assert_eq!(copy_run((&from, &from_at), &[[0; 2]; 3], (&to, &[0; 3])), bad);
            prop_assert_eq!(copy_run((&from, &[0; 3]), &[[0; 2]; 3], (&to, &from_at)), bad);
            let lens = [len as u16; 3];
            let n = copy_lengths(((&from, &from_at), &lens), &[[0; 2]; 3], ((&to, &[0; 3]), 0));
            prop_assert_eq!(n, bad);
            let n = copy_lengths(((&from, &[0; 3]), &lens), &[[0; 2]; 3], ((&to, &from_at), 0));
            prop_assert_eq!(n, bad);
            prop_assert_eq!(from.find_of(BASE + SIZE - len as u64, len), Some(SIZE - len as u64));
            prop_assert_eq!(from.find_of(BASE + SIZE - len as u64 + 1, len), None);
            prop_assert_eq!(from.find_of(BASE, SIZE as usize + 1), None);
        }
    }

    #[test]
    fn words_of_descriptors_are_read_in_pairs() {
        let memory = filled();
        let view = memory.view();
        let slice = view.read_run(BASE, 47).expect("mapped");
        let mut bytes = [0; 32];
        slice.copy_to(0, &mut bytes);
        let words: Vec<u64> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let pairs: Vec<_> = slice.pairs().collect();
        assert_eq!(pairs, [[words[0], words[1]], [words[2], words[3]]]);
        assert_eq!(slice.firsts().collect::<Vec<_>>(), [words[0], words[2]]);
    }
}

#[cfg(test)]
mod proofs;

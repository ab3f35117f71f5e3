//! The short way of the receive side: frames that are alike, and a buffer each. Their descriptors all say the same
//! ([`Words`]), or each its frame's length ([`Lengths`]), or what the verdict on its checksums is ([`Judged`]).

use std::sync::atomic::{Ordering, fence};

use datapath::FCS;
use frame::{HEAD, Run, same_header};
use guest_mem::{
    Head, ReadPlaces, ReadSlice, View, WritePlaces, WriteSlice, WriteWindow, copy_lengths, copy_run,
};
use wire::{SimpleV4, Sum};

use crate::ring::{Ring, SIZE};
use crate::rx::publish::Publish;
use crate::rx::words::{Firsts, Says, Words};
use crate::verdict::verdict_of;

/// Descriptors read ahead of the copies, so that their buffers' first lines are under way.
pub(super) const AHEAD: usize = 64;
/// The same for runs that are short.
const FEW: usize = 4;

/// How frames are copied into the places of their buffers, and what their descriptors say.
pub trait Filler {
    /// Copies frames, each from a place to a place. Returns how many from the front were; it ends at one that is not for
    /// this.
    fn copy(&mut self, from: Frames<'_>, to: &WritePlaces<'_>, to_at: &[u64]) -> usize;

    /// What the descriptors of the `n` frames just copied say.
    fn says(&self, n: usize) -> Says<'_>;

    /// Writes back `n` descriptors of the frames just copied, from number `from` on; the first descriptor is at `at`.
    fn write_back(&self, to: &WriteWindow<'_>, at: u64, from: usize, n: usize) -> bool;
}

/// Frames of a run: where they are, and how each begins.
#[derive(Clone, Copy)]
pub struct Frames<'r> {
    from: &'r ReadPlaces<'r>,
    at: &'r [u64],
    heads: &'r [Head],
    /// Where they are not the same for all.
    lens: Option<&'r [u16]>,
}

impl<'r> Frames<'r> {
    /// Bytes of frame `index`.
    #[inline(always)]
    fn len(&self, index: usize) -> usize {
        match self.lens {
            None => self.from.bytes(),
            Some(lens) => lens.get(index).copied().unwrap_or_default().into(),
        }
    }

    /// All but the first `n`.
    #[inline(always)]
    fn behind(&self, n: usize) -> Frames<'r> {
        Frames {
            from: self.from,
            at: &self.at[n..],
            heads: &self.heads[n..],
            lens: self.lens.map(|lens| &lens[n..]),
        }
    }
}

/// Where the descriptor is that is `n` behind the one at `at`.
#[inline(always)]
pub(super) fn behind(at: u64, n: usize) -> u64 {
    at.wrapping_add(n as u64 * SIZE)
}

/// Has `write` write back `n` descriptors, the first of which has the number and the address `first`, and which say so: it is told
/// where to begin, and how many. Whether it did.
#[inline(always)]
pub(super) fn publish<'s>(
    to: &impl Publish,
    view: &View<'_>,
    (ring, at): (&Ring, u64),
    (n, says): (usize, impl FnOnce() -> Says<'s>),
    write: impl Fn(usize, usize) -> bool,
) -> bool {
    let done = match to.begins(view, (ring.head, at), n, says) {
        true => (n == 1 || write(1, n - 1)) && write(0, 1),
        false => write(0, n),
    };
    to.ended(if done {
        ring.behind(n as u32)
    } else {
        ring.head
    });
    done
}

impl Filler for Words {
    #[inline(always)]
    fn copy(&mut self, from: Frames<'_>, to: &WritePlaces<'_>, to_at: &[u64]) -> usize {
        copy_run((from.from, from.at), from.heads, (to, to_at))
    }

    #[inline(always)]
    fn says(&self, _: usize) -> Says<'_> {
        Says::Same(*self)
    }

    #[inline(always)]
    fn write_back(&self, to: &WriteWindow<'_>, at: u64, from: usize, n: usize) -> bool {
        self.write_to(to, behind(at, from), n)
    }
}

impl Words {
    /// Has `n` descriptors say so, the first of which is at `at`.
    #[inline(always)]
    pub(super) fn write_to(&self, to: &WriteWindow<'_>, at: u64, n: usize) -> bool {
        match *self {
            Words::Second(word) => to.store_same(at.wrapping_add(8), SIZE as usize, n, [word]),
            Words::Both(words) => to.store_same(at, SIZE as usize, n, words),
        }
    }
}

/// Descriptors that are the same but for the length of each.
struct Lengths {
    /// The words of one, without a length.
    words: Words,
    /// Where the length is in the second.
    shift: u32,
    /// Bytes that are in a buffer behind each frame.
    more: usize,
    second: [u64; AHEAD],
}

impl Filler for Lengths {
    #[inline(always)]
    fn copy(&mut self, from: Frames<'_>, to: &WritePlaces<'_>, to_at: &[u64]) -> usize {
        let Some(lens) = from.lens else {
            return 0;
        };
        let (Words::Second(word) | Words::Both([_, word])) = self.words;
        let to_at = &to_at[..to_at.len().min(AHEAD)];
        let places = ((from.from, from.at), lens);
        let copied = copy_lengths(places, from.heads, ((to, to_at), self.more));
        for (to, len) in self.second.iter_mut().zip(&lens[..copied]) {
            *to = word | (u64::from(*len) + self.more as u64) << self.shift;
        }
        copied
    }

    #[inline(always)]
    fn says(&self, n: usize) -> Says<'_> {
        let firsts = match self.words {
            Words::Second(_) => Firsts::Stay,
            Words::Both([first, _]) => Firsts::Same(first),
        };
        Says::Each(firsts, &self.second[..n.min(AHEAD)])
    }

    #[inline(always)]
    fn write_back(&self, to: &WriteWindow<'_>, at: u64, from: usize, n: usize) -> bool {
        let second = &self.second[from..from + n];
        let at = behind(at, from);
        match self.words {
            Words::Second(_) => to.store_words(at.wrapping_add(8), SIZE as usize, second),
            Words::Both([first, _]) => {
                to.store_pairs(at, SIZE as usize, &[first; AHEAD][..n], second)
            }
        }
    }
}

/// Judges the checksums of whole TCP or UDP over IPv4 without options or tag, as [`crate::verdict()`] does. All other
/// frames end it.
pub struct Judge<'s, D, const N: usize> {
    /// RXCSUM.
    rxcsum: u32,
    /// Bytes that are in a buffer behind each frame.
    more: usize,
    /// Whether the first word of a descriptor is written too.
    both: bool,
    /// What a descriptor says about a packet with this status and these errors.
    describe: D,
    said: &'s mut SaidOf<N>,
}

/// Of many frames.
pub type Judged<'s, D> = Judge<'s, D, AHEAD>;
/// Of one frame.
pub type JudgedOne<'s, D> = Judge<'s, D, 1>;

/// What descriptors of judged frames say. It is beside what they are judged by: a compiler reads that again for each frame of
/// which somebody may have the address.
pub struct SaidOf<const N: usize> {
    first: [u64; N],
    second: [u64; N],
}

/// Of many frames.
pub type Said = SaidOf<AHEAD>;

impl<const N: usize> Default for SaidOf<N> {
    #[inline(always)]
    fn default() -> Self {
        SaidOf {
            first: [0; N],
            second: [0; N],
        }
    }
}

impl<'s, D: Fn(&SimpleV4<'_>, usize, (u8, u8)) -> [u64; 2], const N: usize> Judge<'s, D, N> {
    /// One that judges as RXCSUM says, with `more` bytes in a buffer behind each frame. `describe` gives the words of a descriptor by the packet, the bytes of its frame, its
    /// status and its errors; the first word is written only if `both` are.
    #[inline]
    pub fn new(
        (rxcsum, more): (u32, usize),
        both: bool,
        describe: D,
        said: &'s mut SaidOf<N>,
    ) -> Self {
        Judge {
            rxcsum,
            more,
            both,
            describe,
            said,
        }
    }

    /// Copies a frame and returns the words of its descriptor. `None`: it is not for this, and must be copied again.
    #[inline(always)]
    fn one(
        &self,
        from: ReadSlice<'_>,
        head: Head,
        (to, more): (&WriteSlice<'_>, usize),
    ) -> Option<[u64; 2]> {
        let len = from.len();
        // What is judged is what is delivered: a copy of the headers, and the sum of the rest from the pass that copies.
        let mut bytes = [0; HEAD];
        let n = from.copy_head(&mut bytes);
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(head) {
            *to = word.to_le_bytes();
        }
        let packet = SimpleV4::of(bytes.first_chunk()?, len)?;
        let end = SimpleV4::L4 + packet.l4_span()?;
        // Padding behind a packet longer than the head is too rare to be told from it here.
        if end > len || end < len && end > n {
            return None;
        }
        let rest = match len > n {
            true => to.copy_summed(n, from.sub(n, len - n)).1,
            false => 0,
        };
        to.copy_short(&bytes[..n]);
        if more > 0 {
            to.copy_from(len, &[0; FCS]);
        }
        let sum = |_| {
            if end < n {
                // Padding counts for nothing.
                return Sum::of(&bytes[SimpleV4::ADDRESSES..end]).value();
            }
            // All of the head, which has zeros behind a short frame, and of the rest: it begins at an even offset.
            let mut sum = Sum::ZERO;
            sum.add_word(sum_of_head(&bytes));
            sum.add_word(rest);
            sum.value()
        };
        let verdict = verdict_of(self.rxcsum, (&packet, len), false, sum)?;
        Some((self.describe)(&packet, len, verdict))
    }
}

/// The sum of a head from the addresses of IPv4 on.
#[inline(always)]
fn sum_of_head(bytes: &[u8; HEAD]) -> u16 {
    // In words of four bytes, in whichever order they are (RFC 1071 §2 (B)).
    let (words, _) = bytes[SimpleV4::ADDRESSES - 2..].as_chunks::<4>();
    let first = u32::from_ne_bytes([0, 0, words[0][2], words[0][3]]);
    let rest = words[1..].iter().map(|word| u32::from_ne_bytes(*word));
    let sum: u64 = rest.map(u64::from).sum::<u64>() + u64::from(first);
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    let folded = (folded & 0xffff) + (folded >> 16 & 0xffff) + (folded >> 32);
    let folded = (folded & 0xffff) + (folded >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    u16::from_be_bytes((folded as u16).to_ne_bytes())
}

impl<D: Fn(&SimpleV4<'_>, usize, (u8, u8)) -> [u64; 2], const N: usize> Filler for Judge<'_, D, N> {
    #[inline(always)]
    fn copy(&mut self, from: Frames<'_>, to: &WritePlaces<'_>, to_at: &[u64]) -> usize {
        let mut done = 0;
        let more = self.more;
        let each = from.at.iter().zip(from.heads).zip(to_at);
        for (((a, head), b), at) in each.zip(0..N) {
            let len = from.len(at);
            let (Some(read), Some(write)) = (from.from.get_of(*a, len), to.get(*b)) else {
                break;
            };
            let write = write.sub(0, len + more);
            let Some([first, second]) = self.one(read, *head, (&write, more)) else {
                break;
            };
            (self.said.first[at], self.said.second[at]) = (first, second);
            done += 1;
        }
        done
    }

    #[inline(always)]
    fn says(&self, n: usize) -> Says<'_> {
        let n = n.min(AHEAD);
        let firsts = match self.both {
            true => Firsts::Each(&self.said.first[..n]),
            false => Firsts::Stay,
        };
        Says::Each(firsts, &self.said.second[..n])
    }

    #[inline(always)]
    fn write_back(&self, to: &WriteWindow<'_>, at: u64, from: usize, n: usize) -> bool {
        let second = &self.said.second[from..from + n];
        let at = behind(at, from);
        match self.both {
            true => to.store_pairs(at, SIZE as usize, &self.said.first[from..from + n], second),
            false => to.store_words(at.wrapping_add(8), SIZE as usize, second),
        }
    }
}

/// What a set-up says about the frames of a run, as long as it is the same; `W` is how they are received.
///
/// What holds for a length holds for shorter frames, down to the shortest that need no padding; and what is too long for
/// this way has longer frames with it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RunPlan<W> {
    generation: u32,
    /// The longest that is known to go this way, which is `way`.
    fits: u32,
    /// The shortest that is known not to.
    fails: u32,
    head: Head,
    way: Option<W>,
}

impl<W> Default for RunPlan<W> {
    fn default() -> Self {
        RunPlan {
            generation: 0,
            head: Head::default(),
            fits: 0,
            way: None,
            fails: u32::MAX,
        }
    }
}

impl<W: Copy> RunPlan<W> {
    /// How frames of at most `len` bytes that begin so are received by the set-up of this generation; `make` finds it out,
    /// unless it is known. `None`: they take the general way.
    #[inline]
    pub fn way(
        &mut self,
        generation: u32,
        (head, len): (Head, usize),
        make: impl FnOnce() -> Option<W>,
    ) -> Option<W> {
        if self.generation == generation && same_header(self.head, head) {
            if self.has(len) {
                return self.way;
            }
            if len >= self.fails as usize {
                return None;
            }
        } else {
            *self = RunPlan {
                generation,
                head,
                ..RunPlan::default()
            };
        }
        self.learn(len, make())
    }

    /// The same, if it is known and they take this way.
    #[inline(always)]
    pub fn known(&self, generation: u32, (head, len): (Head, usize)) -> Option<&W> {
        let same = self.generation == generation && same_header(self.head, head);
        let way = self.way.as_ref()?;
        (same && self.has(len)).then_some(way)
    }

    /// Whether frames of this length are known to go this way.
    #[inline(always)]
    fn has(&self, len: usize) -> bool {
        (Run::SHORTEST..=self.fits as usize).contains(&len)
    }

    #[cold]
    fn learn(&mut self, len: usize, way: Option<W>) -> Option<W> {
        match way {
            // Shorter ones are nobody's but their own.
            _ if len < Run::SHORTEST => {}
            // No frame is so long.
            Some(_) => (self.fits, self.way) = (u32::try_from(len).unwrap_or(0), way),
            None => self.fails = u32::try_from(len).unwrap_or(u32::MAX),
        }
        way
    }
}

/// Frames that are in their buffers, their descriptors done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// How many; each has taken a descriptor.
    pub frames: u32,
    /// Descriptors read.
    pub fetched: u64,
}

/// Copies frames of a run into the buffers of `ring` from its head on, of which `free` are ours, `len` bytes for the longest
/// with the zeros behind it, and writes their descriptors back. It ends where a buffer is null, or not in the region of the one
/// before, or not in reach, or where the filler does.
#[inline]
pub fn fill_run(
    view: &View<'_>,
    (ring, free): (&Ring, u32),
    run: &Run<'_>,
    len: usize,
    (filler, to): (impl Filler, &impl Publish),
) -> Filled {
    match run.count().min(free as usize) {
        1 => return fill_one(view, ring, run, len, (filler, to)).unwrap_or_default(),
        most if most <= FEW => return fill::<FEW>(view, (ring, free), run, len, (filler, to)),
        _ => {}
    }
    fill::<AHEAD>(view, (ring, free), run, len, (filler, to))
}

/// As [`fill_run`], of frames that have lengths of their own, with `more` zeros behind each. Descriptors say `words` and, from
/// bit `shift` of the second on, the length in the buffer.
#[inline(never)]
pub fn fill_lengths(
    view: &View<'_>,
    ours: (&Ring, u32),
    run: &Run<'_>,
    (words, shift, more): (Words, u32, usize),
    to: &impl Publish,
) -> Filled {
    let filler = Lengths {
        words,
        shift,
        more,
        second: [0; AHEAD],
    };
    fill::<AHEAD>(view, ours, run, run.frame_len() + more, (filler, to))
}

/// As [`fill_run`], of one frame, which is what interactive traffic sends. `None`: it has no buffer that is for this way.
#[inline(always)]
pub fn fill_one(
    view: &View<'_>,
    ring: &Ring,
    run: &Run<'_>,
    len: usize,
    (mut filler, by): (impl Filler, &impl Publish),
) -> Option<Filled> {
    let first = ring.address(ring.head);
    let addr = view.read_run(first, SIZE)?.firsts().next()?;
    fence(Ordering::Acquire);
    let to = view.write_places_anew(addr, len).filter(|_| addr != 0)?;
    let place = to.find(addr)?;
    let (from, at, heads) = run.frames();
    let frames = Frames {
        from,
        at: &at[..1],
        heads: &heads[..1],
        lens: run.lens(),
    };
    if filler.copy(frames, &to, &[place]) != 1 {
        return None;
    }
    let window = view.write_window(first)?;
    // Of one descriptor the first is the last.
    by.begins(view, (ring.head, first), 1, || filler.says(1));
    let done = filler.write_back(&window, first, 0, 1);
    by.ended(if done { ring.behind(1) } else { ring.head });
    done.then_some(Filled {
        frames: 1,
        fetched: 1,
    })
}

#[inline(always)]
fn fill<const N: usize>(
    view: &View<'_>,
    (ring, mut free): (&Ring, u32),
    run: &Run<'_>,
    len: usize,
    (mut filler, by): (impl Filler, &impl Publish),
) -> Filled {
    let mut ring = *ring;
    let mut filled = Filled::default();
    let mut places = [0; N];
    let (from, at, heads) = run.frames();
    let mut frames = Frames {
        from,
        at,
        heads,
        lens: run.lens(),
    };
    while !frames.at.is_empty() && free > 0 {
        let straight = free.min(ring.len - ring.head) as usize;
        let most = N.min(frames.at.len()).min(straight);
        let Some(buffers) = find_buffers(view, (&ring, most), len, &mut places) else {
            break;
        };
        let Buffers { first, to, found } = buffers;
        filled.fetched += most as u64;
        let copied = filler.copy(frames, &to, &places[..found]);
        let write = |window: WriteWindow<'_>| {
            let write = |from, n| filler.write_back(&window, first, from, n);
            let says = || filler.says(copied);
            publish(by, view, (&ring, first), (copied, says), write)
        };
        if copied == 0 || !view.write_window(first).is_some_and(write) {
            break;
        }
        filled.frames += copied as u32;
        free -= copied as u32;
        ring.head = ring.behind(copied as u32);
        frames = frames.behind(copied);
        if copied < most {
            break;
        }
    }
    filled
}

/// The buffers of the next descriptors of a ring.
pub(super) struct Buffers<'v> {
    /// Where the first descriptor is.
    pub first: u64,
    /// The region of the buffers.
    pub to: WritePlaces<'v>,
    /// How many there are.
    pub found: usize,
}

/// Finds the buffers of the next `most` descriptors of `ring`, `len` bytes each, as far as there are `places`. It ends where one
/// is null, or not in the region of the one before. `None`: the first is not in reach.
#[inline(always)]
pub(super) fn find_buffers<'v, const N: usize>(
    view: &'v View<'_>,
    (ring, most): (&Ring, usize),
    len: usize,
    places: &mut [u64; N],
) -> Option<Buffers<'v>> {
    let first = ring.address(ring.head);
    let descs = view.read_run(first, most as u64 * SIZE)?;
    fence(Ordering::Acquire);
    let mut buffers = descs.firsts().peekable();
    let to = view.write_places_anew(*buffers.peek()?, len)?;
    let mut found = 0;
    for (place, addr) in places.iter_mut().zip(buffers) {
        // Address 0 is a null buffer.
        let Some(at) = to.find(addr).filter(|_| addr != 0) else {
            break;
        };
        to.prefetch(at);
        *place = at;
        found += 1;
    }
    Some(Buffers { first, to, found })
}

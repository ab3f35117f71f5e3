//! Runs: frames that differ in nothing that a switch or a receiver decides upon; and what is several of them.

use guest_mem::{Head, ReadPlaces};
use wire::ETHERNET_HEADER;

/// Bits of a head's second word that belong to the Ethernet header.
const HEADER_REST: u64 = 0xffff_ffff_ffff;

/// Plain frames that begin with the same Ethernet header. They are where their sender has them; the first 16 bytes of
/// each are our own copy, made once, and what they are judged by is what is delivered.
///
/// A run is what a [`Batch`](crate::Batch) is for such frames, and costs a fraction of it: nothing is stored for a
/// frame but where it is, how it begins, and, unless that is the same for all, its length.
#[derive(Clone, Copy, Debug)]
pub struct Run<'r> {
    from: ReadPlaces<'r>,
    at: &'r [u64],
    heads: &'r [Head],
    lens: Option<&'r [u16]>,
    longest: usize,
}

/// Whether two frames begin with the same Ethernet header.
#[inline(always)]
pub fn same_header(a: Head, b: Head) -> bool {
    (a[0] ^ b[0]) | ((a[1] ^ b[1]) & HEADER_REST) == 0
}

/// Destination, source and type of a frame that begins so.
#[inline]
pub fn header_of([first, second]: Head) -> [u8; ETHERNET_HEADER] {
    let mut header = [0; ETHERNET_HEADER];
    header[..8].copy_from_slice(&first.to_le_bytes());
    header[8..].copy_from_slice(&second.to_le_bytes()[..ETHERNET_HEADER - 8]);
    header
}

impl<'r> Run<'r> {
    /// Shortest frame of a run whose frames have lengths of their own: all receivers take it as it is.
    pub const SHORTEST: usize = crate::alike::SHORTEST;

    /// Frames at these places, whose heads have the same header. `None` when there is none, or they are shorter than
    /// a header.
    #[inline]
    pub fn new(from: ReadPlaces<'r>, at: &'r [u64], heads: &'r [Head]) -> Option<Run<'r>> {
        let heads = heads.get(..at.len())?;
        debug_assert!(heads.iter().all(|head| same_header(*head, heads[0])));
        let longest = from.bytes();
        (!at.is_empty() && longest >= size_of::<Head>()).then_some(Run {
            from,
            at,
            heads,
            lens: None,
            longest,
        })
    }

    /// The same of frames that have these lengths. `None` also when one is shorter than [`Run::SHORTEST`].
    #[inline]
    pub fn of_lengths(
        from: ReadPlaces<'r>,
        (at, lens): (&'r [u64], &'r [u16]),
        heads: &'r [Head],
    ) -> Option<Run<'r>> {
        let heads = heads.get(..at.len())?;
        let lens = lens.get(..at.len())?;
        debug_assert!(heads.iter().all(|head| same_header(*head, heads[0])));
        let (mut shortest, mut longest) = (u16::MAX, 0);
        for len in lens {
            shortest = shortest.min(*len);
            longest = longest.max(*len);
        }
        (!at.is_empty() && usize::from(shortest) >= Run::SHORTEST).then_some(Run {
            from,
            at,
            heads,
            lens: (shortest != longest || usize::from(longest) != from.bytes()).then_some(lens),
            longest: longest.into(),
        })
    }

    /// Frames in it; at least one.
    #[inline]
    pub fn count(&self) -> usize {
        self.at.len()
    }

    /// Bytes of the longest, without FCS; of each, if [`Run::lens`] says nothing else.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.longest
    }

    /// Bytes of each, where they differ.
    #[inline]
    pub fn lens(&self) -> Option<&'r [u16]> {
        self.lens
    }

    /// Bytes of the first `n` together.
    #[inline]
    pub fn bytes(&self, n: usize) -> usize {
        match self.lens {
            None => n * self.longest,
            Some(lens) => lens.iter().take(n).map(|len| usize::from(*len)).sum(),
        }
    }

    /// At most `most` of them, from number `from` on, which there is.
    #[inline]
    pub fn part(&self, from: usize, most: usize) -> Run<'r> {
        let end = self.count().min(from + most);
        Run {
            at: &self.at[from..end],
            heads: &self.heads[from..end],
            lens: self.lens.map(|lens| &lens[from..end]),
            ..*self
        }
    }

    /// How the first begins: the header of all.
    #[inline]
    pub fn head(&self) -> Head {
        self.heads[0]
    }

    /// Destination, source and type.
    #[inline]
    pub fn header(&self) -> [u8; ETHERNET_HEADER] {
        header_of(self.head())
    }

    /// A copy of one frame; `None` beyond the end. For tests and slow paths.
    pub fn to_vec(&self, index: usize) -> Option<Vec<u8>> {
        let len = match self.lens {
            None => self.longest,
            Some(lens) => usize::from(*lens.get(index)?),
        };
        copy_of(&self.from, (*self.at.get(index)?, len), self.heads[index])
    }

    /// Where the frames are, and how each begins.
    #[inline]
    pub fn frames(&self) -> (&ReadPlaces<'r>, &'r [u64], &'r [Head]) {
        (&self.from, self.at, self.heads)
    }
}

/// Plain frames in the order in which they were sent, each of [`Run::SHORTEST`] bytes at least: what becomes runs where it
/// is known whom they are for.
#[derive(Clone, Copy, Debug)]
pub struct Mix<'r> {
    from: ReadPlaces<'r>,
    at: &'r [u64],
    lens: &'r [u16],
    heads: &'r [Head],
}

impl<'r> Mix<'r> {
    /// Frames at these places, with these lengths, that begin so. `None` when there is none, or one is too short.
    #[inline]
    pub fn new(
        from: ReadPlaces<'r>,
        (at, lens): (&'r [u64], &'r [u16]),
        heads: &'r [Head],
    ) -> Option<Mix<'r>> {
        let (lens, heads) = (lens.get(..at.len())?, heads.get(..at.len())?);
        let long = |len: &u16| usize::from(*len) >= Run::SHORTEST;
        (!at.is_empty() && lens.iter().all(long)).then_some(Mix {
            from,
            at,
            lens,
            heads,
        })
    }

    /// Where they are.
    #[inline]
    pub fn from(&self) -> ReadPlaces<'r> {
        self.from
    }

    /// Where each is, its length without FCS, and how it begins.
    #[inline]
    pub fn frames(&self) -> (&'r [u64], &'r [u16], &'r [Head]) {
        (self.at, self.lens, self.heads)
    }

    /// Frames in it; at least one.
    #[inline]
    pub fn count(&self) -> usize {
        self.at.len()
    }

    /// Bytes of the first `n` together.
    #[inline]
    pub fn bytes(&self, n: usize) -> usize {
        self.lens.iter().take(n).map(|len| usize::from(*len)).sum()
    }

    /// A copy of one frame; `None` beyond the end. For tests and slow paths.
    pub fn to_vec(&self, index: usize) -> Option<Vec<u8>> {
        let len = usize::from(*self.lens.get(index)?);
        copy_of(&self.from, (self.at[index], len), self.heads[index])
    }

    /// All frames as a run; `None` if their headers differ.
    pub fn as_run(&self) -> Option<Run<'r>> {
        let same = |head: &Head| same_header(*head, self.heads[0]);
        let run = || Run::of_lengths(self.from, (self.at, self.lens), self.heads);
        self.heads.iter().all(same).then(run)?
    }
}

/// A copy of the frame at a place, of so many bytes, which begins so.
fn copy_of(from: &ReadPlaces<'_>, (at, len): (u64, usize), head: Head) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    from.get_of(at, len)?.copy_to(0, &mut bytes);
    let [first, second] = head.map(u64::to_le_bytes);
    bytes[..8].copy_from_slice(&first);
    bytes[8..16].copy_from_slice(&second);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use guest_mem::Memory;

    use super::*;

    #[test]
    fn a_run_says_how_its_frames_begin() {
        let memory = Memory::new();
        memory.map_anon(0, 0x1000).expect("map");
        let view = memory.view();
        let header: Vec<u8> = (1..=16).collect();
        view.write(0x100, &header).expect("write");
        let from = view.read_places(0, 60).expect("mapped");
        let head = from.head(0x100).expect("there");
        let heads = [head; 2];
        let run = Run::new(from, &[0x100, 0x200], &heads).expect("two frames");
        assert_eq!((run.count(), run.frame_len()), (2, 60));
        assert_eq!(run.header()[..], header[..14]);
        let second = run.to_vec(1).expect("two frames");
        assert_eq!((&second[..16], &second[16..]), (&header[..], &[0; 44][..]));
        assert!(run.to_vec(2).is_none());
        assert!(Run::new(from, &[], &[]).is_none(), "no frame");
        assert!(
            Run::new(from, &[0; 2], &[head]).is_none(),
            "a head is missing"
        );
        assert_eq!((run.lens(), run.bytes(2)), (None, 120));
        let lens = [60, 80];
        let mixed = Run::of_lengths(from, (&[0x100, 0x200], &lens), &heads).expect("two");
        assert_eq!((mixed.lens(), mixed.frame_len()), (Some(&lens[..]), 80));
        assert_eq!(
            (mixed.bytes(1), mixed.bytes(2), mixed.bytes(3)),
            (60, 140, 140)
        );
        assert_eq!(mixed.to_vec(1).expect("two frames").len(), 80);
        let part = mixed.part(1, 9);
        assert_eq!((part.count(), part.lens()), (1, Some(&lens[1..])));
        assert_eq!(part.to_vec(0), mixed.to_vec(1));
        let alike = Run::of_lengths(from, (&[0x100, 0x200], &[60, 60]), &heads);
        assert_eq!(alike.map(|run| run.lens()), Some(None));
        assert!(Run::of_lengths(from, (&[0x100], &[59]), &heads).is_none());
        assert!(Run::of_lengths(from, (&[0x100, 0x200], &[60]), &heads).is_none());
        let mut other = head;
        other[0] ^= 1;
        let is_run = |heads: &[Head]| {
            let mix = Mix::new(from, (&[0x100, 0x200], &[60, 80]), heads)?;
            Some(mix.as_run().is_some())
        };
        assert_eq!(is_run(&[head, other]), Some(false));
        assert_eq!(is_run(&[head, head]), Some(true));
        assert_eq!(is_run(&[head]), None);
        let short = view.read_places(0, 15).expect("mapped");
        assert!(Run::new(short, &[0], &[head]).is_none());
        let other = |word: usize, bit: u32| {
            let mut other = head;
            other[word] ^= 1 << bit;
            same_header(head, other)
        };
        assert!(!other(0, 0) && !other(0, 63) && !other(1, 47));
        assert!(other(1, 48) && other(1, 63), "behind the header");
    }
}

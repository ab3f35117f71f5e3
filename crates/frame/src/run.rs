//! Runs: frames that differ in nothing that a switch or a receiver decides upon.

use guest_mem::{Head, ReadPlaces};
use wire::ETHERNET_HEADER;

/// Bits of a head's second word that belong to the Ethernet header.
const HEADER_REST: u64 = 0xffff_ffff_ffff;

/// Plain frames of one length that begin with the same Ethernet header. They are where their sender has them; the
/// first 16 bytes of each are our own copy, made once, and what they are judged by is what is delivered.
///
/// A run is what a [`Batch`](crate::Batch) is for such frames, and costs a fraction of it: nothing is stored for a
/// frame but where it is and how it begins.
#[derive(Clone, Copy, Debug)]
pub struct Run<'r> {
    from: ReadPlaces<'r>,
    at: &'r [u64],
    heads: &'r [Head],
}

/// Whether two frames begin with the same Ethernet header.
#[inline(always)]
pub fn same_header(a: Head, b: Head) -> bool {
    (a[0] ^ b[0]) | ((a[1] ^ b[1]) & HEADER_REST) == 0
}

impl<'r> Run<'r> {
    /// Frames at these places, whose heads have the same header. `None` when there is none, or they are shorter than
    /// a header.
    #[inline]
    pub fn new(from: ReadPlaces<'r>, at: &'r [u64], heads: &'r [Head]) -> Option<Run<'r>> {
        let heads = heads.get(..at.len())?;
        debug_assert!(heads.iter().all(|head| same_header(*head, heads[0])));
        (!at.is_empty() && from.bytes() >= size_of::<Head>()).then_some(Run { from, at, heads })
    }

    /// Frames in it; at least one.
    #[inline]
    pub fn count(&self) -> usize {
        self.at.len()
    }

    /// Bytes of each, without FCS.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.from.bytes()
    }

    /// How the first begins: the header of all.
    #[inline]
    pub fn head(&self) -> Head {
        self.heads[0]
    }

    /// Destination, source and type.
    #[inline]
    pub fn header(&self) -> [u8; ETHERNET_HEADER] {
        let mut header = [0; ETHERNET_HEADER];
        let [first, second] = self.head();
        header[..8].copy_from_slice(&first.to_le_bytes());
        header[8..].copy_from_slice(&second.to_le_bytes()[..ETHERNET_HEADER - 8]);
        header
    }

    /// Where the frames are, and how each begins.
    #[inline]
    pub fn frames(&self) -> (&ReadPlaces<'r>, &'r [u64], &'r [Head]) {
        (&self.from, self.at, self.heads)
    }
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
        assert!(Run::new(from, &[], &[]).is_none(), "no frame");
        assert!(
            Run::new(from, &[0; 2], &[head]).is_none(),
            "a head is missing"
        );
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

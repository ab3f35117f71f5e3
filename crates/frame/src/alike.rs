//! What the frames of a batch have in common.

use wire::ETHERNET_HEADER;

/// Bytes of every frame that a batch holds as its own copy: what decisions are made upon, and short
/// frames whole.
pub const HEAD: usize = 64;

/// Shortest frame on the wire, without FCS.
pub(crate) const SHORTEST: usize = 60;

/// What all frames of a batch that begin alike have in common ([`Batch::alike`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike<'b> {
    /// Destination, source and type: the first bytes of each.
    pub header: &'b [u8; ETHERNET_HEADER],
    /// Their length in bytes, if it is the same for all.
    pub len: Option<usize>,
    /// None of them has notes.
    pub plain: bool,
}

/// In what the frames so far differ from the first. Gathered while their heads are at hand, so that
/// no receiver has to go through a batch for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kin {
    /// Bytes 0 to 7 and 6 to 13 of the first, and its length.
    first: [u64; 2],
    len: usize,
    /// Bits in which any header differs, and any length.
    header_differs: u64,
    len_differs: usize,
}

impl Kin {
    #[inline]
    pub(crate) fn add(&mut self, is_first: bool, head: &[u8; HEAD], len: usize) {
        let word = |at: usize| {
            let bytes = head[at..].first_chunk().copied();
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        let header = [word(0), word(ETHERNET_HEADER - 8)];
        if is_first {
            *self = Kin {
                first: header,
                len,
                ..Kin::default()
            };
        }
        // What has no header whole is like nothing.
        self.header_differs |= (header[0] ^ self.first[0])
            | (header[1] ^ self.first[1])
            | u64::from(len < ETHERNET_HEADER);
        self.len_differs |= len ^ self.len;
    }

    /// What is common to all, of which the first begins with `header`.
    #[inline]
    pub(crate) fn told<'b>(
        &self,
        header: &'b [u8; ETHERNET_HEADER],
        plain: bool,
    ) -> Option<Alike<'b>> {
        (self.header_differs == 0).then_some(Alike {
            header,
            len: (self.len_differs == 0).then_some(self.len),
            plain,
        })
    }
}

#[cfg(test)]
mod tests {
    use guest_mem::ReadSlice;
    use proptest::prelude::*;
    use wire::Offload;

    use super::*;
    use crate::Batch;

    #[derive(Clone, Debug)]
    struct One {
        /// A byte that is not zero, and where.
        mark: Option<usize>,
        len: usize,
        noted: bool,
        /// In which of three ways it is added.
        how: u8,
    }

    fn one() -> impl Strategy<Value = One> {
        let mark = prop_oneof![8 => Just(None), 1 => (0..20usize).prop_map(Some)];
        let len = prop_oneof![8 => Just(70usize), 1 => 0..80usize];
        let noted = prop_oneof![8 => Just(false), 1 => Just(true)];
        (mark, len, noted, 0..3u8).prop_map(|(mark, len, noted, how)| One {
            mark,
            len,
            noted,
            how,
        })
    }

    proptest! {
        #[test]
        fn what_is_told_is_so(
            batches in proptest::collection::vec(proptest::collection::vec(one(), 0..6), 1..4)
        ) {
            let bytes = |one: &One| {
                let mut bytes = vec![0; one.len];
                if let Some(byte) = one.mark.and_then(|at| bytes.get_mut(at)) {
                    *byte = 1;
                }
                bytes
            };
            let all: Vec<Vec<_>> = batches.iter().map(|b| b.iter().map(bytes).collect()).collect();
            let mut batch = Batch::new();
            for (frames, bodies) in batches.iter().zip(&all) {
                batch = batch.recycle();
                for (one, body) in frames.iter().zip(bodies) {
                    let notes = Offload { csum_valid: one.noted, ..Offload::NONE };
                    match one.how {
                        0 if !one.noted => batch.push_frame(ReadSlice::from_bytes(body)),
                        1 => {
                            batch.push_slice(ReadSlice::from_bytes(body));
                            batch.end(notes);
                        }
                        _ => {
                            batch.push_bytes(body);
                            batch.end(notes);
                        }
                    }
                }
                let first = bodies.first().and_then(|b| b.first_chunk::<ETHERNET_HEADER>());
                let same = first.is_some_and(|first| {
                    bodies.iter().all(|b| b.first_chunk() == Some(first))
                });
                let len = bodies.first().map(Vec::len);
                let want = first.filter(|_| same).map(|header| Alike {
                    header,
                    len: len.filter(|len| bodies.iter().all(|b| b.len() == *len)),
                    plain: frames.iter().all(|one| !one.noted),
                });
                prop_assert_eq!(batch.alike(), want);
                batch.clear();
                prop_assert!(batch.alike().is_none());
            }
        }

        #[test]
        fn a_segment_is_compared_by_what_it_holds(
            first in proptest::collection::vec(0..2u8, 14..80), change in 0..80usize
        ) {
            let mut head = [0; HEAD];
            let n = first.len().min(20);
            head[..n].copy_from_slice(&first[..n]);
            let mut batch = Batch::new();
            batch.push_bytes(&first);
            batch.end(Offload::NONE);
            if let Some(byte) = head[..n].get_mut(change) {
                *byte ^= 1;
            }
            batch.push_alike(&head, n, ReadSlice::from_bytes(&first[n..]));
            let same = change >= n.min(ETHERNET_HEADER);
            prop_assert_eq!(batch.alike().is_some(), same);
            prop_assert_eq!(batch.alike().and_then(|a| a.len), same.then_some(first.len()));
        }
    }
}

//! Packets made of slices: copying a part, passing a part on, summing a part.

use frame::Batch;
use guest_mem::ReadSlice;
use wire::Sum;

/// The runs of memory that make up a packet, cut at its length.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'p, 'v> {
    pieces: &'p [ReadSlice<'v>],
    len: usize,
}

/// A place in a [`Gather`], cheap to move forward from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    piece: usize,
    inside: usize,
    at: usize,
}

impl<'p, 'v> Gather<'p, 'v> {
    /// The first `len` bytes of `pieces`.
    pub fn new(pieces: &'p [ReadSlice<'v>], len: usize) -> Self {
        Self { pieces, len }
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Visits at most `len` bytes from `cursor` on, run by run, and moves it behind them.
    pub fn take(&self, cursor: &mut Cursor, len: usize, visit: &mut dyn FnMut(ReadSlice<'v>)) {
        let mut left = len.min(self.len - cursor.at.min(self.len));
        while left > 0 {
            let Some(piece) = self.pieces.get(cursor.piece) else {
                return;
            };
            let part = piece.sub(cursor.inside, left);
            if part.is_empty() {
                cursor.piece += 1;
                cursor.inside = 0;
                continue;
            }
            visit(part);
            cursor.inside += part.len();
            cursor.at += part.len();
            left -= part.len();
        }
    }

    /// A cursor at byte `at`.
    pub fn cursor(&self, at: usize) -> Cursor {
        let mut cursor = Cursor::default();
        self.take(&mut cursor, at, &mut |_| ());
        cursor
    }

    /// Copies the first bytes into `out`; returns how many there were.
    pub fn copy_head(&self, out: &mut [u8]) -> usize {
        let mut done = 0;
        let len = out.len();
        self.take(&mut Cursor::default(), len, &mut |part| {
            done += part.copy_to(0, &mut out[done..]);
        });
        done
    }

    /// Adds `len` bytes from `cursor` on to the frame being built in `batch`.
    pub fn push(&self, cursor: &mut Cursor, len: usize, batch: &mut Batch<'v>) {
        self.take(cursor, len, &mut |part| batch.push_slice(part));
    }

    /// Sums `len` bytes from `cursor` on.
    pub fn sum(&self, mut cursor: Cursor, len: usize, sum: &mut Sum) {
        self.take(&mut cursor, len, &mut |part| {
            sum.add_part(part.sum(), part.len());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_concatenation() {
        let bytes: Vec<u8> = (0..100u8).collect();
        let pieces = [
            ReadSlice::from_bytes(&bytes[..1]),
            ReadSlice::from_bytes(&[]),
            ReadSlice::from_bytes(&bytes[1..40]),
            ReadSlice::from_bytes(&bytes[40..]),
        ];
        let whole = Gather::new(&pieces, 90);
        for start in 0..95 {
            for len in [0, 1, 7, 39, 60, 200] {
                let want = &bytes[start.min(90)..(start + len).min(90)];
                let mut batch = Batch::new();
                let mut cursor = whole.cursor(start);
                whole.push(&mut cursor, len, &mut batch);
                batch.end(wire::Offload::NONE);
                assert_eq!(batch.get(0).expect("there").to_vec(), want);
                let mut sum = Sum::ZERO;
                whole.sum(whole.cursor(start), len, &mut sum);
                assert_eq!(sum.value(), Sum::of(want).value(), "{start} {len}");
            }
        }
        let mut head = [0; 50];
        assert_eq!(whole.copy_head(&mut head), 50);
        assert_eq!(head, bytes[..50]);
    }
}

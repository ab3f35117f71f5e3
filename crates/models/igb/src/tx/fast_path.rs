//! The fast fast path of the transmit side: packets of one descriptor that ask for nothing.
//!
//! For them the general walk ([`crate::tx::parser`]) would make a request, a gather list and a plan only to
//! find all of them empty. The fast path does what the walk would have done, and leaves everything that is
//! not exactly so to it; a test runs random rings through both.

use datapath::offload::{MAX_FRAME, MIN_FRAME};
use frame::Batch;
use guest_mem::ReadSlice;
use intel::SIZE;

use crate::tx::desc::{DATA, STAMP, cmd};
use crate::tx::parser::{MOST_BYTES, Parser};
use crate::tx::store::{Before, Mark, Store};

/// Packets whose memory is asked for before the first of them is looked at: about as many cache
/// misses as a processor keeps under way.
const AHEAD: usize = 32;
/// Checksums a data descriptor asks for, in its last word.
const SUMS: u32 = 3 << 8;

/// A descriptor for the fast path: address, length, whether it is to be reported.
#[inline]
fn simple(raw: &[u8; SIZE as usize]) -> Option<(u64, u32, bool)> {
    let both = u128::from_le_bytes(*raw);
    let (addr, rest) = (both as u64, (both >> 64) as u64);
    let command = (rest >> 24) as u8;
    let asks = if command & cmd::DEXT == 0 {
        cmd::IC | cmd::VLE
    } else {
        let kind = (rest >> 16) as u8;
        if kind >> 4 != DATA || kind & STAMP != 0 || (rest >> 32) as u32 & SUMS != 0 {
            return None;
        }
        cmd::TSE | cmd::VLE
    };
    if command & (cmd::EOP | cmd::IFCS | asks) != cmd::EOP | cmd::IFCS {
        return None;
    }
    // A null address of a legacy descriptor transfers no data.
    if addr == 0 && command & cmd::DEXT == 0 {
        return None;
    }
    let len = rest as u32 & 0xffff;
    let fits = (MIN_FRAME..=MAX_FRAME).contains(&(len as usize));
    fits.then_some((addr, len, command & cmd::RS != 0))
}

impl<'v> Parser<'_, 'v> {
    /// Takes packets from the ring as long as they are for the fast path, at most `room` and no further
    /// than is fetched at once. Returns whether there was one. Between packets only; `pieces` is
    /// empty, and is again afterwards.
    pub(crate) fn fast_path(
        &mut self,
        store: &mut Store,
        batch: &mut Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
        room: usize,
        fetched: &mut u64,
    ) -> bool {
        let Store {
            fetcher,
            marks,
            memories,
            written,
        } = store;
        let ready = fetcher.get(self.view, &self.ring, self.at, self.left, fetched);
        let Ok(descs) = ready else {
            // The walk meets it too, and counts it.
            return false;
        };
        let memory = memories.len() as u32 - 1;
        let before = Before {
            written: written.len() as u32,
            report: self.report,
        };
        let (mut bytes, mut left) = (self.bytes, self.room);
        // What is fetched at once does not go around the ring.
        for (index, raw) in (self.at..).zip(descs.iter().take(room.min(AHEAD))) {
            if left == 0 || bytes >= MOST_BYTES {
                break;
            }
            let Some((addr, len, reported)) = simple(raw) else {
                break;
            };
            let Some(slice) = self.view.read_run(addr, len.into()) else {
                break;
            };
            slice.prefetch();
            pieces.push(slice);
            bytes += len as usize;
            left = left.saturating_sub(len as usize);
            if reported {
                written.push(index);
            }
        }
        let run = pieces.len() as u32;
        if run == 0 {
            return false;
        }
        (self.bytes, self.room) = (bytes, left);
        self.report |= written.len() as u32 > before.written;
        self.at = self.ring.next(self.at + run - 1);
        self.left -= run;
        marks.push(Mark {
            frames: batch.len() as u32 + run,
            next: self.at,
            memory,
            written: written.len() as u32,
            report: self.report,
            tso: None,
            stamp: false,
            run,
            before,
        });
        for slice in pieces.drain(..) {
            batch.push_frame(slice);
        }
        true
    }
}

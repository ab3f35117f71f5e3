//! The fast path of the transmit side: packets of one descriptor that ask for nothing.
//!
//! Most packets are such: one data (or legacy) descriptor with EOP and IFCS, of a length that needs no
//! padding, in one piece of memory. For them the descriptor parser ([`crate::tx::parser`]) would make a
//! request, a gather list and a plan only to find all of them empty. The fast path does what the parser would
//! have done, and leaves everything that is not exactly so to it; both models' tests run random rings through
//! both.

use datapath::offload::{MAX_FRAME, MIN_FRAME};

use crate::tx::desc::{Format, cmd};
use crate::tx::mark::{Before, Mark, Store};
use crate::tx::parser::{MOST_BYTES, Parser};
use crate::tx::scratch::Scratch;

/// Packets whose memory is asked for before the first of them is looked at: about as many cache
/// misses as a processor keeps under way.
const AHEAD: usize = 32;

/// The length of a packet for the fast path, by the two words of its descriptor, and whether it is to be reported.
#[inline(always)]
pub(crate) fn simple<F: Format>(addr: u64, second: u64) -> Option<(u32, bool)> {
    let command = (second >> 24) as u8;
    let legacy = command & cmd::DEXT == 0;
    let asks = F::DELAY | cmd::VLE | if legacy { cmd::IC } else { F::TSE };
    if command & (cmd::EOP | cmd::IFCS | asks) != cmd::EOP | cmd::IFCS {
        return None;
    }
    let len = if legacy {
        // A null address of a legacy descriptor transfers no data.
        if addr == 0 {
            return None;
        }
        second as u32 & 0xffff
    } else {
        F::plain(second)?
    };
    let fits = (MIN_FRAME..=MAX_FRAME).contains(&(len as usize));
    fits.then_some((len, command & F::REPORT != 0))
}

impl<'v, F: Format> Parser<'_, 'v, F> {
    /// Takes packets from the ring as long as they are for the fast path, at most `room` and no further
    /// than is fetched at once. Returns whether there was one. Between packets only; the list of pieces is
    /// empty, and is again afterwards.
    #[inline]
    pub(crate) fn fast_path(
        &mut self,
        store: &mut Store<F::Contexts>,
        scratch: &mut Scratch<'v>,
        room: usize,
        fetched: &mut u64,
    ) -> bool {
        let Store {
            fetcher,
            marks,
            memories,
            written,
            ..
        } = store;
        let Scratch { batch, pieces, .. } = scratch;
        let ready = fetcher.get(self.view, &self.ring, self.at, self.left, fetched);
        let Ok(descs) = ready else {
            // The parser meets it too, and counts it.
            return false;
        };
        let memory = memories.len() as u32 - 1;
        let before = Before {
            written: written.len() as u32,
            now: self.now,
        };
        let (mut bytes, mut left) = (self.bytes, self.room);
        // What is fetched at once does not go around the ring.
        for (index, raw) in (self.at..).zip(descs.iter().take(room.min(AHEAD))) {
            if left == 0 || bytes >= MOST_BYTES {
                break;
            }
            let both = u128::from_le_bytes(*raw);
            let addr = both as u64;
            let Some((len, reported)) = simple::<F>(addr, (both >> 64) as u64) else {
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
        self.now |= written.len() as u32 > before.written;
        self.at = self.ring.next(self.at + run - 1);
        self.left -= run;
        marks.push(Mark {
            frames: batch.len() as u32 + run,
            next: self.at,
            memory,
            written: written.len() as u32,
            now: self.now,
            delayed: self.delayed,
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

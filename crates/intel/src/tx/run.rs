//! The short way of the transmit side: runs of packets that are alike.
//!
//! Descriptors that are the same but for the address of their buffer, whose frames begin with the same Ethernet header,
//! become a [`Run`]: it is the ring itself, read once, with a place and 16 bytes for each frame. The first descriptor
//! that is not so ends it. What is no run, and what a sink does not take as one, goes through the descriptor parser
//! ([`crate::tx::parser`]); both models' tests send random rings both ways.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use datapath::counters::count;
use frame::{MAX_BATCH, Run, same_header};
use guest_mem::{Head, View};

use crate::ring::{DD, Ring, SIZE};
use crate::tx::complete::STATUS_AT;
use crate::tx::desc::Format;
use crate::tx::fast_path::simple;
use crate::tx::parser::MOST_BYTES;

/// Packets whose memory is asked for before the first of them is looked at: about as many cache misses as a processor
/// keeps under way.
const AHEAD: usize = 32;
/// Packets of a run for which it is remembered whether they are to be reported, in words.
const WORDS: usize = MAX_BATCH / 64;
/// Fewest packets of a run that does not end at the tail. Shorter ones are mixed traffic, which costs less in a batch.
const FEWEST: usize = 8;
/// Bits of the second word of a descriptor that may differ within a run: the status, which the guest may have left
/// there, and (apart) the bits that ask for a report.
const STATUS: u64 = 0xf << 32;
/// Where command bits are in the second word.
const CMD_AT: u32 = 24;

/// Which packets of a run are to be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Whether the first is.
    first: bool,
    /// Those of which that is not true which is true of the first.
    others: [u64; WORDS],
    /// There are some.
    mixed: bool,
}

impl Reported {
    #[inline]
    fn note_other(&mut self, at: usize) {
        self.others[at / 64] |= 1 << (at % 64);
        self.mixed = true;
    }

    /// The first `n` packets, bit by bit.
    fn bits(&self, n: usize) -> [u64; WORDS] {
        let mut bits = self.others;
        for (i, word) in bits.iter_mut().enumerate() {
            let of = match n.saturating_sub(64 * i) {
                64.. => u64::MAX,
                left => (1 << left) - 1,
            };
            *word = (*word ^ if self.first { u64::MAX } else { 0 }) & of;
        }
        bits
    }

    /// Whether one of the first `n` packets is to be reported.
    #[inline]
    pub fn asks(&self, n: usize) -> bool {
        match self.mixed {
            true => self.bits(n).iter().any(|word| *word != 0),
            false => self.first && n > 0,
        }
    }

    /// Sets "done" in the descriptors of the first `n` packets of a run that began at the head of `ring`, where that was
    /// asked for. Those out of reach are counted in `faults`. Returns whether it was asked for at all.
    #[inline]
    pub fn write_back(&self, view: &View<'_>, ring: &Ring, n: usize, faults: &AtomicU64) -> bool {
        if self.mixed {
            return self.write_back_some(view, ring, n, faults);
        }
        if self.first {
            report(view, ring, 0, n, faults);
        }
        self.first && n > 0
    }

    fn write_back_some(&self, view: &View<'_>, ring: &Ring, n: usize, faults: &AtomicU64) -> bool {
        let mut any = false;
        for (i, mut word) in self.bits(n).into_iter().enumerate() {
            any |= word != 0;
            while word != 0 {
                // Those that stand in a row are written at once.
                let at = word.trailing_zeros();
                let row = (word >> at).trailing_ones();
                report(view, ring, 64 * i as u32 + at, row as usize, faults);
                word &= u64::MAX.checked_shl(at + row).unwrap_or(0);
            }
        }
        any
    }
}

/// Sets "done" in `n` descriptors, the first `from` behind the head; none is around the ring's end.
#[inline]
fn report(view: &View<'_>, ring: &Ring, from: u32, n: usize, faults: &AtomicU64) {
    let first = ring.address(ring.head + from).wrapping_add(STATUS_AT);
    let window = view.write_window(first);
    if window.is_some_and(|w| w.store_bytes(first, SIZE as usize, n, DD)) {
        return;
    }
    for i in 0..n as u64 {
        let at = first.wrapping_add(i * SIZE);
        if view.write_release(at, &[DD]).is_err() {
            count(faults, 1);
        }
    }
}

/// What is kept of the packets of a run.
struct Kept {
    at: [u64; MAX_BATCH],
    heads: [Head; MAX_BATCH],
    reported: Reported,
}

thread_local! {
    static KEPT: Cell<Option<Box<Kept>>> = const { Cell::new(None) };
}

/// Room for a run, kept by the thread from call to call.
pub struct Gathering(Box<Kept>);

impl Gathering {
    /// With the storage of the last that ended in this thread.
    #[inline]
    pub fn take() -> Gathering {
        let new = || {
            Box::new(Kept {
                at: [0; MAX_BATCH],
                heads: [[0; 2]; MAX_BATCH],
                reported: Reported::default(),
            })
        };
        Gathering(KEPT.take().unwrap_or_else(new))
    }

    /// Gives the storage back.
    #[inline]
    pub fn end(self) {
        KEPT.set(Some(self.0));
    }

    /// The run that begins at the head of `ring`, of at most `limit` packets and about `room` bytes; `left` descriptors
    /// are ours. `None` when the first packet is none for it, or few are alike. Between packets only.
    #[inline]
    pub fn gather<'r, F: Format>(
        &'r mut self,
        view: &'r View<'_>,
        ring: &Ring,
        left: u32,
        (limit, room): (usize, usize),
    ) -> Option<(Run<'r>, &'r Reported)> {
        let straight = left.min(ring.len - ring.head);
        let most = limit.min(straight as usize).min(MAX_BATCH);
        let descs = view.read_run(ring.address(ring.head), most as u64 * SIZE)?;
        let mut pairs = descs.pairs();
        let [addr, second] = pairs.next()?;
        let (len, _) = simple::<F>(addr, second)?;
        let from = view.read_places(addr, len as usize)?;
        let Kept {
            at,
            heads,
            reported,
        } = &mut *self.0;
        let bytes = room.min(MOST_BYTES);
        let most = most.min(bytes.div_ceil(len as usize)).max(1);
        let begun = from.find(addr)?;
        let first = from.head(begun)?;
        let report = u64::from(F::REPORT) << CMD_AT;
        let asks = second & report != 0;
        reported.first = asks;
        if reported.mixed {
            *reported = Reported {
                first: asks,
                ..Reported::default()
            };
        }
        (at[0], heads[0]) = (begun, first);
        let mut n = 1;
        while n < most {
            let end = most.min(n + AHEAD);
            let mut found = n;
            for (place, [addr, word]) in at[n..end].iter_mut().zip(&mut pairs) {
                let Some(at) = from.find(addr).filter(|_| addr != 0) else {
                    break;
                };
                let differs = (word ^ second) & !STATUS;
                if differs != 0 {
                    if differs & !report != 0 {
                        break;
                    }
                    if (word & report != 0) != asks {
                        reported.note_other(found);
                    }
                }
                from.prefetch(at);
                *place = at;
                found += 1;
            }
            let mut alike = n;
            for (place, head) in at[n..found].iter().zip(&mut heads[n..found]) {
                let Some(this) = from.head(*place).filter(|this| same_header(*this, first)) else {
                    break;
                };
                *head = this;
                alike += 1;
            }
            n = alike;
            if n < end {
                break;
            }
        }
        if n < FEWEST && n < left as usize {
            return None;
        }
        let run = Run::new(from, &at[..n], &heads[..n])?;
        Some((run, reported))
    }
}

//! Putting frames of any kind into the ring (manual §3.2.2–3.2.6).

use datapath::{FCS, Finish, Layout, MIN_FRAME, fcs_of};
use frame::Frame;
use intel::{DD, Fetcher, verdict};
use wire::Sum;

use crate::filter::address as filter;
use crate::filter::address::FILTERS;
use crate::regs::bits::{rctl, rx_error, rx_status, rxcsum};
use crate::rx::call::{Outcome, Rx};
use crate::rx::l2_filter::Accepted;
use datapath::counters::count;

/// Descriptors read at once at least: a cache line of them.
pub(crate) const LEAST_FETCH: u32 = 4;

/// What the last descriptor of a frame says.
#[derive(Clone, Copy, Default)]
pub(crate) struct Report {
    pub checksum: u16,
    pub status: u8,
    pub errors: u8,
    pub special: u16,
}

impl Report {
    /// The second word of a descriptor whose buffer holds `len` bytes (manual §3.2.3).
    #[inline]
    pub(crate) fn word(&self, len: usize, status: u8) -> u64 {
        u64::from(len as u16)
            | u64::from(self.checksum) << 16
            | u64::from(DD | status | self.status) << 32
            | u64::from(self.errors) << 40
            | u64::from(self.special) << 48
    }
}

impl Rx<'_, '_> {
    /// The address of the buffer at `index`, of which at least `ready` from there on are ours. `None`
    /// when the descriptor cannot be read.
    #[inline]
    pub(crate) fn buffer(&mut self, index: u32, ready: u32) -> Option<u64> {
        let fetcher = self
            .scratch
            .fetcher
            .get_or_insert_with(|| Box::new(Fetcher::new()));
        let fetched = &mut self.account.fetched;
        let raw = fetcher
            .get(self.view, &self.ring, index, ready, fetched)
            .ok()?;
        raw.first().map(|raw| u128::from_le_bytes(*raw) as u64)
    }

    /// Copies a frame into buffers, if there are enough of them, and counts it.
    pub(crate) fn put(&mut self, frame: &Frame<'_>, accepted: &Accepted) -> Outcome {
        if self.free == 0 {
            return Outcome::NoRoom;
        }
        // Taken out, so that what is computed there can be placed from there.
        let mut copy = std::mem::take(&mut self.scratch.copy);
        let placed = self.put_by(&mut copy, frame, accepted);
        self.scratch.copy = copy;
        placed
    }

    /// As [`Rx::put`], with room for a copy.
    fn put_by(&mut self, copy: &mut Vec<u8>, frame: &Frame<'_>, accepted: &Accepted) -> Outcome {
        // Padding, and four bytes for the FCS.
        let tail = [0u8; MIN_FRAME + FCS];
        let fcs = self.rctl & rctl::SECRC == 0;
        let mut layout = Layout {
            head: accepted.head(),
            frame,
            from: accepted.from,
            tail: &tail[..accepted.pad + if fcs { FCS } else { 0 }],
        };
        let mut finish = Finish::new(&layout);
        let start = (self.rxcsum & rxcsum::PCSS) as usize;
        let true_fcs = fcs && self.chip.true_fcs;
        if true_fcs || start != 0 {
            // What is computed over the whole frame goes to the guest with the bytes it was
            // computed from: a copy that fits the first-level cache.
            let len = layout.stage(copy, finish.take());
            if true_fcs {
                let (data, at) = copy[..len].split_at_mut(len - FCS);
                at.copy_from_slice(&fcs_of(data));
            }
            layout = Layout {
                head: &copy[..len],
                frame,
                from: frame.len(),
                tail: &[],
            };
        }
        let (status, errors) = verdict(self.rxcsum, frame);
        let mut report = Report {
            status,
            errors,
            ..Report::default()
        };
        if start != 0 {
            // Of the whole (manual §3.2.9).
            report.checksum = Sum::of(layout.head.get(start..).unwrap_or(&[])).finish();
        }
        if accepted.strip {
            report.status |= rx_status::VP;
            report.special = accepted.tag.unwrap_or(0);
        }
        if FILTERS.inexact(&self.chip.file, self.rctl, accepted.dst) {
            report.status |= rx_status::PIF;
        }
        let placed = self.place(&layout, finish, report);
        if let Outcome::Done = placed {
            if accepted.bad || accepted.control.is_some() {
                self.account.tally.total(accepted.on_wire);
            } else {
                self.account
                    .tally
                    .received(1, accepted.on_wire, accepted.dst);
            }
            self.account.frames += 1;
            self.account.bytes += frame.len() as u64;
            // With CRC and tag as far as they are not stripped (manual §3.2.7.2).
            self.account.small |= self.rsrpd != 0 && layout.len() <= self.rsrpd;
        }
        placed
    }

    /// Copies a frame into the buffers of the next descriptors, which will be written back.
    fn place(
        &mut self,
        layout: &Layout<'_, '_>,
        mut finish: Option<Finish>,
        report: Report,
    ) -> Outcome {
        let counters = &self.chip.counters;
        let size = filter::buffer_size(self.rctl);
        let len = layout.len();
        // What frames like this one will take; more is not read ahead.
        let ahead = len.div_ceil(size).saturating_mul(self.expected);
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).max(LEAST_FETCH);
        let first = self.scratch.words.len();
        let (mut index, mut free, mut at) = (self.ring.head, self.free, 0);
        // Where in guest memory the checksum goes.
        let mut field = [0u64; 2];
        let mut lost = false;
        while at < len && !lost {
            if free == 0 {
                let fits = len.div_ceil(size) < self.ring.len as usize;
                if fits && self.free + 1 < self.ring.len {
                    self.scratch.words.truncate(first);
                    return Outcome::NoRoom;
                }
                // It would not fit a ring full of buffers (or these are null), and must not block
                // those behind it.
                count(&counters.rx_too_large, 1);
                self.account.missed += 1;
                self.account.tally.missed(len);
                lost = true;
                break;
            }
            let ready = free.min(ahead);
            let Some(addr) = self.buffer(index, ready) else {
                count(&counters.rx_dma_fault, 1);
                if index == self.ring.head {
                    // The ring itself is out of reach: nothing can be written back.
                    return Outcome::Lost;
                }
                // What was passed over on the way is used up, or every frame would walk it again.
                lost = true;
                break;
            };
            // A null buffer is written back and passed over (manual §3.2.3).
            let n = if addr == 0 { 0 } else { size.min(len - at) };
            let mut done = at;
            let written = self.view.write_slices(addr, n as u64, &mut |to| {
                match &mut finish {
                    None => layout.copy(done, &to),
                    Some(finish) => finish.copy(layout, done, &to),
                }
                done += to.len();
            });
            if let Some(finish) = &finish {
                let at = at..at + n;
                for (byte, place) in field.iter_mut().zip(finish.field()..) {
                    if at.contains(&place) {
                        *byte = addr.wrapping_add((place - at.start) as u64);
                    }
                }
            }
            if written.is_err() {
                count(&counters.rx_dma_fault, 1);
                lost = true;
            }
            self.scratch.words.push(Report::default().word(n, 0));
            at += n;
            index = self.ring.next(index);
            free -= 1;
        }
        if let Some(finish) = finish.filter(|_| !lost) {
            // In the guest's buffers is the seed so far. Nothing is reported before this is done.
            let value = finish.value();
            let whole = field[1] == field[0].wrapping_add(1);
            let parts = if whole {
                value.chunks(2)
            } else {
                value.chunks(1)
            };
            for (part, at) in parts.zip(field) {
                if self.view.write(at, part).is_err() {
                    count(&counters.rx_dma_fault, 1);
                }
            }
        }
        let report = if lost {
            Report {
                status: rx_status::IXSM,
                errors: rx_error::RXE,
                ..Report::default()
            }
        } else {
            report
        };
        if let Some(last) = self.scratch.words[first..].last_mut() {
            let n = *last as u16;
            *last = report.word(n.into(), rx_status::EOP);
        }
        self.ring.head = index;
        self.free = free;
        if lost { Outcome::Lost } else { Outcome::Done }
    }
}

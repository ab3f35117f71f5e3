//! Putting frames into the ring (manual §3.2.2–3.2.6), and what follows from a batch of them.

use frame::Frame;
use model::Env;
use wire::Sum;

use crate::admit::Admitted;
use crate::bits::{cause, rctl, rx_error, rx_status, rxcsum};
use crate::desc::DD;
use crate::filter;
use crate::finish::Finish;
use crate::irq::Event;
use crate::layout::{FCS, Layout, MIN_FRAME};
use crate::regs as r;
use crate::rx::{Outcome, Rx, RxState, Scratch};
use crate::shared::count;
use crate::verdict::verdict;

/// Descriptors read at once at least: a cache line of them.
const LEAST_FETCH: u32 = 4;

/// What the last descriptor of a frame says.
#[derive(Clone, Copy, Default)]
struct Report {
    checksum: u16,
    status: u8,
    errors: u8,
    special: u16,
}

impl Rx<'_, '_> {
    /// Copies a frame into buffers, if there are enough of them, and counts it.
    pub(crate) fn put(
        &mut self,
        scratch: &mut Scratch,
        frame: &Frame<'_>,
        admitted: &Admitted,
    ) -> Outcome {
        if self.free == 0 {
            return Outcome::NoRoom;
        }
        let Scratch { used, copy } = scratch;
        // Padding, and four bytes for the FCS.
        let tail = [0u8; MIN_FRAME + FCS];
        let fcs = self.rctl & rctl::SECRC == 0;
        let mut layout = Layout {
            head: admitted.head(),
            frame,
            from: admitted.from,
            tail: &tail[..admitted.pad + if fcs { FCS } else { 0 }],
        };
        let mut finish = if self.rxcsum & rxcsum::TUOFL == 0 {
            Finish::new(&layout)
        } else {
            None
        };
        let start = (self.rxcsum & rxcsum::PCSS) as usize;
        let true_fcs = fcs && self.shared.true_fcs;
        if true_fcs || start != 0 {
            // What is computed over the whole frame goes to the guest with the bytes it was
            // computed from: a copy that fits the first-level cache.
            let len = layout.stage(copy, finish.take());
            if true_fcs {
                let (data, at) = copy[..len].split_at_mut(len - FCS);
                at.copy_from_slice(&crc32fast::hash(data).to_le_bytes());
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
        if admitted.strip {
            report.status |= rx_status::VP;
            report.special = admitted.tag.unwrap_or(0);
        }
        if filter::inexact(&self.shared.file, self.rctl, admitted.dst) {
            report.status |= rx_status::PIF;
        }
        let placed = self.place(used, &layout, finish, report);
        if let Outcome::Done = placed {
            if admitted.bad || admitted.control.is_some() {
                self.tally.total(admitted.on_wire as u64);
            } else {
                self.tally.received(admitted.on_wire as u64, &admitted.dst);
            }
            self.frames += 1;
            self.bytes += frame.len() as u64;
            // With CRC and tag as far as they are not stripped (manual §3.2.7.2).
            let small = self.shared.file.get(r::RSRPD) as usize;
            self.small |= small != 0 && layout.len() <= small;
        }
        placed
    }

    /// Copies a frame into the buffers of the next descriptors and writes these back.
    fn place(
        &mut self,
        used: &mut Vec<(u32, u16)>,
        layout: &Layout<'_, '_>,
        mut finish: Option<Finish>,
        report: Report,
    ) -> Outcome {
        let counters = &self.shared.counters;
        let size = filter::buffer_size(self.rctl);
        let len = layout.len();
        // What frames like this one will take; more is not read ahead.
        let ahead = len.div_ceil(size).saturating_mul(self.expected);
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).max(LEAST_FETCH);
        used.clear();
        let (mut index, mut free, mut at) = (self.ring.head, self.free, 0);
        // Where in guest memory the checksum goes.
        let mut field = [0u64; 2];
        let mut lost = false;
        while at < len && !lost {
            if free == 0 {
                let fits = len.div_ceil(size) < self.ring.len as usize;
                if fits && self.free + 1 < self.ring.len {
                    return Outcome::NoRoom;
                }
                // It would not fit a ring full of buffers (or these are null), and must not block
                // those behind it.
                count(&counters.rx_too_large, 1);
                self.missed += 1;
                self.tally.missed(len as u64);
                lost = true;
                break;
            }
            let ready = free.min(ahead);
            let got = self
                .fetcher
                .get(self.view, &self.ring, index, ready, &mut self.fetched);
            let Ok(raw) = got else {
                // The ring itself is out of reach: nothing can be written back.
                count(&counters.rx_dma_fault, 1);
                return Outcome::Lost;
            };
            let addr = u64::from_le_bytes([
                raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7],
            ]);
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
            used.push((index, n as u16));
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
        let last = used.len().wrapping_sub(1);
        for (i, &(index, n)) in used.iter().enumerate() {
            let (flags, report) = if i == last {
                (DD | rx_status::EOP | report.status, report)
            } else {
                (DD, Report::default())
            };
            let [l0, l1] = n.to_le_bytes();
            let [c0, c1] = report.checksum.to_le_bytes();
            let [s0, s1] = report.special.to_le_bytes();
            // One aligned word, so that the guest sees all of it or nothing.
            let back = [l0, l1, c0, c1, flags, report.errors, s0, s1];
            let at = self.ring.address(index).wrapping_add(8);
            if self.view.write_release(at, &back).is_err() {
                count(&counters.rx_dma_fault, 1);
            }
        }
        self.ring.head = index;
        self.free = free;
        if lost { Outcome::Lost } else { Outcome::Done }
    }

    /// Head, statistics and one interrupt decision.
    pub(crate) fn finish(self, env: &Env, state: &RxState) {
        let shared = self.shared;
        shared.stats.add(&self.tally);
        count(&shared.counters.rx_desc_fetched, self.fetched);
        count(&shared.counters.rx_frames, self.frames);
        count(&shared.counters.rx_bytes, self.bytes);
        count(&shared.counters.rx_no_buffer, self.waited);
        count(&shared.counters.rx_missed, self.missed);
        if self.moved {
            state.fifo.show(&shared.file);
        }
        if (self.moved || self.missed > 0)
            && shared
                .flow
                .watch(&shared.file, &state.fifo, self.missed > 0)
        {
            shared.irq.lock().set_look(env, env.clock.now());
        }
        if let Some(quanta) = self.pause.filter(|_| shared.obey_pause) {
            let at = shared.flow.obey(env, quanta);
            shared.irq.lock().set_look(env, at);
        }
        let mut event = Event {
            packet: shared.file.get(r::RDTR),
            absolute: shared.file.get(r::RADV),
            ..Event::default()
        };
        if self.missed > 0 {
            event.now |= cause::RXO;
        }
        if self.free != self.free_before {
            shared.file.set(r::RDH, self.ring.head);
            if event.packet == 0 {
                event.now |= cause::RXT0;
            } else {
                event.delayed = true;
            }
            // 1/2, 1/4 or 1/8 of the ring (manual §13.4.22); 11b is reserved.
            let threshold = self.ring.len >> ((self.rctl >> rctl::RDMTS_SHIFT & 3) + 1);
            if self.free <= threshold && self.free_before > threshold {
                event.now |= cause::RXDMT0;
            }
            if self.small {
                event.now |= cause::SRPD | cause::RXT0;
            }
        }
        if event.now != 0 || event.delayed {
            shared.irq.lock().received(env, event);
        }
    }
}

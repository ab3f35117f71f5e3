//! Putting frames into buffers, and what descriptors say about them (§7.1.4, §7.1.5, §7.1.10).

#[cfg(test)]
mod finishing_tests;

use datapath::{FCS, Finish, Layout, MIN_FRAME, fcs_of};
use frame::Frame;
use intel::verdict::rx_status;
use wire::Sum;

use crate::core::function::count;
use crate::filter::headers::Headers;
use crate::filter::rss::Class;
use crate::regs::bits::rxcsum;
use crate::rx::call::Call;
use crate::rx::counts::Counts;
use crate::rx::enqueue::Outcome;
use crate::rx::l2_filter::Accepted;
use crate::rx::report::{Report, desc_status, word};
use crate::rx::shape::{Shape, ShapeKind};
use crate::rx::writer::Writer;

/// Descriptors read at once at least: a cache line of them.
pub(crate) const LEAST_FETCH: u32 = 4;

/// The header was found.
const SPH: u64 = 1 << 31;

/// How much goes into the header buffer, and what is said about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Split {
    /// Bytes for the header buffer of the first descriptor.
    take: usize,
    /// Length reported.
    len: usize,
    /// The header was found.
    found: bool,
    /// It was too long.
    overflow: bool,
}

impl Split {
    /// Of a frame of `len` bytes in buffers with a header of `header`, if one is to be split off
    /// (§7.1.10, the table of header splitting).
    fn of(shape: &Shape, len: usize, header: Option<usize>) -> Split {
        let always = shape.kind == ShapeKind::SplitAlways;
        if always && len <= shape.header {
            return Split {
                take: len,
                len,
                ..Split::default()
            };
        }
        match header.filter(|header| *header <= len) {
            Some(header) if header <= shape.header => Split {
                take: header,
                len: header,
                found: true,
                overflow: false,
            },
            Some(header) => Split {
                take: if always { shape.header } else { 0 },
                len: header,
                found: true,
                overflow: true,
            },
            None if always => Split {
                take: shape.header,
                len: shape.header,
                ..Split::default()
            },
            None => Split::default(),
        }
    }
}

impl<'a, 'v> Writer<'a, 'v> {
    /// Copies a frame into buffers of the open queue, if there are enough of them.
    pub(crate) fn put(
        &mut self,
        (call, counts): (&Call<'_>, &mut Counts),
        frame: &Frame<'_>,
        accepted: &Accepted,
        headers: &Headers,
        class: &Class,
    ) -> Outcome {
        if self.open.as_ref().is_none_or(|open| open.free == 0) {
            return Outcome::NoRoom;
        }
        // Taken out, so that what is computed there can be placed from there.
        let mut copy = std::mem::take(&mut self.scratch.copy);
        let placed = self.put_by((call, counts), &mut copy, frame, accepted, headers, class);
        self.scratch.copy = copy;
        placed
    }

    /// As [`Rx::put`], with room for a copy.
    fn put_by(
        &mut self,
        (call, counts): (&Call<'_>, &mut Counts),
        copy: &mut Vec<u8>,
        frame: &Frame<'_>,
        accepted: &Accepted,
        headers: &Headers,
        class: &Class,
    ) -> Outcome {
        let Some(shape) = self.open.as_ref().map(|open| open.shape) else {
            return Outcome::NoRoom;
        };
        let rules = call.rules;
        // Padding, and four bytes for the FCS.
        let tail = [0u8; MIN_FRAME + FCS];
        let fcs = if rules.strip_crc { 0 } else { FCS };
        let mut layout = Layout {
            head: accepted.head(),
            frame,
            from: accepted.from,
            tail: &tail[..accepted.pad + fcs],
        };
        let mut finish = Finish::new(&layout);
        let start = (rules.rxcsum & rxcsum::PCSS) as usize;
        let summed = start != 0 && shape.kind == ShapeKind::Legacy;
        let true_fcs = fcs > 0 && call.function.true_fcs;
        if true_fcs || summed {
            // What is computed over the whole frame goes to the guest with the bytes it was
            // computed from.
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
        let mut report = call.report(frame, headers, class, accepted.timed);
        if summed {
            report.checksum = Sum::of(layout.head.get(start..).unwrap_or(&[])).finish();
        }
        if accepted.strip {
            report.status |= desc_status::VP;
            report.tag = accepted.tag.unwrap_or(0);
        }
        if accepted.inexact {
            report.status |= desc_status::PIF;
        }
        let mut split = Split::default();
        if shape.splits() {
            // The header in buffers is longer or shorter by the tag.
            let moved = |len: usize| (len + accepted.head().len()).checked_sub(accepted.from);
            let header = self
                .open
                .as_ref()
                .and_then(|open| call.header(open.queue, headers))
                .and_then(moved);
            split = Split::of(&shape, layout.len(), header);
        }
        if split.overflow {
            report.status |= desc_status::HBO;
        }
        self.place((call, counts), &layout, finish, &shape, split, report)
    }

    /// Addresses of the packet and the header buffer at `index` of the open queue. `None` when the
    /// descriptor cannot be read.
    fn buffers(&mut self, fetched: &mut u64, index: u32, ready: u32) -> Option<(u64, u64)> {
        let ring = self.open.as_ref()?.ring;
        let got = self
            .scratch
            .fetcher
            .get(self.view, &ring, index, ready, fetched);
        let raw = u128::from_le_bytes(*got.ok()?.first()?);
        Some((raw as u64, (raw >> 64) as u64))
    }

    /// Copies a frame into the buffers of the next descriptors, which will be written back.
    fn place(
        &mut self,
        (call, counts): (&Call<'_>, &mut Counts),
        layout: &Layout<'_, '_>,
        mut finish: Option<Finish>,
        shape: &Shape,
        split: Split,
        report: Report,
    ) -> Outcome {
        let counters = &call.function.counters;
        let size = shape.packet;
        let len = layout.len();
        let Some(open) = &self.open else {
            return Outcome::NoRoom;
        };
        let (ring, all) = (open.ring, open.free);
        // What frames like this one will take; more is not read ahead.
        let ahead = len.div_ceil(size).saturating_mul(call.expected);
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).max(LEAST_FETCH);
        let begun = self.scratch.second.len();
        let (mut index, mut free, mut at) = (ring.head, all, 0);
        // Where in guest memory the checksum goes.
        let mut field = [0u64; 2];
        let (mut lost, mut null) = (false, false);
        while at < len && !lost {
            if free == 0 {
                let fits = len.div_ceil(size) < ring.len as usize;
                if fits && all + 1 < ring.len && !null {
                    self.scratch.first.truncate(begun);
                    self.scratch.second.truncate(begun);
                    return Outcome::NoRoom;
                }
                // It would not fit a ring full of buffers, and must not block those behind it. Null
                // buffers are used up, or every frame would walk them again.
                count(&counters.rx_too_large, 1);
                counts.miss(len);
                lost = true;
                break;
            }
            let Some((packet, header)) = self.buffers(&mut counts.fetched, index, free.min(ahead))
            else {
                count(&counters.rx_dma_fault, 1);
                if index == ring.head {
                    // The ring itself is out of reach: nothing can be written back.
                    return Outcome::Lost;
                }
                // What was passed over on the way is used up, or every frame would walk it again.
                lost = true;
                break;
            };
            let first = index == ring.head;
            let into_header = if first { split.take.min(len) } else { 0 };
            // A null buffer is written back and passed over.
            null |= packet == 0;
            let into_packet = if packet == 0 {
                0
            } else {
                size.min(len - at - into_header)
            };
            for (addr, n) in [(header, into_header), (packet, into_packet)] {
                if n == 0 {
                    continue;
                }
                let mut done = at;
                let written = self.view.write_slices(addr, n as u64, &mut |to| {
                    match &mut finish {
                        None => layout.copy(done, &to),
                        Some(finish) => finish.copy(layout, done, &to),
                    }
                    done += to.len();
                });
                if let Some(finish) = &finish {
                    let here = at..at + n;
                    for (byte, place) in field.iter_mut().zip(finish.field()..) {
                        if here.contains(&place) {
                            *byte = addr.wrapping_add((place - here.start) as u64);
                        }
                    }
                }
                if written.is_err() {
                    count(&counters.rx_dma_fault, 1);
                    lost = true;
                }
                at += n;
            }
            // The types stand in every descriptor, what is known of the whole in the last.
            let mut low = u64::from(report.info);
            if first {
                low |= (split.len as u64 & 0x3ff) << 21 | if split.found { SPH } else { 0 };
            }
            self.scratch.first.push(low);
            self.scratch
                .second
                .push(word(shape.kind, into_packet, 0, &Report::default()));
            index = ring.next(index);
            free -= 1;
        }
        if let Some(finish) = finish.filter(|_| !lost) {
            // In the guest's buffers is the seed so far. Nothing is reported before this is done.
            let value = finish.value();
            for (byte, at) in value.chunks(1).zip(field) {
                if self.view.write(at, byte).is_err() {
                    count(&counters.rx_dma_fault, 1);
                }
            }
        }
        let report = if lost {
            Report {
                status: u32::from(rx_status::IXSM) | desc_status::RXE,
                ..Report::default()
            }
        } else {
            report
        };
        if let Some(last) = self.scratch.first[begun..].last_mut() {
            *last |= u64::from(report.value) << 32;
        }
        if let Some(last) = self.scratch.second[begun..].last_mut() {
            let n = shape.len_of(*last);
            *last = word(shape.kind, n, desc_status::EOP, &report);
        }
        if let Some(open) = &mut self.open {
            open.ring.head = index;
            open.free = free;
        }
        if lost { Outcome::Lost } else { Outcome::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(kind: ShapeKind) -> Shape {
        Shape {
            kind,
            packet: 2048,
            header: 128,
            threshold: 0,
            drop: false,
        }
    }

    #[test]
    fn what_goes_into_the_header_buffer() {
        let of = |kind, len, header| {
            let split = Split::of(&shape(kind), len, header);
            (split.take, split.len, split.found, split.overflow)
        };
        use ShapeKind::{Split as Only, SplitAlways as Always};
        assert_eq!(of(Only, 1000, None), (0, 0, false, false));
        assert_eq!(of(Only, 1000, Some(66)), (66, 66, true, false));
        assert_eq!(of(Only, 1000, Some(200)), (0, 200, true, true));
        assert_eq!(of(Only, 100, Some(66)), (66, 66, true, false));
        assert_eq!(of(Always, 100, Some(66)), (100, 100, false, false));
        assert_eq!(of(Always, 1000, None), (128, 128, false, false));
        assert_eq!(of(Always, 1000, Some(66)), (66, 66, true, false));
        assert_eq!(of(Always, 1000, Some(200)), (128, 200, true, true));
    }
}

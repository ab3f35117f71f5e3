//! Putting frames into buffers, and what descriptors say about them (§7.1.4, §7.1.5, §7.1.10).

#[cfg(test)]
mod finishing_tests;

use datapath::{FCS, Finish, Layout, MIN_FRAME, fcs_of};
use frame::{Frame, sum_range};
use guest_mem::WriteWindow;
use intel::verdict::{rx_error, rx_status};
use intel::{DD, SIZE, verdict};
use wire::{Crc32c, Fragment, L3Kind, L4Kind, Sum};

use crate::core::function::count;
use crate::filter::rss::{Class, Headers, is_sctp};
use crate::ptp::{Carrier, Message};
use crate::regs::settings::bits::{rfctl, rxcsum};
use crate::rx::l2_filter::Accepted;
use crate::rx::{Open, Outcome, Rx};
use crate::tx::desc::{Shape, ShapeKind};

/// Descriptors read at once at least: a cache line of them.
pub(crate) const LEAST_FETCH: u32 = 4;

/// Status and errors beside those that [`verdict`] knows, as the second word of a descriptor has
/// them. Bits 20 on exist in advanced descriptors only.
pub(crate) mod status {
    pub const EOP: u32 = 1 << 1;
    pub const VP: u32 = 1 << 3;
    pub const UDPCS: u32 = 1 << 4;
    pub const PIF: u32 = 1 << 7;
    /// The identification of an IPv4 packet is reported.
    pub const IPIDV: u32 = 1 << 9;
    /// The checksum of a fragment of UDP is reported.
    pub const UDPV: u32 = 1 << 10;
    /// The time of arrival was taken.
    pub const TS: u32 = 1 << 16;
    /// The header was longer than its buffer.
    pub const HBO: u32 = 1 << 23;
    /// Bit 7 of the errors of a legacy descriptor.
    pub const RXE: u32 = 1 << 31;
}

/// Of a legacy descriptor's status there are eight bits, and eight errors.
const LEGACY: u32 = 0xff00_00ff;
/// The header was found.
const SPH: u64 = 1 << 31;
/// Packets whose headers are split off (PSRTYPE, §8.10.3).
mod psrtype {
    pub const IPV4: u32 = 1 << 1;
    pub const IPV4_TCP: u32 = 1 << 2;
    pub const IPV4_UDP: u32 = 1 << 3;
    pub const IPV6: u32 = 1 << 7;
    pub const IPV6_TCP: u32 = 1 << 8;
    pub const IPV6_UDP: u32 = 1 << 9;
}

/// What the descriptors of a frame say.
#[derive(Clone, Copy, Default)]
pub(crate) struct Report {
    /// Status and errors, DD and EOP aside.
    pub status: u32,
    /// Types of hash and packet.
    pub info: u16,
    /// Hash, or identification and checksum.
    pub value: u32,
    /// The checksum a legacy descriptor reports.
    pub checksum: u16,
    pub tag: u16,
}

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

impl Rx<'_, '_> {
    /// Copies a frame into buffers of the open queue, if there are enough of them.
    pub(crate) fn put(
        &mut self,
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
        let placed = self.put_by(&mut copy, frame, accepted, headers, class);
        self.scratch.copy = copy;
        placed
    }

    /// As [`Rx::put`], with room for a copy.
    fn put_by(
        &mut self,
        copy: &mut Vec<u8>,
        frame: &Frame<'_>,
        accepted: &Accepted,
        headers: &Headers,
        class: &Class,
    ) -> Outcome {
        let Some(shape) = self.open.as_ref().map(|open| open.shape) else {
            return Outcome::NoRoom;
        };
        let rules = self.rules;
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
        let true_fcs = fcs > 0 && self.function.true_fcs;
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
        let mut report = self.report(frame, headers, class);
        if summed {
            report.checksum = Sum::of(layout.head.get(start..).unwrap_or(&[])).finish();
        }
        if accepted.strip {
            report.status |= status::VP;
            report.tag = accepted.tag.unwrap_or(0);
        }
        if accepted.inexact {
            report.status |= status::PIF;
        }
        let mut split = Split::default();
        if shape.splits() {
            // The header in buffers is longer or shorter by the tag.
            let moved = |len: usize| (len + accepted.head().len()).checked_sub(accepted.from);
            let header = self.header(headers).and_then(moved);
            split = Split::of(&shape, layout.len(), header);
        }
        if split.overflow {
            report.status |= status::HBO;
        }
        self.place(&layout, finish, &shape, split, report)
    }

    /// Checksums, types and hash of a frame.
    pub(crate) fn report(&self, frame: &Frame<'_>, headers: &Headers, class: &Class) -> Report {
        let rules = &self.rules;
        let mut report = Report {
            info: class.info,
            ..Report::default()
        };
        let (low, errors) = self.sums(frame, headers);
        report.status = low | u32::from(errors) << 24;
        if self.timed.unwrap_or_else(|| self.timed(headers)) {
            report.status |= status::TS;
        }
        if rules.sums(rxcsum::PCSD) {
            report.value = class.hash;
            return report;
        }
        // Without a hash there is none whose type to tell.
        report.info &= !0xf;
        if let Some(id) = headers.ip_id() {
            report.value = u32::from(id);
            report.status |= status::IPIDV;
        }
        if let Some(sum) = self.fragment_sum(frame, headers) {
            report.value |= u32::from(sum) << 16;
            report.status |= status::UDPV;
        }
        report
    }

    /// Status and error bits of checksums (§7.1.11).
    fn sums(&self, frame: &Frame<'_>, headers: &Headers) -> (u32, u8) {
        let rules = &self.rules;
        let layers = headers.layers.as_ref();
        let l3 = layers.and_then(|l| l.l3);
        let l4 = layers.and_then(|l| l.l4).map(|l4| l4.kind);
        let six = l3.is_some_and(|l3| l3.kind == L3Kind::V6);
        let skipped = rfctl::IPV6_DIS | rfctl::IPV6_XSUM_DIS;
        if six && rules.rfctl & skipped != 0 {
            return (rx_status::IXSM.into(), 0);
        }
        let (mut status, mut errors) = verdict(rules.rxcsum, frame);
        if status & rx_status::TCPCS != 0 && l4 == Some(L4Kind::Udp) {
            return (u32::from(status) | status::UDPCS, errors);
        }
        if rules.sums(rxcsum::CRCOFL)
            && l4.is_some_and(is_sctp)
            && let Some(intact) = sctp_intact(frame, headers)
        {
            status = status & !rx_status::IXSM | rx_status::TCPCS;
            if !intact {
                errors |= rx_error::TCPE;
            }
        }
        (status.into(), errors)
    }

    /// The sum over what a fragment of UDP over IPv4 carries (§7.1.11.2).
    fn fragment_sum(&self, frame: &Frame<'_>, headers: &Headers) -> Option<u16> {
        if !self.rules.sums(rxcsum::IPPCSE) || !self.rules.sums(rxcsum::TUOFL) {
            return None;
        }
        let l3 = headers.layers?.l3?;
        let udp = headers.bytes().get(l3.offset + 9) == Some(&17);
        if l3.kind != L3Kind::V4 || l3.fragment == Fragment::Whole || !udp {
            return None;
        }
        let carried = l3.total.checked_sub(l3.len)?;
        Some(sum_range(frame, l3.offset + l3.len, carried).finish())
    }

    /// Whether the frame is a PTP message whose time of arrival has been taken (§7.9).
    pub(crate) fn timed(&self, headers: &Headers) -> bool {
        let Some(layers) = headers.layers.filter(|_| self.listens) else {
            return false;
        };
        let bytes = headers.bytes();
        let (carrier, at) = match layers.l4 {
            Some(l4) if l4.kind == L4Kind::Udp => {
                let port = bytes.get(l4.offset + 2..).and_then(<[u8]>::first_chunk);
                let to = port.map_or(0, |port| u16::from_be_bytes(*port));
                (Carrier::Udp { to }, l4.offset + l4.len)
            }
            _ => (Carrier::Ethernet(layers.ether_type.0), layers.l2_len),
        };
        let message = Message {
            carrier,
            bytes: bytes.get(at..).unwrap_or(&[]),
        };
        let now = self.env.clock.now();
        let function = self.function;
        function.ptp.lock().received(&function.file, now, message)
    }

    /// Bytes of the headers of the frame, if PSRTYPE asks for packets of its kind (§7.1.10).
    fn header(&self, headers: &Headers) -> Option<usize> {
        let function = self.function;
        let id = function.ids.psrtype;
        let pools = function.file.table().register(id).count;
        let queue = self.open.as_ref()?.queue;
        let types = function.file.get_at(id, queue % pools);
        let layers = headers.layers?;
        let l3 = layers.l3?;
        let [ip, tcp, udp] = match l3.kind {
            L3Kind::V4 => [psrtype::IPV4, psrtype::IPV4_TCP, psrtype::IPV4_UDP],
            L3Kind::V6 => [psrtype::IPV6, psrtype::IPV6_TCP, psrtype::IPV6_UDP],
        };
        if l3.fragment != Fragment::Whole {
            let wanted = types & ip != 0 && self.rules.rfctl & rfctl::IPFRSP_DIS == 0;
            return wanted.then_some(l3.offset + l3.len);
        }
        let l4 = layers.l4?;
        let bit = match l4.kind {
            L4Kind::Tcp => tcp,
            L4Kind::Udp => udp,
            L4Kind::Other(_) => return None,
        };
        (types & bit != 0).then_some(l4.offset + l4.len)
    }

    /// Addresses of the packet and the header buffer at `index` of the open queue. `None` when the
    /// descriptor cannot be read.
    fn buffers(&mut self, index: u32, ready: u32) -> Option<(u64, u64)> {
        let ring = self.open.as_ref()?.ring;
        let fetched = &mut self.fetched;
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
        layout: &Layout<'_, '_>,
        mut finish: Option<Finish>,
        shape: &Shape,
        split: Split,
        report: Report,
    ) -> Outcome {
        let counters = &self.function.counters;
        let size = shape.packet;
        let len = layout.len();
        let Some(open) = &self.open else {
            return Outcome::NoRoom;
        };
        let (ring, all) = (open.ring, open.free);
        // What frames like this one will take; more is not read ahead.
        let ahead = len.div_ceil(size).saturating_mul(self.expected);
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
                self.miss(len);
                lost = true;
                break;
            }
            let Some((packet, header)) = self.buffers(index, free.min(ahead)) else {
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
                status: u32::from(rx_status::IXSM) | status::RXE,
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
            *last = word(shape.kind, n, status::EOP, &report);
        }
        if let Some(open) = &mut self.open {
            open.ring.head = index;
            open.free = free;
        }
        if lost { Outcome::Lost } else { Outcome::Done }
    }

    /// Writes back what was filled, in the ring's order: each descriptor's second word, with DD in
    /// it, after its first.
    pub(crate) fn write_back(&mut self, open: &Open<'_>) {
        let first = std::mem::take(&mut self.scratch.first);
        let second = std::mem::take(&mut self.scratch.second);
        let ring = &open.ring;
        let (mut index, mut done) = (open.first, 0);
        while done < second.len() {
            // Up to the end of the ring at once.
            let left = ring.len.saturating_sub(index).max(1) as usize;
            let run = done..second.len().min(done + left);
            let second = &second[run.clone()];
            // A legacy descriptor's address stays.
            let first = match open.shape.kind {
                ShapeKind::Legacy => None,
                _ => first.get(run.clone()),
            };
            let at = ring.address(index);
            let all = |w: WriteWindow<'_>| match first {
                Some(first) => w.store_pairs(at, SIZE as usize, first, second),
                None => w.store_words(at.wrapping_add(8), SIZE as usize, second),
            };
            if !self.ring_window.is_some_and(all) {
                self.ring_window = self.view.write_window(at);
                if !self.ring_window.is_some_and(all) {
                    self.write_each(at, first, second);
                }
            }
            done = run.end;
            index = 0;
        }
        self.scratch.first = first;
        self.scratch.second = second;
        self.scratch.first.clear();
        self.scratch.second.clear();
    }

    /// The same for descriptors from `at` on, wherever they are: one aligned word each, so that the guest
    /// sees all of it or nothing.
    #[cold]
    fn write_each(&self, at: u64, first: Option<&[u64]>, second: &[u64]) {
        for (i, word) in (0u64..).zip(second) {
            let at = at.wrapping_add(i * SIZE);
            let both = [(0, first.and_then(|f| f.get(i as usize))), (8, Some(word))];
            for (inside, word) in both {
                let Some(word) = word else { continue };
                let to = at.wrapping_add(inside);
                if self.view.write_release(to, &word.to_le_bytes()).is_err() {
                    count(&self.function.counters.rx_dma_fault, 1);
                }
            }
        }
    }
}

/// The second word of a descriptor whose packet buffer holds `len` bytes.
pub(crate) fn word(kind: ShapeKind, len: usize, more: u32, report: &Report) -> u64 {
    let status = u32::from(DD) | more | report.status;
    let (len, tag) = (u64::from(len as u16), u64::from(report.tag) << 48);
    if kind != ShapeKind::Legacy {
        return u64::from(status) | len << 32 | tag;
    }
    let status = status & LEGACY;
    let errors = u64::from(status >> 24) << 40;
    len | u64::from(report.checksum) << 16 | u64::from(status as u8) << 32 | errors | tag
}

impl Shape {
    /// The length in such a word.
    fn len_of(&self, word: u64) -> usize {
        let at = if self.kind == ShapeKind::Legacy {
            0
        } else {
            32
        };
        usize::from((word >> at) as u16)
    }
}

/// Whether the CRC32c of an SCTP packet that is here in full is right (RFC 9260 §6.8).
fn sctp_intact(frame: &Frame<'_>, headers: &Headers) -> Option<bool> {
    let layers = headers.layers?;
    let l4 = layers.l4?;
    let len = layers.l4_span(frame.len())?;
    let given = headers.bytes().get(l4.offset + 8..)?.first_chunk::<4>()?;
    let mut crc = Crc32c::new();
    let (mut done, mut copy) = (0, [0; 512]);
    while done < len {
        let most = copy.len().min(len - done);
        let n = frame.copy_to(l4.offset + done, &mut copy[..most]);
        if n == 0 {
            return None;
        }
        if done == 0 {
            copy.get_mut(8..12)?.fill(0);
        }
        crc.add(&copy[..n]);
        done += n;
    }
    Some(crc.finish() == u32::from_le_bytes(*given))
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

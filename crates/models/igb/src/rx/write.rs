//! Puts frames into buffers, and describes them (§7.1.4, §7.1.5, §7.1.10).

#[cfg(test)]
mod finishing_tests;

use frame::Frame;
use intel::rx::{self, Accepted, Done, End, Fcs, Format, Laid, Put};

use crate::core::function::count;
use crate::filter::headers::Headers;
use crate::filter::rss::Class;
use crate::regs::bits::rxcsum;
use crate::rx::call::Call;
use crate::rx::counts::Counts;
use crate::rx::report::{Report, desc_status, word};
use crate::rx::shape::{Shape, ShapeKind};
use crate::rx::writer::{Outcome, Writer};

/// SPH of a descriptor's first word: the header was found (§7.1.5).
const SPH: u64 = 1 << 31;
/// HDR_LEN there, ten bits.
const HDR_LEN: u64 = 0x3ff;
const HDR_LEN_SHIFT: u32 = 21;

/// How much goes into the header buffer, and what is reported of it.
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
    /// How a frame of `len` bytes is split; `header` bytes are its header, if one is to be split off
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

/// A frame on its way into a queue, and what is known of it.
pub(crate) struct Packet<'p, 'b> {
    pub frame: &'p Frame<'b>,
    pub accepted: &'p Accepted,
    pub headers: &'p Headers,
    pub class: &'p Class,
    /// Whether its time of arrival was taken; `None` if that is not decided yet.
    pub timed: Option<bool>,
}

/// The descriptors of a frame.
struct Described {
    kind: ShapeKind,
    split: Split,
    report: Report,
}

impl Format for Described {
    fn done(&self, done: Done) -> (Option<u64>, u64) {
        let (eop, report) = match done.end {
            End::No => (0, Report::default()),
            End::Whole => (desc_status::EOP, self.report),
            End::Lost => (desc_status::EOP, Report::LOST),
        };
        let second = word(self.kind, done.len, eop, &report);
        if self.kind == ShapeKind::Legacy {
            // The address stays.
            return (None, second);
        }
        // Every descriptor has the types; only the last has what is known of the whole frame.
        let types = Report {
            value: report.value,
            ..self.report
        };
        let mut first = types.first_word();
        if done.first {
            let sph = if self.split.found { SPH } else { 0 };
            first |= (self.split.len as u64 & HDR_LEN) << HDR_LEN_SHIFT | sph;
        }
        (Some(first), second)
    }
}

impl Described {
    fn of(
        call: &Call<'_>,
        packet: &Packet<'_, '_>,
        (queue, shape): (u32, &Shape),
        laid: Laid,
    ) -> Self {
        let accepted = packet.accepted;
        let mut report = call.report(packet.frame, packet.headers, packet.class, packet.timed);
        report.checksum = laid.checksum;
        if accepted.strip {
            report.status |= desc_status::VP;
            report.tag = accepted.tag.unwrap_or(0);
        }
        if accepted.inexact {
            report.status |= desc_status::PIF;
        }
        let mut split = Split::default();
        if shape.splits() {
            // In buffers the header is longer or shorter by the tag.
            let moved = |len: usize| (len + accepted.head().len()).checked_sub(accepted.from);
            let header = call.header(queue, packet.headers).and_then(moved);
            split = Split::of(shape, laid.len, header);
        }
        if split.overflow {
            report.status |= desc_status::HBO;
        }
        Described {
            kind: shape.kind,
            split,
            report,
        }
    }
}

impl Writer<'_, '_> {
    /// Copies a frame into buffers of the open queue, if there are enough of them.
    pub(crate) fn put(
        &mut self,
        (call, counts): (&Call<'_>, &mut Counts),
        packet: &Packet<'_, '_>,
    ) -> Outcome {
        let Some(open) = &mut self.open else {
            return Outcome::NoRoom;
        };
        let (settings, shape, queue) = (&call.settings, open.shape, open.queue);
        let put = Put {
            buffer: shape.packet,
            fcs: match (settings.strip_crc, call.function.true_fcs) {
                (true, _) => Fcs::Stripped,
                (false, true) => Fcs::True,
                (false, false) => Fcs::Zero,
            },
            sum_from: match shape.kind {
                ShapeKind::Legacy => (settings.rxcsum & rxcsum::PCSS) as usize,
                _ => 0,
            },
            expected: call.expected,
        };
        let (frame, accepted) = (packet.frame, packet.accepted);
        let placed = self
            .descs
            .put(&mut open.room, &put, (frame, accepted), |laid| {
                let described = Described::of(call, packet, (queue, &shape), laid);
                let header = described.split.take;
                (described, header)
            });
        let counters = &call.function.counters;
        count(&counters.rx_dma_fault, placed.faults);
        if placed.too_large {
            count(&counters.rx_too_large, 1);
            counts.miss(placed.len);
        }
        match placed.outcome {
            rx::Outcome::Done => Outcome::Done,
            rx::Outcome::Lost => Outcome::Lost,
            rx::Outcome::NoRoom => Outcome::NoRoom,
        }
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

//! Cuts: large frames on their way to receivers that take segments only.

use guest_mem::{Head, ReadSlice, WriteSlice};
use wire::{ETHERNET_HEADER, SIMPLE, Segments, SimpleV4, Sum, TEMPLATE, Template};

use crate::alike::SHORTEST;
use crate::batch::Frame;
use crate::cursor::Cursor;

/// A large frame that its receiver gets as segments. Their headers are our own copy, written from a template; the payload
/// is where its sender has it.
///
/// A cut is what [`crate::expand`] makes a batch of, and costs a fraction of it: nothing is stored for a segment, and its
/// checksum is summed while it is copied.
#[derive(Clone, Debug)]
pub struct Cut<'c> {
    frame: Frame<'c>,
    template: Template,
    count: usize,
    simple: bool,
}

impl<'c> Cut<'c> {
    /// How a frame is cut that asks for it. `None` where it takes more than that: a tag beside the frame, long headers,
    /// notes that contradict it. A last segment that would have to be padded is not part of the cut.
    pub fn new(frame: &Frame<'c>) -> Option<Cut<'c>> {
        let notes = frame.notes();
        if notes.vlan.is_some() || notes.check(frame.len()).is_err() {
            return None;
        }
        let mut headers = [0; TEMPLATE];
        let n = frame.copy_to(0, &mut headers);
        let segments = Segments::new(&headers[..n], frame.len(), notes).ok()?;
        let template = Template::new(&segments)?;
        let padded = |index| template.header_len() + template.payload_of(index) < SHORTEST;
        let all = template.count();
        let simple = SimpleV4::of(headers.first_chunk::<SIMPLE>()?, frame.len()).is_some();
        (!padded(0)).then_some(Cut {
            frame: *frame,
            template,
            count: all - usize::from(padded(all - 1)),
            simple,
        })
    }

    /// Segments in it; at least one.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// All segments of the frame.
    #[inline]
    pub(crate) fn all(&self) -> usize {
        self.template.count()
    }

    /// Bytes of segment `index`, without FCS: of all as many as of the first, but of the last.
    #[inline]
    pub fn segment_len(&self, index: usize) -> usize {
        self.template.header_len() + self.template.payload_of(index)
    }

    /// How they all begin.
    pub fn head(&self) -> Head {
        let word = |at: usize| {
            let bytes = self.frame.head().get(at..).and_then(<[u8]>::first_chunk);
            u64::from_le_bytes(bytes.copied().unwrap_or_default())
        };
        [word(0), word(8)]
    }

    /// Destination, source and type.
    pub fn header(&self) -> [u8; ETHERNET_HEADER] {
        let header = self.frame.head().first_chunk();
        header.copied().unwrap_or_default()
    }

    /// The headers of the first, but for its checksum.
    pub fn headers(&self) -> Vec<u8> {
        let mut template = self.template;
        template.segment(0, (template.payload_of(0), 0)).to_vec()
    }

    /// Whether it is TCP over IPv4 without tag and IP options ([`SimpleV4`]).
    #[inline]
    pub fn is_simple_v4(&self) -> bool {
        self.simple
    }

    /// The frame that is cut.
    #[inline]
    pub fn frame(&self) -> &Frame<'c> {
        &self.frame
    }

    /// The segments from number `from` on, to be written one after the other.
    #[inline]
    pub fn segments(
        &self,
        from: usize,
    ) -> Cutting<'c, impl Iterator<Item = ReadSlice<'c>> + use<'c>> {
        let (template, first) = (self.template, self.template.payload_of(0));
        let skip = template.header_len() + first.saturating_mul(from);
        Cutting {
            template,
            payload: Cursor::new(self.frame.slices(), skip.min(self.frame.len())),
            next: from,
        }
    }
}

/// The segments of a [`Cut`], one after the other.
pub struct Cutting<'c, I> {
    template: Template,
    payload: Cursor<'c, I>,
    next: usize,
}

impl<'c, I: Iterator<Item = ReadSlice<'c>>> Cutting<'c, I> {
    /// Writes the next segment to the front of a place that has room for it, with its checksum, and returns its length.
    /// Zeros fill what the place has more.
    #[inline]
    pub fn write(&mut self, to: &WriteSlice<'_>) -> usize {
        let (at, payload) = (
            self.template.header_len(),
            self.template.payload_of(self.next),
        );
        // The payload first: the two may overlap, and the headers are our own copy.
        let sum = match self.payload.run(payload) {
            Some(run) => to.copy_summed(at, run).1,
            None => self.write_pieces(to, at, payload),
        };
        to.copy_headers(self.template.segment(self.next, (payload, sum)));
        self.ended(to, at + payload)
    }

    /// The same for a receiver that sums the payload itself: the checksum field has the sum over the pseudo-header, and
    /// the payload is only copied.
    #[inline]
    pub fn write_unsummed(&mut self, to: &WriteSlice<'_>) -> usize {
        let (mut at, payload) = (
            self.template.header_len(),
            self.template.payload_of(self.next),
        );
        let len = at + payload;
        match self.payload.run(payload) {
            Some(run) => {
                to.copy_from_slice(at, run);
            }
            None => self.payload.take(payload, |piece| {
                at += to.copy_from_slice(at, piece);
            }),
        }
        to.copy_headers(self.template.unsummed(self.next, payload));
        self.ended(to, len)
    }

    /// A segment of `len` bytes is written: the next is behind it.
    #[inline(always)]
    fn ended(&mut self, to: &WriteSlice<'_>, len: usize) -> usize {
        self.next += 1;
        if to.len() > len {
            to.clear_behind(len);
        }
        len
    }

    /// Copies payload that lies in several pieces. Returns its sum.
    fn write_pieces(&mut self, to: &WriteSlice<'_>, mut at: usize, payload: usize) -> u16 {
        let mut sum = Sum::ZERO;
        self.payload.take(payload, |piece| {
            let (n, part) = to.copy_summed(at, piece);
            sum.add_part(part, n);
            at += n;
        });
        sum.value()
    }
}

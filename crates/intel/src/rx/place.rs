//! Putting frames of any kind into buffers (8254x manual §3.2.2–3.2.6, 82576 datasheet §7.1.4–7.1.10).

use datapath::{FCS, Finish, Layout, MIN_FRAME, fcs_of};
use frame::Frame;
use guest_mem::{Fault, View};
use wire::Sum;

use crate::rx::accepted::Accepted;
use crate::rx::writer::{Room, Writer};

/// A descriptor that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Bytes in its packet buffer.
    pub len: usize,
    /// It is the first of its frame.
    pub first: bool,
    /// Whether it is the last.
    pub end: End,
}

/// Whether a frame ends with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It goes on in the next one.
    No,
    /// All of it is in its buffers.
    Whole,
    /// Some of it is not.
    Lost,
}

/// The format of a done descriptor; a value describes one frame. What the guest gives is the same in all
/// formats: the address of the packet buffer, then that of the header buffer.
pub trait Format {
    /// The first word, where it does not stay as it is, and the second.
    fn done(&self, done: Done) -> (Option<u64>, u64);
}

/// What the second word of a legacy descriptor says when it is done (8254x manual §3.2.3, 82576 datasheet §7.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Legacy {
    /// Bytes in the buffer.
    pub len: u16,
    /// The packet checksum.
    pub checksum: u16,
    /// Status bits.
    pub status: u8,
    /// Error bits.
    pub errors: u8,
    /// The VLAN tag.
    pub special: u16,
}

impl Legacy {
    /// The word.
    #[inline]
    pub fn word(self) -> u64 {
        const CHECKSUM_AT: u32 = 16;
        const STATUS_AT: u32 = 32;
        const ERRORS_AT: u32 = 40;
        const SPECIAL_AT: u32 = 48;
        u64::from(self.len)
            | u64::from(self.checksum) << CHECKSUM_AT
            | u64::from(self.status) << STATUS_AT
            | u64::from(self.errors) << ERRORS_AT
            | u64::from(self.special) << SPECIAL_AT
    }
}

/// What becomes of a frame's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fcs {
    /// It does not go into the buffers.
    Stripped,
    /// Zeros stand for it.
    Zero,
    /// It is computed.
    True,
}

/// Null buffers that one frame passes over. Those of a whole ring would cost its sender, which is another guest, as
/// much as a thousand frames; drivers leave none.
const MOST_NULL: u32 = 64;

/// How frames are put into buffers.
#[derive(Clone, Copy, Debug)]
pub struct Put {
    /// Bytes of a packet buffer.
    pub buffer: usize,
    /// What stands behind the frame.
    pub fcs: Fcs,
    /// The packet checksum covers all from this byte on; 0: there is none.
    pub sum_from: usize,
    /// Frames like this one that are expected, for reading ahead.
    pub expected: usize,
}

/// A frame as it goes into buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Its bytes there.
    pub len: usize,
    /// The packet checksum, or 0.
    pub checksum: u16,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in its buffers.
    Done,
    /// It is lost.
    Lost,
    /// It found no room, and nothing was taken.
    NoRoom,
}

/// What became of a frame, and what is to be counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// What became of it.
    pub outcome: Outcome,
    /// Bytes that go into buffers.
    pub len: usize,
    /// Descriptors and buffers that were not in reach.
    pub faults: u64,
    /// It was lost because no ring has room for it, or because its buffers are null.
    pub too_large: bool,
}

impl Placed {
    const NO_ROOM: Placed = Placed {
        outcome: Outcome::NoRoom,
        len: 0,
        faults: 0,
        too_large: false,
    };
}

/// A frame on its way into the buffers, part by part.
struct Copying<'l, 'b> {
    layout: &'l Layout<'l, 'b>,
    finish: Option<Finish>,
    /// Bytes that are there.
    at: usize,
    /// Where in guest memory the checksum goes.
    field: [u64; 2],
}

impl Copying<'_, '_> {
    /// Copies the next `n` bytes to `addr`.
    #[inline]
    fn part(&mut self, view: &View<'_>, addr: u64, n: usize) -> Result<(), Fault> {
        let here = self.at..self.at + n;
        let (layout, finish) = (self.layout, &mut self.finish);
        let mut from = here.start;
        let written = view.write_slices(addr, n as u64, &mut |to| {
            match finish {
                None => layout.copy(from, &to),
                Some(finish) => finish.copy(layout, from, &to),
            }
            from += to.len();
        });
        if let Some(finish) = finish {
            for (byte, place) in self.field.iter_mut().zip(finish.field()..) {
                if here.contains(&place) {
                    *byte = addr.wrapping_add((place - here.start) as u64);
                }
            }
        }
        self.at = here.end;
        written
    }

    /// Writes the checksum, once all is copied: until then its seed is in the guest's buffers. Returns how many
    /// writes were out of reach.
    #[inline]
    fn finish(&self, view: &View<'_>) -> u64 {
        let Some(finish) = &self.finish else {
            return 0;
        };
        let [first, second] = self.field;
        let size = if second == first.wrapping_add(1) {
            2
        } else {
            1
        };
        let value = finish.value();
        let writes = value.chunks(size).zip(self.field);
        let failed = |(part, at): (&[u8], u64)| view.write(at, part).is_err();
        writes.map(|write| u64::from(failed(write))).sum()
    }
}

impl Writer<'_> {
    /// Copies a frame into buffers, if there are enough of them. `describe` returns what descriptors are to say,
    /// and how many bytes are for the header buffer.
    #[inline]
    pub fn put<F: Format>(
        &mut self,
        room: &mut Room,
        put: &Put,
        (frame, accepted): (&Frame<'_>, &Accepted),
        describe: impl FnOnce(Laid) -> (F, usize),
    ) -> Placed {
        if room.free == 0 {
            return Placed::NO_ROOM;
        }
        // Taken out, so that what is computed there can be placed from there.
        let mut copy = std::mem::take(&mut self.storage.copy);
        // Padding, and four bytes for the FCS.
        let tail = [0u8; MIN_FRAME + FCS];
        let fcs = if put.fcs == Fcs::Stripped { 0 } else { FCS };
        let mut layout = Layout {
            head: accepted.head(),
            frame,
            from: accepted.from,
            tail: &tail[..accepted.pad + fcs],
        };
        let mut finish = Finish::new(&layout);
        let mut checksum = 0;
        if put.fcs == Fcs::True || put.sum_from != 0 {
            // What is computed over the whole frame goes to the guest with the bytes it was computed
            // from: a copy that fits the first-level cache.
            let len = layout.stage(&mut copy, finish.take());
            if put.fcs == Fcs::True {
                let (data, at) = copy[..len].split_at_mut(len - FCS);
                at.copy_from_slice(&fcs_of(data));
            }
            layout = Layout {
                head: &copy[..len],
                frame,
                from: frame.len(),
                tail: &[],
            };
            if put.sum_from != 0 {
                // Of the whole (8254x manual §3.2.9).
                checksum = Sum::of(layout.head.get(put.sum_from..).unwrap_or(&[])).finish();
            }
        }
        let (format, header) = describe(Laid {
            len: layout.len(),
            checksum,
        });
        let parts = Copying {
            layout: &layout,
            finish,
            at: 0,
            field: [0; 2],
        };
        let placed = self.place(room, put, parts, (&format, header));
        self.storage.copy = copy;
        placed
    }

    /// Copies a frame into the buffers of the next descriptors, which will be written back.
    fn place<F: Format>(
        &mut self,
        room: &mut Room,
        put: &Put,
        mut copy: Copying<'_, '_>,
        (format, header): (&F, usize),
    ) -> Placed {
        let (ring, all, size) = (room.ring, room.free, put.buffer);
        let len = copy.layout.len();
        let mut placed = Placed {
            outcome: Outcome::Done,
            len,
            faults: 0,
            too_large: false,
        };
        // What frames like this one will take; more is not read ahead.
        let ahead = len.div_ceil(size).saturating_mul(put.expected);
        let (first_words, begun) = (self.storage.first.len(), self.storage.second.len());
        let (mut index, mut free) = (ring.head, all);
        let (mut lost, mut nulls) = (false, 0);
        let mut done = Done {
            len: 0,
            first: true,
            end: End::No,
        };
        while copy.at < len && !lost {
            if free == 0 {
                let fits = len.div_ceil(size) < ring.len as usize;
                if fits && all + 1 < ring.len && nulls == 0 {
                    self.storage.first.truncate(first_words);
                    self.storage.second.truncate(begun);
                    return Placed {
                        faults: placed.faults,
                        ..Placed::NO_ROOM
                    };
                }
                // It would not fit a ring full of buffers (or these are null), and must not block those
                // behind it. Null buffers are used up, or every frame would walk them again.
                placed.too_large = true;
                lost = true;
                break;
            }
            let ready = room.ready(ahead).min(free);
            let Some((packet, to_header)) = self.buffers(&ring, index, ready) else {
                // What was passed over on the way is used up, or every frame would walk it again. If there
                // is nothing, the ring itself is out of reach, and nothing can be written back.
                placed.faults += 1;
                lost = true;
                break;
            };
            done.first = index == ring.head;
            let into_header = if done.first { header.min(len) } else { 0 };
            // A null buffer is written back and passed over (8254x manual §3.2.3).
            done.len = match packet {
                0 => {
                    nulls += 1;
                    0
                }
                _ => size.min(len - copy.at - into_header),
            };
            for (addr, n) in [(to_header, into_header), (packet, done.len)] {
                if n > 0 && copy.part(self.view, addr, n).is_err() {
                    placed.faults += 1;
                    lost = true;
                }
            }
            self.storage.push(format.done(done));
            index = ring.next(index);
            free -= 1;
            if nulls == MOST_NULL {
                placed.too_large = true;
                lost = true;
            }
        }
        if !lost {
            placed.faults += copy.finish(self.view);
        }
        if self.storage.second.len() > begun {
            done.end = if lost { End::Lost } else { End::Whole };
            let (first, second) = format.done(done);
            if let (Some(word), Some(last)) = (first, self.storage.first.last_mut()) {
                *last = word;
            }
            if let Some(last) = self.storage.second.last_mut() {
                *last = second;
            }
        }
        room.ring.head = index;
        room.free = free;
        if lost {
            placed.outcome = Outcome::Lost;
        }
        placed
    }
}

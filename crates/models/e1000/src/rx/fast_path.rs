//! The fast path: runs of plain frames, in two passes.
//!
//! The first finds out where each frame goes, and has the processor fetch these places; the second
//! copies. What a frame needs beyond filter, copy, checksum, padding, FCS and a verdict (a tag to put
//! in or take out, segmentation, a packet checksum, a checksum in several buffers, a null buffer, one
//! that crosses regions) ends the run, and the frame takes the general way ([`crate::rx::write`]), which
//! gives the same results for all.

use datapath::{FCS, MIN_FRAME, possible};
use frame::{Alike, Batch, Caps, Frame};
use intel::rx::{ETHERNET_HEADER, Fcs};

use crate::core::rx_queue::RxState;
use crate::core::stats::{Group, Many};
use crate::filter::address::{FILTERS, buffer_size};
use crate::regs as r;
use crate::regs::bits::{rctl, rx_status, rxcsum};
use crate::rx::call::{Call, Rx};
use crate::rx::plan::{Piece, Run};
use crate::rx::writer::Writer;

/// What may stay unfinished of a frame.
const TAKES: Caps = Caps {
    csum: true,
    ..Caps::NONE
};
/// What a frame must not exceed to need one buffer.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes of a buffer.
    size: usize,
    /// Longest frame let in, FCS included.
    longest: usize,
    /// Bytes of the FCS that go into the buffer.
    pub(crate) fcs: usize,
    /// Types that need the general way: of tags that are filtered or taken out, of control frames.
    tagged: Option<u16>,
    control: Option<u16>,
}

impl Bounds {
    #[inline]
    pub(crate) fn of(call: &Call<'_, '_>) -> Bounds {
        let tags = call.frames.strip_vlan || call.rctl & rctl::VFE != 0;
        Bounds {
            size: buffer_size(call.rctl),
            longest: call.frames.max_len,
            fcs: if call.fcs() == Fcs::Stripped { 0 } else { FCS },
            tagged: tags.then_some(call.frames.vet),
            control: call.obeys.then(|| call.chip.file.get(r::FCT) as u16),
        }
    }

    /// Whether frames of this type need the general way.
    #[inline]
    pub(crate) fn exclude(&self, kind: [u8; 2]) -> bool {
        let kind = Some(u16::from_be_bytes(kind));
        kind == self.tagged || kind == self.control
    }

    /// Bytes that a frame of `len` has in its buffer.
    #[inline]
    pub(crate) fn in_buffer(&self, len: usize) -> usize {
        len.max(MIN_FRAME) + self.fcs
    }

    #[inline]
    pub(crate) fn fit(&self, len: usize) -> bool {
        len.max(MIN_FRAME) + FCS <= self.longest && self.in_buffer(len) <= self.size
    }

    /// Whether a frame asks for nothing that the fast path does not do. A checksum is written during the
    /// copy, into one buffer.
    #[inline]
    fn take(&self, frame: &Frame<'_>) -> bool {
        let notes = frame.notes();
        let finishes = || notes.csum.is_none() || self.fit(frame.len()) && possible(frame);
        frame.is_plain() || TAKES.accepts(notes) && finishes()
    }
}

impl Call<'_, '_> {
    /// Asks the filters.
    pub(crate) fn judge(&self, dst: [u8; 6]) -> Run {
        let file = &self.chip.file;
        Run {
            dst: Some(dst),
            passes: FILTERS.address(file, self.rctl, dst),
            status: if FILTERS.inexact(file, self.rctl, dst) {
                rx_status::PIF
            } else {
                0
            },
            group: Group::of(dst),
        }
    }
}

impl Rx<'_, '_> {
    /// Plans frames for the fast path, at most `limit`, until one that is none. Returns how many were
    /// dealt with; those that passed the filters are then to be filled.
    pub(crate) fn plan_run(
        &mut self,
        state: &RxState,
        batch: &Batch<'_>,
        picks: &[u16],
        limit: usize,
    ) -> usize {
        self.plan.pieces.clear();
        // What waits goes first, and a packet checksum needs a pass over the frame as it will be.
        if !state.fifo.is_empty()
            || self.call.rxcsum & rxcsum::PCSS != 0
            || !self.call.chip.fast_path
        {
            return 0;
        }
        let bounds = Bounds::of(&self.call);
        if let Some(all) = batch.alike() {
            let [.., a, b] = *all.header;
            let most = &picks[..picks.len().min(limit)];
            let n = if bounds.exclude([a, b]) {
                0
            } else if all.plain {
                let last = most.iter().fold(0, |last, pick| last.max(*pick));
                if usize::from(last) < batch.len() {
                    most.len()
                } else {
                    0
                }
            } else {
                let taken = |pick: &&u16| {
                    let frame = batch.get(usize::from(**pick));
                    frame.is_some_and(|frame| bounds.take(&frame))
                };
                most.iter().take_while(taken).count()
            };
            if n > 0 {
                let planned = self.plan_alike(batch, &most[..n], all, bounds);
                if planned > 0 {
                    return planned;
                }
            }
        }
        self.plan_each(batch, &picks[..picks.len().min(limit)], bounds)
    }

    /// As [`Rx::plan_run`], frame by frame.
    #[inline]
    fn plan_each(&mut self, batch: &Batch<'_>, picks: &[u16], bounds: Bounds) -> usize {
        let mut received = Many::default();
        let mut bytes = 0;
        let mut dealt = 0;
        for pick in picks {
            let Some(frame) = batch.get(usize::from(*pick)) else {
                break;
            };
            let len = frame.len();
            let Some(header) = frame.head().first_chunk::<ETHERNET_HEADER>() else {
                break;
            };
            let [dst @ .., _, _, _, _, _, _, a, b] = *header;
            if !bounds.take(&frame) || bounds.exclude([a, b]) {
                break;
            }
            if self.plan.run.dst != Some(dst) {
                self.plan.run = self.call.judge(dst);
            }
            let on_wire = len.max(MIN_FRAME) + FCS;
            if on_wire > bounds.longest {
                break;
            }
            if !self.plan.run.passes {
                self.counts.account.filtered += 1;
                dealt += 1;
                continue;
            }
            let total = bounds.in_buffer(len);
            if !self.reserve(*pick, total, bounds.size) {
                break;
            }
            received.add(on_wire, self.plan.run.group);
            bytes += len as u64;
            self.counts.account.frames += 1;
            self.counts.account.small |= total <= self.call.rsrpd;
            dealt += 1;
        }
        self.counts.account.bytes += bytes;
        self.counts.account.tally.received_many(&received);
        dealt
    }

    /// As [`Rx::plan_run`], for frames that begin with the same header and need nothing but a buffer each:
    /// what is the same for all is looked at once. Stops before one that is too long for that.
    fn plan_alike(
        &mut self,
        batch: &Batch<'_>,
        picks: &[u16],
        all: Alike<'_>,
        bounds: Bounds,
    ) -> usize {
        let [dst @ .., _, _, _, _, _, _, _, _] = *all.header;
        if self.plan.run.dst != Some(dst) {
            self.plan.run = self.call.judge(dst);
        }
        let len_of = |pick: u16| batch.get(usize::from(pick)).map_or(0, |frame| frame.len());
        if !self.plan.run.passes {
            let fits = |pick: &&u16| bounds.fit(len_of(**pick));
            let n = picks.iter().take_while(fits).count();
            self.counts.account.filtered += n as u64;
            return n;
        }
        let mut received = Many::default();
        let (n, bytes);
        if let Some(len) = all.len {
            if !bounds.fit(len) {
                return 0;
            }
            n = self.reserve_each(picks, bounds, |_| len);
            bytes = n as u64 * len as u64;
            let on_wire = len.max(MIN_FRAME) + FCS;
            received.add_alike(on_wire, self.plan.run.group, n as u64);
            self.counts.account.small |= n > 0 && bounds.in_buffer(len) <= self.call.rsrpd;
        } else {
            n = self.reserve_each(picks, bounds, len_of);
            let mut sum = 0;
            for len in picks[..n].iter().map(|pick| len_of(*pick)) {
                sum += len as u64;
                received.add(len.max(MIN_FRAME) + FCS, self.plan.run.group);
                self.counts.account.small |= bounds.in_buffer(len) <= self.call.rsrpd;
            }
            bytes = sum;
        }
        self.counts.account.tally.received_many(&received);
        self.counts.account.bytes += bytes;
        self.counts.account.frames += n as u64;
        n
    }

    /// Takes one descriptor for each pick, as long as there are some whose buffer is in reach and the
    /// frame fits. Returns for how many.
    #[inline(always)]
    fn reserve_each(
        &mut self,
        picks: &[u16],
        bounds: Bounds,
        len_of: impl Fn(u16) -> usize,
    ) -> usize {
        let Rx {
            call, plan, writer, ..
        } = self;
        let status = plan.run.status;
        let frame = |i: usize| {
            let pick = *picks.get(i)?;
            let len = len_of(pick);
            bounds.fit(len).then(|| (bounds.in_buffer(len), pick))
        };
        let pieces = &mut plan.pieces;
        let counts = (picks.len(), call.expected);
        let descs = &mut writer.descs;
        descs.take(&mut writer.room, counts, frame, |_, to, pick| {
            pieces.push(Piece {
                to,
                pick,
                status,
                more: false,
            });
        })
    }

    /// Takes the descriptors for `total` bytes, if there are enough and their buffers are in reach.
    #[inline]
    fn reserve(&mut self, pick: u16, total: usize, size: usize) -> bool {
        let need = if total <= size {
            1
        } else {
            total.div_ceil(size) as u32
        };
        let Writer { descs, room, .. } = &mut self.writer;
        if need > room.free {
            return false;
        }
        let ready = room.ready(self.call.expected.saturating_mul(need as usize));
        let planned = self.plan.pieces.len();
        let (mut index, mut left) = (room.ring.head, total);
        for _ in 0..need {
            let n = left.min(size);
            left -= n;
            let to = descs
                .buffers(&room.ring, index, ready)
                .filter(|(addr, _)| *addr != 0)
                .and_then(|(addr, _)| descs.slice(addr, n));
            let Some(to) = to else {
                self.plan.pieces.truncate(planned);
                return false;
            };
            to.prefetch();
            self.plan.pieces.push(Piece {
                to,
                pick,
                status: self.plan.run.status,
                more: left > 0,
            });
            index = room.ring.next(index);
        }
        room.ring.head = index;
        room.free -= need;
        true
    }
}

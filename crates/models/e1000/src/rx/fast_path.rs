//! The fast path: runs of plain frames, in two passes.
//!
//! The first finds out where each frame goes, and has the processor fetch these places; the second
//! copies. What a frame needs beyond filter, copy, checksum, padding, FCS and a verdict (a tag to put
//! in or take out, segmentation, a packet checksum, a checksum in several buffers, a null buffer, one
//! that crosses regions) ends the run, and the frame takes the general way ([`crate::rx::write`]), which
//! gives the same results for all.

use datapath::{FCS, Finish, Layout, MIN_FRAME, fcs_of, possible};
use frame::{Alike, Batch, Caps, Frame};
use guest_mem::{WriteSlice, crc32_short};
use intel::{Fetcher, verdict};

use crate::core::rx_queue::RxState;
use crate::core::stats::{Group, Received};
use crate::filter::address as filter;
use crate::filter::address::FILTERS;
use crate::regs as r;
use crate::regs::bits::{rctl, rx_status, rxcsum};
use crate::rx::call::{Piece, Run, Rx, Scratch};
use crate::rx::write::{LEAST_FETCH, Report};

/// What may stay unfinished of a frame.
const TAKES: Caps = Caps {
    csum: true,
    ..Caps::NONE
};
/// Shortest frame with an Ethernet header.
const HEADER: usize = 14;
/// Bytes summed from one copy.
const CHUNK: usize = 2048;
/// A frame with FCS that is no longer is put together before it is copied.
const SHORT: usize = MIN_FRAME + FCS;

/// What a frame must not exceed to need one buffer.
#[derive(Clone, Copy)]
struct Bounds {
    /// Bytes of a buffer.
    size: usize,
    /// Longest frame let in, FCS included.
    longest: usize,
    /// Bytes of the FCS that go into the buffer.
    fcs: usize,
}

impl Bounds {
    /// Bytes that a frame of `len` has in its buffer.
    #[inline]
    fn in_buffer(&self, len: usize) -> usize {
        len.max(MIN_FRAME) + self.fcs
    }

    #[inline]
    fn fit(&self, len: usize) -> bool {
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

impl<'v> Rx<'_, 'v> {
    /// Plans frames for the fast path, at most `limit`, until one that is none. Returns how many were
    /// dealt with; those that passed the filters are then to be filled.
    pub(crate) fn plan(
        &mut self,
        state: &RxState,
        batch: &Batch<'_>,
        picks: &[u16],
        limit: usize,
    ) -> usize {
        self.scratch.pieces.clear();
        // What waits goes first, and a packet checksum needs a pass over the frame as it will be.
        if !state.fifo.is_empty() || self.rxcsum & rxcsum::PCSS != 0 || !self.chip.fast_path {
            return 0;
        }
        let size = filter::buffer_size(self.rctl);
        let longest = filter::max_len(self.rctl);
        let fcs = if self.rctl & rctl::SECRC == 0 { FCS } else { 0 };
        let bounds = Bounds { size, longest, fcs };
        // The types that would make a frame another matter.
        let tagged = (self.vme || self.rctl & rctl::VFE != 0).then_some(self.vet);
        let control = self.obeys.then(|| self.chip.file.get(r::FCT) as u16);
        let special = tagged.is_some() || control.is_some();
        if let Some(all) = batch.alike() {
            let [.., a, b] = *all.header;
            let kind = Some(u16::from_be_bytes([a, b]));
            let most = &picks[..picks.len().min(limit)];
            let n = if special && (kind == tagged || kind == control) {
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
        let mut received = Received::default();
        let mut bytes = 0;
        let mut dealt = 0;
        for pick in picks.iter().take(limit) {
            let Some(frame) = batch.get(usize::from(*pick)) else {
                break;
            };
            let len = frame.len();
            let (Some(dst), Some(kind)) = (
                frame.head().first_chunk::<6>(),
                frame.head().get(HEADER - 2..HEADER),
            ) else {
                break;
            };
            if !bounds.take(&frame) {
                break;
            }
            if special {
                let kind = Some(u16::from_be_bytes([kind[0], kind[1]]));
                if kind == tagged || kind == control {
                    break;
                }
            }
            if self.run.dst != Some(*dst) {
                self.run = self.judge(*dst);
            }
            let on_wire = len.max(MIN_FRAME) + FCS;
            if on_wire > longest {
                break;
            }
            if !self.run.passes {
                self.account.filtered += 1;
                dealt += 1;
                continue;
            }
            let total = len.max(MIN_FRAME) + fcs;
            if !self.reserve(*pick, total, size) {
                break;
            }
            received.add(on_wire, self.run.group);
            bytes += len as u64;
            self.account.frames += 1;
            self.account.small |= total <= self.rsrpd;
            dealt += 1;
        }
        self.account.bytes += bytes;
        self.account.tally.received_many(&received);
        dealt
    }

    /// As [`Rx::plan`], for frames that begin with the same header and need nothing but a buffer each:
    /// what is the same for all is looked at once. Stops before one that is too long for that.
    fn plan_alike(
        &mut self,
        batch: &Batch<'_>,
        picks: &[u16],
        all: Alike<'_>,
        bounds: Bounds,
    ) -> usize {
        let [dst @ .., _, _, _, _, _, _, _, _] = *all.header;
        if self.run.dst != Some(dst) {
            self.run = self.judge(dst);
        }
        let len_of = |pick: u16| batch.get(usize::from(pick)).map_or(0, |frame| frame.len());
        if !self.run.passes {
            let fits = |pick: &&u16| bounds.fit(len_of(**pick));
            let n = picks.iter().take_while(fits).count();
            self.account.filtered += n as u64;
            return n;
        }
        let mut received = Received::default();
        let (n, bytes);
        if let Some(len) = all.len {
            if !bounds.fit(len) {
                return 0;
            }
            n = self.reserve_each(picks, bounds, |_| len);
            bytes = n as u64 * len as u64;
            let on_wire = len.max(MIN_FRAME) + FCS;
            received.add_alike(on_wire, self.run.group, n as u64);
            self.account.small |= n > 0 && bounds.in_buffer(len) <= self.rsrpd;
        } else {
            n = self.reserve_each(picks, bounds, len_of);
            let mut sum = 0;
            for len in picks[..n].iter().map(|pick| len_of(*pick)) {
                sum += len as u64;
                received.add(len.max(MIN_FRAME) + FCS, self.run.group);
                self.account.small |= bounds.in_buffer(len) <= self.rsrpd;
            }
            bytes = sum;
        }
        self.account.tally.received_many(&received);
        self.account.bytes += bytes;
        self.account.frames += n as u64;
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
        let mut rest = picks;
        while self.free > 0 && !rest.is_empty() {
            let ready = self.ready(1);
            let Scratch {
                fetcher, pieces, ..
            } = &mut self.scratch;
            let fetcher = fetcher.get_or_insert_with(|| Box::new(Fetcher::new()));
            let fetched = &mut self.account.fetched;
            let head = self.ring.head;
            let Ok(descs) = fetcher.get(self.view, &self.ring, head, ready, fetched) else {
                break;
            };
            let offered = descs.len().min(self.free as usize).min(rest.len());
            let mut n = 0;
            for (raw, pick) in descs[..offered].iter().zip(rest) {
                let addr = u128::from_le_bytes(*raw) as u64;
                let len = len_of(*pick);
                let total = bounds.in_buffer(len);
                let mut to = self.window.and_then(|window| window.at(addr, total));
                if to.is_none() && addr != 0 {
                    self.window = self.view.write_window(addr);
                    to = self.window.and_then(|window| window.at(addr, total));
                }
                let Some(to) = to.filter(|_| addr != 0 && bounds.fit(len)) else {
                    break;
                };
                to.prefetch();
                pieces.push(Piece {
                    to,
                    pick: *pick,
                    status: self.run.status,
                    more: false,
                });
                n += 1;
            }
            rest = &rest[n..];
            // What was fetched at once does not go around the ring, but may end with it.
            let next = head + n as u32;
            self.ring.head = if next >= self.ring.len { 0 } else { next };
            self.free -= n as u32;
            if n < offered {
                break;
            }
        }
        picks.len() - rest.len()
    }

    /// Descriptors that may be read ahead for frames of `need` each.
    #[inline]
    fn ready(&self, need: u32) -> u32 {
        let ahead = self.expected.saturating_mul(need as usize);
        u32::try_from(ahead)
            .unwrap_or(u32::MAX)
            .max(LEAST_FETCH)
            .min(self.free)
    }

    /// Asks the filters.
    fn judge(&self, dst: [u8; 6]) -> Run {
        let file = &self.chip.file;
        let inexact = FILTERS.inexact(file, self.rctl, dst);
        Run {
            dst: Some(dst),
            passes: FILTERS.address(file, self.rctl, dst),
            status: if inexact { rx_status::PIF } else { 0 },
            group: match dst {
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Group::Broadcast,
                [first, ..] if first & 1 == 1 => Group::Multicast,
                _ => Group::Station,
            },
        }
    }

    /// Takes the descriptors for `total` bytes, if there are enough and their buffers are in reach.
    #[inline]
    fn reserve(&mut self, pick: u16, total: usize, size: usize) -> bool {
        let need = if total <= size {
            1
        } else {
            total.div_ceil(size) as u32
        };
        if need > self.free {
            return false;
        }
        let ready = self.ready(need);
        let planned = self.scratch.pieces.len();
        let (mut index, mut left) = (self.ring.head, total);
        for _ in 0..need {
            let n = left.min(size);
            left -= n;
            let to = self
                .buffer(index, ready)
                .filter(|addr| *addr != 0)
                .and_then(|addr| self.place_for(addr, n));
            let Some(to) = to else {
                self.scratch.pieces.truncate(planned);
                return false;
            };
            to.prefetch();
            self.scratch.pieces.push(Piece {
                to,
                pick,
                status: self.run.status,
                more: left > 0,
            });
            index = self.ring.next(index);
        }
        self.ring.head = index;
        self.free -= need;
        true
    }

    /// A buffer that lies in one region.
    #[inline]
    fn place_for(&mut self, addr: u64, len: usize) -> Option<WriteSlice<'v>> {
        if let Some(to) = self.window.and_then(|window| window.at(addr, len)) {
            return Some(to);
        }
        self.window = self.view.write_window(addr);
        self.window?.at(addr, len)
    }

    /// Copies what was planned, as long as it is `wanted`. The last frame of those not wanted any
    /// more may be there in part.
    pub(crate) fn fill(&mut self, batch: &Batch<'_>, wanted: impl Fn() -> bool) {
        let pieces = std::mem::take(&mut self.scratch.pieces);
        self.scratch.words.reserve(pieces.len());
        let unverified = self.rxcsum & (rxcsum::IPOFL | rxcsum::TUOFL) == 0;
        // Nothing follows the bytes of a frame that is long enough.
        let bare = self.rctl & rctl::SECRC != 0;
        let mut rest = &pieces[..];
        while let Some((first, others)) = rest.split_first() {
            if !wanted() {
                break;
            }
            let Some(frame) = batch.get(usize::from(first.pick)) else {
                break;
            };
            let mut report = Report {
                status: first.status,
                ..Report::default()
            };
            if unverified {
                report.status |= rx_status::IXSM;
            } else {
                let (status, errors) = verdict(self.rxcsum, &frame);
                report.status |= status;
                report.errors = errors;
            }
            if first.more {
                let n = others.iter().take_while(|piece| piece.more).count() + 2;
                let (all, behind) = rest.split_at(n.min(rest.len()));
                self.spread(&frame, all, report);
                rest = behind;
                continue;
            }
            let to = &first.to;
            let bare = bare && to.len() == frame.len();
            match Finish::whole(&frame) {
                None if bare => {
                    let mut at = to.copy_short(frame.head());
                    for slice in frame.rest() {
                        at += to.copy_from_slice(at, slice);
                    }
                }
                Some(finish) if bare => finish.fill(&frame, to),
                finish => self.whole(&frame, finish, to),
            }
            let word = report.word(to.len(), rx_status::EOP);
            self.scratch.words.push(word);
            rest = others;
        }
        self.scratch.pieces = pieces;
        self.scratch.pieces.clear();
    }

    /// A frame that has one buffer, and is padded or has an FCS there.
    fn whole(&mut self, frame: &Frame<'_>, finish: Option<Finish>, to: &WriteSlice<'_>) {
        let (head, len) = (frame.head(), frame.len());
        let fcs = self.rctl & rctl::SECRC == 0;
        if to.len() <= SHORT {
            let mut bytes = [0; SHORT];
            match head.first_chunk::<MIN_FRAME>() {
                Some(head) if len == MIN_FRAME => bytes[..MIN_FRAME].copy_from_slice(head),
                _ => bytes[..len].copy_from_slice(head),
            }
            if let Some(finish) = finish {
                finish.write(&mut bytes[..len]);
            }
            let padded = to.len() - if fcs { FCS } else { 0 };
            if fcs && self.chip.true_fcs {
                // Two stores: a load of both parts at once would wait for the later one.
                let sum = fcs_of(&bytes[..padded]);
                to.copy_short(&bytes[..padded]);
                to.copy_from(padded, &sum);
                return;
            }
            to.copy_short(&bytes[..to.len()]);
            return;
        }
        if let Some(finish) = finish {
            return self.finished(frame, finish, to);
        }
        let mut at = to.copy_short(head);
        if !self.chip.true_fcs {
            for slice in frame.rest() {
                at += to.copy_from_slice(at, slice);
            }
            to.copy_from(at, &[0; FCS]);
            return;
        }
        // What is summed is what is delivered, whatever the sender does to it meanwhile.
        let start = crc32_short(head).unwrap_or_else(|| crc32fast::hash(head));
        let mut sum = crc32fast::Hasher::new_with_initial(start);
        let copy = &mut self.scratch.copy;
        if copy.len() < CHUNK {
            copy.resize(CHUNK, 0);
        }
        let copy = &mut copy[..CHUNK];
        for slice in frame.rest() {
            let mut start = 0;
            while start < slice.len() {
                let n = slice.copy_to(start, copy);
                sum.update(&copy[..n]);
                at += to.copy_from(at, &copy[..n]);
                start += n;
            }
        }
        to.copy_from(at, &sum.finalize().to_le_bytes());
    }

    /// The same with a checksum that is owed, which the FCS covers.
    fn finished(&mut self, frame: &Frame<'_>, finish: Finish, to: &WriteSlice<'_>) {
        if !self.chip.true_fcs {
            finish.fill(frame, to);
            to.copy_from(frame.len(), &[0; FCS]);
            return;
        }
        let layout = Layout {
            head: &[],
            frame,
            from: 0,
            tail: &[0; FCS],
        };
        let mut copy = std::mem::take(&mut self.scratch.copy);
        let len = layout.stage(&mut copy, Some(finish));
        let (data, at) = copy[..len].split_at_mut(len - FCS);
        at.copy_from_slice(&fcs_of(data));
        to.copy_from(0, &copy[..len]);
        self.scratch.copy = copy;
    }

    /// A frame that needs several buffers.
    fn spread(&mut self, frame: &Frame<'_>, pieces: &[Piece<'_>], report: Report) {
        let mut layout = Layout {
            head: &[],
            frame,
            from: 0,
            tail: &[],
        };
        // A buffer holds 256 bytes at least: a frame of several is not padded.
        if self.rctl & rctl::SECRC == 0 {
            layout.tail = &[0; FCS];
        }
        let mut copy = std::mem::take(&mut self.scratch.copy);
        if self.rctl & rctl::SECRC == 0 && self.chip.true_fcs {
            let len = layout.stage(&mut copy, None);
            let (data, at) = copy[..len].split_at_mut(len - FCS);
            at.copy_from_slice(&fcs_of(data));
            layout = Layout {
                head: &copy[..len],
                frame,
                from: frame.len(),
                tail: &[],
            };
        }
        let mut at = 0;
        for piece in pieces {
            layout.copy(at, &piece.to);
            at += piece.to.len();
            let word = if piece.more {
                Report::default().word(piece.to.len(), 0)
            } else {
                report.word(piece.to.len(), rx_status::EOP)
            };
            self.scratch.words.push(word);
        }
        self.scratch.copy = copy;
    }
}

//! The second pass of the fast path: what was planned is copied.

use datapath::{FCS, Finish, Layout, MIN_FRAME, copy_whole, fcs_of};
use frame::{Batch, Frame};
use guest_mem::{WriteSlice, crc32_short};
use intel::rx::{Done, End, Fcs, Format};
use intel::verdict;

use crate::regs::bits::{rx_status, rxcsum};
use crate::rx::call::Rx;
use crate::rx::plan::Piece;
use crate::rx::write::Report;

/// Bytes summed from one copy.
const CHUNK: usize = 2048;
/// A frame with FCS that is no longer is put together before it is copied.
const SHORT: usize = MIN_FRAME + FCS;

impl Rx<'_, '_> {
    /// Copies what was planned, as long as it is `wanted`. The last frame of those not wanted any
    /// more may be there in part.
    pub(crate) fn fill(&mut self, batch: &Batch<'_>, wanted: impl Fn() -> bool) {
        let pieces = std::mem::take(&mut self.plan.pieces);
        self.writer.descs.storage.second.reserve(pieces.len());
        let unverified = self.call.rxcsum & (rxcsum::IPOFL | rxcsum::TUOFL) == 0;
        // Nothing follows the bytes of a frame that is long enough.
        let fcs = self.call.fcs();
        let bare = fcs == Fcs::Stripped;
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
                let (status, errors) = verdict(self.call.rxcsum, &frame);
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
                    copy_whole(&frame, to);
                }
                Some(finish) if bare => finish.fill(&frame, to),
                finish => self.whole(&frame, finish, to),
            }
            let word = report.word(to.len(), rx_status::EOP);
            self.writer.descs.storage.second.push(word);
            rest = others;
        }
        self.plan.pieces = pieces;
        self.plan.pieces.clear();
    }

    /// A frame that has one buffer, and is padded or has an FCS there.
    fn whole(&mut self, frame: &Frame<'_>, finish: Option<Finish>, to: &WriteSlice<'_>) {
        let (head, len) = (frame.head(), frame.len());
        let fcs = self.call.fcs();
        if to.len() <= SHORT {
            let mut bytes = [0; SHORT];
            match head.first_chunk::<MIN_FRAME>() {
                Some(head) if len == MIN_FRAME => bytes[..MIN_FRAME].copy_from_slice(head),
                _ => bytes[..len].copy_from_slice(head),
            }
            if let Some(finish) = finish {
                finish.write(&mut bytes[..len]);
            }
            let padded = to.len() - if fcs == Fcs::Stripped { 0 } else { FCS };
            if fcs == Fcs::True {
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
        if fcs != Fcs::True {
            let at = copy_whole(frame, to);
            to.copy_from(at, &[0; FCS]);
            return;
        }
        let mut at = to.copy_short(head);
        // What is summed is what is delivered, whatever the sender does to it meanwhile.
        let start = crc32_short(head).unwrap_or_else(|| crc32fast::hash(head));
        let mut sum = crc32fast::Hasher::new_with_initial(start);
        let copy = &mut self.writer.descs.storage.copy;
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
        if self.call.fcs() != Fcs::True {
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
        let mut copy = std::mem::take(&mut self.writer.descs.storage.copy);
        let len = layout.stage(&mut copy, Some(finish));
        let (data, at) = copy[..len].split_at_mut(len - FCS);
        at.copy_from_slice(&fcs_of(data));
        to.copy_from(0, &copy[..len]);
        self.writer.descs.storage.copy = copy;
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
        let fcs = self.call.fcs();
        if fcs != Fcs::Stripped {
            layout.tail = &[0; FCS];
        }
        let mut copy = std::mem::take(&mut self.writer.descs.storage.copy);
        if fcs == Fcs::True {
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
            self.writer.descs.storage.push(report.done(Done {
                len: piece.to.len(),
                first: false,
                end: if piece.more { End::No } else { End::Whole },
            }));
        }
        self.writer.descs.storage.copy = copy;
    }
}

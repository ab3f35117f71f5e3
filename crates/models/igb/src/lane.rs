//! The fast lane of the receive side: frames of a VF that need one buffer each and nothing else.
//!
//! In two passes: the first finds out where each frame goes and has the processor fetch these places,
//! the second copies. What a frame needs beyond copy, padding and report (a tag, segmentation, a header
//! apart, an FCS, a null buffer, one that crosses regions) ends the run, and the frame takes the
//! general way ([`crate::place`]), which gives the same results for all; a test runs both.

use frame::{Batch, Caps, Frame};
use guest_mem::WriteSlice;
use parts::verdict::rx_status;
use parts::{FCS, MIN_FRAME};
use wire::EtherType;

use crate::desc::ShapeKind;
use crate::function::Kind;
use crate::place::{LEAST_FETCH, Report, status, word};
use crate::rss::Headers;
use crate::rules::bits::rxcsum;
use crate::rx::Rx;

const ETHERNET_HEADER: usize = 14;
/// Frames whose places are asked for before the first of them is copied: about as many cache misses as
/// a processor keeps under way.
const AHEAD: usize = 32;
/// A sum that somebody else computes is told of as any other.
const TAKES: Caps = Caps {
    csum: true,
    ..Caps::NONE
};

/// What has to be looked up of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// No headers that a descriptor tells of.
    Bare,
    Ip,
}

impl<'v> Rx<'_, 'v> {
    /// Takes frames from the front of `picks` as long as they are for the lane and there are buffers
    /// for them. Returns how many.
    pub(crate) fn lane(&mut self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let rules = &self.rules;
        let for_us = self.function.lane
            && matches!(self.function.kind, Kind::Vf(_))
            && rules.strip_crc
            && rules.sums(rxcsum::TUOFL);
        let first = picks.first().and_then(|pick| batch.get((*pick).into()));
        if !for_us || first.is_none_or(|frame| self.look_at(&frame).is_none()) {
            return 0;
        }
        // All that a VF gets is for its first queue.
        let Some(open) = self.open(0) else {
            // Counted.
            return 1;
        };
        if open.shape.kind != ShapeKind::Whole {
            return 0;
        }
        let mut dealt = 0;
        while dealt < picks.len() {
            let most = AHEAD.min(picks.len() - dealt);
            let n = self.some(batch, &picks[dealt..dealt + most], picks.len() - dealt);
            dealt += n;
            if n < most {
                break;
            }
        }
        dealt
    }

    /// Whether a frame is for the lane.
    #[inline]
    fn look_at(&self, frame: &Frame<'_>) -> Option<Look> {
        let head: &[u8; ETHERNET_HEADER] = frame.head().first_chunk()?;
        let kind = EtherType(u16::from_be_bytes([head[12], head[13]]));
        let plain = frame.is_plain() || TAKES.accepts(frame.notes());
        let fits = frame.len().max(MIN_FRAME) + FCS <= self.rules.max_len;
        if !plain || !fits || kind.is_tag() || kind.0 == self.rules.vet {
            return None;
        }
        Some(match kind {
            EtherType::IPV4 | EtherType::IPV6 => Look::Ip,
            _ => Look::Bare,
        })
    }

    /// One round of both passes, over at most [`AHEAD`] frames. `expected` are still to come.
    fn some(&mut self, batch: &Batch<'_>, picks: &[u16], expected: usize) -> usize {
        let mut places: [Option<(WriteSlice<'v>, Look)>; AHEAD] = [None; AHEAD];
        let planned = self.plan(batch, picks, expected, &mut places);
        let (mut bytes, mut multicast) = (0, 0);
        // Those alike that follow each other are counted at once.
        let (mut dst, mut len, mut run) = ([0; 6], 0, 0);
        for (pick, place) in picks.iter().zip(&places[..planned]) {
            let (Some(frame), Some((to, look))) = (batch.get(usize::from(*pick)), place) else {
                break;
            };
            fill(&frame, to);
            let report = match look {
                Look::Bare => Report {
                    status: rx_status::IXSM.into(),
                    ..Report::default()
                },
                Look::Ip => {
                    let headers = Headers::of(&frame);
                    let class = self.class(&headers);
                    self.report(&frame, &headers, &class)
                }
            };
            let low = u64::from(report.info) | u64::from(report.value) << 32;
            self.scratch.first.push(low);
            let second = word(ShapeKind::Whole, to.len(), status::EOP, &report);
            self.scratch.second.push(second);
            let own = *frame.head().first_chunk::<6>().unwrap_or(&[0; 6]);
            if run > 0 && (own != dst || frame.len() != len) {
                self.tally.received(run, len.max(MIN_FRAME) + FCS, dst);
                run = 0;
            }
            (dst, len, run) = (own, frame.len(), run + 1);
            bytes += len as u64;
            multicast += u64::from(own[0] & 1);
        }
        self.tally.received(run, len.max(MIN_FRAME) + FCS, dst);
        self.own.frames += planned as u64;
        self.own.bytes += bytes;
        self.own.multicast += multicast;
        planned
    }

    /// The first pass: takes a descriptor for each frame.
    fn plan(
        &mut self,
        batch: &Batch<'_>,
        picks: &[u16],
        expected: usize,
        places: &mut [Option<(WriteSlice<'v>, Look)>; AHEAD],
    ) -> usize {
        let Some(open) = &self.open else {
            return 0;
        };
        let (mut ring, mut free, size) = (open.ring, open.free, open.shape.packet);
        let mut planned = 0;
        for (pick, place) in picks.iter().zip(places) {
            let Some(frame) = batch.get(usize::from(*pick)) else {
                break;
            };
            let total = frame.len().max(MIN_FRAME);
            let Some(look) = self.look_at(&frame).filter(|_| free > 0 && total <= size) else {
                break;
            };
            let ahead = u32::try_from(expected - planned).unwrap_or(u32::MAX);
            let ready = free.min(ahead.max(LEAST_FETCH));
            let fetcher = &mut self.scratch.fetcher;
            let got = fetcher.get(self.view, &ring, ring.head, ready, &mut self.fetched);
            let Some(raw) = got.ok().and_then(<[_]>::first) else {
                break;
            };
            let addr = u128::from_le_bytes(*raw) as u64;
            let mut to = self.window.and_then(|window| window.at(addr, total));
            if to.is_none() && addr != 0 {
                self.window = self.view.write_window(addr);
                to = self.window.and_then(|window| window.at(addr, total));
            }
            let Some(to) = to.filter(|_| addr != 0) else {
                break;
            };
            to.prefetch();
            *place = Some((to, look));
            ring.head = ring.next(ring.head);
            free -= 1;
            planned += 1;
        }
        if let Some(open) = &mut self.open {
            open.ring.head = ring.head;
            open.free = free;
        }
        planned
    }
}

/// Copies a frame into its buffer, padded.
#[inline]
fn fill(frame: &Frame<'_>, to: &WriteSlice<'_>) {
    let head = frame.head();
    if frame.len() < MIN_FRAME {
        // All of a short frame is its head.
        let mut bytes = [0; MIN_FRAME];
        bytes[..head.len()].copy_from_slice(head);
        to.copy_short(&bytes);
        return;
    }
    let mut at = to.copy_short(head);
    for slice in frame.rest() {
        at += to.copy_from_slice(at, slice);
    }
}

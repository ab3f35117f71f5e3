//! The fast path of the receive side: frames that need one buffer each and nothing else.
//!
//! It has two passes: the first finds the buffer of each frame and prefetches it, the second copies. A
//! frame that needs more than copy, checksum, padding and report (a tag, segmentation, a split header, an
//! FCS, a null buffer, one that crosses regions) ends the run. It takes the general way
//! ([`crate::rx::write`]), which gives the same results for all frames; a test runs both. Frames of a PF
//! are classified first ([`crate::rx::classify`]); a run ends at a frame for another queue.

#[cfg(test)]
mod pf_tests;
#[cfg(test)]
mod tests;

use datapath::{FCS, Finish, MIN_FRAME, copy_whole, possible};
use frame::{Batch, Caps, Frame};
use guest_mem::WriteSlice;
use intel::rx::Storage;
use intel::verdict;
use intel::verdict::rx_status;
use wire::{ETHERNET_HEADER, EtherType};

use crate::core::function::FunctionKind;
use crate::core::stats::for_group;
use crate::filter::headers::Headers;
use crate::filter::rss::{ptype, simple_v4};
use crate::regs::bits::rxcsum;
use crate::regs::settings::Settings;
use crate::rx::call::Call;
use crate::rx::classify::Classified;
use crate::rx::enqueue::Rx;
use crate::rx::report::{ERRORS_AT, Report, desc_status, word};
use crate::rx::shape::ShapeKind;
use crate::rx::writer::Writer;

/// Frames whose buffers are prefetched before the first is copied: about as many cache misses as a
/// processor has in flight.
const AHEAD: usize = 32;
/// A checksum that the sender left to us is computed during the copy.
const TAKES: Caps = Caps {
    csum: true,
    ..Caps::NONE
};

/// The report of a frame without headers that a descriptor describes.
pub(crate) const BARE: Report = Report {
    status: rx_status::IXSM as u32,
    info: 0,
    value: 0,
    checksum: 0,
    tag: 0,
};

/// What has to be looked up of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// No headers that a descriptor describes.
    Bare,
    Ip,
}

/// What the frames of a batch have in common, if the fast path treats them alike.
#[derive(Clone, Copy, Debug)]
struct Same {
    look: Look,
    len: usize,
    /// Set for frames without headers: a PF's filters treat them alike too.
    classified: Option<Classified>,
}

impl Call<'_> {
    /// Adds what a PF's descriptors report beside.
    #[inline]
    pub(crate) fn classified(&self, report: Report, classified: &Classified) -> Report {
        let hashed = self.settings.sums(rxcsum::PCSD);
        let pif = if classified.inexact {
            desc_status::PIF
        } else {
            0
        };
        Report {
            status: report.status | pif,
            // No hash is reported, so it has no type.
            info: classified.class.info & if hashed { !0 } else { !ptype::RSS_TYPE },
            value: if hashed { classified.class.hash } else { 0 },
            ..report
        }
    }
}

impl<'v> Rx<'_, 'v> {
    /// Takes frames from the front of `picks`, until one is not for the fast path or there are no more
    /// buffers. Returns how many.
    pub(crate) fn fast_path(&mut self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let settings = &self.call.settings;
        let for_us = self.call.function.fast_path
            && !settings.several
            && !self.call.listens
            && settings.strip_crc
            && settings.replicas.is_none_or(|strips| strips.crc);
        let first = picks.first().and_then(|pick| batch.get((*pick).into()));
        let Some(first) = first.filter(|_| for_us) else {
            return 0;
        };
        let Some(look) = look_at(settings, &first) else {
            return 0;
        };
        let classified = match self.call.function.kind {
            // A VF has all frames in its first queue.
            FunctionKind::Vf(_) => Some(Classified::default()),
            FunctionKind::Pf => self.classifier.classify(&self.call, &first),
        };
        let Some(classified) = classified else {
            return 0;
        };
        let Some(open) = self.open(classified.class.queue) else {
            // Counted, but for one that is held up: it takes none.
            return usize::from(!self.writer.held_up);
        };
        if open.shape.kind != ShapeKind::Whole {
            return 0;
        }
        // Frames with the header and the length of the first need no look of their own.
        let alike = batch.alike().filter(|all| all.plain);
        let same = alike.and_then(|all| {
            Some(Same {
                look,
                len: all.len?,
                classified: Some(classified).filter(|_| look == Look::Bare),
            })
        });
        let mut dealt = 0;
        while dealt < picks.len() {
            let most = AHEAD.min(picks.len() - dealt);
            let some = &picks[dealt..dealt + most];
            let n = self.some(batch, some, same, picks.len() - dealt);
            dealt += n;
            if n < most {
                break;
            }
        }
        dealt
    }

    /// One round of both passes, over at most [`AHEAD`] frames. `expected` are still to come.
    fn some(
        &mut self,
        batch: &Batch<'_>,
        picks: &[u16],
        same: Option<Same>,
        expected: usize,
    ) -> usize {
        let picks = &picks[..self.classify_all(batch, picks, same)];
        let mut places: [Option<(WriteSlice<'v>, Look)>; AHEAD] = [None; AHEAD];
        let planned = self.plan(batch, picks, same, expected, &mut places);
        if let Some(Same {
            len,
            classified: Some(like),
            ..
        }) = same
        {
            self.bare(batch, picks, &places[..planned], (len, like));
            return planned;
        }
        let classified = std::mem::take(&mut self.classifier.classified);
        let (mut bytes, mut multicast) = (0, 0);
        // A run of frames that are alike is counted at once.
        let (mut dst, mut len, mut run) = ([0; 6], 0, 0);
        for (i, (pick, place)) in picks.iter().zip(&places[..planned]).enumerate() {
            let (Some(frame), Some((to, look))) = (batch.get(usize::from(*pick)), place) else {
                break;
            };
            fill(&frame, to);
            if classified
                .get(i)
                .is_some_and(|classified| classified.class.immediate)
            {
                self.hurry();
            }
            let quick = match look {
                Look::Bare => Some(BARE),
                Look::Ip => self.at_a_glance(&frame),
            };
            let report = match (quick, classified.get(i)) {
                (Some(report), None) => report,
                (Some(report), Some(classified)) => self.call.classified(report, classified),
                (None, classified) => self.at_length(&frame, classified),
            };
            let low = report.first_word();
            self.writer.descs.storage.first.push(low);
            let second = word(ShapeKind::Whole, to.len(), desc_status::EOP, &report);
            self.writer.descs.storage.second.push(second);
            if same.is_some() && run > 0 {
                run += 1;
                continue;
            }
            let own = *frame.head().first_chunk::<6>().unwrap_or(&[0; 6]);
            if run > 0 && (own != dst || frame.len() != len) {
                self.counts
                    .tally
                    .received(run, len.max(MIN_FRAME) + FCS, dst);
                bytes += run * len as u64;
                multicast += run * u64::from(for_group(dst));
                run = 0;
            }
            (dst, len, run) = (own, frame.len(), run + 1);
        }
        self.classifier.classified = classified;
        self.counts
            .tally
            .received(run, len.max(MIN_FRAME) + FCS, dst);
        self.counts.own.frames += planned as u64;
        self.counts.own.bytes += bytes + run * len as u64;
        self.counts.own.multicast += multicast + run * u64::from(for_group(dst));
        planned
    }

    /// The second pass over frames whose descriptors are all the same.
    fn bare(
        &mut self,
        batch: &Batch<'_>,
        picks: &[u16],
        places: &[Option<(WriteSlice<'v>, Look)>],
        (len, like): (usize, Classified),
    ) {
        let each = picks.iter().zip(places);
        let frames =
            each.filter_map(|(pick, place)| Some((batch.get((*pick).into())?, place.as_ref()?)));
        for (frame, (to, _)) in frames {
            if len < MIN_FRAME {
                fill(&frame, to);
            } else {
                copy_whole(&frame, to);
            }
        }
        let n = places.len();
        let first = picks.first().and_then(|pick| batch.get((*pick).into()));
        let dst = first.map_or([0; 6], |frame| {
            *frame.head().first_chunk().unwrap_or(&[0; 6])
        });
        if n > 0 && like.class.immediate {
            self.hurry();
        }
        let report = match self.call.function.kind {
            FunctionKind::Vf(_) => BARE,
            FunctionKind::Pf => self.call.classified(BARE, &like),
        };
        let all = word(
            ShapeKind::Whole,
            len.max(MIN_FRAME),
            desc_status::EOP,
            &report,
        );
        let Storage { first, second, .. } = &mut *self.writer.descs.storage;
        let low = report.first_word();
        first.resize(first.len() + n, low);
        second.resize(second.len() + n, all);
        let n = n as u64;
        self.counts.tally.received(n, len.max(MIN_FRAME) + FCS, dst);
        self.counts.own.frames += n;
        self.counts.own.bytes += n * len as u64;
        self.counts.own.multicast += n * u64::from(for_group(dst));
    }

    /// Classifies frames of a PF until one is for another queue. Returns how many are for the open one: all
    /// of a VF, and all if they are alike.
    fn classify_all(&mut self, batch: &Batch<'_>, picks: &[u16], same: Option<Same>) -> usize {
        let mut classified = std::mem::take(&mut self.classifier.classified);
        classified.clear();
        let all = matches!(self.call.function.kind, FunctionKind::Vf(_))
            || same.is_some_and(|same| same.classified.is_some());
        if let Some(queue) = self
            .writer
            .open
            .as_ref()
            .map(|open| open.queue)
            .filter(|_| !all)
        {
            for pick in picks {
                let found = batch
                    .get(usize::from(*pick))
                    .and_then(|f| self.classifier.classify(&self.call, &f));
                let Some(found) = found.filter(|found| found.class.queue == queue) else {
                    break;
                };
                classified.push(found);
            }
        }
        let most = if all { picks.len() } else { classified.len() };
        self.classifier.classified = classified;
        most
    }

    /// The report of the most frequent packets: whole TCP or UDP over IPv4 without options.
    #[inline]
    fn at_a_glance(&self, frame: &Frame<'_>) -> Option<Report> {
        // The identification is reported only without the hash.
        if !self.call.settings.sums(rxcsum::PCSD) {
            return None;
        }
        let (kind, _) = simple_v4(frame)?;
        let (status, errors) = verdict(self.call.settings.rxcsum, frame);
        let mut status = u32::from(status) | u32::from(errors) << ERRORS_AT;
        if kind == ptype::UDP && status & u32::from(rx_status::TCPCS) != 0 {
            status |= desc_status::UDPCS;
        }
        Some(Report {
            status,
            info: ptype::IPV4 | kind,
            ..Report::default()
        })
    }

    /// The report of any packet.
    fn at_length(&mut self, frame: &Frame<'_>, classified: Option<&Classified>) -> Report {
        let headers = Headers::of(frame);
        let class = match classified {
            Some(classified) => classified.class,
            None => self.classifier.class(&self.call, &headers, frame.len()),
        };
        let mut report = self.call.report(frame, &headers, &class, None);
        if classified.is_some_and(|classified| classified.inexact) {
            report.status |= desc_status::PIF;
        }
        report
    }

    /// The first pass: takes a descriptor for each frame.
    fn plan(
        &mut self,
        batch: &Batch<'_>,
        picks: &[u16],
        same: Option<Same>,
        expected: usize,
        places: &mut [Option<(WriteSlice<'v>, Look)>; AHEAD],
    ) -> usize {
        let Writer { descs, open, .. } = &mut self.writer;
        let Some(open) = open else {
            return 0;
        };
        let size = open.shape.packet;
        let settings = &self.call.settings;
        let look = |i: usize| match same {
            Some(same) => Some((same.look, same.len)),
            None => {
                let frame = batch.get(usize::from(*picks.get(i)?))?;
                Some((look_at(settings, &frame)?, frame.len()))
            }
        };
        descs.take(
            &mut open.room,
            (picks.len(), expected),
            |i| {
                let (look, len) = look(i)?;
                let total = len.max(MIN_FRAME);
                (total <= size).then_some((total, look))
            },
            |i, to, look| {
                if let Some(place) = places.get_mut(i) {
                    *place = Some((to, look));
                }
            },
        )
    }
}

/// Whether a frame is for the fast path.
#[inline]
pub(crate) fn look_at(settings: &Settings, frame: &Frame<'_>) -> Option<Look> {
    let head: &[u8; ETHERNET_HEADER] = frame.head().first_chunk()?;
    let kind = EtherType(u16::from_be_bytes([head[12], head[13]]));
    let plain = frame.is_plain() || TAKES.accepts(frame.notes()) && possible(frame);
    let fits = frame.len().max(MIN_FRAME) + FCS <= settings.max_len;
    if !plain || !fits || kind.is_tag() || kind.0 == settings.vet {
        return None;
    }
    Some(match kind {
        EtherType::IPV4 | EtherType::IPV6 => Look::Ip,
        _ => Look::Bare,
    })
}

/// Copies a frame into its buffer, padded and with its checksum.
#[inline]
fn fill(frame: &Frame<'_>, to: &WriteSlice<'_>) {
    let finish = Finish::whole(frame);
    let head = frame.head();
    if frame.len() < MIN_FRAME {
        // All of a short frame is its head.
        let mut bytes = [0; MIN_FRAME];
        bytes[..head.len()].copy_from_slice(head);
        if let Some(finish) = finish {
            finish.write(&mut bytes[..head.len()]);
        }
        to.copy_short(&bytes);
        return;
    }
    match finish {
        None => {
            copy_whole(frame, to);
        }
        Some(finish) => finish.fill(frame, to),
    }
}

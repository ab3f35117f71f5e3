//! Handing frames to a sink, finished as far as that sink needs.

use wire::{Gso, Offload};

use crate::batch::{Batch, Frame, MAX_BATCH};
use crate::cut::Cut;
use crate::expand::{ExpandError, expand};
use crate::sink::{Caps, Sink};

/// Bytes of a frame by which it is known again: Ethernet to TCP options with their sequence
/// numbers.
const KNOWN_BY: usize = 128;
/// Half-sent frames remembered, one per sink. No batch can leave more than [`MAX_BATCH`], so what is
/// forgotten beyond twice that belongs to sinks that are gone.
const MAX_HALVES: usize = 2 * MAX_BATCH;

/// Delivers picks of a batch to sinks, expanding the frames a sink cannot take as they are.
///
/// Every sender owns one, for all sinks it sends to. Its storage is reused, so steady state
/// allocates nothing.
///
/// A sink may take only some of the segments of a frame. The frame is then *not* dealt with: the
/// sender offers it again, and the finisher, which knows it again by its length, notes and first
/// bytes, goes on behind the last segment taken. If the sender gives it up instead, the segments
/// left over are lost, as after any drop.
#[derive(Debug, Default)]
pub struct Finisher {
    scratch: Batch<'static>,
    picks: Vec<u16>,
    done: Vec<(usize, Option<ExpandError>)>,
    halves: Vec<Half>,
    moved: usize,
}

/// A frame of which a sink has taken some segments.
#[derive(Debug)]
struct Half {
    sink: usize,
    sent: usize,
    key: Key,
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    len: usize,
    notes: Offload,
    start: [u8; KNOWN_BY],
}

impl Key {
    fn of(frame: &Frame<'_>) -> Key {
        let mut start = [0; KNOWN_BY];
        frame.copy_to(0, &mut start);
        Key {
            len: frame.len(),
            notes: *frame.notes(),
            start,
        }
    }
}

impl Finisher {
    /// A finisher with nothing under way.
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers `picks` of `batch` to `sink`, in order: as they are where the sink accepts their
    /// notes, expanded where not. Returns how many picks were dealt with, as [`Sink::deliver`];
    /// those that cannot be expanded are among them and are told to `refused`, for the sender to
    /// count.
    pub fn deliver(
        &mut self,
        sink: &dyn Sink,
        batch: &Batch<'_>,
        picks: &[u16],
        refused: impl FnMut(u16, ExpandError),
    ) -> usize {
        self.deliver_within(Caps::ALL, sink, batch, picks, refused)
    }

    /// As [`Finisher::deliver`], to a sink that is handed nothing that `limit` does not allow.
    pub fn deliver_within(
        &mut self,
        limit: Caps,
        sink: &dyn Sink,
        batch: &Batch<'_>,
        picks: &[u16],
        mut refused: impl FnMut(u16, ExpandError),
    ) -> usize {
        let caps = sink.caps().and(limit);
        let as_is = |pick: &u16| {
            batch
                .get(usize::from(*pick))
                .is_none_or(|frame| caps.accepts(frame.notes()))
        };
        let mut dealt = 0;
        self.moved = 0;
        while let Some(rest) = picks.get(dealt..).filter(|rest| !rest.is_empty()) {
            let run = rest.iter().take_while(|pick| as_is(pick)).count();
            if run > 0 {
                let taken = sink.deliver(batch, &rest[..run]).min(run);
                dealt += taken;
                self.moved += taken;
                if taken < run {
                    break;
                }
            } else if self.cut(sink, batch, rest[0]) {
                dealt += 1;
            } else {
                let run = rest.iter().take_while(|pick| !as_is(pick)).count();
                let (taken, all) = self.expanded((sink, caps), batch, &rest[..run], &mut refused);
                dealt += taken;
                if !all {
                    break;
                }
            }
        }
        dealt
    }

    /// How many frames and segments the sink took in the last [`Finisher::deliver`]. Not zero while
    /// a long frame trickles in, though no pick is dealt with.
    pub fn moved(&self) -> usize {
        self.moved
    }

    /// Offers a large frame as a [`Cut`]. Returns whether it is dealt with; if not, what the sink has taken of it is
    /// remembered, and the rest goes with the expanded ones.
    fn cut(&mut self, sink: &dyn Sink, batch: &Batch<'_>, pick: u16) -> bool {
        let large = |frame: &Frame<'_>| frame.notes().gso != Gso::None;
        let Some(frame) = batch.get(pick.into()).filter(large) else {
            return false;
        };
        let Some(cut) = Cut::new(&frame) else {
            return false;
        };
        let before = self.resume(sink, &frame);
        let left = cut.count().saturating_sub(before);
        let taken = match left {
            0 => 0,
            _ => sink.deliver_cut(&cut, before).unwrap_or(0).min(left),
        };
        self.moved += taken;
        let sent = before + taken;
        if sent < cut.all() && sent > 0 {
            self.remember(sink, sent, &frame);
        }
        sent >= cut.all()
    }

    /// One scratch batch full of expanded frames. Returns how many picks were dealt with and whether
    /// the sink took all that it was offered.
    fn expanded(
        &mut self,
        (sink, caps): (&dyn Sink, Caps),
        batch: &Batch<'_>,
        picks: &[u16],
        refused: &mut impl FnMut(u16, ExpandError),
    ) -> (usize, bool) {
        let mut out = std::mem::take(&mut self.scratch).recycle();
        self.done.clear();
        for &pick in picks {
            if out.len() >= MAX_BATCH {
                break;
            }
            let error = batch
                .get(usize::from(pick))
                .and_then(|frame| expand(&frame, caps, &mut out).err());
            self.done.push((out.len(), error));
        }
        let first = picks.first().and_then(|p| batch.get(usize::from(*p)));
        let sent_before = first.map_or(0, |frame| self.resume(sink, &frame));
        let segments = self.done.first().map_or(0, |(end, _)| *end);
        let mut taken = sent_before.min(segments);
        self.picks.clear();
        self.picks.extend((taken..out.len()).map(|i| i as u16));
        for chunk in self.picks.chunks(MAX_BATCH) {
            let n = sink.deliver(&out, chunk).min(chunk.len());
            taken += n;
            self.moved += n;
            if n < chunk.len() {
                break;
            }
        }
        let all = taken >= out.len();
        self.scratch = out.recycle();
        let dealt = self
            .done
            .iter()
            .take_while(|(end, _)| *end <= taken)
            .count();
        for ((_, error), pick) in self.done[..dealt].iter().zip(picks) {
            if let Some(error) = error {
                refused(*pick, *error);
            }
        }
        let first = dealt.checked_sub(1).map_or(0, |i| self.done[i].0);
        if taken > first
            && let Some(frame) = picks.get(dealt).and_then(|p| batch.get(usize::from(*p)))
        {
            self.remember(sink, taken - first, &frame);
        }
        (dealt, all)
    }

    /// `sink` has taken so many segments of a frame.
    #[cold]
    fn remember(&mut self, sink: &dyn Sink, sent: usize, frame: &Frame<'_>) {
        if self.halves.len() >= MAX_HALVES {
            self.halves.remove(0);
        }
        self.halves.push(Half {
            sink: id(sink),
            sent,
            key: Key::of(frame),
        });
    }

    /// How many segments of the frame that is offered next `sink` has taken before. Forgets it.
    fn resume(&mut self, sink: &dyn Sink, frame: &Frame<'_>) -> usize {
        if self.halves.is_empty() {
            return 0;
        }
        let Some(at) = self.halves.iter().position(|half| half.sink == id(sink)) else {
            return 0;
        };
        let half = self.halves.remove(at);
        if Key::of(frame) == half.key {
            half.sent
        } else {
            0
        }
    }
}

/// Tells sinks apart while they live; a later one at the same address is told apart by the frame.
fn id(sink: &dyn Sink) -> usize {
    std::ptr::from_ref(sink).cast::<()>().addr()
}

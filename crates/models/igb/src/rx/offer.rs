//! A frame that is offered: expanded where it has to be, and put into its queue or queues.

use std::cell::Cell;

use datapath::{FCS, MIN_FRAME, possible};
use frame::{Batch, Caps, Frame, expand};

use crate::core::function::count;
use crate::filter::headers::Headers;
use crate::rx::enqueue::{Outcome, Rx};

/// What may stay unfinished of a frame: a sum is computed while the frame is copied, and a tag goes
/// beside it or is put in then.
pub(crate) const TAKES: Caps = Caps {
    csum: true,
    vlan: true,
    ..Caps::NONE
};

thread_local! {
    /// Storage for expanded frames; batches are bound to a thread.
    static SPARE: Cell<Batch<'static>> = Cell::default();
}

impl Rx<'_, '_> {
    /// Filters a frame and puts it into its queue.
    pub(crate) fn offer(&mut self, frame: &Frame<'_>) -> Outcome {
        let takes = Self::takes(frame);
        if takes.accepts(frame.notes()) {
            return self.plain(frame);
        }
        let mut out = SPARE.take().recycle();
        let outcome = match expand(frame, takes, &mut out) {
            Ok(_) => self.all(&out),
            Err(_) => {
                count(&self.call.function.counters.rx_bad_offload, 1);
                Outcome::Lost
            }
        };
        SPARE.set(out.recycle());
        outcome
    }

    /// What may stay unfinished of this frame.
    fn takes(frame: &Frame<'_>) -> Caps {
        Caps {
            csum: possible(frame),
            ..TAKES
        }
    }

    /// All segments of a frame, or none, so that the sender can offer it again.
    fn all(&mut self, segments: &Batch<'_>) -> Outcome {
        let Some(first) = segments.get(0) else {
            return Outcome::Lost;
        };
        if self.call.rules.several {
            if !self.roomy(segments) {
                return Outcome::NoRoom;
            }
            return self.each(segments);
        }
        // They are of one flow, and so for one queue.
        let class = self
            .classifier
            .class(&self.call, &Headers::of(&first), first.len());
        if let Some(open) = self.open(class.queue) {
            let size = open.shape.packet;
            let each = |frame: Frame<'_>| (frame.len().max(MIN_FRAME) + 8).div_ceil(size);
            let need: usize = segments.iter().map(each).sum();
            let possible = need < open.ring.len as usize;
            if need > open.free as usize && possible && !open.shape.drop {
                return Outcome::NoRoom;
            }
        }
        self.each(segments)
    }

    fn each(&mut self, segments: &Batch<'_>) -> Outcome {
        for segment in segments.iter() {
            if let Outcome::NoRoom = self.plain(&segment) {
                // More than a ring can ever hold, or null buffers: the rest is lost.
                count(&self.call.function.counters.rx_too_large, 1);
                self.counts.miss(segment.len().max(MIN_FRAME) + FCS);
            }
        }
        Outcome::Done
    }

    /// One frame that needs no expansion.
    fn plain(&mut self, frame: &Frame<'_>) -> Outcome {
        if self.call.rules.several {
            return self.replicate(frame);
        }
        if self.call.rules.replicas.is_some()
            && frame.head().first().is_some_and(|dst| dst & 1 == 1)
        {
            let many = self.call.rules.of_many();
            let all = std::mem::replace(&mut self.call.rules, many);
            let outcome = self.put_through(frame);
            self.call.rules = all;
            return outcome;
        }
        self.put_through(frame)
    }
}

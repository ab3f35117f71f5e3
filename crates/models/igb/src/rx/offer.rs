//! Takes a frame that is offered: expands it if necessary, and puts it into its queue or queues.

use datapath::{FCS, MIN_FRAME, Offered, buffers_for, with_expanded};
use frame::{Batch, Frame};

use crate::core::function::count;
use crate::filter::headers::Headers;
use crate::rx::enqueue::Rx;
use crate::rx::writer::Outcome;

impl Rx<'_, '_> {
    /// Filters a frame and puts it into its queue.
    pub(crate) fn offer(&mut self, frame: &Frame<'_>) -> Outcome {
        with_expanded(frame, |offered| match offered {
            Offered::Whole => self.plain(frame),
            Offered::Expanded(frames) => self.all(frames),
            Offered::Invalid => {
                count(&self.call.function.counters.rx_bad_offload, 1);
                Outcome::Lost
            }
        })
    }

    /// All segments of a frame, or none, so that the sender can offer it again.
    fn all(&mut self, segments: &Batch<'_>) -> Outcome {
        let Some(first) = segments.get(0) else {
            return Outcome::Lost;
        };
        if self.call.settings.several {
            if !self.roomy(segments) {
                return Outcome::NoRoom;
            }
            return self.each(segments);
        }
        // Segments of one flow are for one queue.
        let class = self
            .classifier
            .class(&self.call, &Headers::of(&first), first.len());
        if let Some(open) = self.open(class.queue) {
            let need = buffers_for(segments, open.shape.packet);
            let possible = need < open.room.ring.len as usize;
            if need > open.room.free as usize && possible && !open.shape.drop {
                return Outcome::NoRoom;
            }
        } else if self.writer.held_up {
            return Outcome::NoRoom;
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
        if self.call.settings.several {
            return self.replicate(frame);
        }
        if self.call.settings.replicas.is_some()
            && frame.head().first().is_some_and(|dst| dst & 1 == 1)
        {
            let many = self.call.settings.of_replicas();
            let all = std::mem::replace(&mut self.call.settings, many);
            let outcome = self.put_through(frame);
            self.call.settings = all;
            return outcome;
        }
        self.put_through(frame)
    }
}

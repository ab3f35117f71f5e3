//! One frame on its way into one queue.

use frame::Frame;
use guest_mem::View;
use model::Env;

use crate::core::function::{Function, count};
use crate::core::stats::for_group;
use crate::filter::headers::Headers;
use crate::regs::settings::Settings;
use crate::rx::call::Call;
use crate::rx::classify::Classifier;
use crate::rx::counts::Counts;
use crate::rx::write::Packet;
use crate::rx::writer::{Open, Outcome, Writer};

/// One call's worth of receiving.
pub(crate) struct Rx<'a, 'v> {
    pub call: Call<'a>,
    pub classifier: Classifier,
    pub writer: Writer<'a, 'v>,
    pub counts: Counts,
}

impl<'a, 'v> Rx<'a, 'v> {
    pub(crate) fn new(
        function: &'a Function,
        env: &'a Env,
        view: &'v View<'v>,
        settings: Settings,
    ) -> Self {
        let call = Call::new(function, env, settings);
        Rx {
            classifier: Classifier::new(&call),
            call,
            writer: Writer::new(view),
            counts: Counts::default(),
        }
    }

    /// Writes back what is left, adds up the counts, raises interrupts, and gives the storage back.
    pub(crate) fn end(mut self) {
        self.writer.close(self.call.function, &mut self.counts);
        self.counts.fetched = self.writer.descs.fetched;
        self.counts.enter(self.call.function, self.call.env);
        self.writer.descs.end();
        self.classifier.end();
    }

    /// Opens `queue`, and closes the one that was open. `None`: it takes no frames, which is counted, or is held up.
    pub(crate) fn open(&mut self, queue: u32) -> Option<&Open<'a>> {
        self.writer.open(&self.call, &mut self.counts, queue)
    }

    /// The interrupt of the open queue does not wait for moderation.
    pub(crate) fn hurry(&mut self) {
        let queue = self.writer.open.as_ref().map(|open| open.queue);
        self.counts.hurry(queue);
    }

    /// Filters a frame and puts it into its queue.
    pub(crate) fn put_through(&mut self, frame: &Frame<'_>) -> Outcome {
        let Some(accepted) = self.counts.accept(&self.call, frame) else {
            return Outcome::Lost;
        };
        let headers = Headers::of(frame);
        let class = self.classifier.class(&self.call, &headers, frame.len());
        let placed = self.keep(&Packet {
            frame,
            accepted: &accepted,
            headers: &headers,
            class: &class,
            timed: None,
        });
        match placed {
            Outcome::Done => accepted.count_received(&mut self.counts.tally),
            Outcome::Dropped => self.counts.tally.total(accepted.on_wire),
            // A control frame was counted and obeyed, and must not be offered again.
            Outcome::NoRoom if accepted.control.is_some() => {
                self.counts.miss(accepted.on_wire);
                return Outcome::Lost;
            }
            Outcome::NoRoom | Outcome::Lost => {}
        }
        placed
    }

    /// Puts a frame into its queue. The caller counts what the wire brought.
    pub(crate) fn keep(&mut self, packet: &Packet<'_, '_>) -> Outcome {
        let class = packet.class;
        if self.open(class.queue).is_none() {
            return match self.writer.held_up {
                true => Outcome::NoRoom,
                false => Outcome::Lost,
            };
        }
        let placed = self.writer.put((&self.call, &mut self.counts), packet);
        match placed {
            Outcome::Done => {
                self.counts.own.frames += 1;
                self.counts.own.bytes += packet.frame.len() as u64;
                self.counts.own.multicast += u64::from(for_group(packet.accepted.dst));
                if class.immediate || self.classifier.filters.hurries(packet.accepted.tag) {
                    self.hurry();
                }
            }
            Outcome::NoRoom
                if self
                    .writer
                    .open
                    .as_ref()
                    .is_some_and(|open| open.shape.drop) =>
            {
                count(&self.call.function.counters.rx_dropped, 1);
                if let Some(own) = self.call.function.queues.get(class.queue as usize) {
                    count(&own.counts.rx_dropped, 1);
                }
                return Outcome::Dropped;
            }
            Outcome::NoRoom | Outcome::Dropped | Outcome::Lost => {}
        }
        placed
    }
}

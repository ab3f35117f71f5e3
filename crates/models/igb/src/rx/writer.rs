//! The open queue, and the write-back of its descriptors.

use guest_mem::View;
use intel::Ring;
use intel::rx::{self, Room};
use lease::BoundedGuard;

use crate::core::function::{Function, count};
use crate::core::queue::RxState;
use crate::regs::bits::icr;
use crate::rx::call::Call;
use crate::rx::counts::Counts;
use crate::rx::report::desc_status;
use crate::rx::shape::{Shape, ShapeKind};

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Lost and counted.
    Lost,
    /// Found no descriptor in a queue that drops (SRRCTL.DROP_EN); its bytes are not counted yet.
    Dropped,
    NoRoom,
}

/// A queue whose lock is held.
pub(crate) struct Open<'a> {
    pub queue: u32,
    _lock: BoundedGuard<'a, RxState>,
    pub room: Room,
    pub shape: Shape,
    /// Descriptors that the guest had handed over when the queue was opened.
    given: u32,
}

/// Writes into buffers, of one queue at a time.
pub(crate) struct Writer<'a, 'v> {
    pub descs: rx::Writer<'v>,
    pub open: Option<Open<'a>>,
    /// The queue that was to be opened is held by another sender for long.
    pub held_up: bool,
}

impl<'a, 'v> Writer<'a, 'v> {
    pub(crate) fn new(view: &'v View<'v>) -> Self {
        Writer {
            descs: rx::Writer::new(view),
            open: None,
            held_up: false,
        }
    }

    /// Opens `queue`, and closes the one that was open. `None`: it takes no frames, which is counted, or it is held up.
    pub(crate) fn open(
        &mut self,
        call: &Call<'a>,
        counts: &mut Counts,
        queue: u32,
    ) -> Option<&Open<'a>> {
        if self.open.as_ref().is_none_or(|open| open.queue != queue) {
            self.close(call.function, counts);
            self.open = self.reach(call, queue);
        }
        self.open.as_ref()
    }

    fn reach(&mut self, call: &Call<'a>, queue: u32) -> Option<Open<'a>> {
        let function = call.function;
        let counters = &function.counters;
        let Some(own) = function.queues.get(queue as usize) else {
            count(&counters.rx_disabled, 1);
            return None;
        };
        let lock = own.rx.reach();
        self.held_up = lock.is_none();
        let Some(lock) = lock else {
            count(&counters.rx_held_up, 1);
            return None;
        };
        let ids = function.ids;
        if !function.rx_enabled(queue) {
            count(&counters.rx_disabled, 1);
            return None;
        }
        let srrctl = function.file.get_at(ids.srrctl, queue);
        let Some(mut shape) = Shape::of(srrctl, call.settings.buffer) else {
            count(&counters.rx_bad_type, 1);
            return None;
        };
        shape.drop |= call.settings.drop >> queue & 1 != 0;
        let Some(ring) = Ring::read_at(&function.file, &ids.rx_ring(), queue) else {
            count(&counters.rx_bad_ring, 1);
            return None;
        };
        self.descs.forget();
        let given = ring.available();
        Some(Open {
            queue,
            _lock: lock,
            room: Room {
                ring,
                first: ring.head,
                free: given,
            },
            shape,
            given,
        })
    }

    /// Closes the open queue: writes back its descriptors, moves its head, notes its interrupt causes.
    pub(crate) fn close(&mut self, function: &Function, counts: &mut Counts) {
        let Some(open) = self.open.take() else {
            return;
        };
        let queue = open.queue;
        self.write_back(function, counts, open);
        function.let_go(queue);
    }

    fn write_back(&mut self, function: &Function, counts: &mut Counts, mut open: Open<'_>) {
        let ends = match open.shape.kind {
            ShapeKind::Legacy => u64::from(desc_status::EOP) << 32,
            _ => desc_status::EOP.into(),
        };
        let by = function.publisher(open.queue, open.shape.splits(), ends);
        let faults = self.descs.flush(&mut open.room, &by);
        count(&function.counters.rx_dma_fault, faults);
        let own = std::mem::take(&mut counts.own);
        counts.all.frames += own.frames;
        counts.all.bytes += own.bytes;
        let free = open.room.free;
        let used = open.given - free;
        if used == 0 {
            return;
        }
        if let Some(queue) = function.queues.get(open.queue as usize) {
            count(&queue.counts.rx_packets, own.frames);
            count(&queue.counts.rx_octets, own.bytes);
            count(&queue.counts.rx_multicast, own.multicast);
        }
        let head = open.room.ring.head;
        function.file.set_at(function.ids.rdh, open.queue, head);
        counts.causes.rx |= 1 << open.queue;
        if let Some(moved) = counts.moved.get_mut(open.queue as usize) {
            moved.done += used;
            moved.of = free;
        }
        let threshold = open.shape.threshold;
        if threshold > 0 && free <= threshold && open.given > threshold {
            counts.causes.other |= icr::RXDMT0;
        }
    }
}

//! The queue that is open, and its descriptors' write-back.

use std::cell::Cell;

use guest_mem::{View, WriteWindow};
use intel::{Fetcher, Ring, SIZE};
use parking_lot::MutexGuard;

use crate::core::function::{Function, count};
use crate::core::queue::RxState;
use crate::regs::bits::icr;
use crate::rx::call::Call;
use crate::rx::classify::Classified;
use crate::rx::counts::Counts;
use crate::rx::shape::{Shape, ShapeKind};

/// Storage kept from call to call.
#[derive(Default)]
pub(crate) struct Scratch {
    /// First and second words of descriptors filled and not written back yet.
    pub first: Vec<u64>,
    pub second: Vec<u64>,
    /// What frames of a PF are that the fast path has places for.
    pub classified: Vec<Classified>,
    /// Room for the copy of a frame that something is computed of before it goes to the guest.
    pub copy: Vec<u8>,
    pub fetcher: Fetcher,
}

/// A queue whose lock is held.
pub(crate) struct Open<'a> {
    pub queue: u32,
    _lock: MutexGuard<'a, RxState>,
    /// Its head is the next descriptor to be filled.
    pub ring: Ring,
    pub shape: Shape,
    /// The first descriptor not written back, and how many the guest had given when we came.
    pub first: u32,
    given: u32,
    /// Descriptors left.
    pub free: u32,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = Cell::default();
}

/// Who writes: into the buffers of one queue after the other.
pub(crate) struct Writer<'a, 'v> {
    pub view: &'v View<'v>,
    pub scratch: Box<Scratch>,
    /// Where the last buffer was, and the last descriptor.
    pub window: Option<WriteWindow<'v>>,
    ring_window: Option<WriteWindow<'v>>,
    pub open: Option<Open<'a>>,
}

impl<'a, 'v> Writer<'a, 'v> {
    pub(crate) fn new(view: &'v View<'v>) -> Self {
        Writer {
            view,
            scratch: SCRATCH.take().unwrap_or_default(),
            window: None,
            ring_window: None,
            open: None,
        }
    }

    /// Gives the storage back.
    pub(crate) fn end(self) {
        SCRATCH.set(Some(self.scratch));
    }

    /// Makes `queue` the one that is open. `None`: it takes nothing, which is counted.
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
        let lock = own.rx.lock();
        let ids = function.ids;
        if !function.rx_enabled(queue) {
            count(&counters.rx_disabled, 1);
            return None;
        }
        let srrctl = function.file.get_at(ids.srrctl, queue);
        let Some(mut shape) = Shape::of(srrctl, call.rules.buffer) else {
            count(&counters.rx_bad_type, 1);
            return None;
        };
        shape.drop |= call.rules.drop >> queue & 1 != 0;
        let Some(ring) = Ring::read_at(&function.file, &ids.rx_ring(), queue) else {
            count(&counters.rx_bad_ring, 1);
            return None;
        };
        self.scratch.fetcher.forget();
        let given = ring.available();
        Some(Open {
            queue,
            _lock: lock,
            ring,
            shape,
            first: ring.head,
            given,
            free: given,
        })
    }

    /// Publishes what was put into the open queue: write-back, head, causes.
    pub(crate) fn close(&mut self, function: &Function, counts: &mut Counts) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.write_back(function, &open);
        let own = std::mem::take(&mut counts.own);
        counts.all.frames += own.frames;
        counts.all.bytes += own.bytes;
        let used = open.given - open.free;
        if used == 0 {
            return;
        }
        if let Some(queue) = function.queues.get(open.queue as usize) {
            count(&queue.counts.rx_packets, own.frames);
            count(&queue.counts.rx_octets, own.bytes);
            count(&queue.counts.rx_multicast, own.multicast);
        }
        let head = open.ring.head;
        function.file.set_at(function.ids.rdh, open.queue, head);
        counts.causes.rx |= 1 << open.queue;
        if let Some(moved) = counts.moved.get_mut(open.queue as usize) {
            moved.done += used;
            moved.of = open.free;
        }
        let threshold = open.shape.threshold;
        if threshold > 0 && open.free <= threshold && open.given > threshold {
            counts.causes.other |= icr::RXDMT0;
        }
    }

    /// Writes back what was filled, in the ring's order: each descriptor's second word, with DD in
    /// it, after its first.
    fn write_back(&mut self, function: &Function, open: &Open<'_>) {
        let first = std::mem::take(&mut self.scratch.first);
        let second = std::mem::take(&mut self.scratch.second);
        let ring = &open.ring;
        let (mut index, mut done) = (open.first, 0);
        while done < second.len() {
            // Up to the end of the ring at once.
            let left = ring.len.saturating_sub(index).max(1) as usize;
            let run = done..second.len().min(done + left);
            let second = &second[run.clone()];
            // A legacy descriptor's address stays.
            let first = match open.shape.kind {
                ShapeKind::Legacy => None,
                _ => first.get(run.clone()),
            };
            let at = ring.address(index);
            let all = |w: WriteWindow<'_>| match first {
                Some(first) => w.store_pairs(at, SIZE as usize, first, second),
                None => w.store_words(at.wrapping_add(8), SIZE as usize, second),
            };
            if !self.ring_window.is_some_and(all) {
                self.ring_window = self.view.write_window(at);
                if !self.ring_window.is_some_and(all) {
                    self.write_each(function, at, first, second);
                }
            }
            done = run.end;
            index = 0;
        }
        self.scratch.first = first;
        self.scratch.second = second;
        self.scratch.first.clear();
        self.scratch.second.clear();
    }

    /// The same for descriptors from `at` on, wherever they are: one aligned word each, so that the guest
    /// sees all of it or nothing.
    #[cold]
    fn write_each(&self, function: &Function, at: u64, first: Option<&[u64]>, second: &[u64]) {
        for (i, word) in (0u64..).zip(second) {
            let at = at.wrapping_add(i * SIZE);
            let both = [(0, first.and_then(|f| f.get(i as usize))), (8, Some(word))];
            for (inside, word) in both {
                let Some(word) = word else { continue };
                let to = at.wrapping_add(inside);
                if self.view.write_release(to, &word.to_le_bytes()).is_err() {
                    count(&function.counters.rx_dma_fault, 1);
                }
            }
        }
    }
}

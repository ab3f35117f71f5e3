//! The receive side: which frames get in, and into which queue (§7.1).
//!
//! A call goes through its frames in order. The lock of a queue is held as long as frames for it
//! follow each other; what was put there is published before the lock is let go.

mod classify;
mod fast_path;
pub(crate) mod flow;
mod l2_filter;
pub(crate) mod replicate;
#[cfg(test)]
mod tests;
mod write;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::{FCS, MIN_FRAME, possible};
use frame::{Batch, Caps, Frame, Wake, expand};
use guest_mem::{View, WriteWindow};
use intel::wake::Wakes;
use intel::{Fetcher, Ring};
use model::{Env, Receive};
use parking_lot::MutexGuard;

use crate::core::function::{Function, Kind, count};
use crate::core::stats::{Stat, Tally, for_group};
use crate::filter::rss::{self, Class, Hashed, Headers};
use crate::filter::tuple::Filters;
use crate::irq::{Causes, Moved, cause};
use crate::ptp::Ptp;
use crate::regs::pools;
use crate::regs::settings::Rules;
use crate::rx::classify::{Classified, Destination};
use crate::rx::l2_filter::Accepted;
use crate::tx::desc::Shape;

/// What may stay unfinished of a frame: a sum is computed while the frame is copied, and a tag goes
/// beside it or is put in then.
const TAKES: Caps = Caps {
    csum: true,
    vlan: true,
    ..Caps::NONE
};

/// What the receive side of a queue remembers from call to call.
#[derive(Debug, Default)]
pub(crate) struct RxState {}

/// The receive part of a function.
pub(crate) struct Receiver {
    function: Arc<Function>,
}

impl Receiver {
    pub(crate) fn new(function: Arc<Function>) -> Self {
        Self { function }
    }
}

impl Receive for Receiver {
    fn deliver(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if self.function.loopback.load(Ordering::Acquire) {
            // The wire is cut off.
            count(&self.function.counters.rx_disabled, picks.len() as u64);
            return picks.len();
        }
        deliver(&self.function, env, batch, picks)
    }

    fn caps(&self) -> Caps {
        TAKES
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        let mut waiters = self.function.waiters.lock();
        if !waiters.iter().any(|w| Arc::ptr_eq(w, waker)) {
            waiters.push(Arc::clone(waker));
        }
    }

    fn poll(&self, _env: &Env) {
        // Under the lock of the waiters: one who registers too late to be woken here tries once more
        // after that, and sees the tail that brought us here.
        self.function.wake_waiters();
    }

    fn give_up(&self, env: &Env, _batch: &Batch<'_>, picks: &[u16]) {
        if !self.function.loopback.load(Ordering::Acquire) {
            give_up(&self.function, env, picks);
        }
    }
}

/// Counts frames as missed that found no room and whose sender does not keep them.
pub(crate) fn give_up(function: &Function, env: &Env, picks: &[u16]) {
    missed(function, env, picks.len() as u64);
}

fn missed(function: &Function, env: &Env, frames: u64) {
    count(&function.counters.rx_missed, frames);
    let mut tally = Tally::default();
    tally.add(Stat::Mpc, frames);
    function.stats.add(&tally);
    let causes = Causes {
        other: cause::RXO,
        ..Causes::default()
    };
    function.irq.lock().raise(env, causes);
}

/// Takes as many frames as there are descriptors for.
pub(crate) fn deliver(function: &Function, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
    let rules = function.rules();
    if function.wake.armed() {
        for pick in picks {
            if let Some(frame) = batch.get(usize::from(*pick)) {
                function.wake_by(env, &frame);
            }
        }
    }
    if !rules.rx_on || !function.moves() {
        count(&function.counters.rx_disabled, picks.len() as u64);
        return picks.len();
    }
    let view = env.memory.view();
    let mut rx = Rx::new(function, env, &view, rules);
    let mut dealt = 0;
    while let Some(pick) = picks.get(dealt) {
        let quick = rx.fast_path(batch, &picks[dealt..]);
        if quick > 0 {
            dealt += quick;
            continue;
        }
        rx.expected = picks.len() - dealt;
        let frame = batch.get(usize::from(*pick));
        if let Some(Outcome::NoRoom) = frame.map(|frame| rx.offer(&frame)) {
            count(&function.counters.rx_back_pressure, 1);
            break;
        }
        dealt += 1;
    }
    rx.end();
    dealt
}

/// Takes a frame that a pool has sent, for these others. What they have no room for is missed, as on a
/// wire.
pub(crate) fn deliver_inside(function: &Function, env: &Env, frame: &Frame<'_>, pools: u32) {
    let rules = function.rules();
    if !rules.rx_on {
        count(&function.counters.rx_disabled, 1);
        return;
    }
    let view = env.memory.view();
    let mut rx = Rx::new(function, env, &view, rules);
    rx.inside = Some(pools);
    let outcome = rx.offer(frame);
    rx.end();
    if outcome == Outcome::NoRoom {
        missed(function, env, 1);
    }
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Lost and counted.
    Lost,
    /// Found no room in a queue that does not wait; its bytes are not counted yet.
    Dropped,
    NoRoom,
}

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

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = Cell::default();
    /// Storage for expanded frames; batches are bound to a thread.
    static SPARE: Cell<Batch<'static>> = Cell::default();
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

/// Counts gathered under way.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub frames: u64,
    pub bytes: u64,
    pub multicast: u64,
}

/// One call's worth of receiving.
pub(crate) struct Rx<'a, 'v> {
    pub function: &'a Function,
    pub env: &'a Env,
    pub view: &'v View<'v>,
    /// Frames may have to be timed.
    pub listens: bool,
    /// Whether this one has been, where it is for several queues.
    pub timed: Option<bool>,
    pub rules: Rules,
    /// The pools that a frame is for, where another one of them has sent it.
    pub inside: Option<u32>,
    /// Pause frames are told from others; what the last one asked for.
    pub obeys: bool,
    pub pause: Option<u16>,
    pub scratch: Box<Scratch>,
    /// Where the last buffer was, and the last descriptor.
    pub window: Option<WriteWindow<'v>>,
    pub ring_window: Option<WriteWindow<'v>>,
    pub open: Option<Open<'a>>,
    /// Frames still to come in this call.
    pub expected: usize,
    pub fetched: u64,
    causes: Causes,
    /// What the queues have moved.
    moved: Moved,
    pub tally: Tally,
    /// Of the queue that is open; of all.
    pub own: Account,
    all: Account,
    pub hashed: Hashed,
    pub filters: Filters,
    /// The destination classified last.
    pub known: Option<Destination>,
}

impl<'a, 'v> Rx<'a, 'v> {
    fn new(function: &'a Function, env: &'a Env, view: &'v View<'v>, rules: Rules) -> Self {
        Rx {
            function,
            env,
            listens: matches!(function.kind, Kind::Pf) && Ptp::listens(&function.file),
            timed: None,
            view,
            inside: None,
            obeys: function.obeys_pause(),
            pause: None,
            rules,
            scratch: SCRATCH.take().unwrap_or_default(),
            window: None,
            ring_window: None,
            open: None,
            expected: 1,
            fetched: 0,
            causes: Causes::default(),
            moved: Moved::default(),
            tally: Tally::default(),
            own: Account::default(),
            all: Account::default(),
            hashed: Hashed::default(),
            known: None,
            filters: match function.kind {
                Kind::Pf => Filters::of(&function.file, rules.rfctl),
                Kind::Vf(_) => Filters::default(),
            },
        }
    }

    /// Publishes what is left, tells, and gives the storage back.
    fn end(mut self) {
        self.close();
        let counters = &self.function.counters;
        count(&counters.rx_desc_fetched, self.fetched);
        count(&counters.rx_frames, self.all.frames);
        count(&counters.rx_bytes, self.all.bytes);
        self.function.stats.add(&self.tally);
        if let Some(quanta) = self.pause {
            self.function.obey_pause(self.env, quanta);
        }
        if !self.causes.is_empty() {
            let mut irq = self.function.irq.lock();
            if self.function.adapts {
                irq.received(&self.moved);
            }
            irq.raise(self.env, self.causes);
        }
        SCRATCH.set(Some(self.scratch));
    }

    /// Filters a frame and puts it into its queue.
    fn offer(&mut self, frame: &Frame<'_>) -> Outcome {
        let takes = Self::takes(frame);
        if takes.accepts(frame.notes()) {
            return self.plain(frame);
        }
        let mut out = SPARE.take().recycle();
        let outcome = match expand(frame, takes, &mut out) {
            Ok(_) => self.all(&out),
            Err(_) => {
                count(&self.function.counters.rx_bad_offload, 1);
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
        if self.rules.several {
            if !self.roomy(segments) {
                return Outcome::NoRoom;
            }
            return self.each(segments);
        }
        // They are of one flow, and so for one queue.
        let class = self.class(&Headers::of(&first), first.len());
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
                count(&self.function.counters.rx_too_large, 1);
                self.miss(segment.len().max(MIN_FRAME) + FCS);
            }
        }
        Outcome::Done
    }

    pub(crate) fn class(&mut self, headers: &Headers, len: usize) -> Class {
        let rfctl = self.rules.rfctl;
        match &self.function.kind {
            Kind::Pf => {
                let (file, pools) = (&self.function.file, self.rules.pools);
                let rules = (rfctl, &self.filters);
                let pool = pools.map(|first| {
                    let dst = headers.bytes().first_chunk().copied().unwrap_or_default();
                    (first, pools::own_pool(file, first, dst))
                });
                rss::classify(file, rules, (headers, len), pool, &mut self.hashed)
            }
            Kind::Vf(_) => rss::plain(headers, rfctl),
        }
    }

    /// One frame that needs no expansion.
    fn plain(&mut self, frame: &Frame<'_>) -> Outcome {
        if self.rules.several {
            return self.replicate(frame);
        }
        if self.rules.replicas.is_some() && frame.head().first().is_some_and(|dst| dst & 1 == 1) {
            let many = self.rules.of_many();
            let all = std::mem::replace(&mut self.rules, many);
            let outcome = self.put_through(frame);
            self.rules = all;
            return outcome;
        }
        self.put_through(frame)
    }

    /// The same by the rules that hold for it.
    fn put_through(&mut self, frame: &Frame<'_>) -> Outcome {
        let Some(accepted) = self.accept(frame) else {
            return Outcome::Lost;
        };
        let headers = Headers::of(frame);
        let class = self.class(&headers, frame.len());
        let placed = self.keep(frame, &accepted, &headers, &class);
        match placed {
            Outcome::Done => self.took(&accepted),
            Outcome::Dropped => self.tally.total(accepted.on_wire),
            // It was counted and heard, and so does not come again.
            Outcome::NoRoom if accepted.control.is_some() => {
                self.miss(accepted.on_wire);
                return Outcome::Lost;
            }
            Outcome::NoRoom | Outcome::Lost => {}
        }
        placed
    }

    /// Puts a frame into its queue. What the wire brought is counted by whoever asks for it.
    pub(crate) fn keep(
        &mut self,
        frame: &Frame<'_>,
        accepted: &Accepted,
        headers: &Headers,
        class: &Class,
    ) -> Outcome {
        if self.open(class.queue).is_none() {
            return Outcome::Lost;
        }
        let placed = self.put(frame, accepted, headers, class);
        match placed {
            Outcome::Done => {
                self.own.frames += 1;
                self.own.bytes += frame.len() as u64;
                self.own.multicast += u64::from(for_group(accepted.dst));
                if class.immediate || self.filters.hurries(accepted.tag) {
                    self.hurry();
                }
            }
            Outcome::NoRoom if self.open.as_ref().is_some_and(|open| open.shape.drop) => {
                count(&self.function.counters.rx_dropped, 1);
                if let Some(own) = self.function.queues.get(class.queue as usize) {
                    count(&own.counts.rx_dropped, 1);
                }
                return Outcome::Dropped;
            }
            Outcome::NoRoom | Outcome::Dropped | Outcome::Lost => {}
        }
        placed
    }

    /// The interrupt of the open queue does not wait for moderation.
    pub(crate) fn hurry(&mut self) {
        if let Some(open) = &self.open {
            self.causes.now |= 1 << open.queue;
        }
    }

    /// Counts a frame that the wire brought and that was received.
    pub(crate) fn took(&mut self, accepted: &Accepted) {
        if accepted.bad || accepted.control.is_some() {
            self.tally.total(accepted.on_wire);
        } else {
            self.tally.received(1, accepted.on_wire, accepted.dst);
        }
    }

    /// A frame of `len` bytes was lost for want of buffers.
    pub(crate) fn miss(&mut self, len: usize) {
        self.tally.add(Stat::Mpc, 1);
        self.tally.total(len);
        self.causes.other |= cause::RXO;
    }

    /// Makes `queue` the one that is open. `None`: it takes nothing, which is counted.
    pub(crate) fn open(&mut self, queue: u32) -> Option<&Open<'a>> {
        if self.open.as_ref().is_none_or(|open| open.queue != queue) {
            self.close();
            self.open = self.reach(queue);
        }
        self.open.as_ref()
    }

    fn reach(&mut self, queue: u32) -> Option<Open<'a>> {
        let function = self.function;
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
        let Some(mut shape) = Shape::of(srrctl, self.rules.buffer) else {
            count(&counters.rx_bad_type, 1);
            return None;
        };
        shape.drop |= self.rules.drop >> queue & 1 != 0;
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
    fn close(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.write_back(&open);
        let own = std::mem::take(&mut self.own);
        self.all.frames += own.frames;
        self.all.bytes += own.bytes;
        let used = open.given - open.free;
        if used == 0 {
            return;
        }
        let function = self.function;
        if let Some(queue) = function.queues.get(open.queue as usize) {
            count(&queue.counts.rx_packets, own.frames);
            count(&queue.counts.rx_octets, own.bytes);
            count(&queue.counts.rx_multicast, own.multicast);
        }
        let head = open.ring.head;
        function.file.set_at(function.ids.rdh, open.queue, head);
        self.causes.rx |= 1 << open.queue;
        if let Some(moved) = self.moved.get_mut(open.queue as usize) {
            moved.done += used;
            moved.of = open.free;
        }
        let threshold = open.shape.threshold;
        if threshold > 0 && open.free <= threshold && open.given > threshold {
            self.causes.other |= cause::RXDMT0;
        }
    }
}

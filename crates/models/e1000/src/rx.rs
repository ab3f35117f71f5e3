//! The receive side: from frames to buffers and descriptors (manual §3.2).

use std::cell::Cell;
use std::sync::Arc;

use frame::{Batch, Caps, Frame, Wake, expand};
use guest_mem::View;
use model::{Env, Receive};

use crate::admit::Admitted;
use crate::bits::{ctrl, rxcsum};
use crate::desc::{Fetcher, Ring, RingIds};
use crate::fifo::Fifo;
use crate::filter;
use crate::finish;
use crate::layout::{FCS, MIN_FRAME};
use crate::regs as r;
use crate::shared::{Shared, count};
use crate::stats::{Stat, Tally};

pub(crate) const RING: RingIds = RingIds {
    base_low: r::RDBAL,
    base_high: r::RDBAH,
    len: r::RDLEN,
    head: r::RDH,
    tail: r::RDT,
};

/// What the receiver remembers from call to call.
#[derive(Debug, Default)]
pub(crate) struct RxState {
    /// Frames that found no descriptor.
    pub(crate) fifo: Fifo,
    pub(crate) scratch: Scratch,
}

/// Storage kept from frame to frame.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Descriptors of the frame being received: index, bytes.
    pub used: Vec<(u32, u16)>,
    /// Room for the copy of a frame that something is computed of before it goes to the guest.
    pub copy: Vec<u8>,
}

impl RxState {
    pub(crate) fn reset(&mut self) {
        self.fifo.clear();
    }
}

thread_local! {
    /// Storage for expanded frames; batches are bound to a thread.
    static SPARE: Cell<Batch<'static>> = Cell::default();
    /// The same for frames on their way into or out of the FIFO, which may be expanded ones.
    static WAITING: Cell<Batch<'static>> = Cell::default();
}

/// What may stay unfinished of a frame. A guest with checksum offload is told that the sum is right;
/// for others it is computed while the frame is copied.
const TAKES: Caps = Caps {
    csum: true,
    vlan: true,
    ..Caps::NONE
};

/// The receive part.
pub(crate) struct Receiver {
    pub shared: Arc<Shared>,
}

impl Receive for Receiver {
    fn deliver(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if self.shared.loopback() {
            // The wire is cut off.
            count(&self.shared.counters.rx_disabled, picks.len() as u64);
            return picks.len();
        }
        deliver(&self.shared, env, batch, picks)
    }

    fn caps(&self) -> Caps {
        TAKES
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        let mut waiters = self.shared.waiters.lock();
        if !waiters.iter().any(|w| Arc::ptr_eq(w, waker)) {
            waiters.push(Arc::clone(waker));
        }
    }

    fn poll(&self, env: &Env) {
        let shared = &*self.shared;
        let mut state = shared.rx.lock();
        let ring = Ring::read(&shared.file, &RING);
        let mut free = ring.map_or(1, |ring| ring.available());
        if let Some(ring) = ring
            && free > 0
            && !state.fifo.is_empty()
            && shared.rx_may_write()
        {
            let view = env.memory.view();
            let mut rx = Rx::new(shared, &view, ring);
            rx.drain(&mut state);
            free = rx.free;
            rx.finish(env, &state);
        }
        let room = if state.fifo.is_empty() {
            free > 0
        } else {
            !state.fifo.is_half_full()
        };
        drop(state);
        if room || !shared.rx_enabled() {
            shared.wake_waiters();
        }
    }

    fn give_up(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) {
        if !self.shared.loopback() {
            give_up(&self.shared, env, batch, picks);
        }
    }
}

/// Counts frames as missed that found no room and whose sender does not keep them.
pub(crate) fn give_up(shared: &Shared, env: &Env, batch: &Batch<'_>, picks: &[u16]) {
    let state = shared.rx.lock();
    let Some(ring) = Ring::read(&shared.file, &RING).filter(|_| shared.rx_enabled()) else {
        return;
    };
    let view = env.memory.view();
    let mut rx = Rx::new(shared, &view, ring);
    for frame in picks.iter().filter_map(|p| batch.get(usize::from(*p))) {
        rx.lose(&frame);
    }
    rx.finish(env, &state);
}

/// What became of a frame.
pub(crate) enum Outcome {
    Done,
    /// Dropped and counted.
    Lost,
    NoRoom,
}

/// Takes as many frames as there are descriptors for, and as many more as the FIFO holds.
pub(crate) fn deliver(shared: &Shared, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
    let mut state = shared.rx.lock();
    let counters = &shared.counters;
    if shared.wake_armed() {
        for &pick in picks {
            if let Some(frame) = batch.get(usize::from(pick)) {
                shared.wake_by(env, &frame);
            }
        }
    }
    if !shared.rx_enabled() {
        count(&counters.rx_disabled, picks.len() as u64);
        return picks.len();
    }
    let Some(ring) = Ring::read(&shared.file, &RING) else {
        count(&counters.rx_bad_ring, picks.len() as u64);
        return picks.len();
    };
    let view = env.memory.view();
    let mut rx = Rx::new(shared, &view, ring);
    rx.drain(&mut state);
    let mut dealt = 0;
    for &pick in picks {
        // Drivers clear RCTL.EN and free the buffers some ms later: do not write on.
        if !shared.rx_enabled() {
            count(&counters.rx_disabled, 1);
            dealt += 1;
            continue;
        }
        let Some(frame) = batch.get(usize::from(pick)) else {
            dealt += 1;
            continue;
        };
        rx.expected = picks.len() - dealt;
        match rx.offer(&mut state, &frame) {
            Outcome::Done | Outcome::Lost => dealt += 1,
            Outcome::NoRoom => {
                count(&counters.rx_back_pressure, 1);
                break;
            }
        }
    }
    rx.finish(env, &state);
    dealt
}

/// One call's worth of receiving.
pub(crate) struct Rx<'a, 'v> {
    pub shared: &'a Shared,
    pub view: &'v View<'v>,
    pub ring: Ring,
    /// Descriptors left, and how many there were.
    pub free: u32,
    pub free_before: u32,
    /// Frames still to come in this call.
    pub expected: usize,
    pub fetcher: Fetcher,
    pub fetched: u64,
    pub rctl: u32,
    pub vme: bool,
    pub vet: u16,
    pub rxcsum: u32,
    pub tally: Tally,
    pub frames: u64,
    pub bytes: u64,
    pub waited: u64,
    pub missed: u64,
    /// The FIFO's registers are no longer true.
    pub moved: bool,
    /// CTRL.RFCE: pause frames are told from others.
    pub obeys: bool,
    /// What the last pause frame asked for.
    pub pause: Option<u16>,
    /// A frame not longer than RSRPD came.
    pub small: bool,
}

impl<'a, 'v> Rx<'a, 'v> {
    fn new(shared: &'a Shared, view: &'v View<'v>, ring: Ring) -> Self {
        let free = ring.available();
        Rx {
            shared,
            view,
            ring,
            free,
            free_before: free,
            expected: 1,
            fetcher: Fetcher::new(),
            fetched: 0,
            rctl: shared.file.get(r::RCTL),
            vme: shared.file.get(r::CTRL) & ctrl::VME != 0,
            vet: shared.file.get(r::VET) as u16,
            rxcsum: shared.file.get(r::RXCSUM),
            tally: Tally::new(),
            frames: 0,
            bytes: 0,
            waited: 0,
            missed: 0,
            moved: false,
            obeys: shared.file.get(r::CTRL) & ctrl::RFCE != 0,
            pause: None,
            small: false,
        }
    }

    /// Moves frames from the FIFO into the ring, oldest first.
    fn drain(&mut self, state: &mut RxState) {
        let RxState { fifo, scratch } = state;
        while self.free > 0 && !fifo.is_empty() {
            let memory = self.shared.packet_buffer.lock();
            let mut out = WAITING.take().recycle();
            fifo.front(&memory, &mut out);
            let placed = out.get(0).map_or(Outcome::Lost, |frame| {
                let admitted = self.look(&frame);
                self.put(scratch, &frame, &admitted)
            });
            WAITING.set(out.recycle());
            if let Outcome::NoRoom = placed {
                return;
            }
            fifo.pop();
            self.moved = true;
        }
    }

    /// Filters a frame and puts it into the ring or the FIFO.
    fn offer(&mut self, state: &mut RxState, frame: &Frame<'_>) -> Outcome {
        let takes = self.takes(frame);
        if takes.accepts(frame.notes()) {
            return self.plain(state, frame);
        }
        let mut out = SPARE.take().recycle();
        let outcome = match expand(frame, takes, &mut out) {
            Ok(_) => self.all(state, &out),
            Err(_) => {
                count(&self.shared.counters.rx_bad_offload, 1);
                Outcome::Lost
            }
        };
        SPARE.set(out.recycle());
        outcome
    }

    /// What may stay unfinished of this frame.
    fn takes(&self, frame: &Frame<'_>) -> Caps {
        let told = self.rxcsum & rxcsum::TUOFL != 0;
        Caps {
            csum: told || finish::possible(frame),
            ..TAKES
        }
    }

    /// Counts a frame that its sender gives up, as it would have come.
    fn lose(&mut self, frame: &Frame<'_>) {
        let takes = self.takes(frame);
        if takes.accepts(frame.notes()) {
            if let Some(admitted) = self.admit(frame) {
                self.miss(&admitted);
            }
            return;
        }
        let mut out = SPARE.take().recycle();
        match expand(frame, takes, &mut out) {
            Ok(_) => self.miss_all(&out),
            Err(_) => count(&self.shared.counters.rx_bad_offload, 1),
        }
        SPARE.set(out.recycle());
    }

    /// All segments of a frame, or none, so that the sender can offer it again.
    fn all(&mut self, state: &mut RxState, segments: &Batch<'_>) -> Outcome {
        let size = filter::buffer_size(self.rctl);
        let each = |frame: Frame<'_>| (frame.len().max(MIN_FRAME) + 8).div_ceil(size);
        let need: usize = segments.iter().map(each).sum();
        let possible = need < self.ring.len as usize;
        let fits = state.fifo.is_empty() && need <= self.free as usize;
        let lens = || segments.iter().map(|frame| frame.len() + 4);
        if !fits && !state.fifo.has_room(&self.shared.file, lens()) && possible {
            return self.refuse_or_miss(segments);
        }
        for segment in segments.iter() {
            if let Outcome::NoRoom = self.plain(state, &segment) {
                // More than ring and FIFO can ever hold, or null buffers: the rest is lost.
                count(&self.shared.counters.rx_too_large, 1);
                self.missed += 1;
                self.tally
                    .missed((segment.len().max(MIN_FRAME) + FCS) as u64);
            }
        }
        Outcome::Done
    }

    /// What becomes of segments that find no room.
    fn refuse_or_miss(&mut self, segments: &Batch<'_>) -> Outcome {
        if !self.shared.drop_when_full {
            return Outcome::NoRoom;
        }
        self.miss_all(segments);
        Outcome::Lost
    }

    fn miss_all(&mut self, segments: &Batch<'_>) {
        for segment in segments.iter() {
            if let Some(admitted) = self.admit(&segment) {
                self.miss(&admitted);
            }
        }
    }

    /// One frame that needs no expansion.
    fn plain(&mut self, state: &mut RxState, frame: &Frame<'_>) -> Outcome {
        let Some(admitted) = self.admit(frame) else {
            return Outcome::Lost;
        };
        if state.fifo.is_empty() {
            match self.put(&mut state.scratch, frame, &admitted) {
                Outcome::NoRoom => {}
                done => return done,
            }
        }
        if self.wait(&mut state.fifo, frame) {
            return Outcome::Done;
        }
        if self.shared.drop_when_full {
            self.miss(&admitted);
            return Outcome::Lost;
        }
        Outcome::NoRoom
    }

    /// Puts a frame into the FIFO, as it is on a wire.
    fn wait(&mut self, fifo: &mut Fifo, frame: &Frame<'_>) -> bool {
        let file = &self.shared.file;
        let tag = if frame.notes().vlan.is_some() { 4 } else { 0 };
        if !fifo.has_room(file, std::iter::once(frame.len() + tag)) {
            return false;
        }
        let mut out = WAITING.take().recycle();
        let finished = expand(frame, Caps::NONE, &mut out).is_ok();
        let taken = match out.get(0).filter(|_| finished) {
            Some(whole) => fifo.push(file, &mut self.shared.packet_buffer.lock(), &whole),
            // Too short to have a header: there is nothing to finish.
            None => fifo.push(file, &mut self.shared.packet_buffer.lock(), frame),
        };
        WAITING.set(out.recycle());
        if taken {
            self.moved = true;
            self.waited += 1;
            self.tally.add(Stat::Rnbc, 1);
        }
        taken
    }

    /// Counts a frame that found no descriptor and no room in the FIFO (manual §13.7.5, §13.7.33).
    fn miss(&mut self, admitted: &Admitted) {
        self.missed += 1;
        self.tally.add(Stat::Rnbc, 1);
        self.tally.missed(admitted.on_wire as u64);
    }
}

//! The receive side: from frames to buffers and descriptors (manual §3.2).
//!
//! A call goes through its frames in order. Runs of plain ones are planned, filled and written back
//! together ([`crate::fast path`]); the others go one by one ([`crate::rx_write`]). While several senders
//! are about, what was planned is leased and filled without the lock ([`lease`]).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Batch, Caps, Wake};
use guest_mem::{View, WriteWindow};
use intel::flow::RFCE;
use intel::{Fetcher, Ring, RingIds};
use lease::{Guard, Lessor};
use model::{Env, Receive};

use crate::bits::ctrl;
use crate::csb::{RxCsb, RxPage};
use crate::fast_path::{Piece, Run};
use crate::fifo::Fifo;
use crate::regs as r;
use crate::shared::{Shared, count};
use crate::write_back::{Account, Done, Filling};

pub(crate) const RING: RingIds = RingIds {
    base_low: r::RDBAL,
    base_high: r::RDBAH,
    len: r::RDLEN,
    head: r::RDH,
    tail: r::RDT,
};

/// Most frames planned at once: what is fetched ahead of them stays in the nearest cache.
const CHUNK: usize = 64;

/// Times in one call that buffers given through a CSB are taken up in the last moment.
const ROUNDS: u32 = 4;

/// What the receiver remembers from call to call.
#[derive(Debug, Default)]
pub(crate) struct RxState {
    /// Frames that found no descriptor.
    pub(crate) fifo: Fifo,
    /// Descriptors from RDH on that are given out and not written back.
    pub(crate) leased: u32,
    /// Lists for those who wait with what they have to write back.
    pub(crate) spare: Vec<Vec<u64>>,
    /// The guest's CSB.
    pub(crate) csb: RxCsb,
}

pub(crate) type RxLock = Lessor<RxState, Done>;
pub(crate) type RxGuard<'a> = Guard<'a, RxState, Done>;

impl RxState {
    pub(crate) fn reset(&mut self) {
        self.fifo.clear();
    }
}

/// What may stay unfinished of a frame: a sum is computed while the frame is copied, and a tag goes
/// beside it or is put in then.
pub(crate) const TAKES: Caps = Caps {
    csum: true,
    vlan: true,
    ..Caps::NONE
};

/// Storage kept from call to call. Borrowed slices are bound to a thread, so the storage is too.
#[derive(Default)]
pub(crate) struct Scratch<'v> {
    /// Buffers planned and not filled yet.
    pub pieces: Vec<Piece<'v>>,
    /// The second words of descriptors filled and not written back yet.
    pub words: Vec<u64>,
    /// Room for the copy of a frame that something is computed of before it goes to the guest.
    pub copy: Vec<u8>,
    pub fetcher: Option<Box<Fetcher>>,
}

impl Scratch<'_> {
    /// Empties it for use with another lifetime, keeping its storage.
    fn recycle<'n>(mut self) -> Scratch<'n> {
        self.pieces.clear();
        self.words.clear();
        Scratch {
            // Collecting an emptied Vec in place keeps its allocation.
            pieces: self
                .pieces
                .into_iter()
                .map(|_| unreachable!("emptied above"))
                .collect(),
            words: self.words,
            copy: self.copy,
            fetcher: self.fetcher,
        }
    }
}

thread_local! {
    static SCRATCH: Cell<Scratch<'static>> = Cell::default();
}

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
        self.shared.has_waiters.store(true, Ordering::Release);
    }

    fn poll(&self, env: &Env) {
        let shared = &*self.shared;
        let mut state = shared.rx.lock();
        if state.fifo.is_empty() && !shared.csb.is_set() {
            // Nothing waits here; somebody may wait for room.
            let ring = Ring::read(&shared.file, &RING);
            let room =
                ring.is_none_or(|ring| unused(&mut state, &ring).min(shared.allowance()) > 0);
            drop(state);
            if room || !shared.rx_enabled() {
                shared.wake_any_waiters();
            }
            return;
        }
        // The view first, as everywhere.
        drop(state);
        let view = env.memory.view();
        let mut rx = Rx::new(shared, &view);
        rx.page = shared.rx_page(env, &view);
        let mut state = shared.rx.lock();
        let mut free = 1;
        for _ in 0..ROUNDS {
            rx.take_tail();
            let ring = Ring::read(&shared.file, &RING);
            // Without a ring there is nothing to wait for.
            free = 1;
            if let Some(ring) = ring {
                rx.begin(&mut state, ring);
                free = rx.free;
                if free > 0 && !state.fifo.is_empty() && shared.rx_may_write() {
                    rx.drain(&mut state);
                    free = rx.free;
                    rx.finish(env, &mut state);
                }
            }
            let short =
                !state.fifo.is_empty() || free == 0 && shared.has_waiters.load(Ordering::Acquire);
            if !rx.settle(env, &mut state, short) {
                break;
            }
        }
        let room = if state.fifo.is_empty() {
            free > 0
        } else {
            !state.fifo.is_half_full()
        };
        drop(state);
        rx.end();
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
    let view = env.memory.view();
    let mut rx = Rx::new(shared, &view);
    let mut state = shared.rx.lock();
    if let Some(ring) = Ring::read(&shared.file, &RING).filter(|_| shared.rx_enabled()) {
        rx.begin(&mut state, ring);
        for frame in picks.iter().filter_map(|p| batch.get(usize::from(*p))) {
            rx.lose(&frame);
        }
        rx.finish(env, &mut state);
    }
    drop(state);
    rx.end();
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
    let counters = &shared.counters;
    let view = env.memory.view();
    let mut rx = Rx::new(shared, &view);
    rx.page = shared.rx_page(env, &view);
    let mut rounds = 0;
    let mut state = shared.rx.lock();
    if shared.wake.armed() {
        for &pick in picks {
            if let Some(frame) = batch.get(usize::from(pick)) {
                shared.wake_by(env, &frame);
            }
        }
    }
    let mut dealt = 0;
    let mut leased = false;
    // Once, and again after each lease: all may have changed while the lock was free.
    'locked: loop {
        let off = !shared.rx_enabled();
        rx.take_tail();
        let ring = Ring::read(&shared.file, &RING);
        let Some(ring) = ring.filter(|_| !off) else {
            let reason = if off {
                &counters.rx_disabled
            } else {
                &counters.rx_bad_ring
            };
            count(reason, (picks.len() - dealt) as u64);
            dealt = picks.len();
            break;
        };
        rx.begin(&mut state, ring);
        rx.drain(&mut state);
        while dealt < picks.len() {
            rx.expected = picks.len() - dealt;
            let planned = rx.plan(&state, batch, &picks[dealt..], CHUNK);
            if planned > 0 {
                dealt += planned;
                if rx.scratch.pieces.is_empty() {
                    continue;
                }
                // Not behind what this call has already written back and RDH does not say yet: with
                // the lock free, others would begin from there.
                let ticket = if rx.flushed == 0 && state.crowded() {
                    rx.lease(&mut state)
                } else {
                    None
                };
                let Some(ticket) = ticket else {
                    rx.fill(batch, || true);
                    rx.flush(&state);
                    continue;
                };
                let filling = Filling::new(&rx, ticket);
                drop(state);
                rx.fill(batch, || filling.is_wanted());
                state = shared.rx.lock();
                if let Some(ticket) = filling.end() {
                    rx.close(env, &mut state, ticket);
                }
                leased = true;
                continue 'locked;
            }
            let outcome = match batch.get(usize::from(picks[dealt])) {
                Some(frame) => rx.offer(&mut state, &frame),
                None => Outcome::Lost,
            };
            if let Outcome::NoRoom = outcome {
                count(&counters.rx_back_pressure, 1);
                break;
            }
            dealt += 1;
        }
        rx.finish(env, &mut state);
        let short = dealt < picks.len() || !state.fifo.is_empty();
        rounds += 1;
        if !rx.settle(env, &mut state, short) || rounds == ROUNDS {
            break;
        }
    }
    // Whoever found no room because of our lease waits for this.
    let relieved = leased && state.relieved();
    drop(state);
    rx.end();
    if relieved {
        shared.wake_waiters();
    }
    dealt
}

/// Descriptors of `ring` that are not given out.
fn unused(state: &mut RxGuard<'_>, ring: &Ring) -> u32 {
    if state.is_out() && state.is_full() {
        0
    } else {
        ring.available().saturating_sub(state.leased)
    }
}

/// One call's worth of receiving.
pub(crate) struct Rx<'a, 'v> {
    pub shared: &'a Shared,
    pub view: &'v View<'v>,
    /// The guest's CSB.
    pub page: Option<RxPage<'v>>,
    pub scratch: Scratch<'v>,
    /// Where the last buffer was, and the last descriptor.
    pub window: Option<WriteWindow<'v>>,
    pub ring_window: Option<WriteWindow<'v>>,
    /// Its head is the next descriptor to be filled.
    pub ring: Ring,
    /// The first descriptor of those taken since the lock was taken.
    pub begun: u32,
    /// The first of those not written back.
    pub first: u32,
    /// Written back, while RDH does not say so yet.
    pub flushed: u32,
    /// Descriptors left.
    pub free: u32,
    /// Frames still to come in this call.
    pub expected: usize,
    pub rctl: u32,
    pub vme: bool,
    pub vet: u16,
    pub rxcsum: u32,
    pub rsrpd: usize,
    /// CTRL.RFCE: pause frames are told from others.
    pub obeys: bool,
    pub account: Account,
    pub waited: u64,
    /// Descriptors that are kept back, to leave the guest time.
    pub rationed: u32,
    /// The FIFO's registers are no longer true.
    pub moved: bool,
    /// What the last pause frame asked for.
    pub pause: Option<u16>,
    /// What the filters say of the destination seen last.
    pub run: Run,
}

impl<'a, 'v> Rx<'a, 'v> {
    pub(crate) fn new(shared: &'a Shared, view: &'v View<'v>) -> Self {
        Rx {
            shared,
            view,
            page: None,
            scratch: SCRATCH.take().recycle(),
            window: None,
            ring_window: None,
            ring: Ring::NONE,
            begun: 0,
            first: 0,
            flushed: 0,
            free: 0,
            expected: 1,
            rctl: 0,
            vme: false,
            vet: 0,
            rxcsum: 0,
            rsrpd: 0,
            obeys: false,
            account: Account::default(),
            waited: 0,
            rationed: 0,
            moved: false,
            pause: None,
            run: Run::default(),
        }
    }

    /// The ring's tail is where the guest's CSB has it, if there is one.
    #[inline]
    fn take_tail(&self) {
        if let Some(page) = &self.page {
            page.take_tail(self.shared);
        }
    }

    /// Whether something is `short` of buffers, told to the guest by its CSB. `true`: some have come, and
    /// all is ready for another round.
    fn settle(&mut self, env: &Env, state: &mut RxGuard<'_>, short: bool) -> bool {
        let Some(page) = &self.page else {
            return false;
        };
        let again = page.settle(self.shared, env, &mut state.csb, short);
        if again {
            self.account = Account::default();
        }
        again
    }

    /// Looks at the registers, with the lock just taken.
    pub(crate) fn begin(&mut self, state: &mut RxGuard<'_>, ring: Ring) {
        let file = &self.shared.file;
        let unused = unused(state, &ring);
        self.free = unused.min(self.shared.allowance());
        self.rationed = unused - self.free;
        self.ring = Ring {
            head: ring.behind(state.leased),
            ..ring
        };
        self.begun = self.ring.head;
        self.first = self.ring.head;
        if let Some(fetcher) = &mut self.scratch.fetcher {
            fetcher.forget();
        }
        let ctrl = file.get(r::CTRL);
        self.rctl = file.get(r::RCTL);
        self.vme = ctrl & ctrl::VME != 0;
        self.obeys = ctrl & RFCE != 0;
        self.vet = file.get(r::VET) as u16;
        self.rxcsum = file.get(r::RXCSUM);
        self.rsrpd = file.get(r::RSRPD) as usize;
        self.run = Run::default();
    }

    /// Gives the storage back.
    fn end(self) {
        SCRATCH.set(self.scratch.recycle());
    }
}

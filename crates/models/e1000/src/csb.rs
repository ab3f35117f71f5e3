//! The Communication Status Block (crate `csb`; netmap's `net/paravirt.h`): tails, heads and wishes
//! for calls in a page of the guest's memory in place of register accesses and interrupts.
//!
//! The page is hostile: each word is loaded once and judged on what was loaded. It is found anew in
//! every call that uses it, as all DMA is; when it is out of reach the block is off until the driver
//! gives it again. A register access touches none of it: what CSBAL and the doorbells ask for is done
//! with the work they note.

use std::sync::atomic::{AtomicBool, Ordering};

use csb::{Word, at};
use guest_mem::{View, Words};
use intel::{Ring, SIZE};
use model::{Env, Nanos, Watch};
use parking_lot::Mutex;

use crate::regs as r;
use crate::shared::{Shared, count, count_alone};

/// Rounds without a frame that a guest may ask for before the transmitter sleeps.
const MOST_CYCLES: u32 = 64;
/// As many descriptors sent since the transmitter last slept earn the rounds asked for once more, and at most
/// so many times: who sends a stream and pauses (a tick of its clock, another program) goes on soon.
const EARNING: u32 = 64;
const MOST_EARNED: u32 = 3;
/// Rounds without a frame in a row whatever the clock says.
const MOST_POLLS: u32 = 4096;
/// What a round takes at least. A window that passed while others had the processor was not spent
/// looking.
const ROUND: Nanos = 4_000;
/// The shortest time worth polling for.
const LEAST_POLL: Nanos = 10_000;
/// A receiver that is out of buffers looks by itself so often, and this long after each other, for a guest that is behind
/// and gives way to its programs: it comes back within that time, and need not call for what it gives back.
const LOOKS: u32 = 8;
const LOOK: Nanos = 1_000_000;
/// When a sleeping transmitter looks once more by itself. Drivers of that time have no barrier between their
/// tail and their look at the flag, so that a call can be lost, and the next one may be far away.
const SECOND_LOOK: Nanos = 2_000_000;

/// What the registers and the worker know of the block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The operator has switched it on for this NIC.
    pub(crate) offered: bool,
    /// The longest time the transmitter polls before it sleeps.
    pub(crate) most_poll: Nanos,
    /// There is a page. Changed under the lock; read first, on every path.
    set: AtomicBool,
    /// The guest wanted the block when it was last asked.
    on: AtomicBool,
    /// IMS was written: the guest is to be asked what it wants to hear of.
    ask: AtomicBool,
    pub(crate) place: Mutex<Place>,
}

/// The registers. There is a page while CSBAL is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) low: u32,
    pub(crate) high: u32,
    /// Counts changes: what was said in a page that was given before counts no more.
    pub(crate) epoch: u32,
}

impl Place {
    fn page(&self) -> Option<u64> {
        (self.low != 0).then_some(u64::from(self.high) << 32 | u64::from(self.low))
    }
}

impl Block {
    pub(crate) fn new(offered: bool, most_poll: Nanos) -> Self {
        Self {
            offered,
            most_poll,
            ..Self::default()
        }
    }

    /// Whether there may be a page to look at: one load, for the paths that matter.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Whether the guest wanted the block when it was last asked.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Place)) {
        let mut place = self.place.lock();
        change(&mut place);
        place.epoch = place.epoch.wrapping_add(1);
        self.set.store(place.low != 0, Ordering::Release);
    }
}

/// The page, pinned for a call.
#[derive(Clone, Copy)]
pub(crate) struct Page<'v> {
    words: Words<'v>,
    epoch: u32,
}

/// A word of it.
struct At<'v>(Words<'v>, u32);

impl Word for At<'_> {
    fn load(&self) -> u32 {
        self.0.load(self.1, Ordering::Acquire)
    }
    fn store(&self, value: u32) {
        self.0.store(self.1, value, Ordering::Release);
    }
}

impl<'v> Page<'v> {
    fn word(&self, offset: u32) -> At<'v> {
        At(self.words, offset)
    }

    fn load(&self, offset: u32) -> u32 {
        self.word(offset).load()
    }

    pub(crate) fn store(&self, offset: u32, value: u32) {
        self.word(offset).store(value);
    }

    /// A tail, if it is one of a ring of `len`.
    fn tail(&self, shared: &Shared, offset: u32, len: u32) -> Option<u32> {
        if len == 0 {
            return None;
        }
        // The registers have 16 bits too.
        let tail = self.load(offset) & 0xffff;
        if tail < len {
            return Some(tail);
        }
        count(&shared.counters.csb_bad_tail, 1);
        None
    }

    fn wanted(&self, offset: u32) -> bool {
        csb::wanted(&self.word(offset)) != 0
    }

    /// Frames up to the descriptor before `head` were sent and reported. Whether the guest wants to
    /// hear of it.
    pub(crate) fn sent(&self, head: u32) -> bool {
        self.store(at::HOST_TDH, head);
        self.wanted(at::GUEST_NEED_TXKICK)
    }

    /// Frames were received and written back up to RDH. Whether the guest wants to hear of it.
    pub(crate) fn received(&self, shared: &Shared) -> bool {
        self.store(at::HOST_RDH, shared.file.get(r::RDH));
        self.wanted(at::GUEST_NEED_RXKICK)
    }
}

impl Shared {
    /// CSBAL was written.
    pub(crate) fn write_csbal(&self, env: &Env, value: u32) {
        self.csb.change(|place| place.low = value);
        self.csb_gone(env);
    }

    /// CSBAH was written. Between two addresses there is no page.
    pub(crate) fn write_csbah(&self, env: &Env, value: u32) {
        if self.csb.place.lock().high != value {
            self.csb.change(|place| {
                place.low = 0;
                place.high = value;
            });
            self.csb_gone(env);
        }
    }

    /// Both as after power-up, or as they were saved.
    pub(crate) fn set_csb(&self, env: &Env, low: u32, high: u32) {
        self.csb.change(|place| {
            place.low = low;
            place.high = high;
        });
        self.csb_gone(env);
    }

    /// The page is another now, or none: what was said in it is forgotten.
    fn csb_gone(&self, env: &Env) {
        self.csb.on.store(false, Ordering::Release);
        self.csb.ask.store(false, Ordering::Release);
        self.irq.lock().forget_csb(env);
    }

    /// The guest does not want the block: interrupts are as without.
    fn csb_off(&self, env: &Env) {
        if self.csb.on.swap(false, Ordering::AcqRel) {
            self.irq.lock().ungate(env);
        }
    }

    /// The page, if there is one in reach.
    #[inline]
    pub(crate) fn csb_page<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<Page<'v>> {
        if !self.csb.is_set() {
            return None;
        }
        self.find_csb_page(env, view)
    }

    #[cold]
    fn find_csb_page<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<Page<'v>> {
        // A device that may not do DMA does not; what the page says counts when it may again.
        if !self.bus_master.load(Ordering::Acquire) {
            return None;
        }
        let place = *self.csb.place.lock();
        if let Some(words) = view.words(place.page()?, csb::PAGE as u32) {
            return Some(Page {
                words,
                epoch: place.epoch,
            });
        }
        let mut now = self.csb.place.lock();
        // Unless the driver has given another meanwhile.
        if *now == place {
            now.low = 0;
            self.csb.set.store(false, Ordering::Release);
            drop(now);
            count(&self.counters.csb_unmapped, 1);
            self.csb_gone(env);
        }
        None
    }

    /// Whether the guest wants the block now.
    fn csb_wants(&self, env: &Env, page: &Page<'_>) -> bool {
        let on = page.load(at::GUEST_CSB_ON) != 0;
        if on != self.csb.is_on() {
            if on {
                self.csb.on.store(true, Ordering::Release);
                self.irq.lock().gate(env);
            } else {
                self.csb_off(env);
            }
        }
        on
    }

    /// IMS was written while a cause stood that the guest had not wanted to hear of: it may now, and
    /// the next turn asks it. Whether there is something to ask.
    pub(crate) fn csb_unmasked(&self) -> bool {
        let ask = self.csb.is_on() && self.irq.lock().is_muffled();
        if ask {
            self.csb.ask.store(true, Ordering::Release);
        }
        ask
    }

    fn csb_ask(&self, env: &Env, page: &Page<'_>) {
        if self.csb.ask.load(Ordering::Relaxed) && self.csb.ask.swap(false, Ordering::AcqRel) {
            let tx = page.wanted(at::GUEST_NEED_TXKICK);
            let rx = page.load(at::GUEST_NEED_RXKICK) != 0;
            self.irq.lock().regate(env, tx, rx);
        }
    }
}

/// What the transmitter remembers of the block.
#[derive(Debug, Default)]
pub(crate) struct TxCsb {
    /// The page that the rest is about.
    epoch: u32,
    /// The guest need not call.
    awake: bool,
    /// Where the ring was left.
    tail: u32,
    head: u32,
    /// Descriptors sent since it last slept, as far as they earn anything.
    sent: u32,
    /// Rounds without a frame in a row, and since when.
    idle: u32,
    since: Nanos,
    /// How long such rounds have paid of late.
    window: Nanos,
    /// When the transmitter fell asleep.
    slept: Option<Nanos>,
    /// How the last round ended.
    pub(crate) watch: Watch,
}

impl TxCsb {
    pub(crate) fn reset(&mut self) {
        self.awake = false;
        self.watch = Watch::Off;
        self.slept = None;
    }

    /// Before anything is sent: the guest need not call any more.
    pub(crate) fn begin<'v>(
        &mut self,
        shared: &Shared,
        env: &Env,
        view: &'v View<'_>,
    ) -> Option<Page<'v>> {
        self.watch = Watch::Off;
        let page = shared.csb_page(env, view)?;
        if page.epoch != self.epoch {
            self.epoch = page.epoch;
            self.reset();
        }
        if !shared.csb_wants(env, &page) {
            // Whoever switches it on calls the first time.
            if self.awake || self.slept.is_none() {
                page.store(at::HOST_NEED_TXKICK, 1);
            }
            self.awake = false;
            self.slept.get_or_insert(env.clock.now());
            return None;
        }
        count_alone(&shared.counters.csb_tx_rounds, 1);
        if !self.awake {
            self.awake = true;
            self.idle = 0;
            page.store(at::HOST_NEED_TXKICK, 0);
            self.woken(shared, env);
        }
        shared.csb_ask(env, &page);
        self.head = shared.file.get(r::TDH);
        Some(page)
    }

    /// A short sleep was not worth it, a long one was.
    fn woken(&mut self, shared: &Shared, env: &Env) {
        let Some(slept) = self.slept.take() else {
            return;
        };
        let most = shared.csb.most_poll;
        let length = env.clock.now().saturating_sub(slept);
        self.window = if length <= most {
            (self.window * 2).max(LEAST_POLL).min(most)
        } else if self.window < 2 * LEAST_POLL {
            0
        } else {
            self.window / 2
        };
    }

    /// All that could be done is done. Whether the transmitter goes on looking: because of news, or to
    /// poll for some.
    pub(crate) fn end(&mut self, shared: &Shared, env: &Env, page: &Page<'_>) -> bool {
        let len = shared.file.get(r::TDLEN) / SIZE as u32;
        let head = shared.file.get(r::TDH);
        let found = if head != self.head {
            let sent = head.wrapping_sub(self.head);
            let sent = if head > self.head {
                sent
            } else {
                sent.wrapping_add(len)
            };
            self.sent = self.sent.saturating_add(sent).min(MOST_EARNED * EARNING);
            self.idle = 0;
            self.since = env.clock.now();
            Watch::Found
        } else {
            count_alone(&shared.counters.csb_tx_polls, 1);
            self.idle += 1;
            Watch::Vain
        };
        let cycles = page.load(at::HOST_TXCYCLES_LIM).min(MOST_CYCLES);
        let cycles = cycles * (1 + self.sent / EARNING);
        let patient = || {
            let passed = env.clock.now().saturating_sub(self.since);
            passed.min(Nanos::from(self.idle) * ROUND) < self.window
        };
        if shared.tx_enabled() && (self.idle < cycles || self.idle < MOST_POLLS && patient()) {
            self.watch = found;
            return true;
        }
        self.idle = 0;
        let known = self.tail;
        let news = || {
            let tail = page.tail(shared, at::GUEST_TDT, len);
            shared.tx_enabled() && tail.is_some_and(|tail| tail != known)
        };
        let slept = csb::sleep(&page.word(at::HOST_NEED_TXKICK), 1, 0, news);
        if slept {
            count_alone(&shared.counters.csb_tx_sleeps, 1);
            self.awake = false;
            let now = env.clock.now();
            self.slept = Some(now);
            // Once: a NIC at rest is at rest.
            if std::mem::take(&mut self.sent) > 0 {
                shared.irq.lock().set_second_look(env, now + SECOND_LOOK);
            }
        }
        !slept
    }

    /// Takes the guest's word for where the ring ends; the register follows.
    pub(crate) fn take_tail(&mut self, shared: &Shared, page: &Page<'_>) {
        let len = shared.file.get(r::TDLEN) / SIZE as u32;
        if let Some(tail) = page.tail(shared, at::GUEST_TDT, len) {
            self.tail = tail;
            shared.file.set(r::TDT, tail);
        }
    }
}

/// What the receiver remembers of the block, behind its lock.
#[derive(Debug, Default)]
pub(crate) struct RxCsb {
    /// The page that the rest is about; none so far.
    epoch: Option<u32>,
    /// Where the guest was asked to call; [`csb::NONE`] for nowhere, and none for what is not known.
    asked: Option<u32>,
    /// Looks since then.
    looks: u32,
}

/// The page in one call of the receiver, and whether the guest wants it.
#[derive(Clone, Copy)]
pub(crate) struct RxPage<'v> {
    page: Page<'v>,
    on: bool,
}

impl Shared {
    #[inline]
    pub(crate) fn rx_page<'v>(&self, env: &Env, view: &'v View<'_>) -> Option<RxPage<'v>> {
        let page = self.csb_page(env, view)?;
        let on = self.csb_wants(env, &page);
        Some(RxPage { page, on })
    }
}

impl<'v> RxPage<'v> {
    /// The page, if the guest wants it.
    pub(crate) fn wanted(&self) -> Option<&Page<'v>> {
        Some(&self.page).filter(|_| self.on)
    }

    /// Takes the guest's word for where the ring ends; the register follows. Under the receive lock.
    pub(crate) fn take_tail(&self, shared: &Shared) {
        let len = shared.file.get(r::RDLEN) / SIZE as u32;
        let tail = self
            .wanted()
            .and_then(|page| page.tail(shared, at::GUEST_RDT, len));
        if let Some(tail) = tail {
            shared.file.set(r::RDT, tail);
        }
    }

    /// Something waits for buffers (`short`), or nothing does: the guest is to call, or not. Under the
    /// receive lock. Whether buffers have come meanwhile.
    pub(crate) fn settle(&self, shared: &Shared, env: &Env, csb: &mut RxCsb, short: bool) -> bool {
        let page = &self.page;
        if csb.epoch != Some(page.epoch) {
            csb.epoch = Some(page.epoch);
            csb.asked = None;
        }
        let flag = page.word(at::HOST_RXKICK_AT);
        let ring = Ring::read(&shared.file, &crate::rx::RING);
        let Some(ring) = ring.filter(|_| short) else {
            if csb.asked != Some(csb::NONE) {
                csb.asked = Some(csb::NONE);
                flag.store(csb::NONE);
            }
            return false;
        };
        let place = csb::rx_kick_at(ring.tail, ring.available(), ring.len);
        let news = || {
            let tail = self
                .wanted()
                .and_then(|page| page.tail(shared, at::GUEST_RDT, ring.len));
            tail.is_some_and(|tail| tail != ring.tail)
        };
        let slept = csb::sleep(&flag, place, csb::NONE, news);
        let asked = Some(if slept { place } else { csb::NONE });
        if slept && csb.asked != asked {
            count_alone(&shared.counters.csb_rx_sleeps, 1);
        }
        if !slept || csb.asked != asked {
            csb.looks = 0;
        }
        // So often for each place: a NIC at rest is at rest.
        if csb.looks < LOOKS {
            let look = env.clock.now() + LOOK;
            let set = shared.irq.lock().set_second_look(env, look);
            csb.looks += u32::from(set);
        }
        csb.asked = asked;
        !slept
    }
}

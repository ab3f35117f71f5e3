//! What the three parts of the NIC share.
//!
//! Locks, outermost first: `tx`, `rx`, then `waiters` or `irq`. Nothing outside the model is called under `irq` but the
//! interrupt pin and the timer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use datapath::counters::count;
use datapath::csb::Block;
use datapath::{Generation, Waiters};
use lease::Lessor;
use model::{Env, Kept};
use parking_lot::Mutex;
use regs::{File, Id};

use crate::core::config::Config;
use crate::core::counters::Counters;
use crate::core::irq::Irq;
use crate::core::kept;
use crate::core::queues::{RxState, TxState};
use crate::core::stats::Stats;
use crate::core::wake::WakeUp;
use crate::regs as r;
use crate::regs::bits::{cr, misc};
use crate::regs::variant::Variant;

/// The NIC's common state.
pub(crate) struct Chip {
    /// What goes on after this process died.
    pub kept: OnceLock<Kept>,
    pub variant: Variant,
    pub file: File,
    /// Of all that decides how frames are received.
    pub setup: Generation,
    pub irq: Mutex<Irq>,
    pub stats: Stats,
    pub counters: Counters,
    pub tx: Mutex<TxState>,
    /// What a lease says when it is closed: where it ends.
    pub rx: Lessor<RxState, u32>,
    /// Frames wait with their senders for descriptors.
    pub short: AtomicBool,
    /// A command of DTCCR waits.
    pub command: AtomicBool,
    pub link_up: AtomicBool,
    /// The bus lets it reach memory, and it is not asleep.
    pub awake: AtomicBool,
    pub waiters: Waiters,
    pub wake: WakeUp,
    /// The Communication Status Block.
    pub csb: Block,
    /// The guest has placed its receive ring anew, or switched it on, and that is not saved yet: what went there now would not be
    /// known to who goes on.
    pub rx_hold: AtomicBool,
    /// Statistics were written to memory, and what they said is not saved yet.
    pub dumped: AtomicBool,
}

impl Chip {
    pub fn new(config: &Config) -> Self {
        Self {
            kept: OnceLock::new(),
            variant: config.variant,
            file: File::new(r::table()),
            setup: Generation::default(),
            irq: Mutex::new(Irq::new(config.variant.is_first(), config.moderation)),
            stats: Stats::default(),
            counters: Counters::default(),
            tx: Mutex::default(),
            rx: Lessor::new(RxState::default()),
            short: AtomicBool::new(false),
            command: AtomicBool::new(false),
            link_up: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            waiters: Waiters::default(),
            wake: WakeUp::default(),
            csb: Block::new(
                config.csb,
                u64::try_from(config.csb_poll.as_nanos()).unwrap_or(u64::MAX),
            ),
            rx_hold: AtomicBool::new(false),
            dumped: AtomicBool::new(false),
        }
    }

    fn runs(&self, enable: u32) -> bool {
        let cr = self.file.get(r::CR) >> cr::SHIFT;
        cr & (enable | cr::STOP) == enable
            && self.link_up.load(Ordering::Acquire)
            && self.awake.load(Ordering::Acquire)
    }

    /// Whether the transmitter may send: enabled, on a link, allowed to do DMA.
    pub fn tx_on(&self) -> bool {
        self.runs(cr::TE)
    }

    /// Whether the receiver takes frames.
    pub fn rx_on(&self) -> bool {
        self.runs(cr::RE) && !self.gated() && !self.rx_hold.load(Ordering::Acquire)
    }

    /// The 8168H's receiver is closed.
    fn gated(&self) -> bool {
        self.variant.has_ocp() && self.file.get(r::FUNC_EVENT) & misc::RXDV_GATE != 0
    }

    /// One of `events` has come.
    pub fn wake_by(&self, env: &Env, events: u8) {
        if self.wake.armed() & events != 0 {
            count(&self.counters.wake_ups, self.wake.come(env, events).into());
        }
    }

    /// A pair of registers that are an address.
    pub fn address(&self, low: Id, high: Id) -> u64 {
        u64::from(self.file.get(high)) << 32 | u64::from(self.file.get(low))
    }

    /// Both rings begin anew, after the batches in flight.
    pub fn reset_rings(&self) {
        self.reset_sent(|| {});
        self.reset_received(|| {});
        self.stop_waiting();
    }

    /// The transmit ring begins anew, with what `set` sets.
    pub fn reset_sent(&self, set: impl FnOnce()) {
        let mut tx = self.tx.lock();
        set();
        tx.reset();
        self.note_sent(tx.next);
    }

    /// The same of the receive ring. It takes no frame before that is saved.
    pub fn reset_received(&self, set: impl FnOnce()) {
        let mut rx = self.rx.settle();
        self.hold_receiver();
        set();
        self.setup.changed();
        rx.reset();
        self.note(kept::RX, rx.next);
    }

    /// Stores one of the words that outlive the process: IMR, or where a ring stands.
    #[inline]
    pub fn note(&self, at: usize, value: u32) {
        if let Some(kept) = self.kept.get() {
            kept::put::<kept::Steps>(kept, at, value.into());
        }
    }

    /// The transmit ring stands there, and no packet of it was begun.
    fn note_sent(&self, next: u32) {
        if let Some(kept) = self.kept.get() {
            kept::begins_at(kept, next);
        }
    }

    /// All of them, between two batches.
    pub fn note_all(&self) {
        let tx = self.tx.lock();
        let rx = self.rx.settle();
        self.note_sent(tx.next);
        self.note(kept::RX, rx.next);
        self.note(kept::IMR, self.irq.lock().imr.into());
    }

    /// What is placed anew is not used before it is saved.
    pub fn hold_receiver(&self) {
        if self.kept.get().is_some() {
            self.rx_hold.store(true, Ordering::Release);
        }
    }

    /// Waits until nothing touches the guest's memory any more that has begun before.
    pub fn settle(&self) {
        drop(self.tx.lock());
        drop(self.rx.settle());
        self.stop_waiting();
    }

    /// Senders that wait for descriptors of a receiver that is off, or of another ring, ask again.
    pub fn stop_waiting(&self) {
        self.short.store(false, Ordering::Release);
        self.waiters.wake_any();
    }
}

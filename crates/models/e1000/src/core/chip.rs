//! What the three parts of the NIC share.
//!
//! Locks, outermost first: `tx`, `rx`, then `waiters`, `csb.place` or `irq`. Nothing outside the model is called
//! under `irq` but the interrupt pin and the timer, and nothing that could call back into it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use datapath::csb::Block;
use datapath::{Aligned, Generation, Waiters};
use guest_mem::{Hot, LINE, Lines};
use intel::wake::{WakeUp, Wakes};
use model::{Env, Kept};
use parking_lot::Mutex;
use regs::File;

use crate::core::config::{Config, FullFifo};
use crate::core::counters::Counters;
use crate::core::flow::Flow;
use crate::core::irq::Irq;
use crate::core::kept::{self, Publisher};
use crate::core::packet_buffer::PacketBuffer;
use crate::core::rx_queue::{RxLock, RxState};
use crate::core::stats::Stats;
use crate::core::tx_queue::TxState;
use crate::regs as r;
use crate::regs::bits::{rctl, tctl};

/// The NIC's common state.
///
/// In this order, and so in each of its parts: what runs of frames touch lies together, for a thread that serves many NICs has none of
/// it in its cache. `layout_tests` counts the lines.
#[repr(C, align(64))]
pub(crate) struct Chip {
    /// What goes on after this process died.
    pub kept: OnceLock<Kept>,
    /// Of all that is neither a ring's tail nor its head.
    pub setup: Generation,
    /// Frames that the guest may be given at once. Changed under the lock of `irq`.
    pub allowance: AtomicU32,
    pub file: File,
    pub flow: Flow,
    /// The communication status block.
    pub csb: Block,
    /// Plain frames may take the fast path. Always, but in tests that compare.
    pub fast_path: bool,
    /// Senders that found no room.
    pub waiters: Waiters,
    pub irq: Aligned<Mutex<Irq>>,
    pub tx: Aligned<Mutex<TxState>>,
    /// With the leases on the ring's descriptors.
    pub rx: Aligned<RxLock>,
    pub counters: Aligned<Counters>,
    pub stats: Stats,
    /// Its lock is innermost, beside that of `irq`.
    pub packet_buffer: PacketBuffer,
    /// The guest's NIC wanted to look at its receive side while a sender held that for long.
    pub rx_poll_owed: AtomicBool,
    pub wake: WakeUp,
    /// STATUS.LU.
    pub link_up: AtomicBool,
    /// PHY loopback.
    pub phy_loopback: AtomicBool,
    /// PCI COMMAND bit 2.
    pub bus_master: AtomicBool,
    /// The guest has placed its receive ring anew, or switched it on, and that is not saved yet: what went there now would not be
    /// known to who goes on.
    pub rx_hold: AtomicBool,
    /// What is sent goes nowhere: it was sent before.
    pub passes_over: AtomicBool,
    pub true_fcs: bool,
    /// A full packet FIFO loses frames at once instead of leaving them with their sender.
    pub drop_when_full: bool,
    /// Received pause frames are obeyed, not only counted.
    pub obey_pause: bool,
}

impl Chip {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            file: File::new(r::table()),
            setup: Generation::default(),
            irq: Aligned(Mutex::new(Irq::new(
                config.moderation,
                config.receive_throttling,
            ))),
            allowance: AtomicU32::new(u32::MAX),
            stats: Stats::default(),
            counters: Aligned::default(),
            packet_buffer: PacketBuffer::default(),
            tx: Aligned::default(),
            rx: Aligned(RxLock::new(RxState::default())),
            rx_poll_owed: AtomicBool::new(false),
            flow: Flow::default(),
            wake: WakeUp::default(),
            link_up: AtomicBool::new(false),
            phy_loopback: AtomicBool::new(false),
            bus_master: AtomicBool::new(false),
            kept: OnceLock::new(),
            rx_hold: AtomicBool::new(false),
            passes_over: AtomicBool::new(false),
            csb: Block::new(
                config.csb,
                u64::try_from(config.csb_poll.as_nanos()).unwrap_or(u64::MAX),
            ),
            waiters: Waiters::default(),
            true_fcs: config.true_fcs,
            fast_path: true,
            drop_when_full: config.full_fifo == FullFifo::Drop,
            obey_pause: config.obey_pause,
        }
    }

    /// What runs of frames touch: the lines of which `layout_tests` tells, and the words of heads and tails.
    pub(crate) fn add_hot(&self, hot: &mut Hot) {
        hot.add(Lines::first(self, 2 * LINE));
        hot.add(Lines::first(&*self.irq, 2 * LINE));
        hot.add(Lines::first(&*self.tx, 2 * LINE));
        hot.add(Lines::first(&*self.rx, 2 * LINE));
        hot.add(Lines::first(&*self.counters, 2 * LINE));
        hot.add(Lines::first(&self.stats, 2 * LINE));
        // A head and its tail may lie in two lines.
        for id in [r::TDH, r::TDT, r::RDH, r::RDT] {
            let words = self.file.cell(id, 0);
            words.into_iter().for_each(|word| hot.add(Lines::of(word)));
        }
    }

    /// Whether the transmitter may send: enabled, on a link (or looped back), allowed to do DMA.
    pub(crate) fn tx_enabled(&self) -> bool {
        self.file.get(r::TCTL) & tctl::EN != 0
            && (self.link_up.load(Ordering::Acquire) || self.loopback())
            && self.bus_master.load(Ordering::Acquire)
    }

    /// Whether the receiver takes frames.
    pub(crate) fn rx_enabled(&self) -> bool {
        self.file.get(r::RCTL) & rctl::EN != 0
            && (self.link_up.load(Ordering::Acquire) || self.loopback())
            && self.bus_master.load(Ordering::Acquire)
            && !self.rx_hold.load(Ordering::Acquire)
    }

    /// Whether frames in the packet FIFO may move into the ring: while RCTL.EN is 0 they stay
    /// (manual §13.4.22), and without a link they are still there to be read.
    pub(crate) fn rx_may_write(&self) -> bool {
        self.file.get(r::RCTL) & rctl::EN != 0
            && self.bus_master.load(Ordering::Acquire)
            && !self.rx_hold.load(Ordering::Acquire)
    }

    /// Whether sent frames come straight back and the wire is cut off (RCTL.LBM, BMCR).
    pub(crate) fn loopback(&self) -> bool {
        self.phy_loopback.load(Ordering::Acquire) || self.file.get(r::RCTL) & rctl::LBM != 0
    }

    /// Waits until nothing writes into the guest's buffers any more; what was on its way is lost. The
    /// caller has seen to it that no sender begins.
    pub(crate) fn stop_receiving(&self) {
        drop(self.rx.lock().revoke());
    }

    /// Takes MAC and rings back to the state after CTRL.RST, after the batches in flight.
    pub(crate) fn reset(&self, env: &Env) {
        let mut tx = self.tx.lock();
        let mut rx = self.rx.lock().revoke();
        self.reset_file(env);
        self.setup.changed();
        self.stats.clear();
        tx.reset();
        rx.reset();
        self.flow.reset();
        let mut irq = self.irq.lock();
        irq.reset(env);
        self.allow(&irq);
        self.note(&tx, &irq);
    }

    /// Says in the words that outlive the process where the rings stand, between two batches, and what is masked.
    pub(crate) fn note(&self, tx: &TxState, irq: &Irq) {
        let Some(kept) = self.kept.get() else {
            return;
        };
        let get = |id| self.file.get(id);
        kept::sent(kept).moves(&tx.position, get(r::TDH));
        kept::sent(kept).forget_large();
        kept::rx_stands(kept, get(r::RDH));
        for (at, value) in [
            (kept::RDT, get(r::RDT)),
            (kept::TDT, get(r::TDT)),
            (kept::IMS, irq.ims),
            (kept::ITR, get(r::ITR)),
        ] {
            kept::put(kept, at, value.into());
        }
    }

    /// Stores one of the words that outlive the process.
    #[inline]
    pub(crate) fn note_word(&self, at: usize, value: u32) {
        if let Some(kept) = self.kept.get() {
            kept::put(kept, at, value.into());
        }
    }

    /// As [`Self::note`], for who has neither lock.
    pub(crate) fn note_all(&self) {
        if self.kept.get().is_some() {
            let tx = self.tx.lock();
            let _rx = self.rx.settle();
            self.note(&tx, &self.irq.lock());
        }
    }

    /// What is placed anew is not used before it is saved.
    pub(crate) fn hold_receiver(&self) {
        if self.kept.get().is_some() {
            self.rx_hold.store(true, Ordering::Release);
        }
    }

    /// How receive descriptors are published.
    #[inline]
    pub(crate) fn publisher(&self) -> Publisher<'_> {
        Publisher::new(self.kept.get(), kept::RX)
    }

    /// Frames that the guest may be given at once; each takes a descriptor or more.
    #[inline]
    pub(crate) fn allowance(&self) -> u32 {
        self.allowance.load(Ordering::Relaxed)
    }

    /// Makes that what `irq` says.
    #[inline]
    pub(crate) fn allow(&self, irq: &Irq) {
        self.allowance
            .store(irq.rx_throttle.allowed(), Ordering::Relaxed);
    }
}

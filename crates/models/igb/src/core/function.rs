//! What a PF and a VF have in common.
//!
//! Locks, outermost first: a queue's `tx`, a queue's `rx`, then a VF's settings, `waiters` or `irq`. Nothing
//! outside the model is called under `irq` but interrupts and the timer.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) use datapath::counters::count;
use datapath::{Aligned, Generation, Waiters};
use guest_mem::{Hot, LINE, Lines};
use intel::RingPlace;
use intel::rx::RunPlan;
use intel::wake::WakeUp;
use model::Kept;
use parking_lot::Mutex;
use regs::{File, Table};

use crate::core::flow::Flow;
use crate::core::irq::Irq;
use crate::core::kept::{self, Publisher, TxKept};
use crate::core::ptp::Ptp;
use crate::core::queue::{Queue, TxState};
use crate::core::stats::{Group, Stat, Stats};
use crate::regs::bits::xdctl;
use crate::regs::queues::QueueIds;
use crate::regs::settings::Settings;

datapath::counters! {
    all of intel::Counters;
    /// Frames dropped because their queue had no descriptor (SRRCTL.DROP_EN).
    rx_dropped,
    /// Frames for a queue whose SRRCTL has a reserved type.
    rx_bad_type,
    /// Writes of a PF to where its VFs' rings are, or that would start a VF's queue.
    vf_ring_refused,
}

/// Which function it is.
#[derive(Debug)]
pub(crate) enum FunctionKind {
    /// The physical one: its own registers have the settings of its queues.
    Pf,
    /// A virtual one: its PF sets them.
    Vf(Mutex<Settings>),
}

/// How the frames of a run are received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunWay {
    /// Its ring.
    pub place: RingPlace,
    pub queue: u32,
    /// Both words of a done descriptor, but for the length, and for the verdict if there is one.
    pub words: [u64; 2],
    /// RXCSUM, by which checksums are judged; `None`: no descriptor describes the headers of these frames.
    pub judged: Option<u32>,
    pub group: Group,
    /// Their interrupt does not wait for moderation.
    pub immediate: bool,
    /// When no more descriptors than these are left, an interrupt reports it; 0: none does.
    pub threshold: u32,
}

/// One function: its queues, its registers, its interrupts.
///
/// In this order, and so in each of its parts: what runs of frames touch lies together, for a thread that serves many NICs has none of
/// it in its cache. `layout_tests` counts the lines.
#[repr(C, align(64))]
pub(crate) struct Function {
    pub file: File,
    pub queues: Box<[Queue]>,
    pub stats: Arc<Stats>,
    /// Of all that is neither a ring's tail nor its head.
    pub setup: Generation,
    /// Transmit queues that the transmitter has to look at, bit by bit.
    pub tx_rung: AtomicU32,
    /// The transmit queue whose turn is next.
    pub tx_next: AtomicU32,
    /// Sent frames come straight back and the wire is cut off (PHY or RCTL.LBM).
    pub loopback: AtomicBool,
    /// Plain frames go in runs ([`crate::rx::fast_path`], [`crate::tx::fast_path`]). Off where a
    /// test compares.
    pub fast_path: bool,
    /// Its interrupts follow what is moved and how the driver answers ([`datapath::Adaptive`]).
    pub adapts: AtomicBool,
    /// Something that no access changes is to be saved.
    pub touched: AtomicBool,
    /// What goes on after this process died.
    pub kept: OnceLock<Kept>,
    /// PCI COMMAND bit 2.
    pub bus_master: AtomicBool,
    /// STATUS.LU.
    pub link_up: AtomicBool,
    /// The guest has placed a receive ring anew, or switched it on, and that is not saved yet: what went there now would not be
    /// known to who goes on.
    pub rx_hold: AtomicBool,
    /// What wakes a sleeping guest, of a PF.
    pub wake: WakeUp,
    /// Senders that found no room.
    pub waiters: Waiters,
    /// What it says about runs of received frames. Its lock is a leaf.
    pub run: Aligned<Mutex<RunPlan<RunWay>>>,
    pub irq: Aligned<Mutex<Irq>>,
    pub counters: Aligned<Counters>,
    /// And about segments of large frames, as `run` does.
    pub cut: Mutex<RunPlan<RunWay>>,
    pub ids: &'static QueueIds,
    pub kind: FunctionKind,
    /// VFs that a PF's registers control; the pools behind them are its own.
    pub vfs: AtomicU32,
    /// The link's speed, of a PF: what rates of VFs are parts of, in Mbit/s.
    pub mbps: AtomicU32,
    /// Those of a PF's VFs, which its port counts too.
    pub vf_stats: Vec<Arc<Stats>>,
    /// The clock of IEEE 1588, of a PF; innermost, as `irq` is.
    pub ptp: Mutex<Ptp>,
    /// Pauses of a PF's wire.
    pub flow: Flow,
    pub true_fcs: bool,
}

impl Function {
    /// One of `kind` with `queues` queues in each direction, which `ids` names in `table`.
    pub(crate) fn new(
        kind: FunctionKind,
        table: Arc<Table>,
        ids: &'static QueueIds,
        queues: usize,
        true_fcs: bool,
    ) -> Self {
        let file = File::new(table);
        let queue = |at| Queue {
            tx_tail: file.place(ids.tdt, at),
            rx_tail: file.place(ids.rdt, at),
            ..Queue::default()
        };
        Self {
            queues: (0..queues as u32).map(queue).collect(),
            file,
            setup: Generation::default(),
            run: Aligned::default(),
            cut: Mutex::default(),
            ids,
            kind,
            vfs: AtomicU32::new(0),
            mbps: AtomicU32::new(1000),
            irq: Aligned::default(),
            stats: Arc::default(),
            vf_stats: Vec::new(),
            ptp: Mutex::default(),
            flow: Flow::default(),
            counters: Aligned::default(),
            wake: WakeUp::default(),
            bus_master: AtomicBool::new(false),
            link_up: AtomicBool::new(false),
            loopback: AtomicBool::new(false),
            tx_rung: AtomicU32::new(0),
            tx_next: AtomicU32::new(0),
            waiters: Waiters::default(),
            kept: OnceLock::new(),
            rx_hold: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            true_fcs,
            adapts: AtomicBool::new(false),
            fast_path: true,
        }
    }

    /// What runs of frames of its first queues touch, and the words of their heads and tails.
    pub(crate) fn add_hot(&self, hot: &mut Hot) {
        hot.add(Lines::first(self, 2 * LINE));
        hot.add(Lines::first(&*self.run, 2 * LINE));
        hot.add(Lines::first(&*self.irq, 2 * LINE));
        hot.add(Lines::first(&*self.counters, 2 * LINE));
        hot.add(Lines::first(&*self.stats, 2 * LINE));
        if let Some(queue) = self.queues.first() {
            hot.add(Lines::of(queue));
        }
        // A head and its tail may lie in two lines.
        let ids = self.ids;
        for id in [ids.tdh, ids.tdt, ids.rdh, ids.rdt] {
            let words = self.file.cell(id, 0);
            words.into_iter().for_each(|word| hot.add(Lines::of(word)));
        }
    }

    /// Has the transmitter look at a queue.
    pub(crate) fn ring(&self, queue: u32) {
        self.tx_rung.fetch_or(1 << queue, Ordering::AcqRel);
    }

    /// All that was counted so far, of a PF also by its VFs.
    pub(crate) fn total(&self, stat: Stat) -> u64 {
        let of_vfs = self.vf_stats.iter().map(|stats| stats.total(stat));
        self.stats.total(stat) + of_vfs.sum::<u64>()
    }

    /// The settings of all queues now.
    pub(crate) fn settings(&self) -> Settings {
        match &self.kind {
            FunctionKind::Pf => Settings::of_pf(&self.file, self.vfs.load(Ordering::Acquire)),
            FunctionKind::Vf(settings) => *settings.lock(),
        }
    }

    /// Whether the queue's transmit side runs.
    pub(crate) fn tx_enabled(&self, queue: u32) -> bool {
        self.file.get_at(self.ids.txdctl, queue) & xdctl::ENABLE != 0
    }

    /// Whether the queue's receive side runs.
    pub(crate) fn rx_enabled(&self, queue: u32) -> bool {
        self.file.get_at(self.ids.rxdctl, queue) & xdctl::ENABLE != 0
            && !self.rx_hold.load(Ordering::Acquire)
    }

    /// Whether frames move at all: on a link (or looped back), allowed to do DMA.
    pub(crate) fn moves(&self) -> bool {
        (self.link_up.load(Ordering::Acquire) || self.loopback.load(Ordering::Acquire))
            && self.bus_master.load(Ordering::Acquire)
    }

    /// For each who has held the receive lock of a queue, once it is free: wakes senders that were turned away.
    #[inline]
    pub(crate) fn let_go(&self, queue: u32) {
        let own = self.queues.get(queue as usize);
        if own.is_some_and(|own| own.rx.relieve()) {
            self.waiters.wake();
        }
    }

    /// Waits for what is under way. The caller has seen to it that nothing begins.
    pub(crate) fn settle(&self) {
        for queue in &self.queues {
            drop(queue.tx.lock());
            drop(queue.rx.lock());
        }
    }

    /// Keeps its words there from now on. `false`: it keeps others.
    pub(crate) fn keep(&self, words: Kept) -> bool {
        let ours = self.kept.set(words).is_ok();
        self.note_all();
        ours
    }

    /// The words of a queue's transmit ring, if somebody keeps them.
    #[inline]
    pub(crate) fn tx_kept(&self, queue: u32) -> Option<TxKept<'_>> {
        self.kept.get().map(|kept| kept::tx(kept, queue))
    }

    /// How receive descriptors of a queue are published. `splits`: they have the address of a second buffer; the bit `ends` in
    /// their second words ends a frame.
    #[inline(always)]
    pub(crate) fn publisher(&self, queue: u32, splits: bool, ends: u64) -> Publisher<'_> {
        Publisher::new(self.kept.get(), queue, splits, ends)
    }

    /// Stores one of the words that outlive the process.
    #[inline]
    pub(crate) fn note_word(&self, at: usize, value: u32) {
        if let Some(kept) = self.kept.get() {
            kept::put(kept, at, value.into());
        }
    }

    /// The guest sets bits of a mask, or clears them. What masks itself is taken as unmasked by who goes on.
    pub(crate) fn note_mask(&self, at: usize, set: u32, clear: u32) {
        if let Some(kept) = self.kept.get() {
            let mask = kept.get(at) as u32 & !clear | set;
            kept::put(kept, at, mask.into());
        }
    }

    /// What is placed anew is not used before it is saved.
    pub(crate) fn hold_receiver(&self) {
        if self.kept.get().is_some() {
            self.rx_hold.store(true, Ordering::Release);
        }
    }

    /// Whether something is to be saved that no access has changed.
    pub(crate) fn take_touched(&self) -> bool {
        self.touched.load(Ordering::Acquire) && self.touched.swap(false, Ordering::AcqRel)
    }

    /// It is saved: true if something waited for that.
    pub(crate) fn let_receiver_go(&self) -> bool {
        let held = self.rx_hold.load(Ordering::Acquire);
        if held {
            self.rx_hold.store(false, Ordering::Release);
            self.setup.changed();
        }
        held
    }

    /// Says where the rings of a queue stand, between two batches: the caller has the locks.
    pub(crate) fn note_rings(&self, queue: u32, tx: Option<&TxState>) {
        let Some(kept) = self.kept.get() else {
            return;
        };
        let get = |id| self.file.get_at(id, queue);
        match tx {
            Some(tx) => {
                let kept = kept::tx(kept, queue);
                kept.moves(tx, get(self.ids.tdh));
                kept.forget_large();
            }
            None => kept::rx_stands(kept, queue, get(self.ids.rdh)),
        }
    }

    /// Says all of it, between two batches.
    pub(crate) fn note_all(&self) {
        let Some(kept) = self.kept.get() else {
            return;
        };
        let ids = self.ids;
        for (at, queue) in (0..).zip(&self.queues) {
            let get = |id| u64::from(self.file.get_at(id, at));
            {
                let tx = queue.tx.lock();
                self.note_rings(at, Some(&tx));
            }
            let _rx = queue.rx.lock();
            self.note_rings(at, None);
            kept::put(kept, kept::tail(true, at), get(ids.tdt));
            kept::put(kept, kept::tail(false, at), get(ids.rdt));
        }
        let irq = self.irq.lock();
        kept::put(kept, kept::IMS, irq.mask().into());
        kept::put(kept, kept::EIMS, irq.extended_mask().into());
        for at in 0..self.file.table().register(ids.eitr).count {
            let value = self.file.get_at(ids.eitr, at);
            kept::put(kept, kept::eitr(at), value.into());
        }
    }

    /// Forgets what the queues remember, after the batches in flight. Their registers are the
    /// caller's to reset, and before.
    pub(crate) fn reset_queues(&self) {
        for queue in &self.queues {
            *queue.tx.lock() = Default::default();
            *queue.rx.lock() = Default::default();
        }
    }
}

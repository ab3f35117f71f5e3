//! What a PF and a VF have in common.
//!
//! Locks, outermost first: a queue's `tx`, a queue's `rx`, then a VF's settings, `waiters` or `irq`. Nothing
//! outside the model is called under `irq` but interrupts and the timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) use datapath::counters::count;
use datapath::{Generation, Waiters};
use intel::RingPlace;
use intel::rx::RunPlan;
use intel::wake::WakeUp;
use parking_lot::Mutex;
use regs::{File, Table};

use crate::core::flow::Flow;
use crate::core::irq::Irq;
use crate::core::ptp::Ptp;
use crate::core::queue::Queue;
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
pub(crate) struct Function {
    pub file: File,
    /// Of all that is neither a ring's tail nor its head.
    pub setup: Generation,
    /// What it says about runs of received frames. Its lock is a leaf.
    pub run: Mutex<RunPlan<RunWay>>,
    /// And about segments of large frames.
    pub cut: Mutex<RunPlan<RunWay>>,
    pub ids: &'static QueueIds,
    pub kind: FunctionKind,
    /// VFs that a PF's registers control; the pools behind them are its own.
    pub vfs: AtomicU32,
    /// The link's speed, of a PF: what rates of VFs are parts of, in Mbit/s.
    pub mbps: AtomicU32,
    pub queues: Box<[Queue]>,
    pub irq: Mutex<Irq>,
    pub stats: Arc<Stats>,
    /// Those of a PF's VFs, which its port counts too.
    pub vf_stats: Vec<Arc<Stats>>,
    /// The clock of IEEE 1588, of a PF; innermost, as `irq` is.
    pub ptp: Mutex<Ptp>,
    /// Pauses of a PF's wire.
    pub flow: Flow,
    pub counters: Counters,
    /// What wakes a sleeping guest, of a PF.
    pub wake: WakeUp,
    /// PCI COMMAND bit 2.
    pub bus_master: AtomicBool,
    /// STATUS.LU.
    pub link_up: AtomicBool,
    /// Sent frames come straight back and the wire is cut off (PHY or RCTL.LBM).
    pub loopback: AtomicBool,
    /// Transmit queues that the transmitter has to look at, bit by bit.
    pub tx_rung: AtomicU32,
    /// The transmit queue whose turn is next.
    pub tx_next: AtomicU32,
    /// Senders that found no room.
    pub waiters: Waiters,
    pub true_fcs: bool,
    /// Its interrupts follow what is moved and how the driver answers ([`datapath::Adaptive`]).
    pub adapts: bool,
    /// Plain frames go in runs ([`crate::rx::fast_path`], [`crate::tx::fast_path`]). Off where a
    /// test compares.
    pub fast_path: bool,
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
            run: Mutex::default(),
            cut: Mutex::default(),
            ids,
            kind,
            vfs: AtomicU32::new(0),
            mbps: AtomicU32::new(1000),
            irq: Mutex::default(),
            stats: Arc::default(),
            vf_stats: Vec::new(),
            ptp: Mutex::default(),
            flow: Flow::default(),
            counters: Counters::default(),
            wake: WakeUp::default(),
            bus_master: AtomicBool::new(false),
            link_up: AtomicBool::new(false),
            loopback: AtomicBool::new(false),
            tx_rung: AtomicU32::new(0),
            tx_next: AtomicU32::new(0),
            waiters: Waiters::default(),
            true_fcs,
            adapts: false,
            fast_path: true,
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

    /// Forgets what the queues remember, after the batches in flight. Their registers are the
    /// caller's to reset, and before.
    pub(crate) fn reset_queues(&self) {
        for queue in &self.queues {
            *queue.tx.lock() = Default::default();
            *queue.rx.lock() = Default::default();
        }
    }
}

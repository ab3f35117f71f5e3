//! What the three parts of the NIC share.
//!
//! Locks, outermost first: `tx`, `rx`, then `waiters`, `csb.place` or `irq`. Nothing outside the model is called
//! under `irq` but the interrupt pin and the timer, and nothing that could call back into it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use frame::Wake;
use intel::wake::WakeUp;
use model::Env;
use parking_lot::Mutex;
use regs::File;

use crate::bits::{rctl, tctl};
use crate::csb::Block;
use crate::flow::Flow;
use crate::irq::Irq;
use crate::packet_buffer::PacketBuffer;
use crate::regs as r;
use crate::rx::{RxLock, RxState};
use crate::stats::Stats;
use crate::tx::TxState;
use crate::{Config, FullFifo};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters by name, for people; the guest's statistics registers are apart from them.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
                $(visit(stringify!($name), self.$name.load(Ordering::Relaxed));)*
            }
        }
    };
}

counters! {
    /// Frames the sink took, each segment for itself where we segmented.
    tx_frames,
    tx_bytes,
    /// Packets with segmentation offload.
    tx_tso_frames,
    rx_frames,
    rx_bytes,
    reg_reads,
    reg_writes,
    tx_doorbells,
    rx_doorbells,
    /// Transmit descriptors read from guest memory.
    tx_desc_fetched,
    /// Receive descriptors read from guest memory.
    rx_desc_fetched,
    /// Frames that waited in the packet FIFO because no receive descriptor was free.
    rx_no_buffer,
    /// Frames that waited there for the guest's sake: it is to have time for those it has.
    rx_rationed,
    /// Times the packet FIFO was full too and a sender had to keep its frames.
    rx_back_pressure,
    /// Frames lost because the packet FIFO was full.
    rx_missed,
    /// Frames for others.
    rx_filtered,
    /// Frames longer than RCTL allows.
    rx_oversize,
    /// Frames shorter than an Ethernet header.
    rx_runt,
    /// Frames that came while the receiver was off, the link down or bus mastering disabled.
    rx_disabled,
    /// Frames that came while RDLEN, RDH or RDT described no ring.
    rx_bad_ring,
    /// Frames with offload notes that contradict them.
    rx_bad_offload,
    /// Frames that need more descriptors than the ring can ever hold.
    rx_too_large,
    /// Frames lost because a descriptor or buffer was not in reach.
    rx_dma_fault,
    /// Times TDLEN, TDH or TDT described no ring.
    tx_bad_ring,
    /// Packets or ring walks lost because a descriptor or buffer was not in reach.
    tx_dma_fault,
    /// Packets beyond the size the chip can send.
    tx_too_long,
    /// Packets of more descriptors than any driver uses, or a ring full without an end.
    tx_too_many_descs,
    /// Packets too short for an Ethernet header.
    tx_runt,
    /// Segmentation without header length, MSS or payload, or into too many frames.
    tx_bad_tso,
    /// Checksum insertion outside of the packet; it is sent without.
    tx_bad_checksum,
    /// Descriptors of an unknown type; skipped.
    tx_bad_desc,
    /// Times a wake-up filter matched and PME was asserted.
    wake_ups,
    /// Accesses to other BARs than the two there are.
    reg_bad_bar,
    /// Writes of TDT and RDT while the guest uses a CSB: its calls.
    csb_kicks,
    /// Calls of the transmitter with a CSB, those of them that found nothing new, and times it fell
    /// asleep after them.
    csb_tx_rounds,
    csb_tx_polls,
    csb_tx_sleeps,
    /// Times the receiver ran out of buffers and asked to be called.
    csb_rx_sleeps,
    /// Tails in a CSB that lay outside of their ring; ignored.
    csb_bad_tail,
    /// CSBs given up because their page was not in reach, or not aligned.
    csb_unmapped,
}

pub(crate) fn count(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// As [`count`], where one lock (or one owner) keeps all who count apart: no locked instruction is
/// needed.
#[inline]
pub(crate) fn count_alone(counter: &AtomicU64, n: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(n);
    counter.store(sum, Ordering::Relaxed);
}

/// The NIC's common state.
pub(crate) struct Shared {
    pub file: File,
    pub irq: Mutex<Irq>,
    /// Frames that the guest may be given at once. Changed under the lock of `irq`.
    pub allowance: AtomicU32,
    pub stats: Stats,
    pub counters: Counters,
    /// Its lock is innermost, beside that of `irq`.
    pub packet_buffer: PacketBuffer,
    pub tx: Mutex<TxState>,
    /// With the leases on the ring's descriptors.
    pub rx: RxLock,
    pub flow: Flow,
    pub wake: WakeUp,
    /// STATUS.LU.
    pub link_up: AtomicBool,
    /// PHY loopback.
    pub phy_loopback: AtomicBool,
    /// PCI COMMAND bit 2.
    pub bus_master: AtomicBool,
    /// The communication status block.
    pub csb: Block,
    /// Those who found no room.
    pub waiters: Mutex<Vec<Arc<dyn Wake>>>,
    /// There are some, or were a moment ago. Changed under their lock.
    pub has_waiters: AtomicBool,
    pub true_fcs: bool,
    /// Plain frames may take the fast fast path. Always, but in tests that compare.
    pub fast_path: bool,
    /// A full packet FIFO loses frames at once instead of leaving them with their sender.
    pub drop_when_full: bool,
    /// Received pause frames are obeyed, not only counted.
    pub obey_pause: bool,
}

impl Shared {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            file: File::new(r::table()),
            irq: Mutex::new(Irq::new(config.moderation, config.receive_throttling)),
            allowance: AtomicU32::new(u32::MAX),
            stats: Stats::default(),
            counters: Counters::default(),
            packet_buffer: PacketBuffer::default(),
            tx: Mutex::default(),
            rx: RxLock::new(RxState::default()),
            flow: Flow::default(),
            wake: WakeUp::default(),
            link_up: AtomicBool::new(false),
            phy_loopback: AtomicBool::new(false),
            bus_master: AtomicBool::new(false),
            csb: Block::new(
                config.csb,
                u64::try_from(config.csb_poll.as_nanos()).unwrap_or(u64::MAX),
            ),
            waiters: Mutex::default(),
            has_waiters: AtomicBool::new(false),
            true_fcs: config.true_fcs,
            fast_path: true,
            drop_when_full: config.full_fifo == FullFifo::Drop,
            obey_pause: config.obey_pause,
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
    }

    /// Whether frames in the packet FIFO may move into the ring: while RCTL.EN is 0 they stay
    /// (manual §13.4.22), and without a link they are still there to be read.
    pub(crate) fn rx_may_write(&self) -> bool {
        self.file.get(r::RCTL) & rctl::EN != 0 && self.bus_master.load(Ordering::Acquire)
    }

    /// Whether sent frames come straight back and the wire is cut off (RCTL.LBM, BMCR).
    pub(crate) fn loopback(&self) -> bool {
        self.phy_loopback.load(Ordering::Acquire) || self.file.get(r::RCTL) & rctl::LBM != 0
    }

    /// Waits until nobody writes into the guest's buffers any more; what was on its way is lost. The
    /// caller has seen to it that nobody begins.
    pub(crate) fn stop_receiving(&self) {
        drop(self.rx.lock().revoke());
    }

    /// Takes MAC and rings back to the state after CTRL.RST, after the batches in flight.
    pub(crate) fn reset(&self, env: &Env) {
        let mut tx = self.tx.lock();
        let mut rx = self.rx.lock().revoke();
        self.reset_file(env);
        self.stats.clear();
        tx.reset();
        rx.reset();
        self.flow.reset();
        let mut irq = self.irq.lock();
        irq.reset(env);
        self.allow(&irq);
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

    /// Wakes all who wait for room.
    pub(crate) fn wake_waiters(&self) {
        let waiters = {
            let mut waiters = self.waiters.lock();
            self.has_waiters.store(false, Ordering::Release);
            std::mem::take(&mut *waiters)
        };
        for waker in waiters {
            waker.wake();
        }
    }

    /// As [`Shared::wake_waiters`], for whoever has held the receive lock since there is room. No
    /// lock is taken when nobody waits: one who registers too late to be seen here tries once more
    /// ([`frame::Sink::want_room`]), takes the receive lock for that after us, and finds the room.
    pub(crate) fn wake_any_waiters(&self) {
        if self.has_waiters.load(Ordering::Acquire) {
            self.wake_waiters();
        }
    }
}

//! The device, without a transport: it is told what was agreed upon and where its queues are.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use datapath::{Habit, Waiters};
use frame::{Counted, Finisher};
use lease::BoundedLock;
use model::{Kept, Moderation, Nanos, Work};
use parking_lot::Mutex;

use crate::core::chain::Chain;
use crate::core::coalesce::Calls;
use crate::core::config::{Config, MAX_PAIRS};
use crate::core::counters::Counters;
use crate::core::journal::Journal;
use crate::core::kept::KeptRing;
pub use crate::core::queues::Role;
use crate::core::queues::{Alike, CtrlQueue, Lines, RxQueues, RxScratch, TxQueues};
use crate::core::ring::{Format, Place, Position, Refused, Ring};
use crate::core::station::Station;
use crate::core::stats::{RxStats, Tally, TxStats};
use crate::core::steering::Steering;
use crate::core::unsaved::Unsaved;
use crate::core::write_log::{WriteLog, Writes};
use crate::regs::{NO_VECTOR, feature, net_status, status};

/// The first receive queue.
pub const RX: usize = 0;
/// The first transmit queue.
pub const TX: usize = 1;
/// The control queue, without multiqueue.
pub const CTRL: usize = 2;
/// Queues of a device with one pair.
pub const QUEUES: usize = 3;
/// Entries of the control queue.
const CTRL_ENTRIES: u16 = 64;

/// A virtio-net device. Register accesses, transmitter, receivers and the control queue share it; it owns no thread and
/// knows no transport.
pub struct Device {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) lines: Lines,
    pub(crate) tx: Mutex<TxQueues>,
    pub(crate) rx: BoundedLock<RxQueues>,
    pub(crate) ctrl: Mutex<CtrlQueue>,
    pub(crate) waiters: Waiters,
    /// The control queue was notified.
    pub(crate) ctrl_kicked: AtomicBool,
    /// Transmit queues that were notified, a bit for each pair.
    pub(crate) tx_kicked: AtomicU32,
    /// What goes on after this process died.
    pub(crate) kept: OnceLock<Kept>,
    /// A queue was enabled, and that is not saved yet: what went there now would not be known to who goes on.
    pub(crate) hold: AtomicBool,
    pub(crate) unsaved: Unsaved,
    /// What the timer is set to.
    pub(crate) armed: Mutex<Option<Nanos>>,
    /// Pairs that are used.
    pairs: AtomicU16,
    features: AtomicU64,
    /// Receive offloads that are on.
    offloads: AtomicU64,
    status: AtomicU8,
    generation: AtomicU8,
    /// It may reach the guest's memory.
    master: AtomicBool,
    /// The link is up, the driver shall announce itself.
    net: AtomicU16,
}

impl Device {
    /// A device after a reset.
    pub fn new(mut config: Config) -> Self {
        config.pairs = config.pairs.clamp(1, MAX_PAIRS);
        let pairs = usize::from(config.pairs);
        let vectors = (0..2 * pairs + 1).map(|_| AtomicU16::new(NO_VECTOR));
        let link = if config.link { net_status::LINK_UP } else { 0 };
        Self {
            counters: Counters::default(),
            lines: Lines {
                msix: AtomicBool::new(false),
                isr: Mutex::new(0),
                config: AtomicU16::new(NO_VECTOR),
                queues: vectors.collect(),
                tallies: (0..2 * pairs + 1).map(|_| Tally::default()).collect(),
            },
            tx: Mutex::new(TxQueues {
                rings: (0..pairs).map(|_| None).collect(),
                calls: Calls::new(pairs, config.moderation, true),
                stats: vec![TxStats::default(); pairs],
                first: 0,
                runs: Habit::default(),
                alike: Alike::default(),
                chain: Chain::default(),
                taken: Vec::new(),
                unsent: Vec::new(),
                narrow: false,
                finisher: Finisher::new(),
                writes: Writes::default(),
                discarded: 0,
            }),
            rx: BoundedLock::new(RxQueues {
                rings: (0..pairs).map(|_| None).collect(),
                calls: Calls::new(pairs, config.moderation, false),
                stats: vec![RxStats::default(); pairs],
                full_since: vec![None; pairs],
                steering: Steering::default(),
                station: Station::new(config.mac),
                scratch: RxScratch::default(),
            }),
            ctrl: Mutex::default(),
            waiters: Waiters::default(),
            ctrl_kicked: AtomicBool::new(false),
            tx_kicked: AtomicU32::new(0),
            kept: OnceLock::new(),
            hold: AtomicBool::new(false),
            unsaved: Unsaved::default(),
            armed: Mutex::default(),
            pairs: AtomicU16::new(1),
            features: AtomicU64::new(0),
            offloads: AtomicU64::new(0),
            status: AtomicU8::new(0),
            generation: AtomicU8::new(0),
            master: AtomicBool::new(false),
            net: AtomicU16::new(link),
            config,
        }
    }

    /// What it offers.
    pub fn offered(&self) -> u64 {
        self.config.features()
    }

    /// What was agreed upon.
    #[inline]
    pub fn features(&self) -> u64 {
        self.features.load(Ordering::Acquire)
    }

    /// Whether all of `features` were agreed upon.
    #[inline]
    pub fn has(&self, features: u64) -> bool {
        self.features() & features == features
    }

    /// Agrees upon `features`. `false`: they are not possible.
    pub fn agree(&self, features: u64) -> bool {
        let needs =
            |(feature, one_of): &(u64, u64)| features & feature == 0 || features & one_of != 0;
        let possible = features & !self.offered() == 0
            && features & feature::VERSION_1 != 0
            && feature::NEEDS.iter().all(needs);
        if possible {
            self.features.store(features, Ordering::Release);
            let offloads = features & feature::GUEST_OFFLOADS;
            self.offloads.store(offloads, Ordering::Release);
        }
        possible
    }

    /// Receive offloads that are on.
    #[inline]
    pub fn offloads(&self) -> u64 {
        self.offloads.load(Ordering::Acquire)
    }

    /// Switches receive offloads. `false`: some were not agreed upon, or need others.
    pub fn set_offloads(&self, offloads: u64) -> bool {
        let needs =
            |(feature, one_of): &(u64, u64)| offloads & feature == 0 || offloads & one_of != 0;
        let possible = offloads & !(self.features() & feature::GUEST_OFFLOADS) == 0
            && feature::NEEDS.iter().all(needs);
        if possible {
            self.offloads.store(offloads, Ordering::Release);
        }
        possible
    }

    /// The device status.
    pub fn status(&self) -> u8 {
        self.status.load(Ordering::Acquire)
    }

    /// Adds bits to the device status; returns those it had.
    pub fn add_status(&self, bits: u8) -> u8 {
        self.status.fetch_or(bits, Ordering::AcqRel)
    }

    /// The bus lets it reach the guest's memory, or no more.
    pub fn set_master(&self, on: bool) {
        self.master.store(on, Ordering::Release);
        if !on {
            self.settle();
        }
    }

    /// For a transport without PCI: the interrupt of queue `n` is message `n`, the configuration has none, and queues that
    /// are enabled are served from now on. What was agreed upon is said before.
    pub fn start_without_bus(&self) {
        self.lines.msix.store(true, Ordering::Release);
        self.lines.config.store(NO_VECTOR, Ordering::Release);
        for (vector, number) in self.lines.queues.iter().zip(0..) {
            vector.store(number, Ordering::Release);
        }
        self.add_status(status::FEATURES_OK | status::DRIVER_OK);
        self.set_master(true);
    }

    /// For each who has held the receive queues, once they are free: wakes senders that were turned away.
    #[inline]
    pub(crate) fn let_go(&self) {
        if self.rx.relieve() {
            self.waiters.wake();
        }
    }

    /// From now on `log` is told of what the device writes, but for the control queue; or nobody is.
    pub fn set_write_log(&self, log: Option<Arc<dyn WriteLog>>) {
        self.rx.lock().scratch.writes.log.clone_from(&log);
        self.tx.lock().writes.log = log;
    }

    /// The packets of the transmit queues of these pairs, a bit for each, go nowhere.
    pub fn set_discarded(&self, pairs: u32) {
        self.tx.lock().discarded = pairs;
    }

    /// Whether the bus lets it reach the guest's memory.
    pub fn is_master(&self) -> bool {
        self.master.load(Ordering::Acquire)
    }

    /// Whether queues are served.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.status() & status::DRIVER_OK != 0
            && self.master.load(Ordering::Acquire)
            && !self.hold.load(Ordering::Acquire)
    }

    /// The number of the configuration.
    pub fn generation(&self) -> u8 {
        self.generation.load(Ordering::Acquire)
    }

    /// The configuration has changed.
    pub fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The network status.
    #[inline]
    pub fn net_status(&self) -> u16 {
        self.net.load(Ordering::Acquire)
    }

    /// Changes the network status; `false` when it was so.
    pub fn set_net_status(&self, bits: u16, on: bool) -> bool {
        let before = if on {
            self.net.fetch_or(bits, Ordering::AcqRel)
        } else {
            self.net.fetch_and(!bits, Ordering::AcqRel)
        };
        (before & bits != 0) != on
    }

    /// The cable is in.
    #[inline]
    pub fn has_link(&self) -> bool {
        self.net_status() & net_status::LINK_UP != 0
    }

    /// How rings are used by what was agreed upon.
    pub fn format(&self) -> Format {
        Format::of(self.features())
    }

    /// Queues there are: pairs, and the control queue.
    pub fn queues(&self) -> usize {
        self.lines.queues.len()
    }

    /// Interrupt vectors: one of each queue, and one of the configuration.
    pub fn vectors(&self) -> u16 {
        self.queues() as u16 + 1
    }

    /// What queue `queue` is for, by what was agreed upon. The control queue is behind all pairs there are, or behind the
    /// only one there is if none of [`feature::SEVERAL`] is.
    #[inline]
    pub fn role(&self, queue: usize) -> Option<Role> {
        self.role_by(self.features(), queue)
    }

    /// The same, if these features are agreed upon.
    pub(crate) fn role_by(&self, features: u64, queue: usize) -> Option<Role> {
        let pairs = if features & feature::SEVERAL != 0 {
            self.config.pairs.into()
        } else {
            1
        };
        match queue {
            _ if queue == 2 * pairs => Some(Role::Ctrl),
            _ if queue > 2 * pairs => None,
            _ if queue.is_multiple_of(2) => Some(Role::Rx(queue / 2)),
            _ => Some(Role::Tx(queue / 2)),
        }
    }

    /// The number of the queue for this.
    pub fn queue_of(&self, role: Role) -> usize {
        match role {
            Role::Rx(pair) => 2 * pair,
            Role::Tx(pair) => 2 * pair + 1,
            Role::Ctrl if self.features() & feature::SEVERAL != 0 => {
                2 * usize::from(self.config.pairs)
            }
            Role::Ctrl => CTRL,
        }
    }

    /// Pairs that are used.
    #[inline]
    pub fn pairs(&self) -> usize {
        self.pairs.load(Ordering::Acquire).into()
    }

    /// Uses so many pairs. `false`: there are not so many, or several were not agreed upon.
    pub fn set_pairs(&self, pairs: u16) -> bool {
        let most = if self.features() & feature::SEVERAL != 0 {
            self.config.pairs
        } else {
            1
        };
        let possible = (1..=most).contains(&pairs);
        if possible {
            self.pairs.store(pairs, Ordering::Release);
            // What was notified before it was in use is looked at now.
            self.tx_kicked.store(u32::MAX, Ordering::Release);
        }
        possible
    }

    /// Queue `queue` was notified: what is to be done now. `None`: there is no such queue.
    pub fn notify(&self, queue: usize) -> Option<Work> {
        let work = self.work(queue)?;
        let tally = &self.lines.tallies[queue];
        tally.notified.fetch_add(1, Ordering::Relaxed);
        Some(work)
    }

    /// The same, if it was not.
    pub(crate) fn work(&self, queue: usize) -> Option<Work> {
        let tx = Work {
            tx: true,
            rx: false,
        };
        Some(match self.role(queue)? {
            Role::Rx(_) => Work {
                tx: false,
                rx: true,
            },
            Role::Tx(pair) => {
                self.kick(pair);
                tx
            }
            Role::Ctrl => {
                self.ctrl_kicked.store(true, Ordering::Release);
                tx
            }
        })
    }

    /// Interrupts are messages, not a line.
    pub fn set_messages(&self, on: bool) {
        self.lines.msix.store(on, Ordering::Release);
    }

    /// The message of a queue ([`NO_VECTOR`]: none). `false`: there is no such queue, or no such message.
    pub fn set_vector(&self, queue: usize, vector: u16) -> bool {
        let Some(slot) = self.lines.queues.get(queue) else {
            return false;
        };
        let possible = vector < self.vectors() || vector == NO_VECTOR;
        if possible {
            slot.store(vector, Ordering::Release);
        }
        possible
    }

    /// Notes that the transmit queue of this pair was notified.
    pub fn kick(&self, pair: usize) {
        self.tx_kicked.fetch_or(1 << pair, Ordering::AcqRel);
    }

    /// Whether a ring of this queue may have so many entries.
    pub fn may_have(&self, queue: usize, size: u16) -> bool {
        let possible = size.is_power_of_two() || size != 0 && self.has(feature::PACKED);
        possible && size <= self.most(queue)
    }

    /// Most entries of a queue.
    pub fn most(&self, queue: usize) -> u16 {
        self.most_by(self.features(), queue)
    }

    /// The same, if these features are agreed upon.
    pub(crate) fn most_by(&self, features: u64, queue: usize) -> u16 {
        match self.role_by(features, queue) {
            Some(Role::Rx(_) | Role::Tx(_)) => self.config.ring,
            Some(Role::Ctrl) => CTRL_ENTRIES,
            None => 0,
        }
    }

    /// Enables queue `queue`, whose ring is at `place` and has come to `position`.
    ///
    /// # Errors
    /// When no ring can be there.
    pub fn enable(&self, queue: usize, place: Place, position: Position) -> Result<(), Refused> {
        self.enable_noted(queue, place, position, None)
    }

    /// The same; if the ring is packed, `journal` is told of what is about to be written to it.
    ///
    /// # Errors
    /// As [`Device::enable`].
    pub fn enable_noted(
        &self,
        queue: usize,
        place: Place,
        position: Position,
        journal: Option<Arc<dyn Journal>>,
    ) -> Result<(), Refused> {
        if place.size > self.most(queue) {
            return Err(Refused::Size);
        }
        let mut ring = Ring::new(place, self.format(), position)?;
        if let (Ring::Packed(ring), Some(journal)) = (&mut ring, journal) {
            ring.set_journal(journal);
        }
        if let Some(kept) = self.kept.get() {
            ring.keep(KeptRing::new(kept, queue));
            ring.delivers();
            self.hold_on();
        }
        let ring = Some(ring);
        match self.role(queue).ok_or(Refused::Size)? {
            Role::Rx(pair) => {
                let mut rx = self.rx.lock();
                rx.rings[pair] = ring;
                rx.full_since[pair] = None;
                rx.calls.begin(pair);
            }
            Role::Tx(pair) => {
                let mut tx = self.tx.lock();
                tx.rings[pair] = ring;
                tx.calls.begin(pair);
                drop(tx);
                self.kick(pair);
            }
            Role::Ctrl => self.ctrl.lock().ring = ring,
        }
        Ok(())
    }

    /// Disables a queue. When this returns nothing touches its ring any more; where it was, if it was enabled and not
    /// broken, is returned.
    pub fn disable(&self, queue: usize) -> Option<Position> {
        let role = self.role(queue)?;
        let ring = match role {
            Role::Rx(pair) => self.rx.lock().rings[pair].take(),
            Role::Tx(pair) => self.tx.lock().rings[pair].take(),
            Role::Ctrl => self.ctrl.lock().ring.take(),
        };
        if let Role::Rx(_) = role {
            self.waiters.wake_any();
        }
        ring.map(|ring| ring.position())
    }

    /// Where a queue has come to; `None` if it is not enabled, or broken.
    pub fn position(&self, queue: usize) -> Option<Position> {
        let of = |ring: &Option<Ring>| ring.as_ref().map(Ring::position);
        match self.role(queue)? {
            Role::Rx(pair) => of(&self.rx.lock().rings[pair]),
            Role::Tx(pair) => of(&self.tx.lock().rings[pair]),
            Role::Ctrl => of(&self.ctrl.lock().ring),
        }
    }

    /// Waits until no one touches the guest's memory for this device.
    fn settle(&self) {
        drop(self.ctrl.lock());
        drop(self.tx.lock());
        drop(self.rx.lock());
        self.waiters.wake_any();
    }

    /// The operator has chosen when its driver is called. Behind this, both sides are to look at what waits.
    pub fn moderate(&self, how: Moderation) {
        self.rx.lock().calls.choose(how);
        self.tx.lock().calls.choose(how);
    }

    /// Back to what it is after power-up, but for the link. Queues are let go first, and the status is 0 when nothing
    /// touches them any more.
    pub fn reset(&self) {
        for queue in 0..self.queues() {
            self.disable(queue);
        }
        self.pairs.store(1, Ordering::Release);
        self.tx_kicked.store(0, Ordering::Release);
        self.ctrl_kicked.store(false, Ordering::Release);
        self.unsaved.reset();
        let mut rx = self.rx.lock();
        rx.station = Station::new(self.config.mac);
        rx.steering = Steering::default();
        rx.stats.fill(RxStats::default());
        rx.full_since.fill(None);
        rx.calls.reset();
        drop(rx);
        let mut tx = self.tx.lock();
        tx.calls.reset();
        tx.stats.fill(TxStats::default());
        drop(tx);
        self.ctrl.lock().commands = (0, 0);
        for tally in &self.lines.tallies {
            tally.set([0, 0]);
        }
        self.features.store(0, Ordering::Release);
        self.offloads.store(0, Ordering::Release);
        self.set_net_status(net_status::ANNOUNCE, false);
        self.lines.config.store(NO_VECTOR, Ordering::Release);
        for vector in &self.lines.queues {
            vector.store(NO_VECTOR, Ordering::Release);
        }
        self.status.store(0, Ordering::Release);
    }

    /// Takes over what was saved, when all of it has been checked.
    pub(crate) fn restore(&self, saved: Saved) {
        self.features.store(saved.features, Ordering::Release);
        self.offloads.store(saved.offloads, Ordering::Release);
        self.status.store(saved.status, Ordering::Release);
        self.pairs.store(saved.pairs, Ordering::Release);
        self.generation.store(saved.generation, Ordering::Release);
        self.master.store(saved.master, Ordering::Release);
        self.lines.msix.store(saved.msix, Ordering::Release);
        self.lines.config.store(saved.config, Ordering::Release);
    }
}

impl Counted for Device {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.counters.visit(visit);
    }
}

/// What [`Device::restore`] takes over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    pub features: u64,
    pub offloads: u64,
    pub status: u8,
    pub generation: u8,
    pub master: bool,
    pub msix: bool,
    pub config: u16,
    pub pairs: u16,
}

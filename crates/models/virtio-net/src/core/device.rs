//! The device, without a transport: it is told what was agreed upon and where its queues are.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};

use datapath::Waiters;
use frame::Finisher;
use parking_lot::Mutex;

use crate::core::chain::Chain;
use crate::core::config::Config;
use crate::core::counters::Counters;
use crate::core::ring::{Format, Place, Position, Refused, Ring};
use crate::core::station::Station;
use crate::regs::{NO_VECTOR, feature, net_status, status};

/// The receive queue.
pub const RX: usize = 0;
/// The transmit queue.
pub const TX: usize = 1;
/// The control queue, without multiqueue.
pub const CTRL: usize = 2;
/// Queues there are.
pub const QUEUES: usize = 3;
/// Interrupt vectors: one of each queue, and one of the configuration.
pub const VECTORS: u16 = QUEUES as u16 + 1;

/// What became of a packet that was taken from the transmit ring.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It is the next frame of the batch, of so many bytes.
    Frame(u32),
    /// The same, unsegmented, of so many segments. They are cut here if they are `narrow`.
    Segments {
        /// Bytes.
        len: u32,
        /// Segments.
        segments: u32,
        /// They are too short for a sink to be burdened with the cutting.
        narrow: bool,
    },
    /// It is dropped.
    Dropped(Bad),
}

/// Why a packet is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// No room for the header and an Ethernet header.
    Runt,
    /// Longer than 64 KiB and headers.
    TooLong,
    /// Something that was not agreed upon.
    NotAgreed,
    /// The checksum is outside of the packet.
    Csum,
    /// A segmentation that cannot be.
    Gso,
    /// The cable is out.
    NoLink,
}

/// The transmit queue with its storage.
#[derive(Default)]
pub struct TxQueue {
    /// The ring, while it is enabled and not broken.
    pub ring: Option<Ring>,
    /// Storage.
    pub chain: Chain,
    /// Packets of the batch and between them, in order.
    pub taken: Vec<(u16, Fate)>,
    /// Some of them are to be cut here.
    pub narrow: bool,
    /// Cuts what the sink does not take whole.
    pub finisher: Finisher,
}

/// The receive queue with its storage.
pub struct RxQueue {
    /// The ring, while it is enabled and not broken.
    pub ring: Option<Ring>,
    /// What is received.
    pub station: Station,
    /// Storage.
    pub scratch: RxScratch,
}

/// What the placing of a frame needs.
#[derive(Default)]
pub struct RxScratch {
    /// Storage.
    pub chain: Chain,
    /// Storage: the buffers it takes, and their bytes.
    pub buffers: Vec<(u16, u32)>,
}

/// The control queue.
#[derive(Default)]
pub struct CtrlQueue {
    /// The ring, while it is enabled and not broken.
    pub ring: Option<Ring>,
    /// Storage.
    pub chain: Chain,
    /// Storage: the command.
    pub command: Vec<u8>,
}

/// How interrupts reach the driver.
#[derive(Debug)]
pub struct Lines {
    /// By message, not by line.
    pub msix: AtomicBool,
    /// The interrupt status. Held while the line follows it.
    pub isr: Mutex<u8>,
    /// Vector of the configuration.
    pub config: AtomicU16,
    /// Vectors of the queues.
    pub queues: [AtomicU16; QUEUES],
}

/// A virtio-net device. Register accesses, transmitter, receivers and the control queue share it; it owns no thread and
/// knows no transport.
pub struct Device {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) lines: Lines,
    pub(crate) tx: Mutex<TxQueue>,
    pub(crate) rx: Mutex<RxQueue>,
    pub(crate) ctrl: Mutex<CtrlQueue>,
    pub(crate) waiters: Waiters,
    /// The control queue was notified.
    pub(crate) ctrl_kicked: AtomicBool,
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
    pub fn new(config: Config) -> Self {
        let link = if config.link { net_status::LINK_UP } else { 0 };
        Self {
            counters: Counters::default(),
            lines: Lines {
                msix: AtomicBool::new(false),
                isr: Mutex::new(0),
                config: AtomicU16::new(NO_VECTOR),
                queues: [const { AtomicU16::new(NO_VECTOR) }; QUEUES],
            },
            tx: Mutex::default(),
            rx: Mutex::new(RxQueue {
                ring: None,
                station: Station::new(config.mac),
                scratch: RxScratch::default(),
            }),
            ctrl: Mutex::default(),
            waiters: Waiters::default(),
            ctrl_kicked: AtomicBool::new(false),
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

    /// Whether the bus lets it reach the guest's memory.
    pub fn is_master(&self) -> bool {
        self.master.load(Ordering::Acquire)
    }

    /// Whether queues are served.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.status() & status::DRIVER_OK != 0 && self.master.load(Ordering::Acquire)
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

    /// Most entries of a queue.
    pub fn most(&self, queue: usize) -> u16 {
        match queue {
            RX | TX => self.config.ring,
            _ => 64,
        }
    }

    /// Enables queue `queue`, whose ring is at `place` and has come to `position`.
    ///
    /// # Errors
    /// When no ring can be there.
    pub fn enable(&self, queue: usize, place: Place, position: Position) -> Result<(), Refused> {
        if place.size > self.most(queue) {
            return Err(Refused::Size);
        }
        let ring = Some(Ring::new(place, self.format(), position)?);
        match queue {
            RX => self.rx.lock().ring = ring,
            TX => self.tx.lock().ring = ring,
            _ => self.ctrl.lock().ring = ring,
        }
        Ok(())
    }

    /// Disables a queue. When this returns nothing touches its ring any more; where it was, if it was enabled and not
    /// broken, is returned.
    pub fn disable(&self, queue: usize) -> Option<Position> {
        let ring = match queue {
            RX => self.rx.lock().ring.take(),
            TX => self.tx.lock().ring.take(),
            _ => self.ctrl.lock().ring.take(),
        };
        if queue == RX {
            self.waiters.wake_any();
        }
        ring.map(|ring| ring.position())
    }

    /// Where a queue has come to; `None` if it is not enabled, or broken.
    pub fn position(&self, queue: usize) -> Option<Position> {
        let of = |ring: &Option<Ring>| ring.as_ref().map(Ring::position);
        match queue {
            RX => of(&self.rx.lock().ring),
            TX => of(&self.tx.lock().ring),
            _ => of(&self.ctrl.lock().ring),
        }
    }

    /// Waits until no one touches the guest's memory for this device.
    fn settle(&self) {
        drop(self.ctrl.lock());
        drop(self.tx.lock());
        drop(self.rx.lock());
        self.waiters.wake_any();
    }

    /// Back to what it is after power-up, but for the link. Queues are let go first, and the status is 0 when nothing
    /// touches them any more.
    pub fn reset(&self) {
        for queue in 0..QUEUES {
            self.disable(queue);
        }
        self.ctrl_kicked.store(false, Ordering::Release);
        self.rx.lock().station = Station::new(self.config.mac);
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
        self.generation.store(saved.generation, Ordering::Release);
        self.master.store(saved.master, Ordering::Release);
        self.lines.msix.store(saved.msix, Ordering::Release);
        self.lines.config.store(saved.config, Ordering::Release);
        for (vector, saved) in self.lines.queues.iter().zip(saved.queues) {
            vector.store(saved, Ordering::Release);
        }
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
    pub queues: [u16; QUEUES],
}

//! A virtio-net device as the server's back end.
//!
//! The front end has what the driver configures: the control queue, the filter, the link. So what the device offers by
//! the control queue is not offered here, and the device receives everything.

use std::sync::Arc;

use model::{Moderation, Work};
use parking_lot::Mutex;
use vhost_user::codec::protocol;
use vhost_user::{Backend, Calls, ClientEvent, DirtyLog, Refused, Ring};
use virtio_net::regs::{feature, status};
use virtio_net::{Device, Journal, Place, Position, WriteLog};

use super::super::engine::Engine;
use super::super::rarp;
use super::migration::{AllMarks, DoorState, Marks, PageLog, RingNote};

/// What the device offers and the front end must not: its own, or of no use without a bus.
const HIDDEN: u64 = feature::CTRL_VQ
    | feature::CTRL_RX
    | feature::CTRL_VLAN
    | feature::CTRL_RX_EXTRA
    | feature::CTRL_MAC_ADDR
    | feature::CTRL_GUEST_OFFLOADS
    | feature::NOTF_COAL
    | feature::RSS
    | feature::HASH_REPORT
    | feature::DEVICE_STATS
    | feature::VQ_NOTF_COAL
    | feature::STATUS
    | feature::SPEED_DUPLEX
    | feature::NOTIFICATION_DATA
    // The protocol has no message for it, and QEMU tells a back end nothing of it: the device would go on with the old ring.
    | feature::RING_RESET;

/// What only the front end obeys.
const FRONT_ENDS: u64 = feature::MTU | feature::GUEST_ANNOUNCE;

/// Bytes of a descriptor.
const DESC: u64 = 16;

/// A queue, as the front end has described it.
#[derive(Debug, Default)]
struct Queue {
    /// While it is started.
    started: Option<Started>,
    enabled: bool,
    /// Who is told of what is about to be written to it.
    note: Option<Arc<dyn Journal>>,
}

#[derive(Clone, Copy, Debug)]
struct Started {
    place: Place,
    /// Where it goes on when the device takes it up.
    position: Position,
    /// The device has it.
    followed: bool,
    packed: bool,
}

impl Started {
    /// As in [`Ring::base`].
    fn base(&self) -> u32 {
        let Position { next, used, .. } = self.position;
        if self.packed {
            u32::from(next) | u32::from(used) << 16
        } else {
            next.into()
        }
    }
}

/// What happened that no one else counts.
#[derive(Debug, Default)]
struct Counts {
    announced: u64,
    announcements_lost: u64,
    bases_corrected: u64,
    rings_refused: u64,
    broken_rings: u64,
}

/// The device and what is around it.
pub(super) struct Board {
    pub engine: Engine,
    device: Arc<Device>,
    calls: Calls,
    queues: Vec<Queue>,
    marks: AllMarks,
    /// As the front end has said.
    features: u64,
    mtu: Option<u16>,
    noted: Work,
    /// The front end knows that a ring is broken.
    told_broken: bool,
    counts: Counts,
}

impl Board {
    pub fn new(device: Arc<Device>, calls: Calls, engine: Engine) -> Self {
        let queues = queues(&device);
        Self {
            engine,
            device,
            calls,
            queues: (0..queues).map(|_| Queue::default()).collect(),
            marks: Arc::new(Mutex::new(vec![Marks::default(); queues.into()])),
            features: 0,
            mtu: None,
            noted: Work::default(),
            told_broken: false,
            counts: Counts::default(),
        }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The operator has chosen when the driver is called.
    pub fn moderate(&mut self, how: Moderation) {
        self.device.moderate(how);
        self.tick();
    }

    /// The model's deadline has come.
    pub fn tick(&mut self) {
        self.device.tick(&self.engine.env);
        self.noted = Work { tx: true, rx: true };
    }

    /// Notes everything that may be to do.
    pub fn note_all(&mut self) {
        for queue in 0..self.queues.len() {
            if self.queues[queue].started.is_some() {
                self.note(queue);
            }
        }
    }

    /// Where the transmit queues are: other numbers than before say that something was sent.
    pub fn sent(&self) -> u64 {
        let tx = (1..self.queues.len()).step_by(2);
        let next = tx.filter_map(|queue| Some(self.device.position(queue)?.next));
        next.map(u64::from).sum()
    }

    fn note(&mut self, queue: usize) {
        if let Some(Work { tx, rx }) = self.device.notify(queue) {
            self.noted.tx |= tx;
            self.noted.rx |= rx;
        }
    }

    /// As after power-up, with what was agreed upon: what broke a ring is forgotten.
    fn renew(&mut self) {
        self.device.reset();
        self.told_broken = false;
        if self.agree() {
            self.device.start_without_bus();
        }
    }

    fn agree(&self) -> bool {
        let mut features = self.features & !FRONT_ENDS;
        if features & feature::MQ != 0 {
            // Several pairs need it, and the front end has it.
            features |= feature::CTRL_VQ;
        }
        self.device.agree(features)
    }

    /// Gives the device the queues that run, and takes those that do not. A transmit queue that is not enabled drops what
    /// is sent.
    fn settle(&mut self) -> Result<(), virtio_net::Refused> {
        let mut discarded = 0;
        for (at, queue) in self.queues.iter_mut().enumerate() {
            let transmits = at % 2 == 1;
            let Some(started) = &mut queue.started else {
                continue;
            };
            if transmits && !queue.enabled {
                discarded |= 1 << (at / 2);
            }
            let wanted = transmits || queue.enabled;
            if !started.followed {
                // One that is not wanted yet is tried.
                let note = queue.note.clone();
                self.device
                    .enable_noted(at, started.place, started.position, note)?;
            }
            if !wanted {
                started.position = self.device.disable(at).unwrap_or(started.position);
            }
            started.followed = wanted;
        }
        self.device.set_discarded(discarded);
        let receives = |queue: &&Queue| queue.enabled && queue.started.is_some();
        let pairs = self.queues.iter().step_by(2).take_while(receives).count();
        // Several were perhaps not agreed upon.
        if !self.device.set_pairs(pairs.max(1) as u16) {
            self.device.set_pairs(1);
        }
        Ok(())
    }

    fn refuse(&mut self, why: virtio_net::Refused) -> Refused {
        self.counts.rings_refused += 1;
        Refused(match why {
            virtio_net::Refused::Size => "the device has no rings of so many descriptors",
            virtio_net::Refused::Address => "no ring can be there",
            virtio_net::Refused::Position => "no ring can have come there",
        })
    }

    /// Where a split ring goes on: after a crash of the last back end the front end may not know, and what is used is in
    /// order.
    fn used_index(&mut self, ring: &Ring) -> u16 {
        let mut used = [0; 2];
        let view = self.engine.env.memory.view();
        let read = view.read_acquire(ring.device + 2, &mut used);
        drop(view);
        let base = ring.base as u16;
        let used = read.map_or(base, |()| u16::from_le_bytes(used));
        self.counts.bases_corrected += u64::from(used != base);
        used
    }

    /// Tells the front end of rings that are broken, once.
    fn tell_broken(&mut self) {
        let needs_reset = self.needs_reset();
        if !needs_reset || std::mem::replace(&mut self.told_broken, true) {
            return;
        }
        for at in 0..self.queues.len() {
            let followed = self.queues[at].started.is_some_and(|s| s.followed);
            if followed && self.device.position(at).is_none() {
                self.counts.broken_rings += 1;
                self.calls.error(at as u16);
            }
        }
        if let Some(held_back) = self.engine.may_log() {
            let name = &self.engine.name;
            tracing::warn!(nic = %name, held_back, "its guest broke a ring, and has to reset the device");
        }
    }

    pub fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("announced", self.counts.announced);
        visit("announcements_lost", self.counts.announcements_lost);
        visit("ring_bases_corrected", self.counts.bases_corrected);
        visit("rings_refused", self.counts.rings_refused);
        visit("rings_broken", self.counts.broken_rings);
    }
}

/// Queues that a front end sees of a device: not the control queue.
pub(in crate::nic) fn queues(device: &Device) -> u16 {
    device.queues() as u16 - 1
}

impl Backend for Board {
    fn queues(&self) -> u16 {
        self.queues.len() as u16
    }

    fn features(&self) -> u64 {
        (self.device.offered() | FRONT_ENDS) & !HIDDEN
    }

    fn protocol_features(&self) -> u64 {
        // Not CONFIG: the configuration is the front end's, and QEMU complains of those who offer it.
        protocol::RARP | protocol::MTU | protocol::DEVICE_STATE
    }

    fn set_features(&mut self, features: u64) -> Result<(), Refused> {
        let before = std::mem::replace(&mut self.features, features);
        if features != 0 && !self.agree() {
            self.features = before;
            return Err(Refused(
                "a virtio 1 device, and only features that go together",
            ));
        }
        Ok(())
    }

    fn start(&mut self, queue: u16, ring: &Ring) -> Result<(), Refused> {
        if self.queues.iter().all(|queue| queue.started.is_none()) {
            self.renew();
        }
        let (next, used) = if ring.packed {
            let (next, used) = (ring.base as u16, (ring.base >> 16) as u16);
            // DPDK's virtio-user says nothing of what is used.
            (next, if used == 0 { next } else { used })
        } else {
            let used = self.used_index(ring);
            (used, used)
        };
        let at = usize::from(queue);
        let note = ring.inflight_packed.clone().map(RingNote);
        self.queues[at].note = note.map(|note| Arc::new(note) as Arc<dyn Journal>);
        self.queues[at].started = Some(Started {
            place: Place {
                size: ring.size,
                desc: ring.descriptors,
                driver: ring.driver,
                device: ring.device,
            },
            position: Position {
                next,
                used,
                told: used,
                // The server calls at each start.
                resumed: false,
            },
            followed: false,
            packed: ring.packed,
        });
        let entries = u64::from(ring.size);
        self.marks.lock()[at] = Marks {
            device: ring.log,
            device_len: if ring.packed { 4 } else { 6 + 8 * entries },
            descriptors: ring.packed.then_some((ring.descriptors, DESC * entries)),
        };
        self.settle().map_err(|why| {
            self.queues[at].started = None;
            self.refuse(why)
        })
    }

    fn stop(&mut self, queue: u16) -> u32 {
        let at = usize::from(queue);
        let Some(mut started) = self.queues[at].started.take() else {
            return 0;
        };
        if started.followed {
            // A broken ring goes on nowhere.
            started.position = self.device.disable(at).unwrap_or(started.position);
        }
        // It gives up nothing that was there.
        let _ = self.settle();
        started.base()
    }

    fn enable(&mut self, queue: u16, enabled: bool) {
        self.queues[usize::from(queue)].enabled = enabled;
        if let Err(why) = self.settle() {
            // It was possible when it started.
            self.refuse(why);
        }
        self.note(queue.into());
    }

    fn kicked(&mut self, queue: u16) {
        self.note(queue.into());
    }

    fn log_ring(&mut self, queue: u16, log: Option<u64>) {
        self.marks.lock()[usize::from(queue)].device = log;
    }

    fn set_log(&mut self, log: Option<DirtyLog>) {
        let marks = &self.marks;
        let to = |log| {
            let marks = Arc::clone(marks);
            Arc::new(PageLog { log, marks }) as Arc<dyn WriteLog>
        };
        self.device.set_write_log(log.map(to));
    }

    fn reset(&mut self) {
        self.features = 0;
        self.mtu = None;
        self.renew();
    }

    fn needs_reset(&self) -> bool {
        self.device.status() & status::NEEDS_RESET != 0
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        // Drivers keep to it by themselves.
        self.mtu = Some(mtu);
        Ok(())
    }

    fn announce(&mut self, mac: [u8; 6]) {
        match rarp::announce(&*self.engine.out, mac, None) {
            true => self.counts.announced += 1,
            false => self.counts.announcements_lost += 1,
        }
    }

    fn save(&mut self) -> Option<Vec<u8>> {
        Some(snapshot::seal(&DoorState { mtu: self.mtu }))
    }

    fn load(&mut self, state: &[u8]) -> Result<(), Refused> {
        let found: DoorState = snapshot::open(<DoorState as snapshot::State>::KIND, state)
            .and_then(|saved| saved.decode())
            .map_err(|_| Refused("no state of such a device"))?;
        self.mtu = found.mtu;
        Ok(())
    }

    fn client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Connected => self.engine.attach(true),
            ClientEvent::Gone(_) => self.engine.attach(false),
            ClientEvent::Declined(_) | ClientEvent::Refused(_) => {}
        }
        let Some(held_back) = self.engine.may_log() else {
            return;
        };
        let name = &self.engine.name;
        match event {
            ClientEvent::Connected => tracing::info!(nic = %name, held_back, "VMM connected"),
            ClientEvent::Gone(why) => {
                tracing::info!(nic = %name, held_back, "VMM disconnected: {why}; waiting for the next");
            }
            ClientEvent::Declined(what) => {
                tracing::warn!(nic = %name, held_back, "its VMM was declined {what}");
            }
            ClientEvent::Refused(why) => {
                tracing::warn!(nic = %name, held_back, "refused another VMM: {why}");
            }
        }
    }

    fn work(&mut self) -> vhost_user::Work {
        let noted = std::mem::take(&mut self.noted);
        let more = self.engine.work(noted);
        self.tell_broken();
        if more {
            vhost_user::Work::More
        } else {
            vhost_user::Work::Idle
        }
    }
}

//! The NIC as one object.

use std::sync::Arc;

use frame::{Batch, Caps, Counted, MAX_BATCH, Sink, Wake};
use guest_mem::{Memory, Remote};
use model::{
    Clock, Control, Env, Identity, Nanos, PciState, PmeWrite, Progress, Receive, ResetKind, Space,
    Timer, Transmit,
};
use parking_lot::Mutex;
use pci::{ConfigEvent, ConfigSpace, PowerState};
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State, StateError};
use wire::Offload;

use crate::host::Host;
use crate::pins::{Pins, Route};

/// What can go wrong while a NIC is made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such model.
    #[error("there is no NIC model \"{0}\"; there are: {list}", list = registry::MODELS.list())]
    Model(String),
    /// The model cannot be described to a guest.
    #[error("the model describes no PCI function: {0}")]
    Config(#[from] pci::BuildError),
}

/// What a bus needs to know of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Bytes of each BAR, 0 for none.
    pub bar_size: [u64; 6],
    /// Which BARs are I/O ports, bit by bit.
    pub io_bars: u8,
}

/// The clock, timer and memory of the host, as models see them.
struct Services(Arc<dyn Host>);

impl Clock for Services {
    fn now(&self) -> Nanos {
        self.0.now()
    }
}

impl Timer for Services {
    fn arm(&self, deadline: Option<Nanos>) {
        self.0.set_timer(deadline);
    }
}

impl Wake for Services {
    fn wake(&self) {
        self.0.room();
    }
}

impl Remote for Services {
    fn read(&self, iova: u64, out: &mut [u8]) -> bool {
        self.0.dma_read(iova, out)
    }

    fn write(&self, iova: u64, bytes: &[u8]) -> bool {
        self.0.dma_write(iova, bytes)
    }
}

/// The wire.
struct Out {
    host: Arc<dyn Host>,
    /// Room to put a frame together.
    whole: Mutex<Vec<u8>>,
}

impl Sink for Out {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut whole = self.whole.lock();
        for (done, frame) in picks.iter().map(|&i| batch.get(i.into())).enumerate() {
            let Some(frame) = frame else { continue };
            whole.resize(frame.len(), 0);
            let n = frame.copy_to(0, &mut whole);
            if !self.host.send(&whole[..n]) {
                return done;
            }
        }
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, _waker: &Arc<dyn Wake>) {
        // The host calls `run` again when it has room.
    }
}

/// A saved NIC. Released versions never change.
#[derive(Serialize, Deserialize)]
struct V1 {
    config: Vec<u8>,
    model: Vec<u8>,
    waiting: bool,
}

impl State for V1 {
    const KIND: Kind = Kind::new("nic");
    const VERSION: u32 = 1;
}

/// A saved NIC with MSI-X. Released versions never change.
#[derive(Serialize, Deserialize)]
struct V2 {
    nic: V1,
    vectors: Vec<u8>,
    pending: Vec<u8>,
}

impl State for V2 {
    const KIND: Kind = V1::KIND;
    const VERSION: u32 = 2;
}

/// A NIC.
pub struct Nic {
    identity: Identity,
    config: ConfigSpace,
    control: Box<dyn Control>,
    /// Of its model.
    revision: u16,
    transmit: Box<dyn Transmit>,
    receive: Arc<dyn Receive>,
    env: Env,
    pins: Arc<Pins>,
    out: Out,
    room: Arc<dyn Wake>,
    /// The transmitter stopped with work left.
    waiting: bool,
    /// Storage of the batch that frames come in.
    spare: Batch<'static>,
    picks: Vec<u16>,
}

impl Nic {
    /// Puts the parts of a model together.
    ///
    /// # Errors
    /// [`Error::Config`] when the model describes no possible PCI function.
    pub fn of(parts: model::Nic, host: Arc<dyn Host>) -> Result<Self, Error> {
        let config = parts.identity.config().build()?;
        let services = Arc::new(Services(Arc::clone(&host)));
        let memory = Memory::new();
        memory.set_remote(Some(services.clone()));
        let pins = Pins::new(Arc::clone(&host), parts.identity.msix);
        let env = Env {
            memory,
            irq: pins.clone(),
            clock: services.clone(),
            timer: services.clone(),
        };
        let mut nic = Self {
            identity: parts.identity,
            config,
            control: parts.control,
            revision: parts.revision,
            transmit: parts.transmit,
            receive: parts.receive,
            env,
            pins,
            out: Out {
                host,
                whole: Mutex::default(),
            },
            room: services,
            waiting: false,
            spare: Batch::new(),
            picks: Vec::new(),
        };
        nic.reset();
        nic.set_link(true);
        Ok(nic)
    }

    /// What the bus needs to know.
    pub fn description(&self) -> Description {
        let mut sizes = [0; 6];
        let mut io = 0;
        for bar in &self.identity.bars {
            if let Some(size) = sizes.get_mut(usize::from(bar.index)) {
                *size = bar.size;
            }
            if bar.space == Space::Io {
                io |= 1u8 << (bar.index & 7);
            }
        }
        Description {
            vendor: self.identity.vendor,
            device: self.identity.device,
            bar_size: sizes,
            io_bars: io,
        }
    }

    /// The guest's memory: what is mapped here is reached without asking the host.
    pub fn memory(&self) -> &Memory {
        &self.env.memory
    }

    /// Reads PCI configuration space: 256 bytes, or 4096 of a PCI Express NIC, and ones beyond.
    pub fn config_read(&mut self, offset: u64, data: &mut [u8]) {
        self.config.set_interrupt_status(self.pins.level());
        self.show_pme();
        self.config.read(offset, data);
    }

    /// Writes configuration space: BARs, bus mastering, interrupt routing. Follow with
    /// [`Nic::run`].
    pub fn config_write(&mut self, offset: u64, data: &[u8]) {
        let asleep = self.config.power_state() == PowerState::D3Hot;
        self.show_pme();
        let events = self.config.write(offset, data);
        let mut pme = None;
        for event in events.iter() {
            match *event {
                ConfigEvent::FunctionReset => return self.reset(),
                ConfigEvent::Pme(write) => pme = Some(write),
                _ => {}
            }
        }
        let awake = self.config.power_state() == PowerState::D0;
        if asleep && awake && !self.config.no_soft_reset() {
            return self.reset_by(ResetKind::PowerUp);
        }
        self.pins.route(Route::of(&self.config));
        self.tell_pci(pme);
    }

    /// Where the guest has put BAR `bar`, while it decodes there.
    pub fn bar_address(&self, bar: u8) -> Option<u64> {
        self.config.bar_address(bar)
    }

    /// Reads `data.len()` bytes at `offset` of BAR `bar`, any size and alignment.
    pub fn read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        if !self.pins.read(bar, offset, data) {
            self.control.read(&self.env, bar, offset, data);
        }
    }

    /// Writes to a BAR. Follow with [`Nic::run`].
    pub fn write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        if !self.pins.write(bar, offset, data) {
            self.control.write(&self.env, bar, offset, data);
        }
    }

    /// Does what accesses asked for: sends at most about `budget` frames, and moves what waited for
    /// buffers. [`Progress::More`]: call again soon. [`Progress::Blocked`]: call again when
    /// [`Host::send`] has room.
    pub fn run(&mut self, budget: usize) -> Progress {
        let work = self.control.take_work();
        if work.rx {
            self.receive.poll(&self.env);
        }
        if !(work.tx || self.waiting) {
            return Progress::Idle;
        }
        let progress = self.transmit.run(&self.env, &self.out, budget.max(1));
        self.waiting = progress != Progress::Idle;
        progress
    }

    /// Offers frames from the wire, each from the destination address to the end of the payload,
    /// without FCS. Returns how many were dealt with: received, or dropped as the chip drops them.
    /// The rest found no buffers; offer them again after [`Host::room`], or drop them.
    pub fn receive(&mut self, frames: &[&[u8]]) -> usize {
        let mut done = 0;
        for some in frames.chunks(MAX_BATCH) {
            let mut batch = std::mem::take(&mut self.spare).recycle();
            for frame in some {
                batch.push_bytes(frame);
                batch.end(Offload::NONE);
            }
            let picks = batch.all_picks(&mut self.picks);
            let mut taken = self.receive.deliver(&self.env, &batch, picks);
            if taken < some.len() {
                // Room may come between the attempt and the registration.
                self.receive.want_room(&self.room);
                taken += self.receive.deliver(&self.env, &batch, &picks[taken..]);
            }
            self.spare = batch.recycle();
            done += taken;
            if taken < some.len() {
                break;
            }
        }
        done
    }

    /// The time of [`Host::set_timer`] has come. Follow with [`Nic::run`].
    pub fn tick(&mut self) {
        self.control.tick(&self.env);
    }

    /// Pulls the cable or plugs it in. Follow with [`Nic::run`].
    pub fn set_link(&mut self, up: bool) {
        self.control.set_link(&self.env, up);
    }

    /// RST# of the bus: the machine was reset.
    pub fn reset(&mut self) {
        self.reset_by(ResetKind::Bus);
    }

    fn reset_by(&mut self, kind: ResetKind) {
        self.config.reset();
        self.pins.route(Route::default());
        self.pins.reset_table();
        self.control.reset(&self.env, kind);
        self.tell_pci(None);
        self.waiting = false;
    }

    /// PMCSR shows what the model has.
    fn show_pme(&mut self) {
        self.config.set_pme(self.pins.pme());
    }

    /// The whole NIC as bytes, between two calls: configuration space, registers, what is under way.
    /// Not in it: memory maps and what [`new`](crate::new) was told. Do not use this NIC afterwards
    /// if another one goes on with its state.
    pub fn save(&self) -> Vec<u8> {
        let nic = V1 {
            config: self.config.save(),
            model: self.control.save(&self.env),
            waiting: self.waiting,
        };
        let state = match self.pins.save() {
            None => snapshot::seal(&nic),
            Some((vectors, pending)) => snapshot::seal(&V2 {
                nic,
                vectors,
                pending,
            }),
        };
        snapshot::stamp(state, self.revision)
    }

    /// Becomes what [`Nic::save`] saved, in this or another process. Follow with [`Nic::run`].
    ///
    /// # Errors
    /// A state that is damaged, impossible, of another NIC or model revision, or from a newer program is refused with
    /// the reason, and the NIC stays as it was.
    pub fn load(&mut self, state: &[u8]) -> Result<(), StateError> {
        let state = &*snapshot::stamped(state, self.revision)?;
        let saved = snapshot::open(V1::KIND, state)?;
        let expected = match self.identity.msix {
            None => V1::VERSION,
            Some(_) => V2::VERSION,
        };
        if saved.version != expected {
            return Err(StateError::Version {
                kind: V1::KIND,
                found: saved.version,
                newest: expected,
            });
        }
        let (nic, table) = if expected == V1::VERSION {
            (saved.decode()?, None)
        } else {
            let V2 {
                nic,
                vectors,
                pending,
            } = saved.decode()?;
            let table = self.pins.loaded(&vectors, &pending);
            let table = table.ok_or(StateError::Field {
                field: "vectors",
                value: vectors.len() as u64,
                why: "no table that this NIC can have",
            })?;
            (nic, Some(table))
        };
        let V1 {
            config,
            model,
            waiting,
        } = nic;
        let mut space = self.config.clone();
        space.load(&config)?;
        // Before the model, which may send a message at once.
        let before = self.pins.replace(table);
        self.pins.route(Route::of(&space));
        if let Err(refused) = self.control.load(&self.env, &model) {
            self.pins.replace(before);
            self.pins.route(Route::of(&self.config));
            return Err(refused);
        }
        self.config = space;
        self.waiting |= waiting;
        Ok(())
    }

    /// Visits the NIC's counters: frames, bytes, interrupts, and each kind of refusal.
    pub fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let counted: &dyn Counted = &*self.control;
        counted.counters(visit);
        self.env.memory.counters(visit);
    }

    fn tell_pci(&mut self, pme: Option<PmeWrite>) {
        let state = PciState {
            bus_master: self.config.command() & pci::command::MASTER != 0,
            msi: self.config.msi_enabled(),
            msix: self.config.msix_enabled(),
            d3: self.config.power_state() == pci::PowerState::D3Hot,
            vfs: self.config.vfs(),
            pme,
        };
        self.control.pci(&self.env, state);
    }
}

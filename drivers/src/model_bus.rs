//! A bare model behind [`Bus`]: one thread, one clock that moves only by hand.

mod lock;
mod pin;
mod recorder;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frame::{Batch, Caps, Counted, Cut, MAX_BATCH, Run, Sink, Wake};
use guest_mem::Memory;
use model::{
    Clock, Env, Identity, Nanos, Nic, PciState, Progress, Receive, ResetKind, Space, Transmit,
};
use model_testkit::Time;
use wire::Offload;

use crate::bus::{Bus, BusError, Dma};

pub use pin::Automask;
pub use recorder::{Recorded, Recorder};

/// Rounds of [`Transmit::run`] after which the model is taken to run for ever. Each is a budget
/// of [`MAX_BATCH`] frames, so a full ring needs about sixteen.
const MAX_ROUNDS: u32 = 4096;

const PAGE: u64 = 0x1000;

/// The receive side of a model, as a sink for the NIC at the other end of its cable.
struct Socket {
    receive: Arc<dyn Receive>,
    env: Env,
}

impl Sink for Socket {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.receive.deliver(&self.env, batch, picks)
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.receive.deliver_run(&self.env, run)
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.receive.deliver_cut(&self.env, cut, from)
    }

    fn caps(&self) -> Caps {
        self.receive.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.receive.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.receive.give_up(&self.env, batch, picks);
    }
}

/// A model, its machine and its cable, in process.
pub struct ModelBus {
    identity: Identity,
    control: Box<dyn model::Control>,
    transmit: Box<dyn Transmit>,
    receive: Arc<dyn Receive>,
    env: Env,
    clock: Arc<Time>,
    timer: Arc<Time>,
    irq: Arc<Automask>,
    cable: Arc<dyn Sink>,
    config: [u8; 256],
    next_iova: u64,
    accesses: u64,
    waiting: bool,
    msix: bool,
    vfs: u16,
    listener: Option<Meanwhile>,
}

/// What another function does while time passes; it receives the current time.
pub type Meanwhile = Box<dyn FnMut(Nanos) + Send>;

impl ModelBus {
    /// Plugs `nic` into a machine of its own. What it sends goes to `cable`; the link is up.
    pub fn new(nic: Nic, cable: Arc<dyn Sink>) -> Self {
        Self::within(Memory::new(), Arc::default(), nic, cable)
    }

    /// Plugs `nic` into the machine that another is in: its memory and its clock are the same, and
    /// its interrupts and timers its own.
    pub fn beside(&self, nic: Nic, cable: Arc<dyn Sink>) -> Self {
        Self::within(self.memory(), self.clock.clone(), nic, cable)
    }

    fn within(memory: Memory, clock: Arc<Time>, nic: Nic, cable: Arc<dyn Sink>) -> Self {
        let timer = Arc::new(Time::default());
        let irq = Arc::new(Automask::default());
        let env = Env {
            memory,
            irq: irq.clone(),
            clock: clock.clone(),
            timer: timer.clone(),
        };
        let config = config_space(&nic.identity);
        let mut bus = Self {
            identity: nic.identity,
            control: nic.control,
            transmit: nic.transmit,
            receive: nic.receive,
            env,
            clock,
            timer,
            irq,
            cable,
            config,
            next_iova: 0x10_0000,
            accesses: 0,
            waiting: false,
            msix: false,
            vfs: 0,
            listener: None,
        };
        bus.control.reset(&bus.env, ResetKind::Bus);
        bus.control.set_link(&bus.env, true);
        bus
    }

    /// As [`ModelBus::new`], with a recorder that takes only finished frames at the other end.
    pub fn recorded(nic: Nic) -> (Self, Arc<Recorder>) {
        let recorder = Recorder::new(Caps::NONE);
        (Self::new(nic, recorder.clone()), recorder)
    }

    /// Connects two models back to back.
    pub fn pair(a: Nic, b: Nic) -> (Self, Self) {
        let mut a = Self::new(a, Recorder::new(Caps::NONE));
        let b = Self::new(b, a.far_end());
        a.cable = b.far_end();
        (a, b)
    }

    /// The socket the cable plugs into: frames delivered here arrive at this NIC.
    pub fn far_end(&self) -> Arc<dyn Sink> {
        Arc::new(Socket {
            receive: self.receive.clone(),
            env: self.env.clone(),
        })
    }

    /// Names a function that shares state with the model, as the PF of a VF does. It has its turn
    /// whenever time has passed; then the model looks at what it has changed.
    pub fn set_listener(&mut self, listener: Meanwhile) {
        self.listener = Some(listener);
    }

    /// Plugs another cable in.
    pub fn connect(&mut self, cable: Arc<dyn Sink>) {
        self.cable = cable;
    }

    /// What the model says it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The interrupt pin.
    pub fn irq(&self) -> &Automask {
        &self.irq
    }

    /// The model's deadline.
    pub fn timer(&self) -> &Time {
        &self.timer
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// BAR accesses so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The value of one of the model's counters.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let mut found = None;
        let counted: &dyn Counted = &*self.control;
        counted.counters(&mut |n, value| {
            if n == name {
                found = Some(value);
            }
        });
        found
    }

    /// All counters that are not zero.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        let counted: &dyn Counted = &*self.control;
        counted.counters(&mut |name, value| {
            if value != 0 {
                all.push((name, value));
            }
        });
        all
    }

    /// Pulls the cable or puts it back.
    pub fn set_link(&mut self, up: bool) {
        self.control.set_link(&self.env, up);
    }

    /// Has the NIC send messages of its own for each vector (MSI-X), or no longer.
    pub fn set_msix(&mut self, on: bool) {
        self.msix = on;
        self.tell_pci();
    }

    /// Has SR-IOV's registers enable so many virtual functions.
    pub fn set_vfs(&mut self, vfs: u16) {
        self.vfs = vfs;
        self.tell_pci();
    }

    /// Has the model look at what others have changed that it shares state with.
    ///
    /// # Errors
    /// When what follows does not come to an end.
    pub fn attend(&mut self) -> Result<(), BusError> {
        self.control.attend(&self.env);
        self.pump()
    }

    /// The clock, for another function to share.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn tell_pci(&mut self) {
        let state = PciState {
            bus_master: self.config[4] & 4 != 0,
            msix: self.msix,
            vfs: self.vfs,
            ..PciState::default()
        };
        self.control.pci(&self.env, state);
    }

    /// A reset of the whole machine.
    pub fn bus_reset(&mut self) {
        self.config = config_space(&self.identity);
        self.msix = false;
        self.vfs = 0;
        self.control.reset(&self.env, ResetKind::Bus);
    }

    /// Delivers frames with notes from the other end; returns how many were dealt with.
    pub fn deliver(&mut self, frames: &[Recorded]) -> usize {
        let far_end = self.far_end();
        let mut done = 0;
        for some in frames.chunks(MAX_BATCH) {
            let mut batch = Batch::new();
            for frame in some {
                batch.push_bytes(&frame.bytes);
                batch.end(frame.notes);
            }
            let mut room = Vec::new();
            let taken = far_end.deliver(&batch, batch.all_picks(&mut room));
            done += taken;
            if taken < some.len() {
                break;
            }
        }
        done
    }

    /// Does the work that is due: what register accesses asked for, and what waited for room at
    /// the other end.
    ///
    /// # Errors
    /// When it does not come to an end.
    pub fn pump(&mut self) -> Result<(), BusError> {
        let work = self.control.take_work();
        if work.rx {
            self.receive.poll(&self.env);
        }
        if !(work.tx || self.waiting) {
            return Ok(());
        }
        self.waiting = false;
        for _ in 0..MAX_ROUNDS {
            match self.transmit.run(&self.env, &*self.cable, MAX_BATCH) {
                Progress::Idle => return Ok(()),
                Progress::More => {}
                Progress::Blocked => {
                    self.waiting = true;
                    return Ok(());
                }
            }
        }
        Err(BusError::Endless(MAX_ROUNDS))
    }

    /// Moves the clock to `at`, stopping at each deadline on the way.
    fn advance_to(&mut self, at: Nanos) -> Result<(), BusError> {
        for _ in 0..MAX_ROUNDS {
            let stop = self.timer.deadline().map_or(at, |d| d.min(at));
            self.clock.now.fetch_max(stop, Ordering::SeqCst);
            if self.timer.take_due(stop) {
                self.control.tick(&self.env);
                self.pump()?;
            } else if stop == at {
                return Ok(());
            }
        }
        Err(BusError::Endless(MAX_ROUNDS))
    }
}

/// Enough of a header for a driver to find its BARs and switch the device on.
fn config_space(identity: &Identity) -> [u8; 256] {
    let mut config = [0; 256];
    config[0..2].copy_from_slice(&identity.vendor.to_le_bytes());
    config[2..4].copy_from_slice(&identity.device.to_le_bytes());
    config[8] = identity.revision;
    config[9] = identity.class[2];
    config[10] = identity.class[1];
    config[11] = identity.class[0];
    for bar in &identity.bars {
        let at = 0x10 + 4 * usize::from(bar.index.min(5));
        config[at] = match bar.space {
            Space::Memory32 => 0,
            Space::Memory64 => 4,
            Space::Io => 1,
        };
    }
    config[0x2c..0x2e].copy_from_slice(&identity.subsystem_vendor.to_le_bytes());
    config[0x2e..0x30].copy_from_slice(&identity.subsystem.to_le_bytes());
    config[0x3d] = u8::from(identity.intx);
    config
}

impl Bus for ModelBus {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) -> Result<(), BusError> {
        self.accesses += 1;
        self.control.read(&self.env, bar, offset, data);
        self.pump()
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.accesses += 1;
        self.control.write(&self.env, bar, offset, data);
        self.pump()
    }

    fn config_read(&mut self, offset: u16, data: &mut [u8]) -> Result<(), BusError> {
        for (i, byte) in data.iter_mut().enumerate() {
            let at = usize::from(offset) + i;
            *byte = self.config.get(at).copied().unwrap_or(0xff);
        }
        Ok(())
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> Result<(), BusError> {
        for (i, &byte) in data.iter().enumerate() {
            // COMMAND and the interrupt line are all a driver may change here.
            if let at @ (4 | 5 | 0x3c) = usize::from(offset) + i {
                self.config[at] = byte;
            }
        }
        self.tell_pci();
        self.pump()
    }

    fn alloc(&mut self, len: u64) -> Result<Dma, BusError> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        let dma = self.alloc_at(self.next_iova, len)?;
        self.next_iova = dma.end() + PAGE;
        Ok(dma)
    }

    fn alloc_at(&mut self, iova: u64, len: u64) -> Result<Dma, BusError> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        self.env
            .memory
            .map_anon(iova, len)
            .map_err(|e| BusError::Memory(e.to_string()))?;
        Ok(Dma { iova, len })
    }

    fn free(&mut self, dma: Dma) -> Result<(), BusError> {
        self.env
            .memory
            .unmap(dma.iova, dma.len)
            .map(drop)
            .map_err(|e| BusError::Memory(e.to_string()))
    }

    fn memory(&self) -> Memory {
        self.env.memory.clone()
    }

    fn wait_irq(&mut self, timeout: Duration) -> Result<bool, BusError> {
        let end = self.now().saturating_add(nanos(timeout));
        for _ in 0..MAX_ROUNDS {
            self.pump()?;
            if self.irq.take() {
                return Ok(true);
            }
            match self.timer.deadline() {
                Some(at) if at <= end => self.advance_to(at.max(self.now()))?,
                _ => {
                    self.advance_to(end)?;
                    return Ok(self.irq.take());
                }
            }
        }
        Err(BusError::Endless(MAX_ROUNDS))
    }

    fn unmask_irq(&mut self) -> Result<(), BusError> {
        self.irq.unmask();
        Ok(())
    }

    fn delay(&mut self, time: Duration) -> Result<(), BusError> {
        self.advance_to(self.now().saturating_add(nanos(time)))?;
        let now = self.now();
        if let Some(listener) = &mut self.listener {
            listener(now);
            self.control.attend(&self.env);
            self.pump()?;
        }
        Ok(())
    }

    fn inject(&mut self, frame: &[u8]) -> Result<bool, BusError> {
        let frame = Recorded {
            bytes: frame.to_vec(),
            notes: Offload::NONE,
        };
        let taken = self.deliver(&[frame]) == 1;
        self.pump()?;
        Ok(taken)
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

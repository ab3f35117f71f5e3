//! A guest, a wire and a clock for the e1000, all fake, and the promises that hold after every
//! step whatever the guest does.

mod bounds;
mod frames;
mod memory;
mod mortal;
mod offsets;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crc32fast::Hasher;
use frame::{Batch, Caps, MAX_BATCH, Wake};
use guest_mem::{Access, Memory, Totals};
use model::{Clock, Env, Nanos, Nic, PciState, Progress, ResetKind};
use model_testkit::{CountedWake, Pin, Time};
use registry::{Function, Settings};
use wire::Offload;

use crate::mortal::{Deaths, Mortal};
use crate::nic::nic;
use crate::outside::Wire;

pub(crate) use frames::{MAC, PEER, some_frame, some_notes};
pub(crate) use memory::{HIGH, HIGH_LEN, RAM, RAM_LEN};
pub(crate) use offsets::OFFSETS;

use memory::{BLOCK, Dirt, guest};

pub(crate) const TX_RING: u64 = RAM;
pub(crate) const RX_RING: u64 = RAM + 0x1000;
pub(crate) const BUFFERS: u64 = RAM + 0x2000;

pub(crate) mod reg {
    pub use intel_offsets::e1000::long::*;

    pub const CSBAL: u64 = csb::CSBAL as u64;
    pub const CSBAH: u64 = csb::CSBAH as u64;
}

thread_local! {
    /// The guest's memory of the last run, all zero again: a fresh one for each run would cost
    /// more than the run.
    static GUEST: Cell<Option<Memory>> = const { Cell::new(None) };
    /// Storage for the counters, for the same reason.
    static COUNTERS: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.check_counters();
        let memory = std::mem::take(&mut self.env.memory);
        self.dirt.clean(&memory);
        GUEST.set(Some(memory));
        COUNTERS.set(std::mem::take(&mut self.counters));
    }
}

fn new() -> Nic {
    let settings = Settings {
        negotiation: Some(Duration::from_millis(10)),
        // Changes nothing until a guest uses it.
        csb: true,
        ..Settings::new(MAC)
    };
    nic("e1000", &settings, &Function::Alone)
}

/// A NIC with everything around it.
pub(crate) struct Machine {
    nic: Nic,
    env: Env,
    pin: Arc<Pin>,
    time: Arc<Time>,
    wire: Wire,
    waker: Arc<dyn Wake>,
    /// PCI state as the model received it last.
    pci: PciState,
    /// The counters as last seen.
    counters: Vec<u64>,
    /// Whether [`Machine::check`] does anything. A NIC without a past becomes ready in one way only:
    /// to look at it after the last step is enough.
    checks: bool,
    /// It was saved and loaded while the guest had given a CSB: what is said in that is said again.
    pub said_again: bool,
    /// All that a guest or a peer could see.
    seen: Hasher,
    picks: Vec<u16>,
    /// Descriptors on their way into memory.
    bytes: Vec<u8>,
    /// What has been written to the guest's memory.
    dirt: Dirt,
    /// What outlives its process, if that may die.
    mortal: Mortal,
    /// It died while frames waited in the packet buffer, which is lost.
    forgot: bool,
}

impl Machine {
    /// A NIC in a guest whose firmware has just enabled it. `used` gives it a past.
    pub fn new(used: bool) -> Self {
        let (pin, time) = (Arc::new(Pin::default()), Arc::new(Time::default()));
        let env = Env {
            memory: GUEST.take().unwrap_or_else(guest),
            irq: pin.clone(),
            clock: time.clone(),
            timer: time.clone(),
        };
        let mut counters = COUNTERS.take();
        counters.clear();
        let mut machine = Self {
            nic: new(),
            env,
            pin,
            time,
            wire: Wire::default(),
            waker: Arc::new(CountedWake::default()),
            pci: PciState::default(),
            counters,
            checks: used,
            said_again: false,
            seen: Hasher::new(),
            picks: Vec::new(),
            bytes: Vec::new(),
            dirt: Dirt::default(),
            mortal: Mortal::default(),
            forgot: false,
        };
        machine.unlimited();
        if used {
            machine.live_a_life();
        }
        machine.nic.control.reset(&machine.env, ResetKind::Bus);
        machine.set_pci(PciState {
            bus_master: true,
            ..PciState::default()
        });
        machine.sleep(20_000_000);
        machine.checks = true;
        machine.check();
        machine.forget();
        machine
    }

    /// Saves the NIC and goes on with another that has loaded it. What is saved again must be the
    /// same, if that is to be seen too.
    pub fn reborn(&mut self, save_again: bool) {
        self.said_again |= self.quiet(reg::CSBAL) != 0;
        let blob = self.nic.control.save(&self.env);
        let mut nic = new();
        let edges = self.pin.signals.load(Ordering::Relaxed);
        let loaded = nic.control.load(&self.env, &blob);
        loaded.expect("a NIC's own state is one");
        // A message that may have been lost on the way is sent again, which a guest must bear.
        self.pin.signals.store(edges, Ordering::Relaxed);
        if save_again {
            assert_eq!(nic.control.save(&self.env), blob, "saved, loaded and saved");
        }
        self.nic = nic;
        // Counters are the process', not the NIC's.
        self.counters.clear();
        self.work(MAX_BATCH);
    }

    /// The state as it would be saved.
    pub fn saved(&self) -> Vec<u8> {
        self.nic.control.save(&self.env)
    }

    /// Offers a state of unknown origin. One that is refused leaves no trace; one that is taken is
    /// what would be saved now, and if `another` is to try, another NIC takes that too.
    pub fn load(&mut self, blob: &[u8], another: bool) {
        let before = self.saved();
        let loaded = self.access(|m| m.nic.control.load(&m.env, blob));
        match &loaded {
            Ok(()) if !another => {}
            Ok(()) => {
                let again = self.saved();
                let mut other = new();
                let loaded = other.control.load(&self.env, &again);
                loaded.expect("what was taken is a state");
                assert_eq!(other.control.save(&self.env), again, "taken and saved");
                // The other has set line and timer; they are this one's.
                let loaded = self.nic.control.load(&self.env, &again);
                loaded.expect("its own state");
            }
            Err(_) => assert_eq!(self.saved(), before, "a refusal leaves a trace"),
        }
        // Bus mastering and MSI are those of the state now.
        self.set_pci(self.pci);
    }

    /// Sends and receives frames full of 0xa5, so that every buffer of the device has seen some,
    /// then leaves the guest as if nothing had been.
    fn live_a_life(&mut self) {
        self.set_pci(PciState {
            bus_master: true,
            ..PciState::default()
        });
        let stale = [0xa5; 4096];
        self.poke(BUFFERS, &stale);
        self.tx_on(8);
        self.rx_on(8, 0x0203_8022);
        for i in 0..7 {
            let long = u64::from(i % 2) * 4000 + 90;
            self.tx_desc(i, BUFFERS, long | 0x0b << 24);
        }
        self.write(reg::TDT, 7);
        self.receive(&[
            (&stale[..1500], Offload::NONE),
            (&stale[..64], Offload::NONE),
        ]);
        self.dirt.clean(&self.env.memory);
        self.pin.signals.store(0, Ordering::Relaxed);
    }

    /// Starts the record of what can be seen anew.
    fn forget(&mut self) {
        self.seen = Hasher::new();
        *self.wire.hash.lock().unwrap_or_else(|e| e.into_inner()) = Hasher::new();
        self.pin.signals.store(0, Ordering::Relaxed);
        self.time.now.store(1_000_000_000, Ordering::Relaxed);
    }

    /// Everything that the guest and the wire have seen, as a number: registers read, frames sent,
    /// memory written, edges of the interrupt line, the timer.
    pub fn seen(&mut self) -> u32 {
        self.dirt.take(&self.env.memory);
        let view = self.env.memory.view();
        for at in self.dirt.blocks() {
            let mut block = [0; BLOCK as usize];
            view.read(at, &mut block).expect("mapped");
            // Zeros written over zeros change nothing that the guest sees.
            if block != [0; BLOCK as usize] {
                self.seen.update(&at.to_le_bytes());
                self.seen.update(&block);
            }
        }
        drop(view);
        let mut registers = std::mem::take(&mut self.bytes);
        registers.clear();
        self.access(|m| {
            for at in OFFSETS {
                let mut data = [0; 4];
                m.nic.control.read(&m.env, 0, at, &mut data);
                registers.extend_from_slice(&data);
            }
        });
        self.seen.update(&registers);
        self.bytes = registers;
        let edges = self.pin.signals.load(Ordering::Relaxed);
        let armed = self.time.deadline().unwrap_or(u64::MAX);
        let wire = std::mem::take(&mut *self.wire.hash.lock().unwrap_or_else(|e| e.into_inner()));
        for word in [edges, armed, wire.finalize().into()] {
            self.seen.update(&word.to_le_bytes());
        }
        std::mem::take(&mut self.seen).finalize()
    }

    /// Does what no register access may do: nothing with the guest's memory. A VMM waits for the
    /// answer meanwhile, so descriptors and frames are for later.
    fn access<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.totals();
        let value = f(self);
        assert_eq!(
            self.totals(),
            before,
            "a register access touched guest memory"
        );
        value
    }

    pub fn totals(&self) -> Totals {
        self.env.memory.meter().totals()
    }

    pub fn read_bytes(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.access(|m| m.nic.control.read(&m.env, bar, offset, data));
        self.mortal.answered(&mut self.nic, &self.env);
        self.seen.update(data);
    }

    pub fn read(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.read_bytes(0, offset, &mut data);
        u32::from_le_bytes(data)
    }

    pub fn write_bytes(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.access(|m| m.nic.control.write(&m.env, bar, offset, data));
        self.mortal.answered(&mut self.nic, &self.env);
        self.work(MAX_BATCH);
    }

    pub fn write(&mut self, offset: u64, value: u32) {
        self.write_bytes(0, offset, &value.to_le_bytes());
    }

    /// Writes registers one after the other. In the long runs the worker comes by at the end only.
    fn write_all(&mut self, values: &[(u64, u32)]) {
        for &(offset, value) in values {
            let data = value.to_le_bytes();
            self.access(|m| m.nic.control.write(&m.env, 0, offset, &data));
            self.mortal.answered(&mut self.nic, &self.env);
            if !cfg!(feature = "sample") {
                self.work(MAX_BATCH);
            }
        }
        self.work(MAX_BATCH);
    }

    /// Does the work that was noted, in turns as the daemon does.
    pub fn work(&mut self, budget: usize) {
        let work = self.nic.control.take_work();
        if work.tx {
            // Every turn but the last makes progress: sends `budget` frames or walks a ring.
            let turns = 2 * self.tx_ring() / budget as u64 + 16;
            let mut left = turns.max(4096);
            while self.transmit(budget) == Progress::More {
                left -= 1;
                assert!(left > 0, "transmit never ends");
            }
        }
        if work.rx {
            self.poll();
        }
        self.mortal.answered(&mut self.nic, &self.env);
        self.check();
    }

    /// Descriptors of the transmit ring, as its length register says.
    fn tx_ring(&mut self) -> u64 {
        u64::from(self.quiet(reg::TDLEN) / 16)
    }

    fn rx_ring(&mut self) -> u64 {
        u64::from(self.quiet(reg::RDLEN) / 16)
    }

    /// Reads a register that has no side effects, for ourselves.
    fn quiet(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.nic.control.read(&self.env, 0, offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// Offers frames to the receiver and returns how many were dealt with.
    pub fn receive(&mut self, frames: &[(&[u8], Offload)]) -> usize {
        let mut batch = Batch::new();
        for (bytes, notes) in frames {
            // In two pieces, as most frames come.
            let (head, tail) = bytes.split_at(bytes.len().min(54));
            batch.push_bytes(head);
            batch.push_slice(guest_mem::ReadSlice::from_bytes(tail));
            batch.end(*notes);
        }
        self.receive_batch(&batch)
    }

    pub fn set_pci(&mut self, state: PciState) {
        self.pci = state;
        self.access(|m| m.nic.control.pci(&m.env, state));
        self.mortal.answered(&mut self.nic, &self.env);
        self.work(MAX_BATCH);
    }

    pub fn set_link(&mut self, up: bool) {
        self.mortal.note_link(up);
        self.access(|m| m.nic.control.set_link(&m.env, up));
        self.work(MAX_BATCH);
    }

    pub fn reset(&mut self) {
        self.access(|m| m.nic.control.reset(&m.env, ResetKind::Bus));
        self.pci = PciState::default();
        self.mortal.answered(&mut self.nic, &self.env);
        self.work(MAX_BATCH);
    }

    /// The timer fires, due or not.
    pub fn tick(&mut self) {
        self.access(|m| m.nic.control.tick(&m.env));
        self.work(MAX_BATCH);
    }

    /// Moves the clock and lets the timer fire.
    pub fn sleep(&mut self, ns: Nanos) {
        let end = self.time.now() + ns;
        // Each tick ends at least one of a handful of deadlines, and only a cause that comes from
        // outside starts one again.
        for round in 0.. {
            assert!(round < 64, "the timer never rests");
            if !self.time.step_to(end) {
                break;
            }
            self.tick();
        }
    }

    /// How many frames the wire takes from now on.
    pub fn set_room(&mut self, frames: usize) {
        self.wire.room.store(frames, Ordering::Relaxed);
    }

    pub fn unlimited(&mut self) {
        self.set_room(usize::MAX);
    }

    pub fn set_caps(&mut self, bits: u8) {
        let caps = Caps {
            csum: bits & 1 != 0,
            tso4: bits & 2 != 0,
            tso6: bits & 4 != 0,
            uso4: bits & 16 != 0,
            uso6: bits & 32 != 0,
            ecn: bits & 2 != 0,
            vlan: bits & 8 != 0,
        };
        *self.wire.caps.lock().unwrap_or_else(|e| e.into_inner()) = caps;
    }

    /// The guest writes its own memory; what lies outside is cut off.
    pub fn poke(&mut self, at: u64, bytes: &[u8]) {
        let end = if at >= HIGH {
            HIGH + HIGH_LEN
        } else {
            RAM + RAM_LEN
        };
        let n = end.saturating_sub(at).min(bytes.len() as u64) as usize;
        // Out of reach is fine: that is a guest's own business.
        let _ = self.env.memory.view().write(at, &bytes[..n]);
    }

    /// What is written to the guest's memory while `f` runs.
    pub fn recorded(&mut self, f: impl FnOnce(&mut Self)) -> Vec<Access> {
        self.dirt.take(&self.env.memory);
        f(self);
        let mut written = Vec::new();
        let meter = self.env.memory.meter();
        meter.drain(&mut |access| written.push(access));
        written.iter().for_each(|access| self.dirt.note(*access));
        written
    }

    pub fn tx_desc(&mut self, index: u32, low: u64, high: u64) {
        self.desc(TX_RING, index, low, high);
    }

    pub fn desc(&mut self, ring: u64, index: u32, low: u64, high: u64) {
        self.descs(ring, index, std::iter::once((low, high)));
    }

    /// The descriptors from `index` on.
    pub fn descs(&mut self, ring: u64, index: u32, descs: impl Iterator<Item = (u64, u64)>) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        for (low, high) in descs {
            bytes.extend_from_slice(&low.to_le_bytes());
            bytes.extend_from_slice(&high.to_le_bytes());
        }
        self.poke(ring + u64::from(index) * 16, &bytes);
        self.bytes = bytes;
    }

    /// Link up, transmitter on with a ring of `len` descriptors.
    pub fn tx_on(&mut self, len: u32) {
        let ctrl = self.quiet(reg::CTRL);
        self.write_all(&[
            (reg::CTRL, ctrl | 1 << 6),
            (reg::TDBAL, TX_RING as u32),
            (reg::TDBAH, 0),
            (reg::TDLEN, len * 16),
            (reg::TDH, 0),
            (reg::TDT, 0),
            (reg::TCTL, 0x2),
        ]);
    }

    /// Link up, receiver on with `len` descriptors, all but one of them given, each with a
    /// buffer of 2 KiB.
    pub fn rx_on(&mut self, len: u32, rctl: u32) {
        let ctrl = self.quiet(reg::CTRL);
        let buffer = |i| BUFFERS + 0x4000 + u64::from(i % 16) * 0x800;
        self.descs(RX_RING, 0, (0..len).map(|i| (buffer(i), 0)));
        self.write_all(&[
            (reg::CTRL, ctrl | 1 << 6),
            (reg::RDBAL, RX_RING as u32),
            (reg::RDBAH, 0),
            (reg::RDLEN, len * 16),
            (reg::RDH, 0),
            (reg::RDT, len.saturating_sub(1)),
            (reg::RCTL, rctl | 0x2),
        ]);
    }
}

/// What happens to a NIC beside its script.
#[derive(Clone, Copy, Default)]
pub(crate) struct Life {
    /// Another driver has used it before.
    pub used: bool,
    /// After which operations (modulo 64) it is saved and another goes on.
    pub reborn: u64,
    /// Whether the other is then saved too.
    pub save_again: bool,
    /// When its process dies, if it may.
    pub deaths: Option<Deaths>,
}

impl Life {
    /// A NIC with that life before it.
    pub fn begin(self) -> Machine {
        let mut machine = Machine::new(self.used);
        if self.deaths.is_some() {
            machine.outlive();
        }
        machine
    }

    pub fn after(self, operation: usize, m: &mut Machine) {
        if let Some(deaths) = self.deaths.filter(|deaths| deaths.is_one(operation)) {
            if deaths.real {
                m.die();
            }
            m.look();
        }
        if self.reborn >> (operation % 64) & 1 == 1 {
            m.reborn(self.save_again);
        }
    }
}

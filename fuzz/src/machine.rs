//! A guest, a wire and a clock for the e1000, all fake, and the promises that hold after every
//! step whatever the guest does.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crc32fast::Hasher;
use e1000::{Config, new};
use frame::{Batch, Caps, MAX_BATCH, Wake};
use guest_mem::{Access, Memory, Totals};
use model::{Clock, Env, Nanos, Nic, PciState, Progress, ResetKind};
use model_testkit::{CountedWake, Pin, Time};
use wire::Offload;

use crate::input::Input;
use crate::outside::{MAX_FRAME, Wire};

pub(crate) const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
pub(crate) const PEER: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x57];

/// The guest's memory. Nothing is mapped in front of it, and nothing behind.
pub(crate) const RAM: u64 = 0x10_0000;
pub(crate) const RAM_LEN: u64 = 0x1_0000;
/// A page above 4 GiB, so that the high halves of addresses matter.
pub(crate) const HIGH: u64 = 0x2_0000_0000;
pub(crate) const HIGH_LEN: u64 = 0x1000;
pub(crate) const TX_RING: u64 = RAM;
pub(crate) const RX_RING: u64 = RAM + 0x1000;
pub(crate) const BUFFERS: u64 = RAM + 0x2000;
/// Where frames wait for descriptors.
const PACKET_BUFFER: u64 = 64 << 10;
/// Descriptors of one packet beyond which the chip gives it up.
const MAX_DESCS: u64 = 1024;
/// Words of a CSB that are read and written in one call, beyond those that go with a batch.
const CSB_READS: u64 = 24;
const CSB_WRITES: u64 = 16;
/// Descriptors fetched with one read.
const FETCH: u64 = 64;

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

fn guest() -> Memory {
    let memory = Memory::new();
    memory.map_anon(RAM, RAM_LEN).expect("map");
    memory.map_anon(HIGH, HIGH_LEN).expect("map");
    memory.meter().record(true);
    memory
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

/// Bytes of guest memory that are clean or dirty together.
const BLOCK: u64 = 256;

/// What has been written to the guest's memory, in blocks: first those of [`RAM`], then those at
/// [`HIGH`].
#[derive(Default)]
struct Dirt([u64; ((RAM_LEN + HIGH_LEN) / BLOCK).div_ceil(64) as usize]);

impl Dirt {
    fn note(&mut self, access: Access) {
        let at = if access.iova >= HIGH {
            access.iova - HIGH + RAM_LEN
        } else {
            access.iova - RAM
        };
        for block in at / BLOCK..(at + access.len).div_ceil(BLOCK) {
            self.0[block as usize / 64] |= 1 << (block % 64);
        }
    }

    /// Takes over what has been recorded.
    fn take(&mut self, memory: &Memory) {
        memory.meter().drain(&mut |access| self.note(access));
    }

    /// The addresses of what is dirty.
    fn blocks(&self) -> impl Iterator<Item = u64> {
        let words = (0..).zip(&self.0);
        let blocks = words.flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some((at * 64 + u64::from(bit)) * BLOCK)
            })
        });
        blocks.map(|at| {
            if at >= RAM_LEN {
                at - RAM_LEN + HIGH
            } else {
                at + RAM
            }
        })
    }

    /// Makes everything zero again.
    fn clean(&mut self, memory: &Memory) {
        self.take(memory);
        // Nobody records the cleaning itself.
        memory.meter().record(false);
        let view = memory.view();
        for at in self.blocks() {
            let zeros = [0; BLOCK as usize];
            view.write(at, &zeros).expect("was there");
        }
        memory.meter().record(true);
        *self = Self::default();
    }
}

/// Where the counters that bounds are about stand among all.
struct Places {
    fetched: usize,
    received: usize,
}

static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let mut names = Vec::new();
    let nic = new(config());
    nic.control.counters(&mut |name, _| names.push(name));
    let place = |name| names.iter().position(|n| *n == name).expect(name);
    Places {
        fetched: place("tx_desc_fetched"),
        received: place("rx_frames"),
    }
});

fn config() -> Config {
    let mut config = Config::new(MAC);
    config.negotiation = Duration::from_millis(10);
    // Changes nothing until a guest uses it.
    config.csb = true;
    config
}

/// A NIC with everything around it.
pub(crate) struct Machine {
    nic: Nic,
    env: Env,
    pin: Arc<Pin>,
    time: Arc<Time>,
    wire: Wire,
    waker: Arc<dyn Wake>,
    /// PCI state as last told.
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
            nic: new(config()),
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
        let mut nic = new(config());
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
                let mut other = new(config());
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
            // Zeros upon zeros nobody can see.
            if block != [0; BLOCK as usize] {
                self.seen.update(&at.to_le_bytes());
                self.seen.update(&block);
            }
        }
        drop(view);
        let mut registers = std::mem::take(&mut self.bytes);
        registers.clear();
        self.access(|m| {
            for &at in OFFSETS.iter() {
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
        self.seen.update(data);
    }

    pub fn read(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.read_bytes(0, offset, &mut data);
        u32::from_le_bytes(data)
    }

    pub fn write_bytes(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.access(|m| m.nic.control.write(&m.env, bar, offset, data));
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

    /// Transmit descriptors fetched and frames received so far.
    fn progress(&self) -> (u64, u64) {
        let places = &*PLACES;
        let (mut at, mut fetched, mut received) = (0, 0, 0);
        self.nic.control.counters(&mut |_, value| {
            if at == places.fetched {
                fetched = value;
            } else if at == places.received {
                received = value;
            }
            at += 1;
        });
        (fetched, received)
    }

    /// One turn of the transmitter, within its bounds.
    ///
    /// - Frames: the budget, and not more than what was left of a batch when it ran out.
    /// - Descriptors: a turn moves over at most one ring's worth. A descriptor is fetched again
    ///   only at the head of the next walk, which begins with what the one before left: a packet
    ///   without its end (up to [`MAX_DESCS`]) and what was fetched with the last one.
    /// - Bytes: no packet gathers more than [`MAX_PACKET`] and what crosses that line, once per
    ///   fetch of its last descriptor.
    pub fn transmit(&mut self, budget: usize) -> Progress {
        let ring = self.tx_ring();
        let before = self.totals();
        let (fetched, received) = self.progress();
        let sent = self.wire.frames.load(Ordering::Relaxed);
        let progress = self.nic.transmit.run(&self.env, &self.wire, budget);
        let sent = self.wire.frames.load(Ordering::Relaxed) - sent;
        // A packet is cut whole, as far as the batch reaches.
        let most = budget.next_multiple_of(MAX_BATCH) as u64;
        assert!(sent <= most, "{sent} frames for {budget}");
        let (fetched_now, received_now) = self.progress();
        let fetched = fetched_now - fetched;
        let walks = budget as u64 / MAX_BATCH as u64 + 3;
        let most = ring + walks * (ring.min(MAX_DESCS) + FETCH);
        assert!(fetched <= most, "{fetched} descriptors of a ring of {ring}");
        let after = self.totals();
        let reads = after.reads - before.reads;
        // One read per fetch of some descriptors and one per descriptor for its buffer.
        assert!(
            reads <= 2 * most + 2 + 4 * walks + CSB_READS,
            "{reads} reads for {fetched} descriptors"
        );
        let writes = after.writes - before.writes;
        if received_now == received {
            let bytes = after.write_bytes - before.write_bytes;
            // Only status bytes, or what the receiver was given by loopback (and had to refuse).
            let most = ring + self.rx_ring() * 8 + budget as u64 * (MAX_FRAME + 8) + PACKET_BUFFER;
            let most = most + 8 * walks + 4 * CSB_WRITES;
            assert!(bytes <= most, "{bytes} bytes in {writes} writes");
        }
        progress
    }

    /// The guest may have given buffers.
    pub fn poll(&mut self) {
        let before = self.totals();
        self.nic.receive.poll(&self.env);
        self.bounded_receive(before, 0, false);
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

    pub fn receive_batch(&mut self, batch: &Batch<'_>) -> usize {
        let mut picks = std::mem::take(&mut self.picks);
        batch.all_picks(&mut picks);
        let before = self.totals();
        let dealt = self.nic.receive.deliver(&self.env, batch, &picks);
        assert!(dealt <= picks.len(), "{dealt} of {}", picks.len());
        let bytes = batch.iter().map(|f| f.len() as u64 + 68).sum::<u64>();
        // Cut into segments of one byte, a frame can become that many and as many headers.
        let cut = batch.iter().any(|f| f.notes().gso != wire::Gso::None);
        let most = if cut {
            bytes + wire::MAX_SEGMENTS as u64 * batch.len() as u64 * 400
        } else {
            bytes
        };
        let sums = cut || batch.iter().any(|f| f.notes().csum.is_some());
        self.bounded_receive(before, most, sums);
        if dealt < picks.len() {
            self.nic.receive.want_room(&self.waker);
        }
        self.picks = picks;
        self.seen.update(&dealt.to_le_bytes());
        self.check();
        dealt
    }

    /// A receiver writes what came and what waited in the packet buffer, once, and one word per
    /// descriptor, each once; where a checksum was left to it (`sums`), that too, in one piece for
    /// each buffer it lies in. A buffer counts again when it was found for a plan that was given up
    /// (a null buffer further on) before anything was written. It reads nothing but descriptors,
    /// some more than once when a frame had to wait.
    fn bounded_receive(&mut self, before: Totals, bytes: u64, sums: bool) {
        // With a CSB the guest may give buffers in the last moment of a call, some times.
        let rounds = if self.quiet(reg::CSBAL) != 0 { 4 } else { 1 };
        let ring = self.rx_ring().max(1) * rounds;
        let after = self.totals();
        let written = after.write_bytes - before.write_bytes;
        let most = 2 * bytes + PACKET_BUFFER + ring * 8 + 4 * CSB_WRITES;
        assert!(written <= most, "{written} bytes written for {bytes}");
        let writes = after.writes - before.writes;
        let most = (3 + u64::from(sums)) * ring + CSB_WRITES;
        assert!(writes <= most, "{writes} writes, a ring of {ring}");
        let read = after.read_bytes - before.read_bytes;
        let most = (2 * ring + FETCH * rounds) * 16 + 4 * CSB_READS;
        assert!(read <= most, "{read} bytes read, {ring}");
    }

    pub fn set_pci(&mut self, state: PciState) {
        self.pci = state;
        self.access(|m| m.nic.control.pci(&m.env, state));
        self.work(MAX_BATCH);
    }

    pub fn set_link(&mut self, up: bool) {
        self.access(|m| m.nic.control.set_link(&m.env, up));
        self.work(MAX_BATCH);
    }

    pub fn reset(&mut self) {
        self.access(|m| m.nic.control.reset(&m.env, ResetKind::Bus));
        self.pci = PciState::default();
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

    /// What holds after every step.
    pub fn check(&mut self) {
        if !self.checks {
            return;
        }
        self.check_line();
        // In the long runs at the end only, see `Drop`.
        if !cfg!(feature = "sample") {
            self.check_counters();
        }
    }

    /// The line is up only for a cause that is not masked; such a cause with the line down waits
    /// for the timer, or the interrupt would be lost.
    fn check_line(&mut self) {
        if self.pci.msi {
            return;
        }
        let pending = self.quiet(reg::ICS) & self.quiet(reg::IMS) != 0;
        let level = self.pin.level.load(Ordering::Relaxed);
        assert!(pending || !level, "an interrupt without a cause");
        // What a guest with a CSB does not want to hear of it is not told.
        let waits = self.time.deadline().is_some() || self.quiet(reg::CSBAL) != 0;
        assert!(level || !pending || waits, "an interrupt that never comes");
    }

    /// What is counted never falls.
    fn check_counters(&mut self) {
        let counters = &mut self.counters;
        let (mut at, mut fallen) = (0, false);
        self.nic.control.counters(&mut |_, now| {
            match counters.get_mut(at) {
                Some(old) => fallen |= now < std::mem::replace(old, now),
                None => counters.push(now),
            }
            at += 1;
        });
        assert!(!fallen, "a counter has fallen");
    }
}

/// Offset of every register; of arrays, of the first two.
pub(crate) static OFFSETS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let all = e1000::regs::REGISTERS.iter();
    all.flat_map(|r| (0..r.count.min(2)).map(|i| u64::from(r.offset + i * r.stride)))
        .collect()
});

/// What happens to a NIC beside its script.
#[derive(Clone, Copy, Default)]
pub(crate) struct Life {
    /// It has been in use before, by somebody else.
    pub used: bool,
    /// After which operations (modulo 64) it is saved and another goes on.
    pub reborn: u64,
    /// Whether the other is then saved too.
    pub save_again: bool,
}

impl Life {
    pub fn after(self, operation: usize, m: &mut Machine) {
        if self.reborn >> (operation % 64) & 1 == 1 {
            m.reborn(self.save_again);
        }
    }
}

/// A frame for the receiver, made of a few bytes of input.
pub(crate) fn some_frame(input: &mut Input<'_>, room: &mut Vec<u8>) -> Offload {
    room.clear();
    let shape = input.u8();
    let len = match shape >> 6 {
        0 => usize::from(shape & 0x3f),
        1 => 60 + usize::from(input.u8()),
        2 => usize::from(input.u16() % 1600),
        _ => usize::from(input.u16() % 17_000),
    };
    match shape & 3 {
        0 => room.extend_from_slice(&MAC),
        1 => room.extend_from_slice(&[0xff; 6]),
        2 => room.extend_from_slice(&[1, 0, 0x5e, 0, 0, input.u8()]),
        _ => room.extend_from_slice(&PEER),
    }
    room.extend_from_slice(&PEER);
    match shape >> 2 & 3 {
        0 => room.extend_from_slice(&[0x08, 0x00, 0x45]),
        1 => room.extend_from_slice(&[0x81, 0x00, input.u8(), input.u8(), 0x08, 0x00]),
        2 => room.extend_from_slice(&[0x86, 0xdd, 0x60]),
        _ => room.extend_from_slice(&[0x88, 0xb5]),
    }
    let n = usize::from(input.u8() % 80);
    room.extend_from_slice(input.bytes(n));
    room.resize(len, 0x5a);
    if shape & 0x10 == 0 {
        return Offload::NONE;
    }
    some_notes(input)
}

/// Notes as a careless peer might make them.
pub(crate) fn some_notes(input: &mut Input<'_>) -> Offload {
    let bits = input.u8();
    Offload {
        csum: (bits & 1 != 0).then(|| wire::Csum {
            start: u16::from(input.u8()),
            offset: u16::from(input.u8()),
        }),
        gso: match bits >> 1 & 3 {
            1 => wire::Gso::Tcp4,
            2 => wire::Gso::Tcp6,
            _ => wire::Gso::None,
        },
        gso_size: if bits & 6 != 0 { input.u16() } else { 0 },
        hdr_len: if bits & 6 != 0 { input.u8().into() } else { 0 },
        ecn: bits & 8 != 0,
        csum_valid: bits & 16 != 0,
        vlan: (bits & 32 != 0).then(|| input.u16()),
    }
}

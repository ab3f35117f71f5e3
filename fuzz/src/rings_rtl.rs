//! Rings of the RTL8168C, the RTL8168H and the RTL8169S: descriptors of every kind, buffers of every size, and registers that change
//! under a NIC that works.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Batch, Caps, MAX_BATCH, Run, same_header};
use guest_mem::Memory;
use model::{Clock, Env, Nic, PciState, Progress, ResetKind, TURN_BYTES, Timer};
use model_testkit::{Pin, Time};
use registry::{Function, Settings};
use wire::Offload;

use crate::input::Input;
use crate::machine::{HIGH, HIGH_LEN, MAC, RAM, RAM_LEN, some_frame};
use crate::mortal::{Deaths, Mortal, Outcome, all_blocks};
use crate::nic::nic;
use crate::outside::Wire;

/// An input that begins with this byte is about an RTL8169S, and its second byte says how that is set up. No input that
/// was kept before there was this chip begins with it: they all mean what they meant.
const FIRST: u8 = 169;
/// What an RTL8169S is asked of a packet: LSO, MSS, and sums.
const ASKED: u32 = 0x0fff_0000;
/// Registers, as drivers know them.
mod reg {
    pub const TX_RING: u64 = 0x20;
    pub const CHIP_CMD: u64 = 0x37;
    pub const TX_POLL: u64 = 0x38;
    pub const IMR: u64 = 0x3c;
    pub const ISR: u64 = 0x3e;
    pub const RX_CONFIG: u64 = 0x44;
    pub const CSBAL: u64 = 0xa0;
    pub const RXKICK: u64 = 0xa8;
    pub const RX_MAX_SIZE: u64 = 0xda;
    pub const CPLUS_CMD: u64 = 0xe0;
    pub const MITIGATE: u64 = 0xe2;
    pub const RX_RING: u64 = 0xe4;
}
/// Descriptors that are set up, and those a ring can have.
const LEN: u32 = 16;
const MOST: u64 = 1024;
const TX_RING: u64 = RAM;
const RX_RING: u64 = RAM + 0x100;
/// The page of the CSB.
const PAGE: u64 = RAM + 0x1000;
const BUFFERS: u64 = RAM + 0x2000;
const OWN: u32 = 1 << 31;
const EOR: u32 = 1 << 30;
/// Turns after which the transmitter must have come to its end.
const TURNS: usize = 1 << 14;
/// Bytes of headers copied of a packet that needs work.
const HEADERS: u64 = 512;
/// Longest packet.
const MAX_PACKET: u64 = 0x1_0000 + 64;

thread_local! {
    /// The guest's memory of the last run.
    static MEMORY: Cell<Option<Memory>> = const { Cell::new(None) };
}

fn memory() -> Memory {
    let memory = MEMORY.take().unwrap_or_else(|| {
        let memory = Memory::new();
        memory.map_anon(RAM, RAM_LEN).expect("map");
        memory.map_anon(HIGH, HIGH_LEN).expect("map");
        memory
    });
    let view = memory.view();
    let zeros = [0; RAM_LEN as usize];
    view.write(RAM, &zeros).expect("mapped");
    view.write(HIGH, &zeros[..HIGH_LEN as usize])
        .expect("mapped");
    drop(view);
    memory
}

struct Guest {
    model: &'static str,
    nic: Nic,
    env: Env,
    pin: Arc<Pin>,
    time: Arc<Time>,
    wire: Wire,
    pci: PciState,
    counters: Vec<u64>,
    next: u32,
    budget: usize,
    /// What outlives its process, if that may die.
    mortal: Mortal,
    /// It died while the guest had given a CSB: what is said in that is said again.
    said_again: bool,
}

/// A chip of the family whose rings the guest misuses. The first byte says which, and how it is set up.
///
/// No register access touches guest memory, a turn of the transmitter and a batch received cost no more than rings and
/// frames allow, the line says what ISR and IMR say, what waits for a descriptor or a time is looked at again within its
/// time, and a NIC that is saved and loaded is as it was.
pub fn rings_rtl(data: &[u8]) {
    script(data, None);
}

/// The same with a process that dies.
pub(crate) fn script(data: &[u8], deaths: Option<Deaths>) -> Outcome {
    let mut input = Input::new(data);
    let mut g = match input.u8() {
        FIRST => Guest::new("r8169s", input.u8()),
        // By the same bits as its kind of interrupt.
        setup if setup & 3 == 3 => Guest::new("r8168h", setup),
        setup => Guest::new("r8168", setup),
    };
    if deaths.is_some() {
        g.mortal.begin(&mut g.nic, &g.env);
        g.wire.keep();
    }
    let mut room = Vec::new();
    for operation in 0..160 {
        let Some(op) = input.op() else { break };
        g.step(op, &mut input, &mut room);
        g.work();
        g.check();
        if let Some(deaths) = deaths.filter(|deaths| deaths.is_one(operation)) {
            if deaths.real {
                g.die();
            }
            g.look();
        }
    }
    let outcome = deaths.map(|_| g.outcome());
    MEMORY.set(Some(std::mem::take(&mut g.env.memory)));
    outcome.unwrap_or_default()
}

fn fresh(model: &str) -> Nic {
    let settings = Settings {
        csb: true,
        ..Settings::ready(MAC)
    };
    nic(model, &settings, &Function::Alone)
}

impl Guest {
    fn new(model: &'static str, setup: u8) -> Guest {
        let (pin, time) = (Arc::new(Pin::default()), Arc::new(Time::at(2_000_000_000)));
        let env = Env {
            memory: memory(),
            irq: pin.clone(),
            clock: time.clone(),
            timer: time.clone(),
        };
        let mut g = Guest {
            model,
            nic: fresh(model),
            env,
            pin,
            time,
            wire: Wire::default(),
            pci: PciState::default(),
            counters: Vec::new(),
            next: 0,
            budget: MAX_BATCH,
            mortal: Mortal::default(),
            said_again: false,
        };
        g.wire.room.store(usize::MAX, Ordering::Relaxed);
        g.set_caps(setup >> 4);
        g.set_pci(setup & 3);
        g.start(if setup & 4 != 0 { 0x600 } else { 0x80 });
        g.write(reg::CPLUS_CMD, 2, if setup & 8 != 0 { 0x60 } else { 0 });
        g.write(reg::IMR, 2, 0xffff);
        g
    }

    /// Whether it is the chip with descriptors of version 1, on a bus without messages.
    fn is_first(&self) -> bool {
        self.model == "r8169s"
    }

    /// The memory BAR.
    fn bar(&self) -> u8 {
        if self.is_first() { 1 } else { 2 }
    }

    /// Rings as a driver makes them, with buffers of so many bytes.
    fn start(&mut self, size: u32) {
        for i in 0..LEN {
            let end = if i + 1 == LEN { EOR } else { 0 };
            self.put(TX_RING, i, (end, 0), BUFFERS);
            let at = BUFFERS + 0x4000 + u64::from(i) * 0x200;
            self.put(RX_RING, i, (OWN | end | size, 0), at);
        }
        self.write(reg::TX_RING, 8, TX_RING);
        self.write(reg::RX_RING, 8, RX_RING);
        self.write(reg::RX_CONFIG, 4, 0xe70f);
        self.write(reg::CHIP_CMD, 1, 0x0c);
        self.next = 0;
    }

    fn put(&mut self, ring: u64, index: u32, (opts1, opts2): (u32, u32), addr: u64) {
        let at = ring + u64::from(index) * 16;
        self.poke(at + 4, &opts2.to_le_bytes());
        self.poke(at + 8, &addr.to_le_bytes());
        self.poke(at, &opts1.to_le_bytes());
    }

    /// Does to the registers what touches no memory.
    fn access<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.env.memory.meter().totals();
        let result = f(self);
        let after = self.env.memory.meter().totals();
        assert_eq!(after, before, "a register access touched guest memory");
        result
    }

    fn write(&mut self, at: u64, width: usize, value: u64) {
        let bytes = value.to_le_bytes();
        let bar = self.bar();
        self.access(|g| g.nic.control.write(&g.env, bar, at, &bytes[..width]));
        self.mortal.answered(&mut self.nic, &self.env);
        self.work();
    }

    fn read(&mut self, at: u64) -> u32 {
        let mut data = [0; 4];
        let bar = self.bar();
        self.access(|g| g.nic.control.read(&g.env, bar, at, &mut data));
        self.mortal.answered(&mut self.nic, &self.env);
        u32::from_le_bytes(data)
    }

    fn set_pci(&mut self, bits: u8) {
        let bits = if self.is_first() { 0 } else { bits };
        self.pci = PciState {
            bus_master: true,
            msi: bits & 1 != 0,
            msix: bits & 2 != 0,
            ..PciState::default()
        };
        let pci = self.pci;
        self.access(|g| g.nic.control.pci(&g.env, pci));
        self.mortal.answered(&mut self.nic, &self.env);
        self.work();
    }

    /// Saves the NIC and goes on with another that has loaded it.
    fn reborn(&mut self) {
        let blob = self.nic.control.save(&self.env);
        let mut nic = fresh(self.model);
        self.pin.level.store(false, Ordering::Relaxed);
        let loaded = nic.control.load(&self.env, &blob);
        loaded.expect("a NIC's own state is one");
        let again = nic.control.save(&self.env);
        assert!(again == blob, "saved, loaded and saved");
        self.nic = nic;
        // Counters are the process', not the NIC's.
        self.counters.clear();
        self.mortal.keep(&mut self.nic, &self.env);
    }

    /// Its process dies, and another goes on.
    fn die(&mut self) {
        let mut csb = [0; 4];
        let bar = self.bar();
        let control = &mut self.nic.control;
        control.read(&self.env, bar, reg::CSBAL, &mut csb);
        self.said_again |= csb != [0; 4];
        self.nic = fresh(self.model);
        self.pin.level.store(false, Ordering::Relaxed);
        self.mortal.go_on(&mut self.nic, &self.env);
        let (pci, link) = (self.pci, self.mortal.link());
        self.access(|g| g.nic.control.pci(&g.env, pci));
        self.access(|g| g.nic.control.set_link(&g.env, link));
        self.counters.clear();
    }

    /// Whether something waits that it was not told of, as a process that begins does.
    fn look(&mut self) {
        self.turns();
        self.work();
    }

    fn outcome(&mut self) -> Outcome {
        let has_csb = self.said_again || self.read(reg::CSBAL) != 0;
        let memory = (!has_csb).then(|| all_blocks(&self.env.memory, RAM, RAM_LEN));
        Outcome {
            frames: self.wire.kept(),
            memory,
            unsure: self.mortal.unsure(),
            ..Outcome::default()
        }
    }

    fn work(&mut self) {
        let work = self.nic.control.take_work();
        if work.tx {
            self.turns();
        }
        if work.rx {
            self.nic.receive.poll(&self.env);
        }
        self.mortal.answered(&mut self.nic, &self.env);
    }

    fn turns(&mut self) {
        for turn in 0.. {
            assert!(turn < TURNS, "transmit never ends");
            let sent = self.wire.frames.load(Ordering::Relaxed);
            let before = self.env.memory.meter().totals();
            let progress = self.nic.transmit.run(&self.env, &self.wire, self.budget);
            let sent = self.wire.frames.load(Ordering::Relaxed) - sent;
            let after = self.env.memory.meter().totals();
            // A ring is walked once, and once more in vain behind a packet without its end, for each batch.
            let batches = sent / self.budget.max(1) as u64 + 2;
            let walked = 16 * MOST * (1 + batches);
            let most = sent.max(MOST);
            // What a sink leaves is gathered again; sums are read once more.
            let gathered = 3 * (TURN_BYTES as u64 + MAX_PACKET) + most * HEADERS;
            let read = after.read_bytes - before.read_bytes;
            assert!(read <= walked + gathered, "{read} bytes read");
            // The first words of each descriptor, the statistics, and words of the CSB for each batch.
            let written = after.write_bytes - before.write_bytes;
            let words = 16 * (batches + 2);
            assert!(written <= 8 * MOST + 64 + words, "{written} bytes written");
            if progress != Progress::More {
                return;
            }
        }
    }

    fn set_caps(&mut self, bits: u8) {
        let caps = Caps {
            csum: bits & 1 != 0,
            tso4: bits & 2 != 0,
            tso6: bits & 4 != 0,
            ecn: bits & 2 != 0,
            vlan: bits & 8 != 0,
            ..Caps::NONE
        };
        *self.wire.caps.lock().unwrap_or_else(|e| e.into_inner()) = caps;
    }

    fn poke(&mut self, at: u64, bytes: &[u8]) {
        // Out of reach is fine: that is a guest's own business.
        let _ = self.env.memory.view().write(at, bytes);
    }

    fn receive(&mut self, bytes: &[u8], notes: Offload, count: usize) {
        let mut batch = Batch::new();
        for _ in 0..count {
            // In two pieces, as most frames come.
            let (head, tail) = bytes.split_at(bytes.len().min(54));
            batch.push_bytes(head);
            batch.push_slice(guest_mem::ReadSlice::from_bytes(tail));
            batch.end(notes);
        }
        let mut picks = Vec::new();
        let picks = batch.all_picks(&mut picks);
        let before = self.env.memory.meter().totals();
        let dealt = self.nic.receive.deliver(&self.env, &batch, picks);
        assert!(dealt <= picks.len(), "{dealt} of {}", picks.len());
        let after = self.env.memory.meter().totals();
        if notes.gso == wire::Gso::None {
            let written = after.write_bytes - before.write_bytes;
            // What came, padded, with FCS and a sum, and both words of each descriptor.
            let most = (bytes.len() as u64 + 80 + 8 * MOST) * count as u64;
            assert!(written <= most, "{written} bytes written, {most}");
            let read = after.read_bytes - before.read_bytes;
            let most = 16 * MOST * (count as u64 + 1);
            assert!(read <= most, "{read} bytes read");
        }
        if dealt < picks.len() {
            assert!(
                self.time.deadline().is_some(),
                "frames wait and nothing looks"
            );
            self.nic.receive.give_up(&self.env, &batch, &picks[dealt..]);
        }
    }

    /// A run of frames that lie in the guest's own memory, as far as they begin alike.
    fn receive_run(&mut self, len: usize, count: usize) {
        let view = self.env.memory.view();
        let Some(from) = view
            .read_run(BUFFERS, len as u64)
            .and_then(|_| view.read_places(BUFFERS, len))
        else {
            return;
        };
        let places = (0..count as u64).filter_map(|i| from.find(BUFFERS + i * 0x40));
        let begun = places.filter_map(|at| Some((at, from.head(at)?)));
        let (at, heads): (Vec<_>, Vec<_>) = begun.collect();
        let alike = heads
            .iter()
            .take_while(|head| same_header(**head, heads[0]));
        let alike = alike.count();
        let Some(run) = Run::new(from, &at[..alike], &heads[..alike]) else {
            return;
        };
        let before = self.env.memory.meter().totals();
        let dealt = self.nic.receive.deliver_run(&self.env, &run).unwrap_or(0);
        assert!(dealt <= alike, "{dealt} of {alike}");
        let after = self.env.memory.meter().totals();
        let written = after.write_bytes - before.write_bytes;
        let most = (len as u64 + 80 + 8) * (dealt as u64 + 64);
        assert!(written <= most, "{written} bytes written, {most}");
    }

    /// Mostly in RAM, at its edges, or nowhere.
    fn address(&mut self, input: &mut Input<'_>) -> u64 {
        match input.u8() {
            0..160 => BUFFERS + u64::from(input.u16()) % (RAM_LEN - 0x2000),
            160..184 => BUFFERS,
            184..200 => TX_RING + u64::from(input.u8()) * 4,
            200..224 => HIGH + u64::from(input.u16()) % HIGH_LEN,
            224..232 => RAM + RAM_LEN - u64::from(input.u8()),
            232..240 => 0,
            _ => input.u64(),
        }
    }

    /// Calls the transmitter. Or writes a word of the CSB's page, and gives the page, takes it away, or calls.
    fn call(&mut self, op: u8, input: &mut Input<'_>) {
        let more = op >> 4;
        if op & 15 != 3 || more & 8 == 0 {
            return self.write(reg::TX_POLL, 1, 0x40);
        }
        let at = u64::from(4 * (input.u8() % 26));
        let value = match input.u8() {
            n @ 0..100 => u32::from(n % 20),
            _ => input.u32(),
        };
        let view = self.env.memory.view();
        let _ = view.write(PAGE + at, &value.to_le_bytes());
        drop(view);
        match more & 7 {
            0 | 1 => self.write(reg::CSBAL, 4, PAGE),
            2 => self.write(reg::CSBAL, 4, 0),
            3 => self.write(reg::RXKICK, 4, 0),
            _ => self.write(reg::TX_POLL, 1, 0x40),
        }
    }

    fn step(&mut self, op: u8, input: &mut Input<'_>, room: &mut Vec<u8>) {
        let more = op >> 4;
        match op & 15 {
            0..=2 => {
                let addr = self.address(input);
                let len = match input.u8() {
                    n @ 0..160 => u32::from(n),
                    _ => input.u16().into(),
                };
                // Complete, or as it comes.
                let bits = match more & 3 {
                    0 => 3 << 28,
                    1 => 1 << 29,
                    2 => 1 << 28,
                    _ => input.u32() & 0x3fff_0000,
                };
                let large = match (more & 4 != 0, self.is_first()) {
                    (true, false) => u32::from(input.u8()) << 20 & 0x0e00_0000,
                    (true, true) => u32::from(input.u16()) << 16 & ASKED,
                    _ => 0,
                };
                let opts2 = match input.u8() {
                    0..80 => 0,
                    80..160 => 0xe000_0000 & input.u32(),
                    _ => input.u32(),
                };
                let index = self.next;
                self.next = (index + 1) % LEN;
                let end = if index + 1 == LEN { EOR } else { 0 };
                self.put(
                    TX_RING,
                    index,
                    (OWN | end | bits | large | len, opts2),
                    addr,
                );
            }
            3 | 4 => self.call(op, input),
            5 | 6 => {
                let mut count = usize::from(more) + 1;
                let notes = some_frame(input, room);
                if input.u8() & 1 == 0 {
                    count = 1;
                }
                self.receive(room, notes, count);
            }
            7 | 8 => {
                let index = u32::from(input.u8()) % LEN;
                let addr = self.address(input);
                let end = if index + 1 == LEN && more != 0 {
                    EOR
                } else {
                    0
                };
                let opts1 = match more & 3 {
                    0 => input.u32(),
                    _ => OWN | end | u32::from(input.u16()) & 0x3fff,
                };
                self.put(RX_RING, index, (opts1, 0), addr);
            }
            9 => {
                // Headers that a checksum is asked of.
                let _ = some_frame(input, room);
                let frame = std::mem::take(room);
                let at = self.address(input);
                self.poke(at, &frame);
                *room = frame;
            }
            10 => {
                let (at, width) = (u64::from(input.u8()), usize::from(more & 7) + 1);
                let value = u64::from(input.value()) | u64::from(input.u16()) << 32;
                self.write(at, width, value);
            }
            11 => {
                const KNOWN: [u64; 6] = [
                    reg::RX_MAX_SIZE,
                    reg::CPLUS_CMD,
                    reg::MITIGATE,
                    reg::IMR,
                    reg::ISR,
                    reg::RX_CONFIG,
                ];
                let at = KNOWN[usize::from(more) % KNOWN.len()];
                let value = input.u16();
                self.write(at, 2, value.into());
            }
            12 => self.surroundings(more, input),
            13 => {
                let at = RAM + u64::from(input.u16()) % RAM_LEN;
                let len = usize::from(input.u8() % 64);
                self.poke(at, input.bytes(len));
            }
            14 => {
                let now = self.time.now() + u64::from(input.u16()) * 1_000;
                self.time.now.store(now, Ordering::Relaxed);
                self.time.arm(None);
                self.access(|g| g.nic.control.tick(&g.env));
            }
            _ if more < 8 => self.turns(),
            _ => {
                let len = 16 + usize::from(input.u16() % 1600);
                self.receive_run(len, usize::from(input.u8() % 70));
            }
        }
    }

    /// Starts anew, or changes what is around the NIC: its wire, link, bus and budget.
    fn surroundings(&mut self, more: u8, input: &mut Input<'_>) {
        match more {
            0..4 => {
                let size = u32::from(input.u16()) & 0x3fff;
                self.start(size);
            }
            4 | 5 => self.write(reg::CHIP_CMD, 1, 0x10),
            6 | 7 => self.wire.room.store(usize::MAX, Ordering::Relaxed),
            8 | 9 => {
                let frames = input.u8();
                self.wire.room.store(frames.into(), Ordering::Relaxed);
            }
            10 => self.set_caps(input.u8()),
            11 => self.budget = [1, 2, 64, 256][usize::from(input.u8() & 3)],
            12 => match input.u8() & 3 {
                0 => self.access(|g| g.nic.control.reset(&g.env, ResetKind::Bus)),
                _ => self.reborn(),
            },
            13 => {
                let up = input.u8() & 1 == 0;
                self.mortal.note_link(up);
                self.access(|g| g.nic.control.set_link(&g.env, up));
            }
            14 => self.reborn(),
            _ => self.set_pci(input.u8()),
        }
    }

    /// The line is ISR and IMR; what counts never falls.
    fn check(&mut self) {
        let word = self.read(reg::IMR);
        let pending = word & word >> 16 & 0xffff != 0;
        let level = self.pin.level.load(Ordering::Relaxed);
        if self.pci.msi || self.pci.msix {
            assert!(!level, "a line beside messages");
        } else {
            // The default is adaptive: what is pending may wait for its time.
            // With a CSB it is told when the guest wants to hear of it.
            let waits = self.time.deadline().is_some() || self.read(reg::CSBAL) != 0;
            assert!(level || !pending || waits, "an interrupt that never comes");
            assert!(pending || !level, "one without a cause");
        }
        assert!(
            self.read(reg::ISR) as u16 != 0xffff,
            "a NIC that seems gone"
        );
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

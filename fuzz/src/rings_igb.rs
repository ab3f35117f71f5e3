//! Rings of the 82576, of a PF or a VF: descriptors of every kind in up to four queues, shapes of
//! buffers, hash tables and rings that change under a function that works.

mod steps;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frame::{Batch, Caps, MAX_BATCH};
use guest_mem::Memory;
use igb::{Grant, VfChannel};
use model::{Env, Nic, PciState, Progress, ResetKind, TURN_BYTES};
use model_testkit::{Pin, Time};
use registry::{Function, Settings};
use wire::Offload;

use crate::input::Input;
use crate::machine::{HIGH, HIGH_LEN, MAC, RAM, RAM_LEN};
use crate::mortal::{Deaths, Mortal, Outcome, all_blocks};
use crate::nic::nic;
use crate::outside::Wire;

mod reg {
    pub use intel_offsets::igb::legacy::long::{RDBAL as VF_RX, TDBAL as VF_TX};
    pub use intel_offsets::igb::long::{RDBAL as RX, TDBAL as TX, *};
    pub use intel_offsets::igb::queue::long::{LEN, TAIL as RDT, TAIL as TDT, XDCTL};
}

/// Queues that are used of a PF, and those there are.
const QUEUES: u64 = 4;
const ALL_QUEUES: u64 = igb::PF_QUEUES as u64;
/// Descriptors of a ring, and bytes.
const LEN: u32 = 16;
const RING: u64 = LEN as u64 * 16;
const TX_RINGS: u64 = RAM;
const RX_RINGS: u64 = RAM + QUEUES * RING;
const BUFFERS: u64 = RAM + 0x2000;
/// Turns after which the transmitter must have come to its end: segments of one byte, and few at once.
const TURNS: usize = 1 << 16;
/// Most bytes of a packet that is cut, and most that are copied of one that needs work.
const MAX_PACKET: u64 = 1 << 18;
const HEADERS: u64 = 1 << 10;
/// Descriptors fetched with one read.
const FETCH: u64 = 64;

thread_local! {
    /// The guest's memory of the last run.
    static MEMORY: Cell<Option<Memory>> = const { Cell::new(None) };
}

fn memory() -> Memory {
    match MEMORY.take() {
        Some(memory) => {
            let view = memory.view();
            let zeros = [0; RAM_LEN as usize];
            view.write(RAM, &zeros).expect("was there");
            let zeros = &zeros[..HIGH_LEN as usize];
            view.write(HIGH, zeros).expect("was there");
            drop(view);
            memory
        }
        None => {
            let memory = Memory::new();
            memory.map_anon(RAM, RAM_LEN).expect("map");
            memory.map_anon(HIGH, HIGH_LEN).expect("map");
            memory
        }
    }
}

struct Guest {
    nic: Nic,
    /// Of a VF.
    channel: Option<Arc<VfChannel>>,
    env: Env,
    pin: Arc<Pin>,
    time: Arc<Time>,
    wire: Wire,
    pci: PciState,
    counters: Vec<u64>,
    /// Next transmit descriptor of each queue, receive tail of each.
    next: [u32; QUEUES as usize],
    tail: [u32; QUEUES as usize],
    budget: usize,
    /// What outlives its process, if that may die.
    mortal: Mortal,
}

/// A function of an 82576 whose rings the guest misuses. The first byte says which and how it is set
/// up, the second the shapes of its buffers.
///
/// No register access touches guest memory, a turn of the transmitter and a batch received cost no
/// more than rings and frames allow, pending causes that are not masked raise the line, and a function
/// that is saved and loaded is as it was.
pub fn rings_igb(data: &[u8]) {
    script(data, None);
}

/// The same with a process that dies.
pub(crate) fn script(data: &[u8], deaths: Option<Deaths>) -> Outcome {
    let mut input = Input::new(data);
    let mut g = Guest::new(input.u8(), input.u8());
    if deaths.is_some() {
        g.mortal.begin(&mut g.nic, &g.env);
        g.wire.keep();
    }
    let mut room = Vec::new();
    for operation in 0..160 {
        let Some(op) = input.op() else { break };
        g.step(op, &mut input, &mut room);
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

fn function(grant: Option<Grant>) -> (Nic, Option<Arc<VfChannel>>) {
    let channel = grant.map(|grant| {
        let channel = VfChannel::new();
        channel.set_grant(grant);
        channel
    });
    let function = channel.clone().map_or(Function::Alone, Function::Vf);
    (nic("82576", &Settings::ready(MAC), &function), channel)
}

impl Guest {
    fn new(setup: u8, shape: u8) -> Guest {
        let (pin, time) = (Arc::new(Pin::default()), Arc::new(Time::at(2_000_000_000)));
        let env = Env {
            memory: memory(),
            irq: pin.clone(),
            clock: time.clone(),
            timer: time.clone(),
        };
        let grant = Grant {
            enabled: true,
            link: true,
            max_frame: 9728,
            tag: None,
            interrupt_gap: 0,
        };
        let (nic, channel) = function((setup & 2 != 0).then_some(grant));
        let mut g = Guest {
            nic,
            channel,
            env,
            pin,
            time,
            wire: Wire::default(),
            pci: PciState::default(),
            counters: Vec::new(),
            next: [0; QUEUES as usize],
            tail: [LEN - 1; QUEUES as usize],
            budget: MAX_BATCH,
            mortal: Mortal::default(),
        };
        g.wire.room.store(usize::MAX, Ordering::Relaxed);
        g.set_caps(setup >> 4);
        g.nic.control.reset(&g.env, ResetKind::Bus);
        g.nic.control.attend(&g.env);
        g.set_pci(true, setup & 1 != 0);
        g.write(reg::EIMS, u32::MAX);
        g.write(reg::IVAR, 0x8180_8180);
        if g.channel.is_none() {
            g.set_up_port(setup);
        }
        for queue in 0..g.queues() {
            let kind = [0, 1, 2, 5][usize::from(shape >> (2 * queue) & 3)] << 25;
            g.start_rx(queue, kind | 0x8000_0000 | 0x101);
            g.start_tx(queue);
        }
        g.poke(BUFFERS, &HEADERS_V4);
        g
    }

    /// What a PF has beside its queues.
    fn set_up_port(&mut self, setup: u8) {
        self.write(reg::CTRL, 0x4000_0040);
        self.write(reg::IMS, u32::MAX);
        let sums = [0x300, 0x2b00, 0x1300, 0][usize::from(setup >> 2 & 3)];
        self.write(reg::RXCSUM, sums);
        self.write(reg::MRQC, 0x01ff_0002);
        for i in 0..10 {
            let key = 0x6d5a_56da_u32.rotate_left(i as u32 * 5);
            self.write(reg::RSSRK + i * 4, key);
        }
        for i in 0..32 {
            self.write(reg::RETA + i * 4, 0x0302_0100);
        }
        self.write(reg::PSRTYPE, u32::from(setup >> 3 & 1) * 0x38e);
        self.write(reg::TCTL, 0xa);
        self.write(reg::RCTL, 0x0400_803e);
    }

    fn queues(&self) -> u64 {
        if self.channel.is_some() { 2 } else { QUEUES }
    }

    /// The registers of a queue, of its receive and of its transmit side.
    fn rx(&self, queue: u64) -> u64 {
        match self.channel {
            Some(_) => reg::VF_RX + queue * 0x100,
            None => reg::RX + queue * 0x40,
        }
    }

    fn tx(&self, queue: u64) -> u64 {
        match self.channel {
            Some(_) => reg::VF_TX + queue * 0x100,
            None => reg::TX + queue * 0x40,
        }
    }

    /// Descriptors of all rings of a side together.
    fn rings(&mut self, of: fn(&Guest, u64) -> u64) -> u64 {
        let queues = if self.channel.is_some() {
            2
        } else {
            ALL_QUEUES
        };
        let all = (0..queues).map(|queue| {
            let at = of(self, queue) + reg::LEN;
            u64::from(self.read(at)) / 16
        });
        all.sum()
    }

    fn start_tx(&mut self, queue: u64) {
        let at = self.tx(queue);
        self.write(at, (TX_RINGS + queue * RING) as u32);
        self.write(at + 4, 0);
        self.write(at + reg::LEN, LEN * 16);
        self.write(at + 0x10, 0);
        self.write(at + reg::TDT, 0);
        self.write(at + reg::XDCTL, 1 << 25);
        self.next[queue as usize] = 0;
    }

    fn start_rx(&mut self, queue: u64, srrctl: u32) {
        let ring = RX_RINGS + queue * RING;
        for i in 0..u64::from(LEN) {
            let buffer = BUFFERS + 0x4000 + queue * 0x2000 + i * 0x200;
            self.poke(ring + i * 16, &buffer.to_le_bytes());
            self.poke(ring + i * 16 + 8, &(buffer + 0x180).to_le_bytes());
        }
        let at = self.rx(queue);
        self.write(at, ring as u32);
        self.write(at + 4, 0);
        self.write(at + reg::LEN, LEN * 16);
        self.write(at + 0xc, srrctl);
        self.write(at + 0x10, 0);
        self.write(at + reg::XDCTL, 1 << 25);
        self.write(at + reg::RDT, LEN - 1);
        self.tail[queue as usize] = LEN - 1;
    }

    /// Does to the registers what touches no memory.
    fn access<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.env.memory.meter().totals();
        let result = f(self);
        let after = self.env.memory.meter().totals();
        assert_eq!(after, before, "a register access touched guest memory");
        result
    }

    fn write(&mut self, at: u64, value: u32) {
        let bytes = value.to_le_bytes();
        self.access(|g| g.nic.control.write(&g.env, 0, at, &bytes));
        self.mortal.answered(&mut self.nic, &self.env);
        self.work();
    }

    fn read(&mut self, at: u64) -> u32 {
        let mut data = [0; 4];
        self.access(|g| g.nic.control.read(&g.env, 0, at, &mut data));
        self.mortal.answered(&mut self.nic, &self.env);
        u32::from_le_bytes(data)
    }

    fn set_pci(&mut self, bus_master: bool, msix: bool) {
        self.pci = PciState {
            bus_master,
            msix,
            ..PciState::default()
        };
        let pci = self.pci;
        self.access(|g| g.nic.control.pci(&g.env, pci));
        self.mortal.answered(&mut self.nic, &self.env);
        self.work();
    }

    /// Its process dies, and another goes on.
    fn die(&mut self) {
        let grant = self.channel.as_ref().map(|channel| channel.grant());
        (self.nic, self.channel) = function(grant);
        self.pin.level.store(false, Ordering::Relaxed);
        self.mortal.go_on(&mut self.nic, &self.env);
        let (pci, link) = (self.pci, self.mortal.link());
        self.access(|g| g.nic.control.pci(&g.env, pci));
        self.access(|g| g.nic.control.set_link(&g.env, link));
        self.counters.clear();
        self.access(|g| g.nic.control.attend(&g.env));
    }

    /// Whether something waits that it was not told of, as a process that begins does.
    fn look(&mut self) {
        self.turns();
        self.work();
    }

    fn outcome(&mut self) -> Outcome {
        Outcome {
            frames: self.wire.kept(),
            memory: Some(all_blocks(&self.env.memory, RAM, RAM_LEN)),
            unsure: self.mortal.unsure(),
            ..Outcome::default()
        }
    }

    /// Saves the function and goes on with another that has loaded it.
    fn reborn(&mut self) {
        self.nic.control.attend(&self.env);
        let blob = self.nic.control.save(&self.env);
        let grant = self.channel.as_ref().map(|channel| channel.grant());
        let (mut nic, channel) = function(grant);
        // The line goes with the one that drove it.
        self.pin.level.store(false, Ordering::Relaxed);
        let loaded = nic.control.load(&self.env, &blob);
        loaded.expect("a function's own state is one");
        let again = nic.control.save(&self.env);
        if channel.is_some() {
            assert!(again == blob, "saved, loaded and saved");
        } else {
            // What stands is told again, and so later than it was: messages once there is MSI-X again.
            let state = |blob| {
                let mut state = igb::state::read(blob).expect("just saved");
                state.interrupts.last.clear();
                state.interrupts.sent = 0;
                state
            };
            assert_eq!(state(&again), state(&blob), "saved, loaded and saved");
        }
        (self.nic, self.channel) = (nic, channel);
        self.mortal.keep(&mut self.nic, &self.env);
        // Counters are the process', not the function's.
        self.counters.clear();
        let PciState {
            bus_master, msix, ..
        } = self.pci;
        self.set_pci(bus_master, msix);
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
        let rings = self.rings(Guest::tx);
        for turn in 0.. {
            assert!(turn < TURNS, "transmit never ends");
            let sent = self.wire.frames.load(Ordering::Relaxed);
            let before = self.env.memory.meter().totals();
            let progress = self.nic.transmit.run(&self.env, &self.wire, self.budget);
            let sent = self.wire.frames.load(Ordering::Relaxed) - sent;
            // A packet is cut whole, as far as the batch reaches.
            let most = (self.budget + MAX_BATCH) as u64;
            assert!(sent <= most, "{sent} frames");
            let after = self.env.memory.meter().totals();
            // Each ring is walked once, and once more in vain behind a packet without its end; the
            // batches in between begin with what was fetched and not used.
            let read = after.read_bytes - before.read_bytes;
            let walked = 2 * rings + (most + ALL_QUEUES) * FETCH;
            let gathered = 2 * (TURN_BYTES as u64 + MAX_PACKET) + most * HEADERS;
            assert!(read <= walked * 16 + gathered, "{read} bytes read, {rings}");
            // In loopback it receives too, and has bounds of its own for that.
            if sent > 0 || !self.loops() {
                let written = after.write_bytes - before.write_bytes;
                let most = 16 * rings + 4 * (most + ALL_QUEUES);
                assert!(written <= most, "{written} bytes written, {rings}");
            }
            if progress != Progress::More {
                return;
            }
        }
    }

    /// Whether frames may come straight back.
    fn loops(&mut self) -> bool {
        self.channel.is_none() && self.read(reg::RCTL) & 0xc0 != 0
    }

    fn set_caps(&mut self, bits: u8) {
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
        let ring = self.rings(Guest::rx).max(1);
        // Each pool of a PF may get a frame.
        let pools = self.channel.is_none() && matches!(self.read(reg::MRQC) & 7, 3 | 5);
        let copies = count as u64 * if pools { 8 } else { 1 };
        let before = self.env.memory.meter().totals();
        let dealt = self.nic.receive.deliver(&self.env, &batch, picks);
        assert!(dealt <= picks.len(), "{dealt} of {}", picks.len());
        let after = self.env.memory.meter().totals();
        if notes.gso == wire::Gso::None {
            // What came, padded and with FCS, once, and a descriptor's words.
            let written = after.write_bytes - before.write_bytes;
            let most = (bytes.len() as u64 + 72) * copies + 2 * 16 * ring;
            assert!(written <= most, "{written} bytes written, {most}");
        }
        // Descriptors, no more than twice a ring and one fetch a frame.
        let read = after.read_bytes - before.read_bytes;
        let most = (2 * ring + FETCH * copies) * 16;
        assert!(read <= most, "{read} bytes read, {ring} descriptors");
        if dealt < picks.len() {
            self.nic.receive.give_up(&self.env, &batch, &picks[dealt..]);
        }
    }

    fn check(&mut self) {
        self.check_line();
        self.check_counters();
    }

    /// The line is up only for a cause that is not masked; such a cause with the line down waits for
    /// the timer.
    fn check_line(&mut self) {
        let level = self.pin.level.load(Ordering::Relaxed);
        if self.channel.is_some() {
            return assert!(!level, "a VF has no pin");
        }
        // With a message for each vector there is no level.
        if self.pci.msix || self.read(reg::GPIE) & 0x10 != 0 {
            return;
        }
        let pending = self.read(reg::ICS) & self.read(reg::IMS) != 0;
        let extended = self.read(reg::EIMS) << 1 != 0;
        let waits = self.time.deadline().is_some();
        assert!(level || !pending || waits, "an interrupt that never comes");
        assert!(pending || extended || !level, "one without a cause");
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

/// Ethernet, IPv4, TCP.
const HEADERS_V4: [u8; 54] = [
    0x52, 0x54, 0, 0x12, 0x34, 0x57, 0x52, 0x54, 0, 0x12, 0x34, 0x56, 8, 0, // Ethernet
    0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
    0, 80, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x99, 1, 0, 0, 0, 0, 0, // TCP
];

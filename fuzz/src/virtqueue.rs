//! Rings and the control queue of a virtio-net, of either format: chains of every shape, tables, events and indices that
//! change under a device that works.

mod steps;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use frame::{Batch, Caps, Run, Sink, Wake};
use guest_mem::Memory;
use model::{Env, Nic, PciState, Progress, ResetKind, TURN_BYTES};
use model_testkit::{Pin, Time};
use registry::{Function, Settings};
use snapshot::State;
use virtio_net::regs::{common as c, feature, page, status};
use virtio_net::state::V1;

use crate::input::Input;
use crate::machine::MAC;
use crate::mortal::{Deaths, Mortal, Outcome, all_blocks};
use crate::nic::nic;

/// The guest's memory: rings of five queues, then buffers.
const RAM: u64 = 0x1_0000;
const RAM_LEN: u64 = 0x1_0000;
/// Bytes of a queue's areas.
const QUEUE: u64 = 0x1000;
const BUFFERS: u64 = RAM + QUEUES as u64 * QUEUE;
/// Two pairs, and the control queue.
const QUEUES: usize = 5;
const CTRL: usize = QUEUES - 1;
/// Most entries of a ring.
const SIZE: u16 = 32;
/// Turns after which the transmitter must have come to its end.
const TURNS: usize = 1 << 12;
/// Descriptors read in a turn, beyond which others are served.
const TURN_DESCS: u64 = 4096;
/// Longest packet with its header and tags.
const MAX_PACKET: u64 = 0x1_0000 + 128;

thread_local! {
    /// The guest's memory of the last run.
    static MEMORY: Cell<Option<Memory>> = const { Cell::new(None) };
}

fn memory() -> Memory {
    let memory = MEMORY.take().unwrap_or_else(|| {
        let memory = Memory::new();
        memory.map_anon(RAM, RAM_LEN).expect("map");
        memory
    });
    let zeros = [0; RAM_LEN as usize];
    memory.view().write(RAM, &zeros).expect("mapped");
    memory
}

/// Takes what is sent, and looks at it.
#[derive(Default)]
struct Net {
    caps: Caps,
    room: AtomicUsize,
    frames: AtomicU64,
    /// A hash of each frame, where processes die.
    log: Mutex<Option<Vec<u32>>>,
}

impl Net {
    fn log(&self) -> MutexGuard<'_, Option<Vec<u32>>> {
        self.log.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn admit(&self, wanted: usize) -> usize {
        let room = match &*self.log() {
            // What finds no room may be under way when the device's process dies.
            Some(_) => usize::MAX,
            None => self.room.load(Ordering::Relaxed),
        };
        let n = wanted.min(room);
        self.room.store(room - n, Ordering::Relaxed);
        self.frames.fetch_add(n as u64, Ordering::Relaxed);
        n
    }
}

impl Sink for Net {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = self.admit(picks.len());
        for &pick in &picks[..n] {
            let frame = batch.get(pick.into()).expect("a pick is a frame");
            let notes = frame.notes();
            assert!(self.caps.accepts(notes), "{notes:?} for {:?}", self.caps);
            notes.check(frame.len()).expect("notes that make sense");
            assert!(frame.len() >= 14, "a runt of {} bytes", frame.len());
            assert!(frame.len() as u64 <= MAX_PACKET, "{} bytes", frame.len());
            if let Some(log) = &mut *self.log() {
                let mut whole = vec![0; frame.len()];
                frame.copy_to(0, &mut whole);
                log.push(crc32fast::hash(&whole));
            }
            let mut ends = [0; 64];
            frame.copy_to(frame.len().saturating_sub(64), &mut ends);
        }
        n
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        let n = self.admit(run.count());
        assert!(run.frame_len() >= 60, "a runt of {} bytes", run.frame_len());
        for i in 0..n {
            let frame = run.to_vec(i).expect("one of them");
            assert_eq!(frame[..14], run.header(), "another header");
            if let Some(log) = &mut *self.log() {
                log.push(crc32fast::hash(&frame));
            }
        }
        Some(n)
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// What the driver knows of a queue.
#[derive(Clone, Copy, Default)]
struct Queue {
    size: u16,
    /// Entries made available, and the descriptor that comes next; in a packed ring the latter counts on.
    given: u16,
    next: u32,
}

struct Guest {
    nic: Nic,
    env: Env,
    pin: Arc<Pin>,
    time: Arc<Time>,
    net: Net,
    pci: PciState,
    counters: Vec<u64>,
    /// Rings that were found broken when the driver reset the device last, and how often it has.
    broken: u64,
    reset: u64,
    features: u64,
    queues: [Queue; QUEUES],
    budget: usize,
    /// What outlives its process, if that may die.
    mortal: Mortal,
    /// The guest has written where the device says how far it is, which another process believes.
    meddled: Cell<bool>,
}

/// A virtio-net whose rings and commands the guest misuses. The first bytes say what was agreed upon.
///
/// No register access touches guest memory. A turn of the transmitter and a batch received cost no more than rings and
/// frames allow, and the transmitter comes to its end. A broken ring is counted and has the device ask for a reset. Counters
/// never decrease. A device that is saved and loaded is as it was.
pub fn virtqueue(data: &[u8]) {
    script(data, None);
}

/// The same with a process that dies.
pub(crate) fn script(data: &[u8], deaths: Option<Deaths>) -> Outcome {
    let mut input = Input::new(data);
    let mut g = Guest::new();
    if deaths.is_some() {
        g.mortal.begin(&mut g.nic, &g.env);
        *g.net.log() = Some(Vec::new());
    }
    g.start(&mut input);
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

fn new() -> Nic {
    let settings = Settings {
        queue_pairs: 2,
        mtu: Some(1500),
        standby: true,
        hash_report: true,
        ..Settings::ready(MAC)
    };
    nic("virtio-net", &settings, &Function::Alone)
}

impl Guest {
    fn new() -> Guest {
        let (pin, time) = (Arc::new(Pin::default()), Arc::new(Time::at(2_000_000_000)));
        let env = Env {
            memory: memory(),
            irq: pin.clone(),
            clock: time.clone(),
            timer: time.clone(),
        };
        let mut g = Guest {
            nic: new(),
            env,
            pin,
            time,
            net: Net::default(),
            pci: PciState::default(),
            counters: Vec::new(),
            broken: 0,
            reset: 0,
            features: 0,
            queues: [Queue::default(); QUEUES],
            budget: 256,
            mortal: Mortal::default(),
            meddled: Cell::new(false),
        };
        g.net.room.store(usize::MAX, Ordering::Relaxed);
        g.nic.control.reset(&g.env, ResetKind::Bus);
        g.set_pci(true, true);
        g
    }

    /// Begins anew, as a driver does: what is agreed upon, then the rings.
    fn start(&mut self, input: &mut Input<'_>) {
        let meddled = self.meddled.get();
        let asked = input.u64();
        let shape = input.u8();
        // Most often something that is possible.
        let chosen = asked | feature::VERSION_1 | feature::CTRL_VQ | feature::MQ;
        self.write(c::STATUS, &[0]);
        self.broken = self.broken();
        for value in [1, 3] {
            self.write(c::STATUS, &[value]);
        }
        let offered = self.offered();
        self.features = chosen & if shape & 0x80 == 0 { offered } else { u64::MAX };
        if shape & 0x40 == 0 {
            for (part, needs) in feature::NEEDS {
                if self.features & needs == 0 {
                    self.features &= !part;
                }
            }
        }
        for half in 0..2u32 {
            self.write(c::DRIVER_FEATURE_SELECT, &half.to_le_bytes());
            let word = (self.features >> (32 * half)) as u32;
            self.write(c::DRIVER_FEATURE, &word.to_le_bytes());
        }
        self.write(c::STATUS, &[3 | status::FEATURES_OK]);
        self.write(c::CONFIG_VECTOR, &0u16.to_le_bytes());
        for queue in 0..QUEUES {
            let size = 1 << (shape >> (queue & 3) & 1) << (2 + (shape >> 4 & 3));
            self.enable(queue, size);
        }
        let ok = 3 | status::FEATURES_OK | status::DRIVER_OK;
        self.write(c::STATUS, &[ok]);
        // The device was reset before.
        self.meddled.set(meddled);
    }

    fn is_packed(&self) -> bool {
        self.features & feature::PACKED != 0
    }

    fn enable(&mut self, queue: usize, size: u16) {
        self.poke(desc(queue), &[0; QUEUE as usize]);
        self.queues[queue] = Queue {
            size: size.clamp(1, SIZE),
            ..Queue::default()
        };
        self.write(c::QUEUE_SELECT, &(queue as u16).to_le_bytes());
        self.write(c::QUEUE_SIZE, &size.to_le_bytes());
        self.write(c::QUEUE_VECTOR, &(queue as u16 + 1).to_le_bytes());
        let areas = [desc(queue), driver(queue), device(queue)];
        for (area, at) in areas.into_iter().zip((c::QUEUE_DESC..).step_by(8)) {
            self.write(at, &(area as u32).to_le_bytes());
            self.write(at + 4, &((area >> 32) as u32).to_le_bytes());
        }
        self.write(c::QUEUE_ENABLE, &1u16.to_le_bytes());
    }

    fn offered(&mut self) -> u64 {
        let mut offered = 0;
        for half in 0..2u32 {
            self.write(c::DEVICE_FEATURE_SELECT, &half.to_le_bytes());
            let mut word = [0; 4];
            self.read(c::DEVICE_FEATURE, &mut word);
            offered |= u64::from(u32::from_le_bytes(word)) << (32 * half);
        }
        offered
    }

    fn poke(&self, at: u64, bytes: &[u8]) {
        let end = at.saturating_add(bytes.len() as u64);
        let is_in = |queue| at < desc(queue) + QUEUE && end > device(queue);
        if (0..QUEUES).any(is_in) {
            self.meddled.set(true);
        }
        // What is outside is cut off.
        let _ = self.env.memory.view().write(at, bytes);
    }

    /// Does to the registers what touches no memory.
    fn access<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.env.memory.meter().totals();
        let result = f(self);
        let after = self.env.memory.meter().totals();
        assert_eq!(after, before, "a register access touched guest memory");
        result
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.access(|g| g.nic.control.write(&g.env, 0, at, bytes));
        self.mortal.answered(&mut self.nic, &self.env);
        self.work();
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) {
        self.access(|g| g.nic.control.read(&g.env, 0, at, bytes));
        self.mortal.answered(&mut self.nic, &self.env);
    }

    fn kick(&mut self, queue: usize) {
        let at = page::NOTIFY + u64::from(page::NOTIFY_STEP) * queue as u64;
        self.write(at, &(queue as u16).to_le_bytes());
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
            let sent = self.net.frames.load(Ordering::Relaxed);
            let before = self.env.memory.meter().totals();
            let progress = self.nic.transmit.run(&self.env, &self.net, self.budget);
            // Behind its work, as a worker does: a command is answered once what it has changed is kept.
            self.mortal.answered(&mut self.nic, &self.env);
            let sent = self.net.frames.load(Ordering::Relaxed) - sent;
            // A packet is cut whole.
            let most = (self.budget + 256 + wire::MAX_SEGMENTS) as u64;
            assert!(sent <= most, "{sent} frames");
            let after = self.env.memory.meter().totals();
            // All rings once, each chain with a table as long as its ring, twice; commands; packets, and again where they
            // are summed or copied.
            let size = u64::from(SIZE);
            let descs = 2 * (TURN_DESCS + QUEUES as u64 * size * (size + 2));
            let packets = 4 * (TURN_BYTES as u64 + MAX_PACKET * (QUEUES as u64 + 1));
            let commands = size * (16 << 10);
            let read = after.read_bytes - before.read_bytes;
            assert!(read <= 16 * descs + packets + commands, "{read} bytes read");
            // Used elements, indices and events; answers of commands.
            let written = after.write_bytes - before.write_bytes;
            let most = 64 * size * QUEUES as u64 + size * (1 << 12);
            assert!(written <= most, "{written} bytes written");
            if progress != Progress::More {
                return;
            }
        }
    }

    /// Rings that were found broken.
    fn broken(&self) -> u64 {
        let mut broken = 0;
        self.nic.control.counters(&mut |name, value| {
            if name.starts_with("broken_") {
                broken += value;
            }
        });
        broken
    }

    /// Resets by the driver.
    fn resets(&self) -> u64 {
        let mut resets = 0;
        self.nic.control.counters(&mut |name, value| {
            if name == "device_resets" {
                resets = value;
            }
        });
        resets
    }

    /// Saves the device and goes on with another that has loaded it.
    fn reborn(&mut self) {
        let blob = self.nic.control.save(&self.env);
        let mut nic = new();
        self.pin.level.store(false, Ordering::Relaxed);
        let loaded = nic.control.load(&self.env, &blob);
        loaded.expect("a device's own state is one");
        let again = nic.control.save(&self.env);
        // It asks to be announced, and has everything looked at.
        let state = |blob: &[u8]| {
            let saved = snapshot::open(V1::KIND, blob).expect("just saved");
            let mut state: V1 = saved.decode().expect("just saved");
            state.net_status &= 1;
            (state.generation, state.isr, state.ctrl_kicked) = (0, 0, false);
            state
        };
        assert_eq!(state(&again), state(&blob), "saved, loaded and saved");
        self.nic = nic;
        self.mortal.keep(&mut self.nic, &self.env);
        // Counters are the process', not the device's.
        self.counters.clear();
        (self.broken, self.reset) = (0, 0);
        let PciState {
            bus_master, msix, ..
        } = self.pci;
        self.set_pci(bus_master, msix);
    }

    /// Its process dies, and another goes on.
    fn die(&mut self) {
        self.nic = new();
        self.pin.level.store(false, Ordering::Relaxed);
        self.mortal.go_on(&mut self.nic, &self.env);
        let (pci, link) = (self.pci, self.mortal.link());
        self.access(|g| g.nic.control.pci(&g.env, pci));
        self.access(|g| g.nic.control.set_link(&g.env, link));
        self.counters.clear();
        (self.broken, self.reset) = (0, 0);
    }

    /// Whether something waits that it was not told of, as a process that begins does.
    fn look(&mut self) {
        self.turns();
        self.work();
    }

    fn outcome(&mut self) -> Outcome {
        let meddled = self.meddled.get();
        // Whether it wants to be told is for each process to say, and how many buffers one element stands for, where they are in order.
        let in_order = self.features & feature::IN_ORDER != 0;
        for queue in 0..QUEUES {
            let size = usize::from(self.queues[queue].size);
            if self.is_packed() {
                self.poke(device(queue), &[0; 4]);
                continue;
            }
            self.poke(device(queue), &[0; 2]);
            let (from, len) = if in_order {
                (0, 8 * size + 2)
            } else {
                (8 * size, 2)
            };
            self.poke(device(queue) + 4 + from as u64, &vec![0; len]);
        }
        Outcome {
            frames: self.net.log().take().unwrap_or_default(),
            memory: Some(all_blocks(&self.env.memory, RAM, RAM_LEN)),
            unsure: self.mortal.unsure(),
            meddled,
            ..Outcome::default()
        }
    }

    /// What holds after every step.
    fn check(&mut self) {
        let mut now = Vec::with_capacity(self.counters.len());
        self.nic.control.counters(&mut |_, value| now.push(value));
        let mut pairs = self.counters.iter().zip(&now);
        assert!(pairs.all(|(before, now)| before <= now), "a counter fell");
        self.counters = now;
        let mut status = [0];
        self.read(c::STATUS, &mut status);
        let (broken, resets) = (self.broken(), self.resets());
        if std::mem::replace(&mut self.reset, resets) != resets {
            // By whatever register.
            self.broken = broken;
        } else if status[0] & status::NEEDS_RESET == 0 {
            assert_eq!(
                broken, self.broken,
                "a ring is broken, and no reset asked for"
            );
        }
    }
}

fn desc(queue: usize) -> u64 {
    RAM + QUEUE * queue as u64
}

fn driver(queue: usize) -> u64 {
    desc(queue) + 0x400
}

fn device(queue: usize) -> u64 {
    desc(queue) + 0x800
}

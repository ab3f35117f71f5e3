//! A NIC in surroundings in which everything that can be seen of it is recorded.

use std::sync::{Arc, Mutex};

use frame::{Batch, Caps, Sink, Wake};
use guest_mem::Memory;
use hypernic_e1000::{Config, new, regs, state};
use model::{Clock, Env, Interrupts, Nanos, Nic, PciState, Progress, ResetKind, Space};
use model_testkit::Time;
use wire::Offload;

use super::common::*;
use super::ops::*;

/// Something that can be seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Read(u64, Vec<u8>),
    /// The line changed, at this time of the script.
    Line(u64, bool),
    Msi(u64, u16),
    Sent(Vec<u8>, Offload),
    /// So many frames were dealt with.
    Dealt(usize),
}

/// The interrupt pin, and when what happened.
pub struct Host {
    origin: Nanos,
    time: Arc<Time>,
    level: Mutex<bool>,
    seen: Mutex<Vec<Seen>>,
}

impl Host {
    fn new(origin: Nanos, elapsed: Nanos) -> Self {
        Self {
            origin,
            time: Arc::new(Time::at(origin + elapsed)),
            level: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    fn elapsed(&self) -> Nanos {
        self.time.now() - self.origin
    }

    fn push(&self, seen: Seen) {
        self.seen.lock().expect("seen").push(seen);
    }
}

impl Interrupts for Host {
    fn set_line(&self, level: bool) {
        let mut now = self.level.lock().expect("level");
        if *now != level {
            *now = level;
            self.push(Seen::Line(self.elapsed(), level));
        }
    }
    fn msi(&self, vector: u16) {
        self.push(Seen::Msi(self.elapsed(), vector));
    }
    fn msix(&self, _: u16) {}
}

/// The other end of the cable.
struct Cable<'a> {
    host: &'a Host,
    caps: Caps,
    room: &'a Mutex<usize>,
}

impl Sink for Cable<'_> {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut room = self.room.lock().expect("room");
        let n = picks.len().min(*room);
        *room -= n;
        for pick in &picks[..n] {
            let frame = batch.get((*pick).into()).expect("picked");
            self.host.push(Seen::Sent(frame.to_vec(), *frame.notes()));
        }
        n
    }
    fn caps(&self) -> Caps {
        self.caps
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// A NIC in its surroundings.
pub struct Rig {
    pub nic: Nic,
    pub env: Env,
    host: Arc<Host>,
    config: Config,
    caps: Caps,
    room: Mutex<usize>,
    /// The cable had no room, and wakes the NIC when it has.
    blocked: bool,
}

impl Rig {
    pub fn new(config: Config, caps: Caps) -> Self {
        let memory = Memory::new();
        memory.map_anon(BASE, SIZE).expect("map");
        // Bytes to send that are not all the same.
        let bytes: Vec<u8> = (0..0x8000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        memory.view().write(TX_DATA, &bytes).expect("poke");
        let host = Arc::new(Host::new(5_000_000_000, 0));
        let env = env(memory, &host);
        Self {
            nic: new(config),
            env,
            host,
            config,
            caps,
            room: Mutex::new(100),
            blocked: false,
        }
    }

    /// Saves, and goes on in a fresh NIC in another process on another host: another clock, pin
    /// and timer, while memory, wire and time elapsed are those of the guest.
    pub fn move_to(self, origin: Nanos) -> Rig {
        let blob = self.nic.control.save(&self.env);
        let host = Arc::new(Host::new(origin, self.host.elapsed()));
        let env = env(self.env.memory.clone(), &host);
        let mut nic = new(self.config);
        nic.control.load(&env, &blob).expect("what was saved loads");
        // What the pin signalled at loading is no history; what was seen since the last step, before
        // the second of two moves, is.
        let seen = std::mem::take(&mut *self.host.seen.lock().expect("seen"));
        *host.seen.lock().expect("seen") = seen;
        let again = difference(&blob, &nic.control.save(&env));
        assert!(again.is_empty(), "it saves otherwise: {again:#?}");
        Rig {
            nic,
            env,
            host,
            config: self.config,
            caps: self.caps,
            room: self.room,
            // No sender waits for room here yet.
            blocked: false,
        }
    }

    fn write(&mut self, offset: u64, value: u32) {
        let data = value.to_le_bytes();
        self.nic.control.write(&self.env, 0, offset, &data);
    }

    /// A register, read for ourselves and not for the record.
    fn peek_register(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.nic.control.read(&self.env, 0, offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// 1 stands for the I/O window, wherever this chip has it.
    fn bar(&self, bar: u8) -> u8 {
        let bars = &self.nic.identity.bars;
        let io = bars.iter().find(|bar| bar.space == Space::Io);
        match bar {
            1 => io.map_or(1, |bar| bar.index),
            bar => bar,
        }
    }

    pub fn work(&mut self) {
        for _ in 0..8 {
            let work = self.nic.control.take_work();
            if work.rx {
                self.nic.receive.poll(&self.env);
            }
            if !work.tx {
                break;
            }
            self.run();
        }
    }

    fn make_room(&mut self, frames: usize) {
        *self.room.lock().expect("room") = frames;
        self.try_again();
    }

    /// A transmitter that waits for room tries again, as one does that was just loaded.
    pub fn try_again(&mut self) {
        if self.blocked {
            self.run();
        }
    }

    fn run(&mut self) {
        let cable = Cable {
            host: &self.host,
            caps: self.caps,
            room: &self.room,
        };
        for _ in 0..1000 {
            let progress = self.nic.transmit.run(&self.env, &cable, 64);
            self.blocked = progress == Progress::Blocked;
            if progress != Progress::More {
                return;
            }
        }
        panic!("sending never ends");
    }

    fn sleep(&mut self, ns: Nanos) {
        let end = self.host.time.now() + ns;
        while self.host.time.step_to(end) {
            self.nic.control.tick(&self.env);
            self.work();
        }
    }

    fn poke(&self, at: u64, bytes: &[u8]) {
        self.env.memory.view().write(at, bytes).expect("poke");
    }

    fn desc(&self, ring: u64, index: u32, low: u64, high: u64) {
        let at = ring + u64::from(index % RING) * 16;
        self.poke(at, &low.to_le_bytes());
        self.poke(at + 8, &high.to_le_bytes());
    }

    fn driver(&mut self, rctl: u32, delays: [u16; 4], itr: u16) {
        for i in 0..RING {
            self.desc(RX, i, RX_DATA + u64::from(i) * 0x800, 0);
        }
        let control = self.peek_register(reg::CTRL);
        let setup = [
            (
                reg::CTRL,
                control & 0x4000_0800 | 0x40 | rctl >> 5 << 27 & 0x1800_0000,
            ),
            (0x28, 0x00c2_8001),
            (0x2c, 0x0100),
            (0x30, 0x8808),
            (0x170, 0x40),
            (0x2160, 0x8000_0800),
            (0x2168, 0x1000),
            (reg::ITR, itr.into()),
            (reg::RDTR, delays[0].into()),
            (reg::RADV, delays[1].into()),
            (reg::TIDV, delays[2].into()),
            (reg::TADV, delays[3].into()),
            (reg::RDBAL, RX as u32),
            (reg::RDBAH, 0),
            (reg::RDLEN, RING * 16),
            (reg::RDH, 0),
            (reg::RDT, RING - 1),
            (reg::TDBAL, TX as u32),
            (reg::TDBAH, 0),
            (reg::TDLEN, RING * 16),
            (reg::TDH, 0),
            (reg::TDT, 0),
            (reg::IMS, 0x1_ffff),
            // Buffers of 2048 bytes and less; no loopback more often than not.
            (
                reg::RCTL,
                rctl & 0x04df_b33e | 0x8002 | if rctl >> 28 == 0 { 0xc0 } else { 0 },
            ),
            (reg::TCTL, 0x000a),
        ];
        for (offset, value) in setup {
            self.write(offset, value);
        }
    }

    /// Sends one packet to be segmented.
    fn segments(&mut self, len: u32, mss: u16, room: usize) {
        self.make_room(room);
        let mut tail = self.peek_register(reg::TDT) % RING;
        let context = Ctx {
            ip: (14, 24, 33),
            tu: (34, 50, 0),
            paylen: len - 54,
            cmd: TSE | 3,
            hdrlen: 54,
            mss,
        };
        let (low, high) = context.words();
        let last = (TX_DATA, data(len, EOP | IFCS | RS | TSE, 3, 0));
        for (low, high) in [(low, high), last] {
            self.desc(TX, tail, low, high);
            tail = (tail + 1) % RING;
        }
        self.write(reg::TDT, tail);
        self.work();
    }

    /// Hands over a ring full of a packet without an end.
    fn endless(&mut self) {
        let head = self.peek_register(reg::TDH) % RING;
        for index in 0..RING {
            self.desc(TX, index, TX_DATA, legacy(60, IFCS));
        }
        self.write(reg::TDT, (head + RING - 1) % RING);
        self.work();
    }

    /// The partner sends a pause frame.
    fn pause(&self, quanta: u16) -> usize {
        let mut frame = plain([1, 0x80, 0xc2, 0, 0, 1], 60);
        frame[12..16].copy_from_slice(&[0x88, 0x08, 0, 1]);
        frame[16..18].copy_from_slice(&quanta.to_be_bytes());
        let mut batch = Batch::new();
        batch.push_bytes(&frame);
        batch.end(Offload::NONE);
        self.nic.receive.deliver(&self.env, &batch, &[0])
    }

    /// Offers frames: destination, length, tagged. Returns how many were dealt with.
    fn receive(&self, frames: &[(u8, usize, bool)]) -> usize {
        let mut batch = Batch::new();
        for &(dst, len, tagged) in frames {
            let dst = match dst {
                0 | 1 => MAC,
                2 => [0xff; 6],
                _ => [1, 0, 0x5e, 0, 0, 1],
            };
            let mut frame = plain(dst, len);
            if tagged && len >= 18 {
                frame[12..16].copy_from_slice(&[0x81, 0, 0, 5]);
            }
            batch.push_bytes(&frame);
            batch.end(Offload::NONE);
        }
        let mut room = Vec::new();
        let picks = batch.all_picks(&mut room);
        self.nic.receive.deliver(&self.env, &batch, picks)
    }

    /// Does it, and tells all that was seen meanwhile.
    pub fn apply(&mut self, op: &Op) -> Vec<Seen> {
        let mut seen = None;
        match op {
            Op::Write {
                bar,
                offset,
                data,
                work,
            } => {
                let bar = self.bar(*bar);
                self.nic.control.write(&self.env, bar, *offset, data);
                if *work {
                    self.work();
                }
            }
            Op::Read { bar, offset, len } => {
                let mut data = vec![0; *len];
                let bar = self.bar(*bar);
                self.nic.control.read(&self.env, bar, *offset, &mut data);
                seen = Some(Seen::Read(*offset, data));
            }
            Op::Driver { rctl, delays, itr } => {
                let on = PciState {
                    bus_master: true,
                    ..PciState::default()
                };
                self.nic.control.pci(&self.env, on);
                self.driver(*rctl, *delays, *itr);
                self.work();
            }
            Op::Send { descs, data, work } => {
                self.poke(TX_DATA, &[*data; 64]);
                let mut tail = self.peek_register(reg::TDT) % RING;
                for (low, high) in descs {
                    self.desc(TX, tail, *low, *high);
                    tail = (tail + 1) % RING;
                }
                self.write(reg::TDT, tail);
                if *work {
                    self.work();
                }
            }
            Op::Segments { len, mss, room } => self.segments(*len, *mss, *room),
            Op::Endless => self.endless(),
            Op::Handle => {
                let causes = self.peek_register(reg::ICR);
                let rings = [reg::TDH, reg::RDH].map(|at| self.peek_register(at) as u8);
                self.work();
                let mut all = causes.to_le_bytes().to_vec();
                all.extend(rings);
                seen = Some(Seen::Read(reg::ICR, all));
            }
            Op::Give { count, work } => {
                let tail = self.peek_register(reg::RDT) % RING;
                for i in 0..*count {
                    let index = (tail + i) % RING;
                    self.desc(RX, index, RX_DATA + u64::from(index) * 0x800, 0);
                }
                self.write(reg::RDT, (tail + count) % RING);
                if *work {
                    self.work();
                }
            }
            Op::Pause(quanta) => seen = Some(Seen::Dealt(self.pause(*quanta))),
            Op::Receive(frames) => seen = Some(Seen::Dealt(self.receive(frames))),
            Op::Room(frames) => self.make_room(*frames),
            Op::Sleep(ns) => self.sleep(*ns),
            Op::Cable(up) => self.nic.control.set_link(&self.env, *up),
            Op::Reset => self.nic.control.reset(&self.env, ResetKind::Bus),
            Op::Pci { bus_master, msi } => {
                let state = PciState {
                    bus_master: *bus_master,
                    msi: *msi,
                    ..PciState::default()
                };
                self.nic.control.pci(&self.env, state);
                self.work();
            }
            Op::Eeprom(levels) => {
                for level in levels {
                    self.write(reg::EECD, u32::from(*level) | 0x40);
                }
                let value = self.peek_register(reg::EECD);
                seen = Some(Seen::Read(reg::EECD, value.to_le_bytes().to_vec()));
            }
            Op::Mdic { reg, write } => {
                let op = match write {
                    Some(value) => 1 << 26 | u32::from(*value),
                    None => 2 << 26,
                };
                self.write(reg::MDIC, op | 1 << 21 | reg << 16);
                self.work();
                let value = self.peek_register(reg::MDIC);
                seen = Some(Seen::Read(reg::MDIC, value.to_le_bytes().to_vec()));
            }
        }
        let mut all = std::mem::take(&mut *self.host.seen.lock().expect("seen"));
        all.extend(seen);
        all
    }

    /// All of guest memory.
    pub fn memory(&self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE as usize];
        self.env.memory.view().read(BASE, &mut bytes).expect("peek");
        bytes
    }

    /// Level of the line, and how long until the timer fires.
    pub fn pins(&self) -> (bool, Option<i64>) {
        let armed = self.host.time.deadline();
        let left = armed.map(|t| t as i64 - self.host.time.now() as i64);
        (*self.host.level.lock().expect("level"), left)
    }

    /// Reads everything there is to read: registers, EEPROM, PHY.
    pub fn everything(&mut self) -> Vec<(String, u32)> {
        let mut all = Vec::new();
        for register in regs::REGISTERS {
            for element in 0..register.count {
                let at = register.offset + element * register.stride;
                let value = self.peek_register(at.into());
                all.push((format!("{}[{element}]", register.name), value));
            }
        }
        for at in 0..64 {
            self.write(reg::EERD, at << 8 | 1);
            all.push((format!("EEPROM {at:#x}"), self.peek_register(reg::EERD)));
        }
        for at in 0..32 {
            self.write(reg::MDIC, 2 << 26 | 1 << 21 | at << 16);
            all.push((format!("PHY {at}"), self.peek_register(reg::MDIC)));
        }
        all
    }
}

fn env(memory: Memory, host: &Arc<Host>) -> Env {
    Env {
        memory,
        irq: host.clone(),
        clock: host.time.clone(),
        timer: host.time.clone(),
    }
}

/// What differs between two states, field by field.
pub fn difference(a: &[u8], b: &[u8]) -> Vec<String> {
    let state = |blob| {
        let mut state = state::read(blob).expect("just saved");
        // Whether a run is owed differs where one was done and nothing came of it.
        state.tx_work = false;
        state.transmitter.unfinished = false;
        state
    };
    if a == b {
        return Vec::new();
    }
    let (a, b) = (state(a), state(b));
    if a == b {
        return Vec::new();
    }
    let (a, b) = (format!("{a:#?}"), format!("{b:#?}"));
    let lines = a.lines().zip(b.lines()).filter(|(a, b)| a != b);
    lines
        .map(|(a, b)| format!("{} / {}", a.trim(), b.trim()))
        .take(20)
        .collect()
}

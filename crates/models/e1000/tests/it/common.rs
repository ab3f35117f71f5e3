//! A guest, a wire and a clock for the model, all fake.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frame::{Batch, Caps, Sink, Wake};
use guest_mem::Memory;
use hypernic_e1000::{Config, new};
use model::{Clock, Env, Interrupts, Nanos, Nic, PciState, Progress, Timer};
use wire::Offload;

pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
pub const PEER: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x57];

pub const RAM: u64 = 0x10_0000;
pub const RAM_LEN: u64 = 0x40_0000;
pub const TX_RING: u64 = RAM;
pub const RX_RING: u64 = RAM + 0x1_0000;
pub const TX_BUFFERS: u64 = RAM + 0x2_0000;
pub const RX_BUFFERS: u64 = RAM + 0x20_0000;

pub mod reg {
    pub const CTRL: u64 = 0x0;
    pub const STATUS: u64 = 0x8;
    pub const EECD: u64 = 0x10;
    pub const EERD: u64 = 0x14;
    pub const MDIC: u64 = 0x20;
    pub const VET: u64 = 0x38;
    pub const ICR: u64 = 0xc0;
    pub const ITR: u64 = 0xc4;
    pub const ICS: u64 = 0xc8;
    pub const IMS: u64 = 0xd0;
    pub const IMC: u64 = 0xd8;
    pub const RCTL: u64 = 0x100;
    pub const TCTL: u64 = 0x400;
    pub const RDBAL: u64 = 0x2800;
    pub const RDBAH: u64 = 0x2804;
    pub const RDLEN: u64 = 0x2808;
    pub const RDH: u64 = 0x2810;
    pub const RDT: u64 = 0x2818;
    pub const RDTR: u64 = 0x2820;
    pub const RADV: u64 = 0x282c;
    pub const TDBAL: u64 = 0x3800;
    pub const TDBAH: u64 = 0x3804;
    pub const TDLEN: u64 = 0x3808;
    pub const TDH: u64 = 0x3810;
    pub const TDT: u64 = 0x3818;
    pub const TIDV: u64 = 0x3820;
    pub const TADV: u64 = 0x382c;
    pub const RXCSUM: u64 = 0x5000;
    pub const MTA: u64 = 0x5200;
    pub const RAL: u64 = 0x5400;
    pub const RAH: u64 = 0x5404;
    pub const VFTA: u64 = 0x5600;
}

#[derive(Default)]
pub struct Pin {
    pub level: AtomicBool,
    pub rises: AtomicU64,
    pub messages: AtomicU64,
    /// PME_En and PME_Status.
    pub pme: Mutex<(bool, bool)>,
}

impl Interrupts for Pin {
    fn set_line(&self, level: bool) {
        if !self.level.swap(level, Ordering::SeqCst) && level {
            self.rises.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn set_pme(&self, enabled: bool, status: bool) {
        *self.pme.lock().expect("pme") = (enabled, status);
    }
    fn msi(&self, vector: u16) {
        assert_eq!(vector, 0);
        self.messages.fetch_add(1, Ordering::SeqCst);
    }
    fn msix(&self, _: u16) {}
}

#[derive(Default)]
pub struct Time {
    pub now: AtomicU64,
    pub armed: Mutex<Option<Nanos>>,
}

impl Clock for Time {
    fn now(&self) -> Nanos {
        self.now.load(Ordering::SeqCst)
    }
}

impl Timer for Time {
    fn arm(&self, deadline: Option<Nanos>) {
        *self.armed.lock().expect("armed") = deadline;
    }
}

/// Keeps what it is given.
#[derive(Default)]
pub struct Wire {
    pub caps: Caps,
    /// Frames it still takes; `None` for no limit.
    pub room: Mutex<Option<usize>>,
    pub frames: Mutex<Vec<(Vec<u8>, Offload)>>,
}

impl Wire {
    pub fn with(caps: Caps) -> Self {
        Self {
            caps,
            ..Self::default()
        }
    }

    pub fn take(&self) -> Vec<Vec<u8>> {
        let frames = std::mem::take(&mut *self.frames.lock().expect("frames"));
        frames.into_iter().map(|(bytes, _)| bytes).collect()
    }

    pub fn take_notes(&self) -> Vec<(Vec<u8>, Offload)> {
        std::mem::take(&mut *self.frames.lock().expect("frames"))
    }
}

impl Sink for Wire {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut room = self.room.lock().expect("room");
        let n = room.unwrap_or(usize::MAX).min(picks.len());
        if let Some(room) = room.as_mut() {
            *room -= n;
        }
        let mut frames = self.frames.lock().expect("frames");
        for &pick in &picks[..n] {
            let frame = batch.get(pick.into()).expect("picked");
            assert!(self.caps.accepts(frame.notes()), "{:?}", frame.notes());
            frames.push((frame.to_vec(), *frame.notes()));
        }
        n
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

pub struct Machine {
    pub nic: Nic,
    pub env: Env,
    pub pin: Arc<Pin>,
    pub time: Arc<Time>,
    pub wire: Wire,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new(Wire::default())
    }
}

impl Machine {
    pub fn new(wire: Wire) -> Self {
        let mut config = Config::new(MAC);
        config.negotiation = Duration::from_millis(10);
        Self::with(config, wire)
    }

    pub fn with(config: Config, wire: Wire) -> Self {
        Self::of(new(config), wire)
    }

    /// A guest around this NIC.
    pub fn of(mut nic: Nic, wire: Wire) -> Self {
        let (pin, time) = (Arc::new(Pin::default()), Arc::new(Time::default()));
        let memory = Memory::new();
        memory.map_anon(RAM, RAM_LEN).expect("map");
        let env = Env {
            memory,
            irq: pin.clone(),
            clock: time.clone(),
            timer: time.clone(),
        };
        let on = PciState {
            bus_master: true,
            ..PciState::default()
        };
        nic.control.pci(&env, on);
        Self {
            nic,
            env,
            pin,
            time,
            wire,
        }
    }

    pub fn r(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.nic.control.read(&self.env, 0, offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// Writes a register and does the work it notes.
    pub fn w(&mut self, offset: u64, value: u32) {
        self.nic
            .control
            .write(&self.env, 0, offset, &value.to_le_bytes());
        self.work();
    }

    pub fn work(&mut self) {
        let work = self.nic.control.take_work();
        if work.tx {
            self.run();
        }
        if work.rx {
            self.nic.receive.poll(&self.env);
        }
    }

    pub fn run(&mut self) -> Progress {
        for _ in 0..10_000 {
            match self.nic.transmit.run(&self.env, &self.wire, 256) {
                Progress::More => {}
                other => return other,
            }
        }
        panic!("transmit never ends");
    }

    pub fn phy_write(&mut self, reg: u32, value: u16) {
        self.w(reg::MDIC, 1 << 26 | 1 << 21 | reg << 16 | u32::from(value));
    }

    pub fn phy_read(&mut self, reg: u32) -> u16 {
        self.w(reg::MDIC, 2 << 26 | 1 << 21 | reg << 16);
        let value = self.r(reg::MDIC);
        assert_eq!(value & 0x5000_0000, 0x1000_0000, "ready and no error");
        value as u16
    }

    pub fn line(&self) -> bool {
        self.pin.level.load(Ordering::SeqCst)
    }

    pub fn rises(&self) -> u64 {
        self.pin.rises.load(Ordering::SeqCst)
    }

    /// MSI messages since the last call.
    pub fn messages(&self) -> u64 {
        self.pin.messages.swap(0, Ordering::SeqCst)
    }

    pub fn set_msi(&mut self, on: bool) {
        let state = PciState {
            bus_master: true,
            msi: on,
            ..PciState::default()
        };
        self.nic.control.pci(&self.env, state);
    }

    pub fn armed(&self) -> Option<Nanos> {
        *self.time.armed.lock().expect("armed")
    }

    /// Moves the clock and lets the timer fire.
    pub fn sleep(&mut self, ns: Nanos) {
        let end = self.time.now.load(Ordering::SeqCst) + ns;
        loop {
            let due = {
                let mut armed = self.time.armed.lock().expect("armed");
                armed.filter(|t| *t <= end).inspect(|_| *armed = None)
            };
            let Some(due) = due else { break };
            let now = self.time.now.load(Ordering::SeqCst);
            self.time.now.store(due.max(now), Ordering::SeqCst);
            self.nic.control.tick(&self.env);
            self.work();
        }
        self.time.now.store(end, Ordering::SeqCst);
    }

    pub fn counter(&self, name: &str) -> u64 {
        let mut found = None;
        self.nic.control.counters(&mut |n, v| {
            if n == name {
                found = Some(v);
            }
        });
        found.unwrap_or_else(|| panic!("no counter {name}"))
    }

    pub fn poke(&self, at: u64, bytes: &[u8]) {
        self.env.memory.view().write(at, bytes).expect("poke");
    }

    pub fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.env.memory.view().read(at, &mut out).expect("peek");
        out
    }

    /// Link up, transmitter on with a ring of `len` descriptors.
    pub fn tx_on(&mut self, len: u32) {
        let ctrl = self.r(reg::CTRL);
        self.w(reg::CTRL, ctrl | 1 << 6);
        self.w(reg::TDBAL, TX_RING as u32);
        self.w(reg::TDLEN, len * 16);
        self.w(reg::TDH, 0);
        self.w(reg::TDT, 0);
        self.w(reg::TCTL, 0x2);
    }

    pub fn tx_desc(&self, index: u32, low: u64, high: u64) {
        let at = TX_RING + u64::from(index) * 16;
        self.poke(at, &low.to_le_bytes());
        self.poke(at + 8, &high.to_le_bytes());
    }

    pub fn tx_done(&self, index: u32) -> bool {
        self.peek(TX_RING + u64::from(index) * 16 + 12, 1)[0] & 1 == 1
    }

    /// Link up, receiver on with `len` descriptors, all but one of them given.
    pub fn rx_on(&mut self, len: u32, rctl: u32) {
        let ctrl = self.r(reg::CTRL);
        self.w(reg::CTRL, ctrl | 1 << 6);
        for i in 0..len {
            self.rx_desc(i, RX_BUFFERS + u64::from(i) * 0x4000);
        }
        self.w(reg::RDBAL, RX_RING as u32);
        self.w(reg::RDLEN, len * 16);
        self.w(reg::RDH, 0);
        self.w(reg::RDT, len - 1);
        self.w(reg::RCTL, rctl | 0x2);
    }

    pub fn rx_desc(&self, index: u32, addr: u64) {
        let at = RX_RING + u64::from(index) * 16;
        self.poke(at, &addr.to_le_bytes());
        self.poke(at + 8, &[0; 8]);
    }

    /// Length, status, errors, special.
    pub fn rx_status(&self, index: u32) -> (u16, u8, u8, u16) {
        let d = self.peek(RX_RING + u64::from(index) * 16 + 8, 8);
        let half = |i: usize| u16::from_le_bytes([d[i], d[i + 1]]);
        (half(0), d[4], d[5], half(6))
    }

    /// Offers frames to the receiver; returns how many were dealt with.
    pub fn offer(&self, frames: &[&[u8]]) -> usize {
        let noted: Vec<_> = frames.iter().map(|f| (*f, Offload::NONE)).collect();
        self.offer_notes(&noted)
    }

    pub fn offer_notes(&self, frames: &[(&[u8], Offload)]) -> usize {
        let mut batch = Batch::new();
        for (bytes, notes) in frames {
            batch.push_bytes(bytes);
            batch.end(*notes);
        }
        let mut room = Vec::new();
        let picks = batch.all_picks(&mut room);
        self.nic.receive.deliver(&self.env, &batch, picks)
    }
}

/// Upper half of a legacy descriptor.
pub fn legacy(len: u16, cmd: u8) -> u64 {
    u64::from(len) | u64::from(cmd) << 24
}

/// Upper half of a data descriptor.
pub fn data(len: u32, cmd: u8, popts: u8, special: u16) -> u64 {
    u64::from(len & 0xf_ffff)
        | 1 << 20
        | u64::from(cmd | 0x20) << 24
        | u64::from(popts) << 40
        | u64::from(special) << 48
}

pub struct Ctx {
    pub ip: (u8, u8, u16),
    pub tu: (u8, u8, u16),
    pub paylen: u32,
    /// TCP 1, IP 2, TSE 4, RS 8.
    pub cmd: u8,
    pub hdrlen: u8,
    pub mss: u16,
}

impl Ctx {
    pub fn words(&self) -> (u64, u64) {
        let low = u64::from(self.ip.0)
            | u64::from(self.ip.1) << 8
            | u64::from(self.ip.2) << 16
            | u64::from(self.tu.0) << 32
            | u64::from(self.tu.1) << 40
            | u64::from(self.tu.2) << 48;
        let high = u64::from(self.paylen & 0xf_ffff)
            | u64::from(self.cmd | 0x20) << 24
            | u64::from(self.hdrlen) << 40
            | u64::from(self.mss) << 48;
        (low, high)
    }
}

pub const EOP: u8 = 1;
pub const IFCS: u8 = 2;
pub const IC: u8 = 4;
pub const TSE: u8 = 4;
pub const RS: u8 = 8;
pub const RPS: u8 = 16;
pub const VLE: u8 = 0x40;
pub const IDE: u8 = 0x80;

/// Ethernet frame of a type that nothing looks into.
pub fn plain(dst: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| i as u8).collect();
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&PEER);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

//! A function, a guest's memory, and what the tests of the data path need
//! beside: packets, a sink, descriptors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};

use frame::{Batch, Caps, Sink, Wake};
use guest_mem::Memory;
use model::{Clock, Env, Interrupts, Nanos, Receive, Timer, Transmit};
use parking_lot::Mutex;
use regs::Id;

use crate::core::function::{Function, FunctionKind};
use crate::regs as r;
use crate::regs::bits::{ctrl, rctl, tctl, xdctl};
use crate::regs::settings::Settings;
use crate::rx::Receiver;
use crate::tx::Sender;

struct Quiet;

impl Interrupts for Quiet {
    fn set_line(&self, _level: bool) {}
    fn msi(&self, _vector: u16) {}
    fn msix(&self, _vector: u16) {}
}

impl Timer for Quiet {
    fn arm(&self, _deadline: Option<Nanos>) {}
}

impl Clock for Quiet {
    fn now(&self) -> Nanos {
        1_000_000_000
    }
}

/// Takes what it has room for, and remembers it.
pub(crate) struct Wire {
    pub frames: StdMutex<Vec<Vec<u8>>>,
    pub room: AtomicU64,
    pub caps: Caps,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            frames: StdMutex::default(),
            room: AtomicU64::new(u64::MAX),
            caps: Caps::NONE,
        }
    }
}

impl Wire {
    pub(crate) fn drain(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.frames.lock().expect("no poison"))
    }
}

impl Sink for Wire {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let room = self.room.load(Ordering::Relaxed);
        let taken = picks.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.room.fetch_sub(taken as u64, Ordering::Relaxed);
        let mut frames = self.frames.lock().expect("no poison");
        for pick in &picks[..taken] {
            let frame = batch.get(usize::from(*pick)).expect("picked");
            assert!(self.caps.accepts(frame.notes()), "{:?}", frame.notes());
            frames.push(frame.to_vec());
        }
        taken
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, _waker: &Arc<dyn Wake>) {}
}

/// Where the rings of a queue are.
pub(crate) const RX_RINGS: u64 = 0x1_0000;
pub(crate) const TX_RINGS: u64 = 0x8_0000;
/// Bytes between rings.
pub(crate) const APART: u64 = 0x2000;
/// Bytes of the guest's memory.
pub(crate) const MEMORY: u64 = 0x200_0000;

/// A guest with one function.
pub(crate) struct Guest {
    pub function: Arc<Function>,
    pub env: Env,
    pub sender: Sender<Receiver>,
    pub receiver: Arc<Receiver>,
}

impl Guest {
    /// A PF that receives and sends everything, no queue running.
    pub(crate) fn pf() -> Guest {
        Self::pf_with(true)
    }

    /// The same with or without its fast paths.
    pub(crate) fn pf_with(fast_path: bool) -> Guest {
        let guest = Self::with(FunctionKind::Pf, 16, fast_path);
        guest
            .function
            .file
            .set(r::RCTL, rctl::EN | rctl::UPE | rctl::MPE | rctl::SECRC);
        guest.function.file.set(r::TCTL, tctl::EN);
        guest.function.file.set(r::CTRL, ctrl::VME);
        guest.function.file.set(r::VET, 0x8100);
        guest
    }

    /// A VF with these settings.
    pub(crate) fn vf(settings: Settings) -> Guest {
        Self::vf_with(settings, true)
    }

    /// The same with or without its fast paths.
    pub(crate) fn vf_with(settings: Settings, fast_path: bool) -> Guest {
        Self::with(FunctionKind::Vf(Mutex::new(settings)), 2, fast_path)
    }

    fn with(kind: FunctionKind, queues: usize, fast_path: bool) -> Guest {
        let mut function = Function::new(kind, r::table(), &r::QUEUES, queues, true);
        function.fast_path = fast_path;
        let function = Arc::new(function);
        function.bus_master.store(true, Ordering::Relaxed);
        function.link_up.store(true, Ordering::Relaxed);
        let memory = Memory::new();
        memory.map_anon(0, MEMORY).expect("map");
        let quiet = Arc::new(Quiet);
        let receiver = Arc::new(Receiver::new(Arc::clone(&function)));
        Guest {
            sender: Sender::new(Arc::clone(&function), Arc::clone(&receiver)),
            receiver,
            function,
            env: Env {
                memory,
                irq: Arc::clone(&quiet) as _,
                clock: Arc::clone(&quiet) as _,
                timer: quiet,
            },
        }
    }

    pub(crate) fn set(&self, id: Id, queue: u32, value: u32) {
        self.function
            .write_queue(&self.env, id, queue, value)
            .expect("of a queue");
    }

    pub(crate) fn get(&self, id: Id, queue: u32) -> u32 {
        self.function.file.get_at(id, queue)
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.env.memory.view().write(at, bytes).expect("in memory");
    }

    pub(crate) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.env
            .memory
            .view()
            .read(at, &mut bytes)
            .expect("in memory");
        bytes
    }

    pub(crate) fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.read(at, 8).try_into().expect("eight"))
    }

    /// Starts a transmit ring of `len` descriptors.
    pub(crate) fn start_tx(&self, queue: u32, len: u32) {
        self.set(
            r::TDBAL,
            queue,
            (TX_RINGS + APART * u64::from(queue)) as u32,
        );
        self.set(r::TDLEN, queue, len * 16);
        self.set(r::TXDCTL, queue, xdctl::ENABLE);
    }

    /// Starts a receive ring of `len` descriptors shaped by `srrctl`, with all but one given. The
    /// buffers of a descriptor are at [`packet_buffer`] and [`header_buffer`].
    pub(crate) fn start_rx(&self, queue: u32, len: u32, srrctl: u32) {
        let ring = RX_RINGS + APART * u64::from(queue);
        for i in 0..len {
            let at = ring + u64::from(i) * 16;
            self.write(at, &packet_buffer(queue, i).to_le_bytes());
            self.write(at + 8, &header_buffer(queue, i).to_le_bytes());
        }
        self.set(r::RDBAL, queue, ring as u32);
        self.set(r::RDLEN, queue, len * 16);
        self.set(r::SRRCTL, queue, srrctl);
        self.set(r::RXDCTL, queue, xdctl::ENABLE);
        self.set(r::RDT, queue, len - 1);
    }

    /// The words of a receive descriptor.
    pub(crate) fn rx_desc(&self, queue: u32, index: u32) -> (u64, u64) {
        let at = RX_RINGS + APART * u64::from(queue) + u64::from(index) * 16;
        (self.word(at), self.word(at + 8))
    }

    /// Writes transmit descriptors from the tail on and moves it.
    pub(crate) fn send(&self, queue: u32, descs: &[(u64, u64)]) {
        let len = self.get(r::TDLEN, queue) / 16;
        let mut tail = self.get(r::TDT, queue);
        for (low, high) in descs {
            let at = TX_RINGS + APART * u64::from(queue) + u64::from(tail) * 16;
            self.write(at, &low.to_le_bytes());
            self.write(at + 8, &high.to_le_bytes());
            tail = (tail + 1) % len;
        }
        self.set(r::TDT, queue, tail);
    }

    pub(crate) fn run(&mut self, wire: &Wire) -> model::Progress {
        self.run_some(wire, 256)
    }

    pub(crate) fn run_some(&mut self, wire: &Wire, budget: usize) -> model::Progress {
        self.sender.run(&self.env, wire, budget)
    }

    /// Offers frames without notes; returns how many were dealt with.
    pub(crate) fn receive(&self, frames: &[Vec<u8>]) -> usize {
        let mut batch = Batch::new();
        for frame in frames {
            batch.push_bytes(frame);
            batch.end(wire::Offload::NONE);
        }
        self.receive_batch(&batch)
    }

    pub(crate) fn receive_batch(&self, batch: &Batch<'_>) -> usize {
        let mut picks = Vec::new();
        let picks = batch.all_picks(&mut picks);
        self.receiver.deliver(&self.env, batch, picks)
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let mut found = None;
        self.function.counters.visit(&mut |n, value| {
            if n == name {
                found = Some(value);
            }
        });
        found.expect("a counter")
    }
}

pub(crate) fn packet_buffer(queue: u32, index: u32) -> u64 {
    0x40_0000 + u64::from(queue) * 0x10_0000 + u64::from(index) * 0x1000
}

pub(crate) fn header_buffer(queue: u32, index: u32) -> u64 {
    packet_buffer(queue, index) + 0x800
}

/// Packets.
pub(crate) mod packet {
    use std::net::Ipv6Addr;

    use wire::{Layers, Sum};

    /// TCP or UDP over IPv4 with 20 bytes behind it, all checksums right.
    pub(crate) fn v4(src: [u8; 4], dst: [u8; 4], tcp: bool, sport: u16, dport: u16) -> Vec<u8> {
        v4_with(src, dst, tcp, sport, dport, 20)
    }

    /// As [`v4`], with `len` bytes behind it.
    pub(crate) fn v4_with(
        src: [u8; 4],
        dst: [u8; 4],
        tcp: bool,
        sport: u16,
        dport: u16,
        len: usize,
    ) -> Vec<u8> {
        let l4 = if tcp { 20 } else { 8 };
        let mut bytes = vec![0; 34 + l4 + len];
        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        bytes[14] = 0x45;
        bytes[16..18].copy_from_slice(&((20 + l4 + len) as u16).to_be_bytes());
        bytes[18..20].copy_from_slice(&[0x12, 0x34]);
        bytes[22..24].copy_from_slice(&[64, if tcp { 6 } else { 17 }]);
        bytes[26..30].copy_from_slice(&src);
        bytes[30..34].copy_from_slice(&dst);
        transport(&mut bytes, 34, tcp, sport, dport);
        sums(&mut bytes);
        bytes
    }

    pub(crate) fn v6_tcp(src: Ipv6Addr, dst: Ipv6Addr, sport: u16, dport: u16) -> Vec<u8> {
        let mut bytes = vec![0; 54 + 20 + 20];
        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd]);
        bytes[14] = 0x60;
        bytes[18..22].copy_from_slice(&[0, 40, 6, 64]);
        bytes[22..38].copy_from_slice(&src.octets());
        bytes[38..54].copy_from_slice(&dst.octets());
        transport(&mut bytes, 54, true, sport, dport);
        sums(&mut bytes);
        bytes
    }

    fn transport(bytes: &mut [u8], at: usize, tcp: bool, sport: u16, dport: u16) {
        bytes[at..at + 2].copy_from_slice(&sport.to_be_bytes());
        bytes[at + 2..at + 4].copy_from_slice(&dport.to_be_bytes());
        if tcp {
            bytes[at + 12] = 0x50;
            bytes[at + 13] = 0x18;
        } else {
            let len = (bytes.len() - at) as u16;
            bytes[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
        }
        let head = at + if tcp { 20 } else { 8 };
        for (i, byte) in bytes[head..].iter_mut().enumerate() {
            *byte = i as u8;
        }
    }

    /// Writes the checksums of IPv4 and transport.
    pub(crate) fn sums(bytes: &mut [u8]) {
        let layers = Layers::parse(bytes).expect("headers");
        let (l3, l4) = (layers.l3.expect("IP"), layers.l4.expect("transport"));
        if l3.kind == wire::L3Kind::V4 {
            bytes[l3.offset + 10..l3.offset + 12].fill(0);
            let sum = Sum::of(&bytes[l3.offset..l3.offset + l3.len]).finish();
            bytes[l3.offset + 10..l3.offset + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let field = l4.offset + l4.kind.checksum_offset().expect("a checksum");
        bytes[field..field + 2].fill(0);
        let mut sum = layers
            .pseudo_sum(bytes, bytes.len() - l4.offset)
            .expect("IP");
        sum.add(&bytes[l4.offset..]);
        bytes[field..field + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
    }
}

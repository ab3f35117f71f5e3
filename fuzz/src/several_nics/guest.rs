//! One guest: its memory, its NIC, and what it does with them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use guest_mem::Memory;
use igb::{Grant, VfChannel};
use intel_offsets::igb::legacy::long::{RDBAL as VF_RX, TDBAL as VF_TX};
use model::{Env, Nic, PciState, ResetKind};
use model_testkit::{Silent, Time};
use registry::{Function, Settings};

use crate::input::Input;
use crate::machine::{OFFSETS, RAM, RAM_LEN, reg};
use crate::nic::nic;

/// Descriptors of a ring.
const LEN: u32 = 256;
const TX_RING: u64 = RAM;
const RX_RING: u64 = RAM + 0x1000;
/// Packets to be sent, one for each destination, as long as packets are.
const PACKETS: u64 = RAM + 0x2000;
/// Where frames are received.
const BUFFERS: u64 = RAM + 0x8000;
/// The head of a transmit ring behind its base, its tail and what enables it.
const TAIL: u64 = 0x18;
const ENABLE: u64 = 0x28;

thread_local! {
    /// Memories of the last run.
    static MEMORY: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

fn memory() -> Memory {
    if let Some(memory) = MEMORY.with_borrow_mut(Vec::pop) {
        let zeros = [0; RAM_LEN as usize];
        memory.view().write(RAM, &zeros).expect("was there");
        return memory;
    }
    let memory = Memory::new();
    memory.map_anon(RAM, RAM_LEN).expect("map");
    memory
}

/// The address of a guest.
pub(super) fn mac(at: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0x12, 0x34, at]
}

pub(super) struct Guest {
    pub(super) nic: Nic,
    pub(super) env: Env,
    time: Arc<Time>,
    /// Of a VF.
    channel: Option<Arc<VfChannel>>,
    /// Next transmit descriptor, receive tail.
    next: u32,
    tail: u32,
    at: u8,
}

impl Guest {
    pub(super) fn new(at: u8, is_vf: bool) -> Guest {
        let time = Arc::new(Time::at(2_000_000_000));
        let env = Env {
            memory: memory(),
            irq: Arc::new(Silent),
            clock: time.clone(),
            timer: time.clone(),
        };
        let settings = Settings::ready(mac(at));
        let (nic, channel) = if is_vf {
            let channel = VfChannel::new();
            channel.set_grant(Grant {
                enabled: true,
                link: true,
                max_frame: 9728,
                tag: None,
                interrupt_gap: 0,
            });
            let function = Function::Vf(Arc::clone(&channel));
            (nic("82576", &settings, &function), Some(channel))
        } else {
            (nic("e1000", &settings, &Function::Alone), None)
        };
        let mut guest = Guest {
            nic,
            env,
            time,
            channel,
            next: 0,
            tail: LEN - 1,
            at,
        };
        guest.nic.control.reset(&guest.env, ResetKind::Bus);
        guest.nic.control.attend(&guest.env);
        guest.set_pci(true);
        guest.start();
        guest
    }

    pub(super) fn keep_memory(&mut self) {
        let memory = std::mem::take(&mut self.env.memory);
        MEMORY.with_borrow_mut(|all| all.push(memory));
    }

    fn set_pci(&mut self, bus_master: bool) {
        let state = PciState {
            bus_master,
            msix: self.channel.is_some(),
            ..PciState::default()
        };
        self.nic.control.pci(&self.env, state);
    }

    pub(super) fn write(&mut self, at: u64, value: u32) {
        let bytes = value.to_le_bytes();
        self.nic.control.write(&self.env, 0, at, &bytes);
    }

    pub(super) fn read(&mut self, at: u64) -> u32 {
        let mut data = [0; 4];
        self.nic.control.read(&self.env, 0, at, &mut data);
        u32::from_le_bytes(data)
    }

    fn poke(&self, at: u64, bytes: &[u8]) {
        // Out of reach is fine: that is a guest's own business.
        let _ = self.env.memory.view().write(at, bytes);
    }

    /// Link up, both rings anew, packets for everybody in memory.
    pub(super) fn start(&mut self) {
        (self.next, self.tail) = (0, LEN - 1);
        for to in 0..8 {
            let mut packet = HEADERS_V4;
            match to {
                6 => packet[..6].fill(0xff),
                7 => packet[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]),
                _ => packet[..6].copy_from_slice(&mac(to)),
            }
            packet[6..12].copy_from_slice(&mac(self.at));
            self.poke(PACKETS + u64::from(to) * 0x40, &packet);
        }
        for i in 0..u64::from(LEN) {
            let buffer = BUFFERS + i % 8 * 0x800;
            self.poke(RX_RING + i * 16, &buffer.to_le_bytes());
        }
        if self.channel.is_some() {
            for (base, ring, tail) in [(VF_RX, RX_RING, LEN - 1), (VF_TX, TX_RING, 0)] {
                self.write(base, ring as u32);
                self.write(base + 4, 0);
                self.write(base + 8, LEN * 16);
                self.write(base + 0x10, 0);
                self.write(base + TAIL, tail & self.tail);
                self.write(base + ENABLE, 1 << 25);
                self.write(base + TAIL, tail);
            }
            return;
        }
        let ctrl = self.read(reg::CTRL);
        for (at, value) in [
            (reg::CTRL, ctrl | 1 << 6),
            (reg::TDBAL, TX_RING as u32),
            (reg::TDLEN, LEN * 16),
            (reg::TDH, 0),
            (reg::TDT, 0),
            (reg::TCTL, 0x2),
            (reg::RDBAL, RX_RING as u32),
            (reg::RDLEN, LEN * 16),
            (reg::RDH, 0),
            (reg::RDT, LEN - 1),
            // On, broadcast and groups, long packets.
            (reg::RCTL, 0x803a),
        ] {
            self.write(at, value);
        }
    }

    /// Any register, or one of a ring.
    pub(super) fn register(&mut self, input: &mut Input<'_>) -> u64 {
        let choice = input.u8();
        if self.channel.is_some() {
            return match choice {
                0..96 => VF_TX + u64::from(choice & 15) * 4,
                96..192 => VF_RX + u64::from(choice & 15) * 4,
                _ => u64::from(input.u16() & 0x3ffc),
            };
        }
        OFFSETS[usize::from(choice) % OFFSETS.len()]
    }

    /// Packets into the transmit ring: plain, long or to be cut, for one or for all.
    pub(super) fn packets(&mut self, input: &mut Input<'_>) {
        let (shape, count) = (input.u8(), input.u8());
        let from = PACKETS + u64::from(shape & 7) * 0x40;
        let len = match shape >> 3 & 3 {
            0 => 60,
            1 => 54 + u64::from(input.u8()),
            2 => 1514,
            _ => u64::from(input.u16()),
        };
        let mss = match shape >> 5 {
            0..=3 => 0,
            4 => 1,
            5 => 1460,
            6 => u64::from(input.u8()),
            _ => u64::from(input.u16()),
        };
        let payload = len.saturating_sub(54);
        if mss == 0 {
            for _ in 0..=count {
                let command = if self.channel.is_some() {
                    len | 3 << 20 | 0x2b << 24 | len << 46
                } else {
                    len | 0x0b << 24
                };
                self.put(from, command);
            }
        } else if self.channel.is_some() {
            let (low, high) = (14 << 9 | 20, 2 << 20 | 1 << 29 | 3 << 10);
            self.put(low, high | (20 << 8 | mss << 16) << 32);
            for _ in 0..=count {
                let last = 3 << 8 | payload << 14;
                self.put(from, len | 3 << 20 | 0xab << 24 | last << 32);
            }
        } else {
            let low = 14 | 24 << 8 | 33 << 16 | 34 << 32 | 50 << 40;
            self.put(low, payload | 0x27 << 24 | 54 << 40 | mss << 48);
            for _ in 0..=count {
                self.put(from, len | 1 << 20 | 0x2f << 24 | 3 << 40);
            }
        }
    }

    fn put(&mut self, low: u64, high: u64) {
        let at = TX_RING + u64::from(self.next) * 16;
        self.next = (self.next + 1) % LEN;
        self.poke(at, &low.to_le_bytes());
        self.poke(at + 8, &high.to_le_bytes());
    }

    /// The tail behind the last packet.
    pub(super) fn ring(&mut self) {
        let next = self.next;
        let at = if self.channel.is_some() {
            VF_TX + TAIL
        } else {
            reg::TDT
        };
        self.write(at, next);
    }

    pub(super) fn give_buffers(&mut self, count: u32) {
        self.tail = (self.tail + count) % LEN;
        let at = if self.channel.is_some() {
            VF_RX + TAIL
        } else {
            reg::RDT
        };
        self.write(at, self.tail);
    }

    /// Anything anywhere in memory.
    pub(super) fn scribble(&mut self, input: &mut Input<'_>) {
        let at = RAM + u64::from(input.u16()) % RAM_LEN;
        let len = usize::from(input.u8() % 64);
        let bytes = input.bytes(len);
        self.poke(at, bytes);
    }

    pub(super) fn pass(&mut self, now: u64) {
        self.time.now.store(now, Ordering::Relaxed);
        if self.time.take_due(now) {
            self.nic.control.tick(&self.env);
        }
    }

    /// Link, bus, resets, and the PF of a VF.
    pub(super) fn surroundings(&mut self, more: u8, input: &mut Input<'_>) {
        let bits = input.u8();
        match more {
            0 => self.nic.control.set_link(&self.env, bits & 1 == 0),
            1 => self.set_pci(bits & 1 == 0),
            2 => {
                self.nic.control.reset(&self.env, ResetKind::Bus);
                self.set_pci(true);
            }
            _ => {
                if let Some(channel) = &self.channel {
                    channel.set_grant(Grant {
                        enabled: bits & 1 == 0,
                        link: bits & 2 == 0,
                        max_frame: if bits & 4 == 0 { 9728 } else { 1518 },
                        tag: (bits & 8 != 0).then(|| input.u16()),
                        interrupt_gap: 0,
                    });
                }
                self.nic.control.attend(&self.env);
            }
        }
    }
}

/// Ethernet, IPv4, TCP.
const HEADERS_V4: [u8; 54] = [
    0x52, 0x54, 0, 0x12, 0x34, 0, 0x52, 0x54, 0, 0x12, 0x34, 1, 8, 0, // Ethernet
    0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
    0, 80, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0, // TCP
];

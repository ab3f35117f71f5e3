//! A function of an 82576, or an 82540EM, behind the server, which counts what it is told.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use guest_mem::Memory;
use igb::{Grant, VfChannel};
use model::{Env, Nic, PciState, Progress, ResetKind};
use model_testkit::{Silent, Time};
use registry::{Function, Settings};
use vfio_user::{Device, ResetCause, Work};

use crate::machine::{MAC, RAM, RAM_LEN};
use crate::nic::nic;
use crate::outside::Wire;

/// Descriptors of a ring, and bytes.
const LEN: u32 = 32;
const RING: u64 = LEN as u64 * 16;
const PACKET: u64 = RAM + 0x4000;
/// Turns of the transmitter in one turn of the server.
const BUDGET: usize = 64;

/// What is behind the pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Pf,
    Vf,
    /// An 82540EM, whose rings are enabled by accesses.
    Single,
}

pub(super) struct Board {
    pub(super) nic: Nic,
    env: Env,
    wire: Wire,
    pub(super) kind: Kind,
    /// Register writes it has been told of.
    pub(super) writes: u64,
    /// It was left without room, or with more to do.
    waits: bool,
    next: [u32; 4],
}

impl Board {
    pub(super) fn new(setup: u8) -> Board {
        let time = Arc::new(Time::at(2_000_000_000));
        let memory = Memory::new();
        memory.map_anon(RAM, RAM_LEN).expect("map");
        let mut packet = [0x33; 60];
        packet[..6].fill(0xff);
        packet[6..12].copy_from_slice(&MAC);
        memory.view().write(PACKET, &packet).expect("mapped");
        let env = Env {
            memory,
            irq: Arc::new(Silent),
            clock: time.clone(),
            timer: time,
        };
        let kind = match setup {
            0xc0.. => Kind::Single,
            _ if setup & 1 == 0 => Kind::Vf,
            _ => Kind::Pf,
        };
        let function = if kind == Kind::Vf {
            let channel = VfChannel::new();
            channel.set_grant(Grant {
                enabled: true,
                link: true,
                max_frame: 9728,
                tag: None,
                interrupt_gap: 0,
            });
            Function::Vf(channel)
        } else {
            Function::Alone
        };
        let model = if kind == Kind::Single {
            "e1000"
        } else {
            "82576"
        };
        let nic = nic(model, &Settings::ready(MAC), &function);
        let mut board = Board {
            nic,
            env,
            wire: Wire::default(),
            kind,
            writes: 0,
            waits: false,
            next: [0; 4],
        };
        board.wire.room.store(usize::MAX, Ordering::Relaxed);
        board.start();
        board
    }

    fn start(&mut self) {
        self.nic.control.reset(&self.env, ResetKind::Bus);
        self.nic.control.attend(&self.env);
        let state = PciState {
            bus_master: true,
            msix: true,
            ..PciState::default()
        };
        self.nic.control.pci(&self.env, state);
        if self.kind != Kind::Vf {
            for (at, value) in [(0u64, 0x4000_0040u32), (0x400, 0xa), (0x100, 0x803e)] {
                let bytes = value.to_le_bytes();
                self.nic.control.write(&self.env, 0, at, &bytes);
            }
        }
    }

    pub(super) fn queues(&self) -> usize {
        match self.kind {
            Kind::Pf => 4,
            Kind::Vf => 2,
            Kind::Single => 1,
        }
    }

    /// The first register of a queue's transmit side.
    fn base(&self, queue: usize) -> u32 {
        0x3800 + 0x100 * queue as u32
    }

    pub(super) fn tail(&self, queue: usize) -> u32 {
        self.base(queue) + 0x18
    }

    /// What a driver writes to begin to send, in its order.
    pub(super) fn set_up(&mut self, queue: usize) -> [(u32, u32); 6] {
        let base = self.base(queue);
        self.next[queue] = 0;
        [
            (base, (RAM + RING * queue as u64) as u32),
            (base + 4, 0),
            (base + 8, LEN * 16),
            (base + 0x10, 0),
            // Elsewhere an 82540EM has its enabling register; here it has thresholds.
            (base + 0x28, 1 << 25),
            (base + 0x18, 0),
        ]
    }

    /// Puts packets into a queue's ring; returns the tail behind them.
    pub(super) fn packets(&mut self, queue: usize, count: u8) -> u32 {
        for _ in 0..count % LEN as u8 {
            let next = &mut self.next[queue];
            let at = RAM + RING * queue as u64 + u64::from(*next) * 16;
            *next = (*next + 1) % LEN;
            // An 82576 knows these as an advanced descriptor, an 82540EM as a legacy one.
            let upper = match self.kind {
                Kind::Single => 60 | 0xb << 24,
                _ => 60 | 3 << 20 | 0x2b << 24 | 60 << 46,
            };
            let words = [PACKET, upper];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.env.memory.view().write(at, &bytes).expect("mapped");
        }
        self.next[queue]
    }

    pub(super) fn set_room(&mut self, frames: usize) {
        let room = if frames > 8 { usize::MAX } else { frames };
        self.wire.room.store(room, Ordering::Relaxed);
        self.waits = true;
    }

    /// What the device has in a register, without being told of a read.
    pub(super) fn register(&mut self, at: u32) -> u32 {
        let mut data = [0; 4];
        self.bar_read(0, at.into(), &mut data);
        u32::from_le_bytes(data)
    }

    fn access(&mut self, f: impl FnOnce(&mut Self)) {
        let before = self.env.memory.meter().totals();
        f(self);
        let after = self.env.memory.meter().totals();
        assert_eq!(after, before, "an access touched guest memory");
    }
}

impl Device for Board {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.access(|b| b.nic.control.read(&b.env, bar, offset, data));
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.writes += 1;
        self.access(|b| b.nic.control.write(&b.env, bar, offset, data));
    }

    fn reset(&mut self, _: ResetCause) {
        self.start();
    }

    fn work(&mut self) -> Work {
        self.nic.control.attend(&self.env);
        let noted = self.nic.control.take_work();
        if noted.rx {
            self.nic.receive.poll(&self.env);
        }
        if !noted.tx && !std::mem::take(&mut self.waits) {
            return Work::Idle;
        }
        match self.nic.transmit.run(&self.env, &self.wire, BUDGET) {
            Progress::More => {
                self.waits = true;
                Work::More
            }
            _ => Work::Idle,
        }
    }
}

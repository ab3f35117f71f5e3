//! A guest with a virtual function, and a PF for it.

use std::sync::{Arc, Mutex, Weak};

use frame::Batch;
use guest_mem::Memory;
use hypernic_igb::vf_state::{self, State};
use hypernic_igb::{Config, Event, Grant, Mailbox, VfChannel, VfListener, vf};
use model::{Clock, Env, Interrupts, Nanos, Nic, PciState, Progress, Timer};
use model_testkit::{Pin, Time, Wire, memory};

use super::common::MAC;

pub const RAM: u64 = 0x10_0000;
pub const RAM_LEN: u64 = 0x8000;
/// Rings of queue 0; those of queue 1 are [`APART`] behind.
pub const TX: u64 = RAM;
pub const RX: u64 = RAM + 0x400;
pub const APART: u64 = 0x200;
pub const TX_DATA: u64 = RAM + 0x1000;
pub const RX_DATA: u64 = RAM + 0x4000;
/// Descriptors of a ring.
pub const RING: u32 = 8;

pub use intel_offsets::igbvf::long as reg;

/// What a driver that has completed its reset is granted.
pub const GRANT: Grant = Grant {
    enabled: true,
    link: true,
    max_frame: 1522,
    tag: None,
    interrupt_gap: 0,
};

/// Grants what a driver asks for by a message 1, answers others but those that begin with 2, and
/// remembers everything.
pub struct Clerk {
    channel: Weak<VfChannel>,
    pub heard: Mutex<Vec<Event>>,
}

impl VfListener for Clerk {
    fn happened(&self, _now: Nanos, event: Event) {
        self.heard.lock().expect("clerk").push(event);
        let Some(channel) = self.channel.upgrade() else {
            return;
        };
        match event {
            Event::Reset => channel.set_grant(Grant {
                enabled: false,
                ..channel.grant()
            }),
            Event::Request(words) if words[0] != 2 => {
                if words[0] == 1 {
                    channel.set_grant(GRANT);
                }
                channel.mailbox(|mailbox| {
                    mailbox.acknowledge();
                    mailbox.put(&[!words[0], 7]);
                });
            }
            _ => {}
        }
    }
}

pub struct Machine {
    pub nic: Nic,
    pub env: Env,
    pub pin: Arc<Pin>,
    pub time: Arc<Time>,
    pub channel: Arc<VfChannel>,
    pub clerk: Arc<Clerk>,
    pub wire: Wire,
    pub pci: PciState,
    pub budget: usize,
}

impl Default for Machine {
    fn default() -> Self {
        Self::with(&Config::new(MAC))
    }
}

impl Machine {
    pub fn with(config: &Config) -> Self {
        let memory = memory(RAM, RAM_LEN);
        let mut machine = Self::around(config, memory, Wire::default(), 5_000_000_000);
        machine.set_pci(true, true);
        machine
    }

    fn around(config: &Config, memory: Memory, wire: Wire, now: Nanos) -> Self {
        let (pin, time) = (Arc::new(Pin::default()), Arc::new(Time::at(now)));
        let env = Env {
            memory,
            irq: Arc::clone(&pin) as Arc<dyn Interrupts>,
            clock: Arc::clone(&time) as Arc<dyn Clock>,
            timer: Arc::clone(&time) as Arc<dyn Timer>,
        };
        let channel = VfChannel::new();
        let clerk = Arc::new(Clerk {
            channel: Arc::downgrade(&channel),
            heard: Mutex::default(),
        });
        channel.listen(Some(Arc::clone(&clerk) as Arc<dyn VfListener>));
        Self {
            nic: vf(config, Arc::clone(&channel)),
            env,
            pin,
            time,
            channel,
            clerk,
            wire,
            pci: PciState::default(),
            budget: 256,
        }
    }

    /// One whose driver has done what igbvf does: two rings a side, a vector for each direction and
    /// one for the mailbox.
    pub fn up() -> Self {
        Self::up_with(&Config::new(MAC))
    }

    pub fn up_with(config: &Config) -> Self {
        let mut m = Self::with(config);
        m.w(reg::VTCTRL, 1 << 26);
        m.w(reg::VMBMEM, 1);
        m.w(reg::V2PMAILBOX, 1);
        m.r(reg::V2PMAILBOX);
        m.clerk.heard.lock().expect("clerk").clear();
        m.vectors();
        m.w(reg::VTIVAR, 0x8180_8180);
        m.w(reg::VTIVAR_MISC, 0x82);
        m.w(reg::VTEIMS, 7);
        for queue in 0..2 {
            m.tx_on(queue);
            m.rx_on(queue, 2 << 25 | 0x101);
        }
        m
    }

    /// The same guest on another machine, whose clock shows `now`; the PF goes on. Bus mastering
    /// and MSI-X are told when it is loaded.
    pub fn move_to(self, now: Nanos) -> Self {
        let was = self.channel.grant();
        let claimed = self.saved().granted;
        let blob = self.nic.control.save(&self.env);
        let mut other = Self::around(&Config::new(MAC), self.env.memory.clone(), self.wire, now);
        other.channel.set_grant(was);
        other.budget = self.budget;
        let loaded = other.nic.control.load(&other.env, &blob);
        loaded.expect("its own state");
        let heard = std::mem::take(&mut *other.clerk.heard.lock().expect("clerk"));
        let Some(Event::Loaded(grant)) = heard.first() else {
            panic!("the PF is told first: {heard:?}");
        };
        assert_eq!(grant.enabled, claimed.enabled);
        assert!(other.vectors().is_empty(), "PCI has not said how");
        other.set_pci(self.pci.bus_master, self.pci.msix);
        other
    }

    /// As [`Machine::move_to`] without moving: PCI is told anew, and everything looked at.
    pub fn stay(&mut self) {
        let PciState {
            bus_master, msix, ..
        } = self.pci;
        self.tell_pci(false, false);
        self.turns();
        self.attend();
        self.set_pci(bus_master, msix);
    }

    fn tell_pci(&mut self, bus_master: bool, msix: bool) {
        self.pci = PciState {
            bus_master,
            msix,
            ..PciState::default()
        };
        self.nic.control.pci(&self.env, self.pci);
    }

    pub fn set_pci(&mut self, bus_master: bool, msix: bool) {
        self.tell_pci(bus_master, msix);
        self.work();
    }

    pub fn attend(&mut self) {
        self.nic.control.attend(&self.env);
    }

    pub fn work(&mut self) {
        let work = self.nic.control.take_work();
        if work.tx {
            self.turns();
        }
    }

    pub fn turns(&mut self) {
        let mut turns = 0;
        while self.nic.transmit.run(&self.env, &self.wire, self.budget) == Progress::More {
            turns += 1;
            assert!(turns < 10_000, "transmit never ends");
        }
    }

    pub fn r(&mut self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.nic.control.read(&self.env, 0, at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub fn w(&mut self, at: u64, value: u32) {
        let bytes = value.to_le_bytes();
        self.nic.control.write(&self.env, 0, at, &bytes);
        self.work();
    }

    pub fn tx_on(&mut self, queue: u64) {
        let at = queue * 0x100;
        self.w(reg::TXDCTL + at, 0);
        self.w(reg::TDBAL + at, (TX + queue * APART) as u32);
        self.w(reg::TDLEN + at, RING * 16);
        self.w(reg::TDH + at, 0);
        self.w(reg::TDT + at, 0);
        self.w(reg::TXDCTL + at, 1 << 25);
    }

    pub fn rx_on(&mut self, queue: u64, srrctl: u32) {
        let at = queue * 0x100;
        self.w(reg::RXDCTL + at, 0);
        for i in 0..u64::from(RING) {
            self.rx_desc(queue, i);
        }
        self.w(reg::RDBAL + at, (RX + queue * APART) as u32);
        self.w(reg::RDLEN + at, RING * 16);
        self.w(reg::SRRCTL + at, srrctl);
        self.w(reg::RDH + at, 0);
        self.w(reg::RXDCTL + at, 1 << 25);
        self.w(reg::RDT + at, RING - 1);
    }

    pub fn rx_desc(&mut self, queue: u64, index: u64) {
        let buffer = RX_DATA + queue * 0x2000 + index * 0x400;
        let at = RX + queue * APART + index * 16;
        self.poke(at, &buffer.to_le_bytes());
        self.poke(at + 8, &(buffer + 0x300).to_le_bytes());
    }

    pub fn poke(&mut self, at: u64, bytes: &[u8]) {
        self.env.memory.view().write(at, bytes).expect("in memory");
    }

    pub fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let read = self.env.memory.view().read(at, &mut bytes);
        read.expect("in memory");
        bytes
    }

    /// Writes a descriptor at the tail, as far as there is a ring, and returns the tail behind it.
    pub fn tx_desc(&mut self, queue: u64, behind: u32, low: u64, high: u64) -> u32 {
        let tail = (self.r(reg::TDT + queue * 0x100) + behind) % RING;
        let at = TX + queue * APART + u64::from(tail) * 16;
        self.poke(at, &low.to_le_bytes());
        self.poke(at + 8, &high.to_le_bytes());
        (tail + 1) % RING
    }

    /// A packet of 400 bytes of TCP to be cut into four.
    pub fn send_tso(&mut self, queue: u64) {
        let mut packet = [0; 454];
        packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        packet[14] = 0x45;
        packet[23] = 6;
        packet[46] = 0x50;
        for (i, byte) in packet[54..].iter_mut().enumerate() {
            *byte = i as u8;
        }
        self.poke(TX_DATA, &packet);
        let context: u64 = 2 << 20 | 1 << 29 | 1 << 11 | 1 << 10 | 20 << 40 | 100 << 48;
        self.tx_desc(queue, 0, 14 << 9 | 20, context);
        let data = 454 | 3 << 20 | 1 << 24 | 1 << 25 | 1 << 27 | 1 << 29 | 1 << 31;
        let tail = self.tx_desc(queue, 1, TX_DATA, data | 3 << 40 | 400 << 46);
        self.w(reg::TDT + queue * 0x100, tail);
    }

    /// Offers frames; those that find no room are given up.
    pub fn offer(&self, frame: &[u8], count: usize) -> usize {
        let mut batch = Batch::new();
        for _ in 0..count {
            batch.push_bytes(frame);
            batch.end(wire::Offload::NONE);
        }
        let mut picks = Vec::new();
        let picks = batch.all_picks(&mut picks);
        let dealt = self.nic.receive.deliver(&self.env, &batch, picks);
        self.nic.receive.give_up(&self.env, &batch, &picks[dealt..]);
        dealt
    }

    /// Lets time pass, in steps of the timer's deadlines.
    pub fn pass(&mut self, nanos: Nanos) {
        let end = self.time.now() + nanos;
        while self.time.step_to(end) {
            self.nic.control.tick(&self.env);
        }
    }

    pub fn vectors(&self) -> Vec<u16> {
        self.pin.take_vectors()
    }

    /// How long until the timer fires.
    pub fn armed(&self) -> Option<i128> {
        let due = self.time.deadline();
        due.map(|due| i128::from(due) - i128::from(self.env.clock.now()))
    }

    pub fn saved(&self) -> State {
        vf_state::read(&self.nic.control.save(&self.env)).expect("just saved")
    }

    /// What the channel and its PF know.
    pub fn hub(&self) -> (Mailbox, Grant, Vec<Event>) {
        let mailbox = self.channel.mailbox(|mailbox| mailbox.clone());
        let heard = self.clerk.heard.lock().expect("clerk").clone();
        (mailbox, self.channel.grant(), heard)
    }
}

/// A VF in the midst of its life: a packet sent in part, buffers used, causes pending and held back,
/// a message that waits.
pub fn busy() -> Machine {
    let mut m = Machine::up();
    m.w(reg::VTEITR, 1000 << 2);
    m.w(reg::VTEIAM, 1);
    m.w(reg::VTEIAC, 1);
    assert_eq!(m.offer(&frame(90), 3), 3);
    m.w(reg::VTEIMS, 7);
    m.offer(&frame(90), 2);
    m.pass(20_000);
    m.wire.set_room(2);
    m.send_tso(1);
    m.send_tso(0);
    m.w(reg::VTEIAC, 0);
    m.w(reg::VMBMEM + 4, 0xdead_beef);
    m.w(reg::VMBMEM, 2);
    m.w(reg::V2PMAILBOX, 1 | 2);
    m.channel.mailbox(|mailbox| mailbox.put(&[1 << 16]));
    m
}

pub fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![0x33; len];
    frame[..6].copy_from_slice(&MAC);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    frame
}

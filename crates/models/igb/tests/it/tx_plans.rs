//! What the transmitter has worked out from the registers, whatever changes between two sends: a function that was just
//! loaded knows nothing yet, and sends the same.

use std::sync::Arc;

use hypernic_igb::{Config, Grant, VfChannel, pf, vf};
use intel_offsets::{igb, igbvf};
use model::{Nic, PciState, ResetKind};
use model_testkit::{Machine, Wire, memory};
use proptest::prelude::*;

use super::common::MAC;

const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 0x1_0000;
const BUFFER: u64 = RAM + 0x8000;
const RING: u32 = 16;
const QUEUES: u32 = 2;
const ENABLE: u32 = 1 << 25;
const NOW: u64 = 5_000_000_000;

/// From the register of a queue that says where its ring is to the others.
const TDLEN: u64 = 8;
const TDH: u64 = 0x10;
const TDT: u64 = 0x18;
const TXDCTL: u64 = 0x28;
const TDWBAL: u64 = 0x38;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pf,
    Vf,
}

#[derive(Clone, Debug)]
enum Change {
    Register(u64, u32),
    Queue(u32, u64, u32),
    BusMaster(bool),
    Link(bool),
    Grant(bool, Option<u16>),
    Reset,
    /// The state in which it began.
    Load,
}

#[derive(Clone, Debug)]
struct Step {
    change: Option<Change>,
    queue: u32,
    /// Of each packet its length, whether it asks for a tag, and whether for a report.
    packets: Vec<(u16, bool, bool)>,
    /// The ring is where it begins, or elsewhere.
    elsewhere: bool,
}

struct Rig {
    m: Machine,
    kind: Kind,
    channel: Option<Arc<VfChannel>>,
    grant: (bool, Option<u16>),
    bus_master: bool,
}

fn ring(queue: u32, elsewhere: bool) -> u64 {
    RAM + u64::from(queue) * 0x400 + if elsewhere { 0x100 } else { 0 }
}

impl Rig {
    fn new(kind: Kind, grant: (bool, Option<u16>), bus_master: bool) -> Rig {
        let (nic, channel): (Nic, _) = match kind {
            Kind::Pf => {
                let mut config = Config::new(MAC);
                config.negotiation = std::time::Duration::ZERO;
                (pf(&config), None)
            }
            Kind::Vf => {
                let channel = VfChannel::new();
                (vf(&Config::new(MAC), Arc::clone(&channel)), Some(channel))
            }
        };
        let m = Machine::of(nic, memory(RAM, RAM_LEN), Wire::default(), NOW);
        let mut rig = Rig {
            m,
            kind,
            channel,
            grant,
            bus_master,
        };
        rig.set_pci();
        rig.set_grant();
        rig
    }

    fn set_pci(&mut self) {
        self.m.set_pci(PciState {
            bus_master: self.bus_master,
            msix: true,
            ..PciState::default()
        });
    }

    fn set_grant(&mut self) {
        if let Some(channel) = &self.channel {
            let (enabled, tag) = self.grant;
            channel.set_grant(Grant {
                enabled,
                link: true,
                max_frame: 1518,
                tag,
                ..Grant::default()
            });
            self.m.nic.control.attend(&self.m.env);
            self.m.work();
        }
    }

    fn start(&mut self) {
        if self.kind == Kind::Pf {
            self.m.w(igb::CTRL.into(), 1 << 6);
            self.m.w(igb::TCTL.into(), 1 << 1 | 1 << 3);
        }
        for queue in 0..QUEUES {
            self.queue(queue, 0, ring(queue, false) as u32);
            self.queue(queue, TDLEN, RING * 16);
            self.queue(queue, TXDCTL, ENABLE);
        }
        let frame: Vec<u8> = (0..2000u32).map(|i| i as u8).collect();
        self.m.poke(BUFFER, &frame);
    }

    fn at(&self, queue: u32, register: u64) -> u64 {
        let (first, apart) = match self.kind {
            Kind::Pf => (igb::TDBAL.into(), igb::QUEUE.into()),
            Kind::Vf => (igbvf::TDBAL.into(), igbvf::QUEUE.into()),
        };
        let first: u64 = first;
        let apart: u64 = apart;
        first + u64::from(queue) * apart + register
    }

    fn queue(&mut self, queue: u32, register: u64, value: u32) {
        let at = self.at(queue, register);
        self.m.w(at, value);
    }

    fn apply(&mut self, change: &Change, begun: &[u8]) {
        match *change {
            Change::Register(at, value) => self.m.w(at, value),
            Change::Queue(queue, register, value) => self.queue(queue, register, value),
            Change::BusMaster(on) => {
                self.bus_master = on;
                self.set_pci();
            }
            Change::Link(up) => {
                self.m.nic.control.set_link(&self.m.env, up);
                self.m.work();
            }
            Change::Grant(enabled, tag) => {
                self.grant = (enabled, tag);
                self.set_grant();
            }
            Change::Reset => {
                self.m.nic.control.reset(&self.m.env, ResetKind::Bus);
                self.set_pci();
                self.start();
            }
            Change::Load => {
                let loaded = self.m.nic.control.load(&self.m.env, begun);
                loaded.expect("its own state");
                self.m.work();
            }
        }
    }

    /// A function that has been loaded with the state of this one, and a guest with the same memory.
    fn fresh(&self) -> Rig {
        let mut fresh = Rig::new(self.kind, self.grant, self.bus_master);
        fresh.m.poke(RAM, &self.m.peek(RAM, RAM_LEN as usize));
        let loaded = fresh.m.nic.control.load(&fresh.m.env, &self.m.save());
        loaded.expect("its own state");
        fresh.m.work();
        fresh.m.wire.take();
        fresh
    }

    fn write(&mut self, step: &Step) -> u32 {
        let at = self.at(step.queue, TDT);
        let mut tail = self.m.r(at) % RING;
        for (len, tag, report) in &step.packets {
            let place = ring(step.queue, step.elsewhere) + u64::from(tail) * 16;
            // EOP, IFCS, VLE, RS; a data descriptor.
            let command = 3 | u64::from(*report) << 3 | 1 << 5 | u64::from(*tag) << 6;
            let len = u64::from(*len);
            let second = len | 3 << 20 | command << 24 | len << 46;
            self.m.poke(place, &BUFFER.to_le_bytes());
            self.m.poke(place + 8, &second.to_le_bytes());
            tail = (tail + 1) % RING;
        }
        tail
    }
}

fn change(kind: Kind) -> impl Strategy<Value = Change> {
    let choices = vec![
        (0, vec![RAM as u32, RAM as u32 + 0x100, RAM as u32 + 0x400]),
        (TDLEN, vec![RING * 16, 128, 0]),
        (TDH, vec![0, 3]),
        (TXDCTL, vec![0, ENABLE]),
        (TDWBAL, vec![0, RAM as u32 + 0x6001]),
    ];
    let queue =
        (0..QUEUES, prop::sample::select(choices)).prop_flat_map(|(queue, (at, values))| {
            prop::sample::select(values).prop_map(move |value| Change::Queue(queue, at, value))
        });
    let of_port = vec![
        (igb::TCTL, vec![0u32, 1 << 1, 1 << 1 | 1 << 3]),
        (igb::CTRL, vec![0x40, 0x4000_0040, 0]),
        (igb::VET, vec![0x8100, 0x9100]),
        (igb::RCTL, vec![0, 0xc0]),
    ];
    let register = prop::sample::select(of_port).prop_flat_map(|(at, values)| {
        prop::sample::select(values).prop_map(move |value| Change::Register(at.into(), value))
    });
    let grant = (any::<bool>(), prop::option::of(1u16..4095));
    let grant = grant.prop_map(|(on, tag)| Change::Grant(on, tag));
    let own = match kind {
        Kind::Pf => prop_oneof![3 => register, 1 => any::<bool>().prop_map(Change::Link)].boxed(),
        Kind::Vf => grant.boxed(),
    };
    prop_oneof![
        4 => queue,
        3 => own,
        1 => any::<bool>().prop_map(Change::BusMaster),
        1 => Just(Change::Reset),
        3 => Just(Change::Load),
    ]
}

fn steps(kind: Kind) -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![3 => Just(60u16), 1 => 20u16..1514];
    let packets = prop::collection::vec((len, prop::bool::weighted(0.2), any::<bool>()), 0..8);
    let change = prop::option::of(change(kind));
    let step = (change, 0..QUEUES, packets, prop::bool::weighted(0.2));
    let step = step.prop_map(|(change, queue, packets, elsewhere)| Step {
        change,
        queue,
        packets,
        elsewhere,
    });
    prop::collection::vec(step, 1..16)
}

/// Returns how many frames were sent.
fn same(kind: Kind, steps: &[Step]) -> Result<usize, TestCaseError> {
    let mut rig = Rig::new(kind, (true, None), true);
    rig.start();
    let begun = rig.m.save();
    let mut sent = 0;
    for step in steps {
        if let Some(change) = &step.change {
            rig.apply(change, &begun);
        }
        let tail = rig.write(step);
        // A function that was loaded looks at all its queues.
        for queue in 0..QUEUES {
            let at = rig.at(queue, TDT);
            let tail = rig.m.r(at);
            rig.m.w(at, tail);
        }
        sent += rig.m.wire.take().len();
        let mut fresh = rig.fresh();
        for rig in [&mut rig, &mut fresh] {
            rig.queue(step.queue, TDT, tail);
        }
        // Whose turn it is, is free.
        let [frames, same] = [&rig, &fresh].map(|rig| {
            let mut frames = rig.m.wire.take();
            frames.sort();
            frames
        });
        prop_assert_eq!(&frames, &same, "{:?}", step);
        let memory = |rig: &Rig| rig.m.peek(RAM, RAM_LEN as usize);
        prop_assert!(memory(&rig) == memory(&fresh), "memory {:?}", step);
        for queue in 0..QUEUES {
            let [head, of_fresh] = [&mut rig, &mut fresh].map(|rig| {
                let at = rig.at(queue, TDH);
                rig.m.r(at)
            });
            prop_assert_eq!(head, of_fresh, "{:?}", step);
        }
        sent += frames.len();
    }
    Ok(sent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]

    #[test]
    fn a_pf_sends_as_one_that_has_just_been_loaded(steps in steps(Kind::Pf)) {
        same(Kind::Pf, &steps)?;
    }

    #[test]
    fn a_vf_sends_as_one_that_has_just_been_loaded(steps in steps(Kind::Vf)) {
        same(Kind::Vf, &steps)?;
    }
}

#[test]
fn frames_are_sent_between_changes() {
    let step = |change| Step {
        change,
        queue: 0,
        packets: vec![(60, false, true); 3],
        elsewhere: false,
    };
    let of = |off: Change, on: Change| [step(None), step(Some(off)), step(Some(on)), step(None)];
    let queue = |value| Change::Queue(0, TXDCTL, value);
    // What was given while it was off goes out when it is on.
    for kind in [Kind::Pf, Kind::Vf] {
        assert_eq!(
            same(kind, &of(queue(0), queue(ENABLE))).expect("the same"),
            12
        );
    }
    let port = |value| Change::Register(igb::TCTL.into(), value);
    assert_eq!(same(Kind::Pf, &of(port(0), port(2))).expect("the same"), 12);
    let grant = |on| Change::Grant(on, None);
    assert_eq!(
        same(Kind::Vf, &of(grant(false), grant(true))).expect("the same"),
        12
    );
}

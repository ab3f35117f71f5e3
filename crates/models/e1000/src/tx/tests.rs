//! The fast path does what the descriptor parser does.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use frame::Caps;
use intel::SIZE;
use model::{Env, Interrupts, Nanos, Nic, PciState, Timer};
use model_testkit::{Time, Wire, memory};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::core::chip::Chip;
use crate::tx::desc::cmd;
use crate::{Config, with};

const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 0x4_0000;
const BUFFERS: u64 = RAM + 0x1000;
const RING: u32 = 32;

/// What a NIC did to the world, in order.
#[derive(Default)]
struct World {
    seen: Mutex<Vec<String>>,
}

impl Interrupts for World {
    fn set_line(&self, level: bool) {
        self.seen.lock().push(format!("line {level}"));
    }
    fn msi(&self, _: u16) {}
    fn msix(&self, _: u16) {}
}

impl Timer for World {
    fn arm(&self, deadline: Option<Nanos>) {
        self.seen.lock().push(format!("timer {deadline:?}"));
    }
}

struct Lab {
    nic: Nic,
    env: Env,
    world: Arc<World>,
    time: Arc<Time>,
    wire: Wire,
}

impl Lab {
    fn new(fast_path: bool) -> Lab {
        let mut config = Config::new([0x52, 0x54, 0, 0, 0, 1]);
        config.negotiation = std::time::Duration::ZERO;
        let mut chip = Chip::new(&config);
        chip.fast_path = fast_path;
        let world = Arc::new(World::default());
        let time = Arc::new(Time::default());
        let wire = Wire::with(Caps::ALL);
        wire.set_room(0);
        let memory = memory(RAM, RAM_LEN);
        // Byte by byte takes Miri long.
        let filled = if cfg!(miri) { 0x1000 } else { RAM_LEN - 0x1000 };
        let bytes: Vec<u8> = (0..filled).map(|i| (i / 7) as u8).collect();
        memory.view().write(BUFFERS, &bytes).expect("inside");
        let env = Env {
            memory,
            irq: world.clone(),
            clock: time.clone(),
            timer: world.clone(),
        };
        let mut lab = Lab {
            nic: with(&config, Arc::new(chip)),
            env,
            world,
            time,
            wire,
        };
        let on = PciState {
            bus_master: true,
            ..PciState::default()
        };
        lab.nic.control.pci(&lab.env, on);
        // CTRL.SLU, TDBAL, TDLEN, IMS.
        let ring = RING * SIZE as u32;
        for (at, value) in [
            (0, 1 << 6),
            (0x3800, RAM as u32),
            (0x3808, ring),
            (0xd0, 0x8003),
        ] {
            lab.write(at, value);
        }
        lab
    }

    fn write(&mut self, at: u64, value: u32) {
        self.nic
            .control
            .write(&self.env, 0, at, &value.to_le_bytes());
    }

    fn step(&mut self, step: &Step) {
        let view = self.env.memory.view();
        for (at, desc) in &step.descs {
            let at = RAM + u64::from(*at) * SIZE;
            view.write(at, &desc.raw().to_le_bytes()).expect("inside");
        }
        drop(view);
        self.wire.room.fetch_add(step.room, Relaxed);
        self.time.now.fetch_add(1000, Relaxed);
        // TCTL with and without padding, CTRL with and without tags.
        self.write(0x400, 2 | u32::from(step.pad) << 3);
        self.write(0, 1 << 6 | u32::from(step.tags) << 30);
        self.write(0x3818, step.tail);
        let end = self.nic.transmit.run(&self.env, &self.wire, step.budget);
        self.world.seen.lock().push(format!("{end:?}"));
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        self.nic.control.counters(&mut |name, n| {
            // How far descriptors are read ahead is free.
            if name != "tx_desc_fetched" {
                all.push((name, n));
            }
        });
        all
    }
}

#[derive(Clone, Debug)]
struct Desc {
    addr: u64,
    len: u32,
    /// None: legacy.
    kind: Option<u8>,
    cmd: u8,
    popts: u8,
    special: u16,
}

impl Desc {
    fn raw(&self) -> u128 {
        let kind = match self.kind {
            Some(kind) => u64::from(kind) << 20 | 1 << 29,
            None => 0,
        };
        let len = u64::from(self.len)
            & if self.kind.is_some() {
                0xf_ffff
            } else {
                0xffff
            };
        let rest = len
            | kind
            | u64::from(self.cmd & !cmd::DEXT) << 24
            | u64::from(self.popts) << 40
            | u64::from(self.special) << 48;
        u128::from(self.addr) | u128::from(rest) << 64
    }
}

fn desc() -> impl Strategy<Value = Desc> {
    let inside = (0..RAM_LEN - 0x2000).prop_map(|at| BUFFERS + at);
    let addr = prop_oneof![
        12 => inside,
        1 => Just(0),
        1 => Just(RAM + RAM_LEN - 70),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![
        6 => 60..200u32,
        2 => 1000..1600u32,
        1 => 0..70u32,
        1 => 16_280..16_300u32,
        1 => any::<u32>(),
    ];
    let kind = prop_oneof![4 => Just(None), 4 => Just(Some(1)), 1 => (0..4u8).prop_map(Some)];
    let plain = prop_oneof![
        Just(cmd::EOP | cmd::IFCS),
        Just(cmd::EOP | cmd::IFCS | cmd::RS)
    ];
    let command = prop_oneof![6 => plain, 2 => any::<u8>()];
    let popts = prop_oneof![6 => Just(0), 1 => any::<u8>()];
    (addr, len, kind, command, popts, any::<u16>()).prop_map(
        |(addr, len, kind, cmd, popts, special)| Desc {
            addr,
            len,
            kind,
            cmd,
            popts,
            special,
        },
    )
}

#[derive(Clone, Debug)]
struct Step {
    descs: Vec<(u32, Desc)>,
    tail: u32,
    room: usize,
    budget: usize,
    pad: bool,
    tags: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let descs = proptest::collection::vec((0..RING, desc()), 0..40);
    // Packets alike, most of whose frames begin with the same bytes: those of the buffers repeat. Or their lengths differ.
    let longer = prop_oneof![Just(0), Just(1), 60..500u32];
    let alike = (0..RING, 0..RING, desc(), 0..2u64, longer);
    let alike = alike.prop_map(|(from, n, desc, shift, longer)| {
        let each = |i: u32| {
            let far = u64::from(i) * (7 * 256 + if i % 11 == 10 { shift * 7 } else { 0 });
            let addr = if desc.addr == 0 {
                0
            } else {
                desc.addr.wrapping_add(far)
            };
            let rs = if i.is_multiple_of(3) { cmd::RS } else { 0 };
            let cmd = desc.cmd | rs;
            (
                (from + i) % RING,
                Desc {
                    addr,
                    len: desc.len.wrapping_add(i % 3 * longer),
                    cmd,
                    ..desc.clone()
                },
            )
        };
        (0..n).map(each).collect::<Vec<_>>()
    });
    let descs = prop_oneof![2 => descs, 1 => alike];
    let often = prop_oneof![3 => Just(40usize), 1 => 0..10usize];
    let budget = prop_oneof![3 => Just(256usize), 1 => 1..10usize];
    (descs, 0..RING, often, budget, any::<bool>(), any::<bool>()).prop_map(
        |(descs, tail, room, budget, pad, tags)| Step {
            descs,
            tail,
            room,
            budget,
            pad,
            tags,
        },
    )
}

#[test]
fn a_full_sink_is_offered_runs_again_once_it_has_room() {
    let mut lab = Lab::new(true);
    let desc = Desc {
        addr: BUFFERS,
        len: 60,
        kind: None,
        cmd: cmd::EOP | cmd::IFCS,
        popts: 0,
        special: 0,
    };
    for round in 0..20 {
        for room in [0, 16] {
            let descs = (0..16).map(|n| ((16 * round + n) % RING, desc.clone()));
            lab.step(&Step {
                descs: descs.collect(),
                tail: 16 * (round + 1) % RING,
                room,
                budget: 256,
                pad: false,
                tags: false,
            });
        }
    }
    assert_eq!(lab.wire.in_runs.load(Relaxed), 20 * 16);
}

proptest! {
    #[test]
    fn fast_path_and_parser_do_the_same(steps in proptest::collection::vec(step(), 1..12)) {
        let mut labs = [Lab::new(true), Lab::new(false)];
        for step in &steps {
            for lab in &mut labs {
                lab.step(step);
            }
        }
        let [a, b] = &labs;
        prop_assert_eq!(a.wire.take_notes(), b.wire.take_notes());
        prop_assert_eq!(&*a.world.seen.lock(), &*b.world.seen.lock());
        prop_assert_eq!(b.wire.in_runs.load(Relaxed) + b.wire.in_mixes.load(Relaxed), 0);
        prop_assert_eq!(a.counters(), b.counters());
        prop_assert!(a.nic.control.save(&a.env) == b.nic.control.save(&b.env), "registers or state");
        let ring = |lab: &Lab| {
            let mut bytes = vec![0; (u64::from(RING) * SIZE) as usize];
            lab.env.memory.view().read(RAM, &mut bytes).expect("inside");
            bytes
        };
        prop_assert_eq!(ring(a), ring(b));
    }
}

//! Runs of frames against batches of the same frames, and cuts against batches of segments, whatever changes between them.

use std::sync::Arc;

use frame::{Batch, Run};
use guest_mem::ReadSlice;
use hypernic_igb::{Config, Grant, VfChannel, pf, vf};
use intel_offsets::{igb, igbvf};
use model::{Nic, PciState, ResetKind};
use model_testkit::{Finished, Machine, Wire, in_groups, memory, packet};
use proptest::prelude::*;
use wire::Offload;

use super::common::MAC;

const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 0x20_0000;
const RINGS: u64 = RAM;
const BUFFERS: u64 = RAM + 0x1_0000;
const RING: u32 = 32;
const QUEUES: u32 = 2;
const ENABLE: u32 = 1 << 25;
const WHOLE: u32 = 1 << 25;

/// A function, and the registers of its queues.
struct Rig {
    m: Machine,
    channel: Option<Arc<VfChannel>>,
    srrctl: u64,
    queue: u64,
}

impl Rig {
    fn of(nic: Nic, channel: Option<Arc<VfChannel>>, srrctl: u64, queue: u64) -> Rig {
        let mut m = Machine::of(nic, memory(RAM, RAM_LEN), Wire::default(), 5_000_000_000);
        m.set_pci(PciState {
            bus_master: true,
            msix: true,
            ..PciState::default()
        });
        Rig {
            m,
            channel,
            srrctl,
            queue,
        }
    }

    fn pf() -> Rig {
        let mut config = Config::new(MAC);
        config.negotiation = std::time::Duration::ZERO;
        let at = (igb::SRRCTL.into(), igb::QUEUE.into());
        let mut rig = Rig::of(pf(&config), None, at.0, at.1);
        rig.m.w(igb::CTRL.into(), 1 << 6);
        rig.m.w(igb::RCTL.into(), 0x0400_8002);
        rig.start();
        rig
    }

    fn vf() -> Rig {
        let channel = VfChannel::new();
        let nic = vf(&Config::new(MAC), Arc::clone(&channel));
        let at = (igbvf::SRRCTL.into(), igbvf::QUEUE.into());
        let mut rig = Rig::of(nic, Some(channel), at.0, at.1);
        rig.grant(true, 1518);
        rig.start();
        rig
    }

    fn grant(&mut self, enabled: bool, max_frame: u16) {
        if let Some(channel) = &self.channel {
            channel.set_grant(Grant {
                enabled,
                link: true,
                max_frame,
                ..Grant::default()
            });
            self.m.nic.control.attend(&self.m.env);
            self.m.work();
        }
    }

    /// The register of a queue that stands this far from SRRCTL.
    fn queue(&mut self, queue: u32, from_srrctl: i64, value: u32) {
        let at = self.srrctl + u64::from(queue) * self.queue;
        self.m.w(at.wrapping_add_signed(from_srrctl), value);
    }

    fn buffer(queue: u32, index: u32) -> u64 {
        BUFFERS + u64::from(queue * RING + index) * 0x1000
    }

    fn give(&mut self, queue: u32, tail: u32) {
        for i in 0..RING {
            let at = RINGS + u64::from(queue) * 0x1000 + u64::from(i) * 16;
            self.m.poke(at, &Rig::buffer(queue, i).to_le_bytes());
            self.m.poke(at + 8, &[0; 8]);
        }
        self.queue(queue, 12, tail);
    }

    fn start(&mut self) {
        for queue in 0..QUEUES {
            self.queue(queue, -12, (RINGS + u64::from(queue) * 0x1000) as u32);
            self.queue(queue, -4, RING * 16);
            self.queue(queue, 0, WHOLE | 2);
            self.queue(queue, 28, ENABLE);
            self.give(queue, RING - 1);
        }
    }

    fn apply(&mut self, change: &Change, begun: &[u8]) {
        match *change {
            Change::Register(at, value) => self.m.w(at, value),
            Change::Srrctl(queue, value) => self.queue(queue, 0, value),
            Change::Enabled(queue, on) => self.queue(queue, 28, u32::from(on) << 25),
            Change::Head(queue, head) => self.queue(queue, 4, head),
            Change::BusMaster(bus_master) => self.m.set_pci(PciState {
                bus_master,
                msix: true,
                ..PciState::default()
            }),
            Change::Link(up) => {
                self.m.nic.control.set_link(&self.m.env, up);
                self.m.work();
            }
            Change::Grant(enabled, max_frame) => self.grant(enabled, max_frame),
            Change::Reset => {
                self.m.nic.control.reset(&self.m.env, ResetKind::Bus);
                self.m.work();
            }
            Change::Load => {
                let loaded = self.m.nic.control.load(&self.m.env, begun);
                loaded.expect("its own state");
                self.m.work();
            }
        }
    }

    fn seen(&mut self) -> (Vec<u8>, Vec<(&'static str, u64)>) {
        let mut counters = Vec::new();
        self.m.nic.control.counters(&mut |name, value| {
            if name != "rx_desc_fetched" {
                counters.push((name, value));
            }
        });
        let state = self.m.save();
        let mut seen = self.m.peek(RAM, RAM_LEN as usize);
        seen.extend(state);
        (seen, counters)
    }
}

#[derive(Clone, Debug)]
enum Change {
    Register(u64, u32),
    Srrctl(u32, u32),
    Enabled(u32, bool),
    Head(u32, u32),
    BusMaster(bool),
    Link(bool),
    Grant(bool, u16),
    Reset,
    Load,
}

/// Of any function.
fn change() -> BoxedStrategy<Change> {
    let shape = prop::sample::select(vec![
        WHOLE | 2,
        WHOLE | 2,
        WHOLE | 1,
        2,
        5 << 25 | 2 << 8 | 2,
    ]);
    prop_oneof![
        2 => (0..QUEUES, shape).prop_map(|(queue, shape)| Change::Srrctl(queue, shape)),
        1 => (0..QUEUES, any::<bool>()).prop_map(|(queue, on)| Change::Enabled(queue, on)),
        1 => (0..QUEUES, 0..RING).prop_map(|(queue, head)| Change::Head(queue, head)),
        1 => any::<bool>().prop_map(Change::BusMaster),
        1 => Just(Change::Reset),
        3 => Just(Change::Load),
    ]
    .boxed()
}

fn change_of_vf() -> BoxedStrategy<Change> {
    let length = prop::sample::select(vec![60u16, 64, 1518]);
    let grant = (any::<bool>(), length).prop_map(|(on, length)| Change::Grant(on, length));
    prop_oneof![2 => grant, 3 => change()].boxed()
}

fn change_of_pf() -> BoxedStrategy<Change> {
    let choices = vec![
        (
            igb::RCTL,
            vec![
                2u32,
                0x0400_0002,
                0x0400_8002,
                0x0400_801a,
                0x0404_801a,
                0x8002,
                0,
            ],
        ),
        (igb::RXCSUM, vec![0, 0x100, 0x300, 0x2300]),
        (igb::CTRL, vec![0x40, 0x4000_0040, 0x0800_0040, 0]),
        (igb::VET, vec![0x8100, 0x88b5]),
        (igb::RAL, vec![0x0054_5452, 0x1234_5678]),
        (igb::RAH, vec![0, 0x8000_0000, 0x8000_5634]),
        (igb::MTA, vec![0, !0]),
        (igb::MRQC, vec![0, 2, 2 | 0x3f << 16]),
        (igb::RETA, vec![0, 0x0101_0101]),
        (igb::RFCTL, vec![0, 1 << 14, 1 << 15]),
        (
            igb::ETQF,
            vec![0, 1 << 26 | 0x88b5, 1 << 26 | 1 << 31 | 1 << 16 | 0x88b5],
        ),
        (igb::TSYNCRXCTL, vec![0, 0x14]),
        (igb::QDE, vec![0, 3]),
    ];
    let register = prop::sample::select(choices).prop_flat_map(|(at, values)| {
        let value = prop::sample::select(values);
        value.prop_map(move |value| Change::Register(at.into(), value))
    });
    prop_oneof![
        4 => register,
        1 => any::<bool>().prop_map(Change::Link),
        3 => change(),
    ]
    .boxed()
}

#[derive(Clone, Debug)]
struct Step {
    change: Option<Change>,
    frames: Vec<Vec<u8>>,
    /// What is left to do of each; nothing where there is none.
    notes: Vec<Offload>,
    /// Queues that get all their buffers anew.
    give: u8,
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let dst = prop::sample::select(vec![
        MAC,
        [0xff; 6],
        [1, 0, 0x5e, 0, 0, 1],
        [2, 9, 9, 9, 9, 9],
    ]);
    let kind = prop::sample::select(vec![
        0x88b5u16, 0x88b5, 0x88f7, 0x8808, 0x0800, 0x8100, 0x0806,
    ]);
    let len = prop::sample::select(vec![60usize, 60, 64, 200, 1514]);
    // A flow in place of that: TCP or UDP, with sums that are wrong now and then.
    let flow = prop::option::of(any::<bool>());
    let whole = (dst, kind, len, 1u8..40, any::<bool>(), flow);
    whole.prop_map(|(dst, kind, len, n, mixed, flow)| {
        let frame = |i: u8| {
            let mut frame = vec![i; len];
            if let Some(tcp) = flow {
                let port = u16::from(i);
                let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
                frame = packet::v4_with(from, to, tcp, 7, port, len - 60);
                // Short ones are padded.
                frame.resize(frame.len().max(60), 0);
                if i % 5 == 4 {
                    frame[50] ^= 1;
                }
            } else {
                frame[12..14].copy_from_slice(&kind.to_be_bytes());
            }
            frame[..6].copy_from_slice(&dst);
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
            if mixed && i % 9 == 8 {
                frame[11] = i;
            }
            frame
        };
        (0..n).map(frame).collect()
    })
}

/// Large frames, some with a tag beside them, and others behind them.
fn large() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<Offload>)> {
    let dst = prop::sample::select(vec![MAC, MAC, MAC, [0xff; 6], [2, 9, 9, 9, 9, 9]]);
    let mss = prop_oneof![4 => 300u16..1450, 1 => 1u16..60];
    let shape = (0u8..9, prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    let one = (dst, mss, 100usize..9000, shape).prop_map(|(dst, mss, len, shape)| {
        let (options, v6, tagged) = shape;
        let (bytes, notes) = packet::large(dst, v6, options, len, mss);
        let vlan = tagged.then_some(5);
        (bytes, Offload { vlan, ..notes })
    });
    let many = prop::collection::vec(one, 1..4);
    (many, prop::option::of(frames())).prop_map(|(large, others)| {
        let (mut frames, notes): (Vec<_>, Vec<_>) = large.into_iter().unzip();
        frames.extend(others.into_iter().flatten().take(4));
        (frames, notes)
    })
}

/// Most steps have the frames of the one before: what was worked out for them still holds, or does not.
fn steps(change: BoxedStrategy<Change>) -> impl Strategy<Value = Vec<Step>> {
    let change = prop::option::of(change);
    let frames = prop_oneof![
        2 => frames().prop_map(|frames| (frames, Vec::new())),
        1 => large(),
    ];
    let step = (change, frames, any::<u8>(), 0u8..4);
    prop::collection::vec(step, 1..16).prop_map(|steps| {
        let mut last = (Vec::new(), Vec::new());
        let each = |(change, frames, give, again)| {
            if again == 0 || last.0.is_empty() {
                last = frames;
            }
            let (frames, notes) = last.clone();
            Step {
                change,
                frames,
                notes,
                give,
            }
        };
        steps.into_iter().map(each).collect()
    })
}

fn same(make: fn() -> Rig, steps: &[Step]) -> Result<u64, TestCaseError> {
    let mut rigs = [make(), make()];
    let begun = rigs[0].m.save();
    let mut in_runs = 0;
    let mut finished = [true, false].map(Finished::new);
    for step in steps {
        let mut dealt = Vec::new();
        for (i, rig) in rigs.iter_mut().enumerate() {
            if let Some(change) = &step.change {
                rig.apply(change, &begun);
            }
            let mut batch = Batch::new();
            let notes = step
                .notes
                .iter()
                .copied()
                .chain(std::iter::repeat(Offload::NONE));
            for (frame, notes) in step.frames.iter().zip(notes) {
                // Payload in two pieces.
                let (a, b) = frame.split_at(frame.len() / 2);
                batch.push_slice(ReadSlice::from_bytes(a));
                batch.push_slice(ReadSlice::from_bytes(b));
                batch.end(notes);
            }
            let receive = &rig.m.nic.receive;
            let env = &rig.m.env;
            let counted = std::cell::Cell::new(0);
            let run = |run: &Run<'_>| {
                let taken = receive.deliver_run(env, run)?;
                counted.set(counted.get() + taken as u64);
                Some(taken)
            };
            let run: &dyn Fn(&Run<'_>) -> Option<usize> = &run;
            let deliver = |picks: &[u16]| receive.deliver(env, &batch, picks);
            dealt.push(match step.notes.is_empty() {
                true => (in_groups(&batch, deliver, (i == 0).then_some(run)), 0),
                false => {
                    let mut room = Vec::new();
                    let picks = batch.all_picks(&mut room);
                    finished[i].deliver(receive, env, &batch, picks)
                }
            });
            in_runs += counted.get();
            for queue in (0..QUEUES).filter(|queue| step.give >> queue & 1 == 1) {
                rig.give(queue, u32::from(step.give) % RING);
            }
        }
        prop_assert_eq!(dealt[0], dealt[1], "{:?}", step);
    }
    let [a, b] = &mut rigs;
    let (a, b) = (a.seen(), b.seen());
    prop_assert_eq!(a.1, b.1);
    prop_assert!(a.0 == b.0, "memory or state");
    Ok(in_runs + finished[0].in_cuts())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 600 }))]

    #[test]
    fn a_pf_receives_runs_as_batches(steps in steps(change_of_pf())) {
        same(Rig::pf, &steps)?;
    }

    #[test]
    fn a_vf_receives_runs_as_batches(steps in steps(change_of_vf())) {
        same(Rig::vf, &steps)?;
    }
}

/// So that the two above do not compare batches with batches.
#[test]
fn both_take_runs() {
    let frame = |i| {
        let mut frame = vec![i; 60];
        frame[..6].copy_from_slice(&MAC);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    };
    let step = Step {
        change: None,
        frames: (0..20).map(frame).collect(),
        notes: Vec::new(),
        give: 3,
    };
    let flow = |i| {
        let mut frame = packet::v4_with([10, 0, 0, 1], [10, 0, 0, 2], true, 7, i, 40);
        frame[..6].copy_from_slice(&MAC);
        frame
    };
    let flow = Step {
        frames: (0..20).map(flow).collect(),
        ..step.clone()
    };
    for (make, step) in [
        (Rig::pf as fn() -> Rig, &step),
        (Rig::vf, &step),
        (Rig::vf, &flow),
    ] {
        let steps = [step.clone(), step.clone()];
        // The tail is at 3 then: 15 buffers.
        assert_eq!(same(make, &steps).expect("the same"), 20 + 15);
    }
    // Large frames: of the PF such whose flows do not decide, which needs the hash in place of the identification.
    let (bytes, notes) = packet::large(MAC, false, 3, 13_999, 1000);
    let step = Step {
        change: Some(Change::Register(igb::RXCSUM.into(), 0x2300)),
        frames: vec![bytes],
        notes: vec![notes],
        give: 3,
    };
    let steps = [step.clone(), step.clone()];
    assert_eq!(same(Rig::pf, &steps).expect("the same"), 2 * 14);
    let of_vf = steps.map(|step| Step {
        change: None,
        ..step
    });
    assert_eq!(same(Rig::vf, &of_vf).expect("the same"), 2 * 14);
}

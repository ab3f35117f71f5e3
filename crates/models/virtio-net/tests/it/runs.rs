//! Runs are sent and received as batches are.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use frame::{Batch, Caps, Run, Sink, Wake};
use guest_mem::ReadSlice;
use hypernic_virtio_net::regs::{ctrl, feature, hash, header};
use hypernic_virtio_net::state::V1;
use hypernic_virtio_net::{Config, RX, TX};
use model::Progress;
use model_testkit::{Wire, in_groups};
use proptest::prelude::*;
use wire::Offload;

use crate::driver::{BUFFERS, Driver, INDIRECT, MAC, MEMORY, OTHER, USUAL, WRITE, desc, tcp4};

/// Entries of a ring.
pub const SIZE: u16 = 32;
pub const COMMANDS: u64 =
    feature::CTRL_VQ | feature::CTRL_RX | feature::CTRL_VLAN | feature::RING_RESET;

pub fn device(features: u64) -> Driver {
    let config = Config {
        pairs: 2,
        hash_report: true,
        ..Config::new(MAC)
    };
    let mut d = Driver::cold(config, Wire::with(Caps::ALL));
    d.start(features, SIZE);
    for queue in 0..4 {
        d.wants_events(queue);
    }
    d
}

/// What can be seen of a device: its state and its counters, and its guest's memory.
type Seen = (V1, Vec<(&'static str, u64)>, Vec<u8>, Vec<u16>);

fn seen(d: &Driver) -> Seen {
    let blob = d.m.save();
    let saved = snapshot::open(hypernic_virtio_net::state::v1::KIND, &blob).expect("a state");
    let mut counters = Vec::new();
    d.m.nic
        .control
        .counters(&mut |name, value| counters.push((name, value)));
    let memory = d.m.peek(0, MEMORY as usize);
    (
        saved.decode().expect("decodes"),
        counters,
        memory,
        d.m.vectors(),
    )
}

pub fn equal(a: &Driver, b: &Driver, events: bool) -> Result<(), TestCaseError> {
    let [mut a, mut b] = [seen(a), seen(b)];
    // Which of two queues calls first says nothing.
    a.3.sort_unstable();
    b.3.sort_unstable();
    if !events {
        // Where a flag says that the driver is called, two parts of a run may call it twice.
        for seen in [&mut a, &mut b] {
            seen.0
                .queues
                .iter_mut()
                .for_each(|queue| queue.tally[1] = 0);
            seen.1.retain(|(name, _)| *name != "queue_calls");
            seen.3.dedup();
        }
    }
    prop_assert_eq!(a.0, b.0);
    prop_assert_eq!(a.1, b.1);
    prop_assert_eq!(a.3, b.3);
    let differs = a.2.iter().zip(&b.2).position(|(a, b)| a != b);
    prop_assert_eq!(differs, None, "memory");
    Ok(())
}

/// What comes between two offers.
#[derive(Clone, Debug)]
pub enum Change {
    Command(u8, u8, Vec<u8>),
    Link(bool),
    /// A queue is reset by itself and begins anew.
    Renew(usize),
    Event(u16),
}

/// Buffers of one part, or of another shape.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Usual,
    Short,
    Parts,
    /// Outside of memory, in part.
    Edge,
    Readable,
    Indirect,
}

pub fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        60 => Just(Shape::Usual),
        2 => Just(Shape::Short),
        2 => Just(Shape::Parts),
        1 => Just(Shape::Edge),
        1 => Just(Shape::Readable),
        2 => Just(Shape::Indirect),
    ]
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let dst = prop::sample::select(vec![
        MAC,
        MAC,
        MAC,
        OTHER,
        [0xff; 6],
        [0x33, 0x33, 0, 0, 0, 1],
    ]);
    let kind = prop::sample::select(vec![0x88b5u16, 0x88b5, 0x0806, 0x0800, 0x86dd, 0x8100]);
    let len = prop::sample::select(vec![60usize, 60, 64, 200, 1514]);
    let whole = (dst, kind, len, 1u8..40, any::<[bool; 2]>());
    whole.prop_map(|(dst, kind, len, n, [mixed, lengths])| {
        let frame = |i: u8| {
            let more = if lengths { usize::from(i % 5) } else { 0 };
            let mut frame = vec![i; (len + 97 * more).min(1514)];
            frame[..6].copy_from_slice(&dst);
            frame[6..12].copy_from_slice(&OTHER);
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            if kind == 0x0800 {
                frame[14..54].copy_from_slice(&tcp4(0)[14..]);
                frame[35] = i;
            }
            if mixed && i % 9 == 8 {
                frame[11] = i;
            }
            frame
        };
        (0..n).map(frame).collect()
    })
}

/// The driver says which pair is for which flow.
fn rss(entries: u16) -> Change {
    let mut bytes = hash::TYPES.to_le_bytes().to_vec();
    bytes.extend([3, 0, 1, 0]);
    bytes.extend(
        [entries & 1, 1, 0, 1]
            .iter()
            .flat_map(|entry| entry.to_le_bytes()),
    );
    bytes.extend([2, 0, 40]);
    bytes.extend([0x6d; 40]);
    Change::Command(ctrl::MQ, ctrl::RSS_CONFIG, bytes)
}

pub fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0u8..6, any::<bool>()).prop_map(|(mode, on)| Change::Command(
            ctrl::RX,
            mode,
            vec![on.into()]
        )),
        any::<bool>().prop_map(|add| Change::Command(ctrl::VLAN, (!add).into(), vec![0, 0])),
        (1u16..3).prop_map(|n| Change::Command(
            ctrl::MQ,
            ctrl::VQ_PAIRS_SET,
            n.to_le_bytes().into()
        )),
        any::<u16>().prop_map(rss),
        any::<bool>().prop_map(Change::Link),
        prop::sample::select(vec![RX, TX, 2, 3]).prop_map(Change::Renew),
        (0u16..40).prop_map(Change::Event),
    ]
}

pub fn features() -> impl Strategy<Value = u64> {
    let some = [
        feature::EVENT_IDX,
        feature::PACKED,
        feature::INDIRECT_DESC,
        feature::MQ | feature::RSS,
        feature::HASH_REPORT,
    ];
    let plain = USUAL | COMMANDS;
    any::<[bool; 5]>().prop_map(move |on| {
        let chosen = some.iter().zip(on).filter(|(_, on)| *on);
        chosen.fold(plain, |all, (feature, _)| all | feature)
    })
}

impl Driver {
    /// Calls come by events, not always.
    pub fn wants_events(&mut self, queue: usize) {
        if self.packed {
            self.m
                .poke(crate::driver::avail(queue) + 2, &2u16.to_le_bytes());
        }
    }

    pub fn change(&mut self, change: &Change) {
        match change {
            Change::Command(class, number, payload) => {
                if !self.needs_reset() {
                    self.command(*class, *number, payload);
                }
            }
            Change::Link(up) => self.m.nic.control.set_link(&self.m.env, *up),
            Change::Renew(queue) => {
                if *queue < self.ctrl {
                    self.w16(
                        hypernic_virtio_net::regs::common::QUEUE_SELECT,
                        *queue as u16,
                    );
                    self.w16(hypernic_virtio_net::regs::common::QUEUE_RESET, 1);
                    self.enable(*queue, SIZE);
                    self.wants_events(*queue);
                }
            }
            Change::Event(on) => {
                // Where the driver says when it wants to be called, in both formats.
                for queue in [RX, TX] {
                    let at = crate::driver::avail(queue);
                    let at = if self.packed {
                        at
                    } else {
                        at + 4 + 2 * u64::from(SIZE)
                    };
                    let event = if self.packed {
                        (on % SIZE) | 0x8000
                    } else {
                        *on
                    };
                    self.m.poke(at, &event.to_le_bytes());
                }
            }
        }
    }

    /// Room for one more chain of so many descriptors.
    pub fn has_room(&mut self, queue: usize, parts: u64) -> bool {
        self.used(queue);
        let size = u64::from(SIZE);
        if self.packed {
            return self.given[queue] + parts <= self.taken[queue] + size;
        }
        let q = &self.queues[queue];
        // Each takes as many descriptors as it has parts, at most three.
        3 * u64::from(q.avail.wrapping_sub(q.used) + 1) <= size
    }

    /// Gives a buffer for so many bytes at `at`.
    pub fn give_shape(&mut self, queue: usize, at: u64, len: u32, write: bool, shape: Shape) {
        if !self.has_room(queue, 3) {
            return;
        }
        let half = len / 2;
        match shape {
            Shape::Usual => self.give(queue, &[(at, len, write)]),
            Shape::Short => self.give(queue, &[(at, 40, write)]),
            Shape::Parts => {
                let rest = (at + u64::from(half), len - half, write);
                self.give(queue, &[(at, half, write), rest])
            }
            Shape::Edge => self.give(queue, &[(MEMORY - 100, len, write)]),
            Shape::Readable => self.give(queue, &[(at, len, !write)]),
            Shape::Indirect => {
                let table = at + 0x800;
                let flags = if write { WRITE } else { 0 };
                if self.packed {
                    self.desc_at(table, 0, (at, len, 0), flags);
                    self.give_packed(queue, &[(table, 16, false)], INDIRECT)
                } else {
                    self.desc_at(table, 0, (at, len, flags), 0);
                    let size = self.queues[queue].size;
                    let head = self.give(queue, &[(table, 16, false)]);
                    self.desc_at(desc(queue), head % size, (table, 16, INDIRECT), 0);
                    head
                }
            }
        };
    }
}

/// A step of a receiver: a change, buffers, frames.
type Received = (Option<Change>, Vec<(bool, Shape)>, Vec<Vec<u8>>);

fn received(features: u64, steps: &[Received]) -> Result<u64, TestCaseError> {
    let mut both = [device(features), device(features)];
    let mut in_runs = 0;
    let mut at = BUFFERS;
    for (change, buffers, frames) in steps {
        let mut dealt = Vec::new();
        let begun = at;
        for (i, d) in both.iter_mut().enumerate() {
            if let Some(change) = change {
                d.change(change);
            }
            at = begun;
            for (second, shape) in buffers {
                let queue = if *second && d.ctrl == 4 { 2 } else { RX };
                at = BUFFERS + (at - BUFFERS + 0x1000) % 0x20_0000;
                d.give_shape(queue, at, 2048, true, *shape);
            }
            d.kick(RX);
            let mut batch = Batch::new();
            for frame in frames {
                batch.push_slice(ReadSlice::from_bytes(frame));
                batch.end(Offload::NONE);
            }
            let (receive, env) = (&d.m.nic.receive, &d.m.env);
            let counted = Cell::new(0);
            let run = |run: &Run<'_>| {
                let taken = receive.deliver_run(env, run)?;
                counted.set(counted.get() + taken as u64);
                Some(taken)
            };
            let run: &dyn Fn(&Run<'_>) -> Option<usize> = &run;
            let deliver = |picks: &[u16]| receive.deliver(env, &batch, picks);
            dealt.push(in_groups(&batch, deliver, (i == 0).then_some(run)));
            in_runs += counted.get();
        }
        prop_assert_eq!(dealt[0], dealt[1]);
    }
    equal(&both[0], &both[1], features & feature::EVENT_IDX != 0)?;
    Ok(in_runs)
}

/// Takes no runs.
struct Batches<'w>(&'w Wire);

impl Sink for Batches<'_> {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.0.deliver(batch, picks)
    }

    fn caps(&self) -> Caps {
        self.0.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.0.want_room(waker);
    }
}

/// A packet: whether it is to be summed, its shape, its frame.
type Packet = (bool, Shape, Vec<u8>);
/// A step of a sender: a change, packets by the first or the second queue, room of the sink.
type SentStep = (Option<Change>, Vec<(bool, Packet)>, Option<usize>);

/// Returns the frames that went as runs, and as mixes.
fn sent(features: u64, steps: &[SentStep]) -> Result<(usize, usize), TestCaseError> {
    let mut both = [device(features), device(features)];
    let front = if features & feature::HASH_REPORT != 0 {
        header::LONG
    } else {
        header::LEN
    };
    let mut at = BUFFERS;
    for (change, packets, room) in steps {
        let begun = at;
        let mut frames = Vec::new();
        for (i, d) in both.iter_mut().enumerate() {
            if let Some(change) = change {
                d.change(change);
            }
            at = begun;
            for (second, (summed, shape, frame)) in packets {
                let queue = if *second && d.ctrl == 4 { 3 } else { TX };
                at = BUFFERS + (at - BUFFERS + 0x1000) % 0x20_0000;
                let mut head = vec![0; front];
                // What a header says beside flags and segmentation is nobody's business.
                (head[2], head[10]) = (7, 9);
                if *summed {
                    (head[0], head[6], head[8]) = (1, 34, 16);
                }
                d.m.poke(at, &[&head, &frame[..]].concat());
                let len = (front + frame.len()) as u32;
                d.give_shape(queue, at, len, false, *shape);
            }
            match room {
                Some(room) => d.m.wire.set_room(*room),
                None => d.m.wire.unlimit(),
            }
            let (nic, env) = (&mut d.m.nic, &d.m.env);
            let batches = Batches(&d.m.wire);
            let to: &dyn Sink = if i == 0 { &d.m.wire } else { &batches };
            for _ in 0..100 {
                if nic.transmit.run(env, to, 64) != Progress::More {
                    break;
                }
            }
            frames.push(d.m.wire.take_notes());
        }
        prop_assert_eq!(&frames[0], &frames[1]);
    }
    equal(&both[0], &both[1], features & feature::EVENT_IDX != 0)?;
    let load = |counter: &AtomicUsize| counter.load(SeqCst);
    let wire = &both[0].m.wire;
    Ok((load(&wire.in_runs), load(&wire.in_mixes)))
}

#[test]
fn a_full_sink_is_offered_runs_again_once_it_has_room() {
    let frame = [[2, 0, 0, 0, 0, 9].as_slice(), &[0x11; 54]].concat();
    for packed in [0, feature::PACKED] {
        let packets = vec![(false, (false, Shape::Usual, frame.clone())); 16];
        let step = |at| match at % 2 {
            0 => (None, packets.clone(), Some(0)),
            _ => (None, Vec::new(), Some(16)),
        };
        let steps: Vec<SentStep> = (0..40).map(step).collect();
        let got = sent(USUAL | COMMANDS | packed, &steps);
        // Where the ring ends within a burst, few are left of it, which go as a batch.
        let (in_runs, in_mixes) = got.expect("the same");
        assert!(
            in_runs >= 12 * 16 && in_mixes == 0,
            "{packed:#x}: {in_runs}"
        );
    }
}

fn packets() -> impl Strategy<Value = Vec<(bool, Packet)>> {
    let rare = prop::sample::select([vec![false; 30], vec![true]].concat());
    let shapes = prop::collection::vec((shape(), rare), 40);
    (frames(), shapes, any::<bool>()).prop_map(|(frames, shapes, second)| {
        let each = frames.into_iter().zip(shapes);
        each.map(|(frame, (shape, summed))| (second, (summed, shape, frame)))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 300 }))]

    #[test]
    fn runs_are_received_as_batches_are(
        features in features(),
        steps in prop::collection::vec(
            (
                prop::option::weighted(0.3, change()),
                prop::collection::vec((any::<bool>(), shape()), 0..40),
                frames(),
            ),
            1..12,
        ),
    ) {
        received(features, &steps)?;
    }

    #[test]
    fn runs_are_sent_as_batches_are(
        features in features(),
        steps in prop::collection::vec(
            (
                prop::option::weighted(0.3, change()),
                packets(),
                prop::option::weighted(0.3, 0usize..20),
            ),
            1..12,
        ),
    ) {
        sent(features, &steps)?;
    }
}

/// So that the two above do not compare batches with batches.
#[test]
fn both_sides_have_runs() {
    let plain = |i: u8| {
        let mut frame = vec![i; 60];
        frame[..6].copy_from_slice(&MAC);
        frame[6..12].copy_from_slice(&OTHER);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    };
    let frames: Vec<_> = (0..8).map(plain).collect();
    let flow: Vec<_> = (0..8)
        .map(|i| {
            let mut frame = tcp4(20);
            frame[..6].copy_from_slice(&MAC);
            frame[35] = i;
            frame
        })
        .collect();
    // Of several lengths, too.
    let mixed: Vec<_> = (0..8)
        .map(|i| {
            let mut frame = plain(i as u8);
            frame.resize(60 + i * i % 3 * 700, i as u8);
            frame
        })
        .collect();
    let step: Received = (None, vec![(false, Shape::Usual); 8], mixed.clone());
    for packed in [0, feature::PACKED] {
        let got = received(USUAL | COMMANDS | packed, &[step.clone(), step.clone()]);
        assert_eq!(got.expect("the same"), 16, "of several lengths");
    }
    // Of several lengths, and with several headers.
    let mut headers = mixed.clone();
    for (i, frame) in (0..).zip(&mut headers) {
        frame[11] = i % 3;
    }
    for packed in [0, feature::PACKED] {
        for (frames, ways) in [(&mixed, (16, 0)), (&headers, (0, 16))] {
            let packets = frames
                .iter()
                .map(|frame| (false, (false, Shape::Usual, frame.clone())));
            let step: SentStep = (None, packets.collect(), None);
            let got = sent(USUAL | COMMANDS | packed, &[step.clone(), step]);
            assert_eq!(got.expect("the same"), ways, "mixed");
        }
    }
    for packed in [0, feature::PACKED] {
        for (more, frames, in_runs) in [
            (0, &frames, 24),
            (0, &flow, 24),
            (feature::HASH_REPORT, &frames, 24),
            (feature::MQ | feature::RSS, &flow, 24),
        ] {
            let features = USUAL | COMMANDS | packed | more;
            let buffers = vec![(false, Shape::Usual); 8];
            let step: Received = (None, buffers, frames.clone());
            let got = received(features, &[step.clone(), step.clone(), step]);
            assert_eq!(got.expect("the same"), in_runs, "{more:#x}");
            let packets = frames
                .iter()
                .map(|frame| (false, (false, Shape::Usual, frame.clone())));
            let step: SentStep = (None, packets.collect(), None);
            let got = sent(features, &[step.clone(), step.clone(), step]);
            assert_eq!(got.expect("the same"), (24, 0), "{more:#x}");
        }
    }
    // Flows are spread over pairs, as the device or the driver likes, or their hashes are reported.
    let step = |change| -> Received {
        let buffers = (0..16).map(|i| (i % 2 == 1, Shape::Usual));
        (change, buffers.collect(), flow.clone())
    };
    let mut hashes = hash::TYPES.to_le_bytes().to_vec();
    hashes.extend([0; 9]);
    let report = Change::Command(ctrl::MQ, ctrl::HASH_CONFIG, hashes);
    let two = Change::Command(ctrl::MQ, ctrl::VQ_PAIRS_SET, vec![2, 0]);
    for packed in [0, feature::PACKED] {
        for (more, change) in [
            (feature::MQ, &two),
            (feature::HASH_REPORT, &report),
            (feature::MQ | feature::HASH_REPORT, &two),
            (feature::MQ | feature::RSS, &rss(4)),
        ] {
            let features = USUAL | COMMANDS | packed | more;
            let steps = [step(Some(change.clone())), step(None)];
            let got = received(features, &steps);
            assert_eq!(got.expect("the same"), 16, "{more:#x}");
        }
    }
}

//! Two guests, one sending to the other, whose devices' process dies at every step it takes.

mod going_on;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Nic, Progress};
use model_testkit::lives::{Life, To};
use model_testkit::packet::{MAC, PEER, large, plain};
use model_testkit::virtq::{How, VirtQueue};
use model_testkit::{death, memory};

use crate::regs::{common, feature, header, page, status};
use crate::{Config, new};

/// Each store that outlives the process.
#[derive(Debug)]
pub(crate) struct Steps;

impl datapath::kept::Step for Steps {
    fn step() {
        death::step();
    }
}

const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 0x20_0000;
const QUEUE: u64 = 0x2_0000;
const BUFFERS: u64 = RAM + 0x8_0000;
const SLOT: u64 = 0x2000;
const SENT: u16 = 16;
/// Packets that are sent while somebody may die, and with those behind them.
const FIRST: u32 = 80;
const ALL: u32 = 90;

fn sender() -> Nic {
    new(Config::new(PEER))
}

fn receiver() -> Nic {
    new(Config::new(MAC))
}

/// How packets are sent and received.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    name: &'static str,
    how: How,
    /// Features beside those of `how`.
    features: u64,
    /// What packet `n` is, with the header in front of it.
    packet: fn(u32) -> Vec<u8>,
    /// In how many parts packet `n` is sent.
    pieces: fn(u32) -> usize,
    /// Bytes of a receive buffer, and of its first part.
    buffer: (u32, u32),
}

const ALIKE: Traffic = Traffic {
    name: "alike",
    how: How {
        packed: false,
        in_order: false,
        indirect: false,
    },
    features: 0,
    packet: alike,
    pieces: |_| 1,
    buffer: (1536, 1536),
};

const SPLIT: How = ALIKE.how;
const PACKED: How = How {
    packed: true,
    ..SPLIT
};

/// Behind a header that asks for nothing.
fn behind_header(frame: &[u8]) -> Vec<u8> {
    [&[0; header::LEN][..], frame].concat()
}

fn numbered(len: usize, n: u32) -> Vec<u8> {
    let mut frame = plain(MAC, len);
    frame[20..24].copy_from_slice(&n.to_be_bytes());
    frame
}

fn alike(n: u32) -> Vec<u8> {
    behind_header(&numbered(64, n))
}

fn mixed(n: u32) -> Vec<u8> {
    behind_header(&numbered(60 + n as usize * 97 % 900, n))
}

/// Large packets, cut by the device; those behind the deaths are not.
fn cut(n: u32) -> Vec<u8> {
    if n % 5 != 2 || n >= FIRST {
        return alike(n);
    }
    let (mut bytes, _) = large(MAC, false, 0, 1500 + 10 * n as usize, 500);
    // The sequence number tells them apart.
    bytes[38..42].copy_from_slice(&(n << 16).to_be_bytes());
    let mut all = behind_header(&bytes);
    all[0] = header::NEEDS_CSUM;
    all[1] = header::GSO_TCPV4;
    all[2..4].copy_from_slice(&54_u16.to_le_bytes());
    all[4..6].copy_from_slice(&500_u16.to_le_bytes());
    all[6..8].copy_from_slice(&34_u16.to_le_bytes());
    all[8..10].copy_from_slice(&16_u16.to_le_bytes());
    all
}

impl Traffic {
    fn features(&self) -> u64 {
        let flag = |on: bool, feature| if on { feature } else { 0 };
        feature::VERSION_1
            | self.features
            | flag(self.how.packed, feature::PACKED)
            | flag(self.how.in_order, feature::IN_ORDER)
            | flag(self.how.indirect, feature::INDIRECT_DESC)
    }

    /// Entries of the receive ring: it ends elsewhere, if it may.
    fn received(&self) -> u16 {
        if self.how.packed { 13 } else { 16 }
    }
}

fn queue(life: &Life, at: usize, size: u16, how: How) -> VirtQueue {
    let place = RAM + QUEUE * at as u64;
    VirtQueue::new(life.env.memory.clone(), place, size, how)
}

/// A device whose driver has set up these queues.
fn life(make: fn() -> Nic, features: u64, queues: &[(usize, u16, How)]) -> (Life, Vec<VirtQueue>) {
    let mut life = Life::new(make, 0, memory(RAM, RAM_LEN));
    let mut put = |at: u64, bytes: &[u8]| life.write(page::COMMON + at, bytes);
    let drives = status::ACKNOWLEDGE | status::DRIVER;
    put(common::STATUS, &[drives]);
    for half in 0..2_u32 {
        put(common::DRIVER_FEATURE_SELECT, &half.to_le_bytes());
        let word = (features >> (32 * half)) as u32;
        put(common::DRIVER_FEATURE, &word.to_le_bytes());
    }
    put(common::STATUS, &[drives | status::FEATURES_OK]);
    let mut all = Vec::new();
    for &(at, size, how) in queues {
        let ring = queue(&life, at, size, how);
        let mut put = |at: u64, bytes: &[u8]| life.write(page::COMMON + at, bytes);
        put(common::QUEUE_SELECT, &(at as u16).to_le_bytes());
        put(common::QUEUE_SIZE, &size.to_le_bytes());
        let places = [
            common::QUEUE_DESC,
            common::QUEUE_DRIVER,
            common::QUEUE_DEVICE,
        ];
        for (to, area) in places.into_iter().zip(ring.areas()) {
            put(to, &(area as u32).to_le_bytes());
            put(to + 4, &((area >> 32) as u32).to_le_bytes());
        }
        put(common::QUEUE_ENABLE, &1_u16.to_le_bytes());
        all.push(ring);
    }
    let ready = drives | status::FEATURES_OK | status::DRIVER_OK;
    life.write(page::COMMON + common::STATUS, &[ready]);
    let mut now = [0];
    life.read(page::COMMON + common::STATUS, &mut now);
    assert_eq!(now, [ready]);
    (life, all)
}

fn notify(life: &mut Life, queue: u64) {
    let at = page::NOTIFY + queue * u64::from(page::NOTIFY_STEP);
    life.write(at, &(queue as u16).to_le_bytes());
}

fn slot(index: usize) -> u64 {
    BUFFERS + index as u64 * SLOT
}

/// The sending guest.
struct Sender {
    ring: VirtQueue,
    next: u32,
}

impl Sender {
    /// Posts packets while there is room, at most `most`.
    fn post(&mut self, life: &Life, how: &Traffic, most: u32) {
        for _ in 0..most {
            let n = self.next;
            let bytes = (how.packet)(n);
            let size = bytes.len().div_ceil((how.pieces)(n));
            let at = slot(n as usize % 64);
            let parts: Vec<_> = (0..bytes.len().div_ceil(size))
                .map(|i| (i * size, size.min(bytes.len() - i * size)))
                .map(|(from, len)| (at + from as u64, len as u32, false))
                .collect();
            life.put_bytes(at, &bytes);
            if self.ring.give(&parts).is_none() {
                return;
            }
            self.next += 1;
        }
    }
}

/// The receiving guest.
struct Receiver {
    ring: VirtQueue,
    slots: HashMap<u16, usize>,
    came: VecDeque<Vec<u8>>,
    got: Vec<Vec<u8>>,
}

impl Receiver {
    fn give(&mut self, how: &Traffic, index: usize) -> bool {
        let (all, first) = how.buffer;
        let at = slot(index);
        let parts = match all - first {
            0 => vec![(at, all, true)],
            rest => vec![(at, first, true), (at + u64::from(first), rest, true)],
        };
        let id = self.ring.give(&parts);
        id.map(|id| self.slots.insert(id, index)).is_some()
    }

    /// Takes what has come, and gives the buffers back.
    fn consume(&mut self, life: &Life, how: &Traffic) {
        for (id, len) in self.ring.take() {
            let index = self.slots.remove(&id).expect("it was given");
            let mut bytes = vec![0; len as usize];
            let view = life.env.memory.view();
            view.read(slot(index), &mut bytes).expect("inside");
            self.came.push_back(bytes);
            assert!(self.give(how, index));
        }
        while let Some(first) = self.came.front() {
            let buffers = usize::from(u16::from_le_bytes([first[10], first[11]]));
            if self.came.len() < buffers {
                return;
            }
            let frame: Vec<u8> = self.came.drain(..buffers).flatten().collect();
            self.got.push(frame[header::LEN..].to_vec());
        }
    }
}

struct Host {
    how: Traffic,
    lives: [Life; 2],
    /// Where it is, a sender knows again what has taken a part of a packet.
    to: Box<To>,
    sender: Sender,
    receiver: Receiver,
    /// Frames that may be lost.
    unsure: u64,
}

impl Host {
    fn new(how: Traffic) -> Host {
        let features = how.features();
        let (a, mut tx) = life(sender, features, &[(1, SENT, how.how)]);
        let (b, mut rx) = life(receiver, features, &[(0, how.received(), how.how)]);
        let to = Box::new(To(Arc::clone(&b.nic.receive), b.env.clone()));
        let mut receiver = Receiver {
            ring: rx.remove(0),
            slots: HashMap::new(),
            came: VecDeque::new(),
            got: Vec::new(),
        };
        let mut index = 0;
        while receiver.give(&how, index) {
            index += 1;
        }
        Host {
            how,
            lives: [a, b],
            to,
            sender: Sender {
                ring: tx.remove(0),
                next: 0,
            },
            receiver,
            unsure: 0,
        }
    }

    /// What the guests do.
    fn guests(&mut self, post: u32) {
        let [a, b] = &self.lives;
        self.receiver.consume(b, &self.how);
        self.sender.ring.take();
        self.sender.post(a, &self.how, post);
    }

    fn turn(&mut self) {
        let [a, b] = &mut self.lives;
        notify(a, 1);
        notify(b, 0);
        self.to.0 = Arc::clone(&b.nic.receive);
        b.nic.receive.poll(&b.env);
        for _ in 0..4 {
            if a.nic.transmit.run(&a.env, &*self.to, 256) == Progress::Idle {
                break;
            }
        }
    }

    fn revive(&mut self, steps: u64) {
        let lives = &mut self.lives;
        let went = death::living(steps, || {
            let all = lives.iter_mut().map(|life| life.go_on().expect("sound"));
            let lost = all.sum::<u64>();
            lives.iter_mut().for_each(|life| {
                life.answered();
            });
            lost
        });
        match went {
            Some(lost) => self.unsure += lost,
            // Nothing is known of those of the one before: it did not come to tell.
            None => {
                self.unsure += 64;
                self.revive(u64::MAX);
            }
        }
        death::live_on();
    }
}

/// Runs the script; the process dies after so many steps, and again as early when it is revived. Returns what was received, how many
/// frames may be lost, and whether it died.
fn run(how: Traffic, steps: u64, again: u64) -> (Vec<Vec<u8>>, u64, bool) {
    let mut host = Host::new(how);
    let mut left = steps;
    let mut died = false;
    for round in 0..60 {
        let most = [1, 9, 3, 15, 2, 7][round % 6];
        host.guests(most.min(FIRST - host.sender.next));
        let lived = death::living(left, || host.turn());
        left = match died {
            true => u64::MAX,
            false => death::left(),
        };
        death::live_on();
        if lived.is_none() {
            (died, left) = (true, u64::MAX);
            // The guests go on while nobody serves.
            host.guests(5.min(FIRST - host.sender.next));
            for life in &mut host.lives {
                life.read(page::ISR, &mut [0]);
            }
            host.revive(again);
            host.guests(0);
            host.turn();
            let signals = host.lives.each_ref().map(|life| life.pin.level());
            assert_eq!(signals, [true; 2], "in doubt it interrupts");
        }
    }
    for _ in 0..60 {
        host.guests(ALL - host.sender.next);
        host.turn();
    }
    host.guests(0);
    let left = host.sender.ring.under_way();
    let what = format!("{} dead at step {steps}, again at {again}", how.name);
    assert_eq!(left, 0, "{what}: the sender waits for ever");
    assert_eq!(host.sender.next, ALL, "all was posted");
    assert!(host.receiver.came.is_empty(), "a frame is not whole");
    (host.receiver.got, host.unsure, died)
}

fn wherever_it_dies(how: Traffic) {
    let name = how.name;
    let (undisturbed, ..) = run(how, u64::MAX, u64::MAX);
    assert!(undisturbed.len() >= ALL as usize, "{name}");
    let mut deaths = 0;
    for again in [u64::MAX, 1, 4] {
        for steps in 0.. {
            let (got, unsure, died) = run(how, steps, again);
            let what = format!("{name} dead at step {steps}, again at {again}");
            let mut all = undisturbed.iter();
            for frame in &got {
                assert!(
                    all.any(|sent| sent == frame),
                    "{what}: not once, in order and whole"
                );
            }
            let lost = (undisturbed.len() - got.len()) as u64;
            assert!(lost <= unsure, "{what}: {lost} lost, {unsure} told");
            // Neither ring stands still: what is sent when nobody dies any more arrives.
            let behind = &undisturbed[undisturbed.len() - (ALL - FIRST) as usize..];
            assert!(got.ends_with(behind), "{what}");
            if !died {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 100, "{name}: {deaths}");
}

#[test]
fn packets_of_split_rings_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(ALIKE);
    wherever_it_dies(Traffic {
        name: "mixed, in order",
        how: How {
            in_order: true,
            ..SPLIT
        },
        packet: mixed,
        pieces: |n| 1 + n as usize % 3,
        ..ALIKE
    });
    wherever_it_dies(Traffic {
        name: "mixed, in tables",
        how: How {
            indirect: true,
            ..SPLIT
        },
        features: feature::EVENT_IDX,
        packet: mixed,
        pieces: |_| 2,
        buffer: (1536, 12),
    });
}

#[test]
fn packets_of_packed_rings_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(Traffic {
        name: "alike, packed",
        how: PACKED,
        ..ALIKE
    });
    wherever_it_dies(Traffic {
        name: "mixed, packed, in order",
        how: How {
            in_order: true,
            ..PACKED
        },
        packet: mixed,
        pieces: |n| 1 + n as usize % 3,
        ..ALIKE
    });
    wherever_it_dies(Traffic {
        name: "mixed, packed, of several slots",
        how: PACKED,
        packet: mixed,
        pieces: |n| 1 + n as usize % 3,
        buffer: (1536, 12),
        ..ALIKE
    });
    wherever_it_dies(Traffic {
        name: "mixed, packed, in tables",
        how: How {
            indirect: true,
            ..PACKED
        },
        packet: mixed,
        pieces: |_| 2,
        ..ALIKE
    });
}

#[test]
fn frames_in_several_buffers_are_whole_wherever_the_process_dies() {
    for (name, how, first) in [
        ("merged", SPLIT, 200),
        ("merged, packed", PACKED, 200),
        ("merged, packed, of several slots", PACKED, 12),
    ] {
        wherever_it_dies(Traffic {
            name,
            how,
            features: feature::MRG_RXBUF,
            packet: mixed,
            buffer: (200, first),
            ..ALIKE
        });
    }
}

#[test]
fn large_packets_are_cut_once_wherever_the_process_dies() {
    for (name, how) in [("large", SPLIT), ("large, packed", PACKED)] {
        wherever_it_dies(Traffic {
            name,
            how,
            features: feature::CSUM | feature::HOST_TSO4,
            packet: cut,
            ..ALIKE
        });
    }
}

/// The words are another process's, which may have gone mad.
#[test]
fn words_that_nobody_leaves_are_refused_or_harmless() {
    use proptest::prelude::*;
    let value = prop_oneof![any::<u64>(), 0..64u64, (0..64u32).prop_map(|n| 1 << n)];
    let words = proptest::collection::vec((0..8usize, value), 1..8);
    proptest!(|(words in words, packed: bool)| {
        let how = Traffic {
            how: if packed { PACKED } else { SPLIT },
            packet: mixed,
            features: feature::MRG_RXBUF,
            buffer: (200, 200),
            ..ALIKE
        };
        let mut host = Host::new(how);
        host.guests(9);
        host.turn();
        for (at, value) in words {
            for life in &host.lives {
                life.words[at].store(value, Ordering::Relaxed);
            }
        }
        for life in &mut host.lives {
            let _ = life.go_on();
            life.answered();
        }
        host.turn();
    });
}

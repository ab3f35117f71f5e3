//! Two guests, one sending to the other, whose NICs' process dies at every step it takes.

mod going_on;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Nic, Progress};
use model_testkit::lives::{Life, To};
use model_testkit::packet::{MAC, PEER, large, plain, v4_with};
use model_testkit::{death, memory};

use crate::core::kept::{RX, RX_MARK, TX, TX_MARK};
use crate::{BAR_MMIO, Config, Variant, new};

/// Each store that outlives the process.
#[derive(Debug)]
pub(crate) struct Steps;

impl datapath::kept::Step for Steps {
    fn step() {
        death::step();
    }
}

const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 0x10_0000;
const BUFFERS: u64 = RAM + 0x1_0000;
const SLOT: u64 = 0x4000;
/// Descriptors of the rings: they end at other places.
const SENT: u32 = 16;
const RECEIVED: u32 = 13;
/// Packets that are sent while somebody may die, and with those behind them.
const FIRST: u32 = 80;
const ALL: u32 = 90;

const OWN: u32 = 1 << 31;
const EOR: u32 = 1 << 30;
const FS: u32 = 1 << 29;
const LS: u32 = 1 << 28;

fn sender() -> Nic {
    new(Config::new(PEER))
}

fn receiver() -> Nic {
    new(Config::new(MAC))
}

fn sender_of_version_1() -> Nic {
    new(Config::of(Variant::Rtl8169S, PEER))
}

fn receiver_of_version_1() -> Nic {
    new(Config::of(Variant::Rtl8169S, MAC))
}

/// A packet, and the words of its first descriptor beside lengths and OWN.
type Packet = (Vec<u8>, (u32, u32));

/// How packets are sent and received.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    name: &'static str,
    /// What packet `n` is.
    packet: fn(u32) -> Packet,
    /// In how many descriptors.
    pieces: fn(u32) -> usize,
    /// Bytes of a receive buffer.
    buffer: u32,
    /// Checksums are judged.
    judges: bool,
    /// The receiving driver leaves the second word as it is when it gives a buffer.
    lazy: bool,
    version_1: bool,
}

const ALIKE: Traffic = Traffic {
    name: "alike",
    packet: |n| (numbered(plain(MAC, 64), n), (0, 0)),
    pieces: |_| 1,
    buffer: 1536,
    judges: false,
    lazy: false,
    version_1: false,
};

fn numbered(mut frame: Vec<u8>, n: u32) -> Vec<u8> {
    frame[20..24].copy_from_slice(&n.to_be_bytes());
    frame
}

/// UDP or TCP, whose ports say which it is.
fn datagram(n: u32, len: usize) -> Vec<u8> {
    let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let mut bytes = v4_with(from, to, n % 2 == 1, 1000 + n as u16, 9, len);
    bytes[..6].copy_from_slice(&MAC);
    bytes
}

fn mixed(n: u32) -> Packet {
    match n % 4 {
        0 => (numbered(plain(MAC, 60 + n as usize), n), (0, 0)),
        // The checksum of IPv4 is asked for.
        1 => (datagram(n, 200), (0, 1 << 29)),
        2 => (numbered(plain(MAC, 700), n), (0, 1 << 17 | n << 8)),
        _ => (numbered(plain(MAC, 64), n), (0, 0)),
    }
}

/// Large packets, cut by the chip; those behind the deaths are not.
fn cut(n: u32) -> Packet {
    if n % 5 != 2 || n >= FIRST {
        return (ALIKE.packet)(n);
    }
    let (mut bytes, _) = large(MAC, false, 0, 1500 + 10 * n as usize, 500);
    // The sequence number tells them apart.
    bytes[38..42].copy_from_slice(&(n << 16).to_be_bytes());
    (bytes, (1 << 26 | 34 << 18, 500 << 18))
}

/// The same as a driver of version 1 says it.
fn cut_by_version_1(n: u32) -> Packet {
    let (bytes, (opts1, _)) = cut(n);
    let large = opts1 != 0;
    (bytes, (if large { 1 << 27 | 500 << 16 } else { 0 }, 0))
}

fn life(make: fn() -> Nic, (version_1, judges): (bool, bool)) -> Life {
    let bar = if version_1 { 1 } else { BAR_MMIO };
    let mut life = Life::new(make, bar, memory(RAM, RAM_LEN));
    let at = (RAM as u32).to_le_bytes();
    life.write(0x20, &at);
    life.write(0xe4, &at);
    life.write(0xda, &0x3fff_u16.to_le_bytes());
    life.write(0xe0, &[if judges { 1 << 5 } else { 0 }, 0]);
    // To the own address, to all.
    life.write(0x44, &0xa_u32.to_le_bytes());
    life.write(0x3c, &0xffff_u16.to_le_bytes());
    life
}

fn slot(index: u32) -> u64 {
    BUFFERS + u64::from(index) * SLOT
}

/// The descriptor as a driver fills it: OWN last.
fn fill(life: &Life, at: u32, (opts1, opts2): (u32, Option<u32>), addr: u64) {
    let desc = RAM + u64::from(at) * 16;
    life.put(desc + 8, addr);
    if let Some(opts2) = opts2 {
        life.put_bytes(desc + 4, &opts2.to_le_bytes());
    }
    life.put_bytes(desc, &opts1.to_le_bytes());
}

fn opts(life: &Life, at: u32) -> (u32, u32) {
    let words = life.word(RAM + u64::from(at) * 16);
    (words as u32, (words >> 32) as u32)
}

/// The sending guest.
#[derive(Default)]
struct Sender {
    tail: u32,
    /// Descriptors that are the chip's, in order.
    under_way: VecDeque<u32>,
    next: u32,
}

impl Sender {
    /// Posts packets while there is room, at most `most`.
    fn post(&mut self, life: &Life, how: &Traffic, most: u32) {
        for _ in 0..most {
            let n = self.next;
            let (bytes, (first, second)) = (how.packet)(n);
            let pieces = (how.pieces)(n);
            // Of all but one, as most drivers do, or of all.
            if self.under_way.len() + pieces > SENT as usize - n as usize % 2 {
                return;
            }
            self.next += 1;
            let size = bytes.len().div_ceil(pieces);
            let chunks: Vec<_> = bytes.chunks(size).collect();
            let mut firsts = Vec::new();
            for (i, chunk) in chunks.iter().enumerate() {
                let at = self.tail;
                life.put_bytes(slot(at), chunk);
                let mut opts1 = first | chunk.len() as u32;
                opts1 |= if i == 0 { FS } else { 0 };
                opts1 |= if i + 1 == chunks.len() { LS } else { 0 };
                opts1 |= if at + 1 == SENT { EOR } else { 0 };
                firsts.push((at, opts1));
                self.under_way.push_back(at);
                self.tail = (at + 1) % SENT;
            }
            // The first one's OWN last.
            for (at, opts1) in firsts.into_iter().rev() {
                fill(life, at, (opts1 | OWN, Some(second)), slot(at));
            }
        }
    }

    /// Takes back what is done, in order.
    fn reclaim(&mut self, life: &Life) {
        while let Some(at) = self.under_way.front() {
            if opts(life, *at).0 & OWN != 0 {
                return;
            }
            self.under_way.pop_front();
        }
    }
}

/// The receiving guest.
#[derive(Default)]
struct Receiver {
    next: u32,
    part: Vec<u8>,
    got: Vec<Vec<u8>>,
}

impl Receiver {
    fn give(life: &Life, how: &Traffic, at: u32) {
        let end = if at + 1 == RECEIVED { EOR } else { 0 };
        let second = (!how.lazy).then_some(0);
        fill(life, at, (OWN | end | how.buffer, second), slot(at));
    }

    /// Takes what has come, and gives the buffers back.
    fn consume(&mut self, life: &Life, how: &Traffic) {
        loop {
            let (opts1, _) = opts(life, self.next);
            if opts1 & OWN != 0 {
                return;
            }
            assert_eq!(
                opts1 & EOR != 0,
                self.next + 1 == RECEIVED,
                "the ring's end"
            );
            assert_eq!(opts1 & FS != 0, self.part.is_empty(), "frames are whole");
            // The last says how long the whole is.
            let len = (opts1 & 0x3fff) as usize;
            let here = match opts1 & LS {
                0 => len,
                _ if how.version_1 => len,
                _ => len - self.part.len(),
            };
            let mut bytes = vec![0; here];
            let view = life.env.memory.view();
            view.read(slot(self.next), &mut bytes).expect("inside");
            self.part.extend(bytes);
            if opts1 & LS != 0 {
                // What was judged is of the frame.
                self.part.extend((opts1 & 0x7_c000).to_be_bytes());
                self.got.push(std::mem::take(&mut self.part));
            }
            Self::give(life, how, self.next);
            self.next = (self.next + 1) % RECEIVED;
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
    torn: u64,
}

impl Host {
    fn new(how: Traffic, torn: u64) -> Host {
        let makes: [fn() -> Nic; 2] = match how.version_1 {
            true => [sender_of_version_1, receiver_of_version_1],
            false => [sender, receiver],
        };
        let mut lives = makes.map(|make| life(make, (how.version_1, how.judges)));
        (0..RECEIVED).for_each(|at| Receiver::give(&lives[1], &how, at));
        lives[0].write(0x37, &[4]);
        lives[1].write(0x37, &[8]);
        let to = Box::new(To(Arc::clone(&lives[1].nic.receive), lives[1].env.clone()));
        Host {
            how,
            lives,
            to,
            sender: Sender::default(),
            receiver: Receiver::default(),
            unsure: 0,
            torn,
        }
    }

    /// What the guests do.
    fn guests(&mut self, post: u32) {
        let [a, b] = &self.lives;
        self.receiver.consume(b, &self.how);
        self.sender.reclaim(a);
        self.sender.post(a, &self.how, post);
    }

    fn turn(&mut self) {
        let [a, b] = &mut self.lives;
        a.write(0x38, &[1 << 6]);
        self.to.0 = Arc::clone(&b.nic.receive);
        b.nic.receive.poll(&b.env);
        for _ in 0..4 {
            if a.nic.transmit.run(&a.env, &*self.to, 256) == Progress::Idle {
                break;
            }
        }
    }

    /// Some of what was being written back is, and the first is not.
    fn tear(&mut self) {
        let mut chance = self.torn;
        let mut some = || {
            chance = chance.rotate_right(1);
            self.torn != 0 && chance & 1 != 0
        };
        let [a, b] = &self.lives;
        let (rx, tx) = (b.kept_word(RX), a.kept_word(TX));
        let parts = |word: u64| (word as u32 & 0xffff, (word >> 16) as u32 & 0xffff);
        let mut tear = |life: &Life, ring: u32, (first, n): (u32, u32)| {
            for at in (1..n).map(|i| (first + i) % ring) {
                if some() {
                    let (opts1, opts2) = opts(life, at);
                    let words = u64::from(opts2) << 32 | u64::from(opts1 & !OWN);
                    life.put(RAM + u64::from(at) * 16, words);
                }
            }
        };
        let open = |word: u64| word >> 63 != 0;
        if open(rx) && opts(b, parts(rx).0).1 == RX_MARK {
            tear(b, RECEIVED, parts(rx));
        }
        if open(tx) && opts(a, parts(tx).0).1 & TX_MARK != 0 {
            tear(a, SENT, parts(tx));
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
                self.tear();
                self.revive(u64::MAX);
            }
        }
        death::live_on();
    }
}

/// Runs the script; the process dies after so many steps, and again as early when it is revived. Returns what was received, how many
/// frames may be lost, and whether it died.
fn run(how: Traffic, steps: u64, again: u64, torn: u64) -> (Vec<Vec<u8>>, u64, bool) {
    let mut host = Host::new(how, torn);
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
            host.tear();
            // The guests go on while nobody serves.
            host.guests(5.min(FIRST - host.sender.next));
            host.revive(again);
            let signals = host.lives.each_ref().map(|life| life.pin.level());
            assert_eq!(signals, [true; 2], "in doubt it interrupts");
            host.guests(0);
            host.turn();
        }
    }
    for _ in 0..60 {
        host.guests(ALL - host.sender.next);
        host.turn();
    }
    host.guests(0);
    let left = &host.sender.under_way;
    assert!(left.is_empty(), "the sender waits for ever: {left:?}");
    assert_eq!(host.sender.next, ALL, "all was posted");
    assert!(host.receiver.part.is_empty());
    (host.receiver.got, host.unsure, died)
}

fn wherever_it_dies(how: Traffic) {
    let name = how.name;
    let (undisturbed, ..) = run(how, u64::MAX, u64::MAX, 0);
    assert!(undisturbed.len() >= ALL as usize, "{name}");
    let mut deaths = 0;
    for (again, torn) in [
        (u64::MAX, 0),
        (1, 0),
        (u64::MAX, u64::MAX),
        (4, 0xaaaa_5555_3333_cccc),
    ] {
        for steps in 0.. {
            let (got, unsure, died) = run(how, steps, again, torn);
            let what = format!("{name} dead at step {steps}, again at {again}, torn {torn:x}");
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
    assert!(deaths > 400, "{name}: {deaths}");
}

#[test]
fn runs_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(ALIKE);
    wherever_it_dies(Traffic {
        name: "alike, to a driver that leaves the second word",
        lazy: true,
        ..ALIKE
    });
}

#[test]
fn judged_and_mixed_packets_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(Traffic {
        name: "judged",
        packet: |n| (datagram(n, 40 + n as usize % 3), (0, 0)),
        judges: true,
        ..ALIKE
    });
    wherever_it_dies(Traffic {
        name: "mixed",
        packet: mixed,
        pieces: |n| [1, 3, 2, 1][n as usize % 4],
        lazy: true,
        ..ALIKE
    });
}

#[test]
fn frames_in_several_buffers_are_whole_wherever_the_process_dies() {
    wherever_it_dies(Traffic {
        name: "small buffers",
        packet: |n| (numbered(plain(MAC, 60 + 97 * (n as usize % 5)), n), (0, 0)),
        buffer: 128,
        ..ALIKE
    });
}

#[test]
fn large_packets_are_cut_once_wherever_the_process_dies() {
    wherever_it_dies(Traffic {
        name: "large",
        packet: cut,
        pieces: |n| if n % 5 == 2 && n < FIRST { 2 } else { 1 },
        ..ALIKE
    });
    wherever_it_dies(Traffic {
        name: "large, of version 1",
        packet: cut_by_version_1,
        version_1: true,
        ..ALIKE
    });
}

/// The words are another process's, which may have gone mad.
#[test]
fn words_that_nobody_leaves_are_refused_or_harmless() {
    use proptest::prelude::*;
    let value = prop_oneof![any::<u64>(), 0..64u64, (0..64u32).prop_map(|n| 1 << n)];
    let words = proptest::collection::vec((0..70usize, value), 1..8);
    proptest!(|(words in words)| {
        let how = Traffic { packet: mixed, ..ALIKE };
        let mut host = Host::new(how, 0);
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

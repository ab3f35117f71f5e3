//! Two guests, one sending to the other, whose NICs' process dies at every step it takes.

use std::sync::Arc;

use csb::at;
use frame::Sink;
use model::{Nic, Progress};
use model_testkit::lives::{Cutting, Life, To};
use model_testkit::packet::numbered;
use model_testkit::{death, memory};

use intel::kept::rx::RX_MARK;
use intel::kept::tx::TX_MARK;

use crate::{Config, new};

/// Each store that outlives the process.
#[derive(Debug)]
pub(crate) struct Steps;

impl intel::kept::Step for Steps {
    fn step() {
        death::step();
    }
}

const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 0x8_0000;
const BUFFERS: u64 = RAM + 0x1_0000;
const RING: u32 = 16;
/// Packets that are sent while somebody may die, and with those behind them.
const FIRST: u32 = 80;
const ALL: u32 = 90;
/// Bytes of a segment.
const MSS: u16 = 500;
/// Bytes of a buffer.
const SLOT: u64 = 0x1000;
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// The CSB.
const PAGE: u64 = RAM + 0x7_0000;

const EOP: u64 = 1 << 24;
const RS: u64 = 8 << 24;
const DEXT: u64 = 0x20 << 24;
const DATA: u64 = 1 << 20 | DEXT;
const TXSM: u64 = 2 << 40;
const TSE: u64 = 4 << 24;

/// As one on its own, whose link is there at once.
fn nic(mac: [u8; 6], csb: bool) -> Nic {
    let mut config = Config::new(mac);
    config.negotiation = std::time::Duration::ZERO;
    config.csb = csb;
    new(config)
}

const MAKE: [fn() -> Nic; 2] = [|| nic(MACS[0], false), || nic(MACS[1], false)];
const MAKE_WITH_CSB: [fn() -> Nic; 2] = [|| nic(MACS[0], true), || nic(MACS[1], true)];

/// A NIC whose guest has written these registers.
fn life(make: fn() -> Nic, registers: &[(u64, u32)]) -> Life {
    let mut life = Life::new(make, 0, memory(RAM, RAM_LEN));
    for (at, value) in registers {
        life.write(*at, &value.to_le_bytes());
    }
    life
}

/// How packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All alike, each reported.
    Alike,
    /// Every third is reported.
    Seldom,
    /// With contexts, for checksums, which are reported now and then.
    Contexts,
    /// Some of everything, in several descriptors and lengths.
    Mixed,
    /// Some are large, and the chip or the switch cuts them.
    Large,
    /// Every third is reported, but the guest looks at its CSB.
    Csb,
}

/// A word of the CSB.
fn word(side: &Life, at: u32) -> u32 {
    let both = side.word(PAGE + u64::from(at & !4));
    (both >> (8 * (at & 4))) as u32
}

fn put_word(side: &Life, at: u32, value: u32) {
    side.put_bytes(PAGE + u64::from(at), &value.to_le_bytes());
}

/// The sending guest.
struct Sender {
    kind: Kind,
    tail: u32,
    /// Packets under way: the last descriptor, and whether it is to be reported. Their descriptors.
    under_way: std::collections::VecDeque<(u32, bool, u32)>,
    used: u32,
    next: u32,
    has_context: bool,
}

impl Sender {
    /// Posts packets while there is room, at most `most`. The tail is to be written.
    fn post(&mut self, side: &Life, most: u32) {
        for _ in 0..most {
            let n = self.next;
            let kind = match self.kind {
                Kind::Mixed => [Kind::Alike, Kind::Contexts, Kind::Seldom][n as usize % 3],
                Kind::Large if n % 5 != 2 || n >= FIRST => Kind::Alike,
                kind => kind,
            };
            let need = match kind {
                Kind::Contexts => 3,
                Kind::Large => 2,
                _ => 1,
            };
            if self.used + need > RING - 1 {
                return;
            }
            self.next += 1;
            let buffer = BUFFERS + u64::from(self.tail) * SLOT;
            let len = if self.kind == Kind::Mixed {
                60 + n % 7 * 50
            } else {
                64
            };
            let mut bytes = vec![0x11; len as usize];
            bytes[..6].copy_from_slice(&MACS[1]);
            bytes[6..12].copy_from_slice(&MACS[0]);
            bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
            bytes[14..18].copy_from_slice(&n.to_be_bytes());
            // Where a checksum goes.
            bytes[20..40].fill(0);
            if kind == Kind::Large {
                bytes = numbered(MACS[1], n, 1500 + 10 * n as usize, MSS);
            }
            side.put_bytes(buffer, &bytes);
            let reported = !matches!(kind, Kind::Seldom | Kind::Csb) || n.is_multiple_of(3);
            let rs = if reported { RS } else { 0 };
            let len = bytes.len() as u64;
            let descs = match kind {
                Kind::Large => {
                    let places = 14 | 24 << 8 | 33 << 16 | 34 << 32 | 50 << 40;
                    let sizes = (len - 54) | 54 << 40 | u64::from(MSS) << 48;
                    vec![
                        (places, sizes | 3 << 24 | TSE | DEXT),
                        (buffer, len | DATA | TSE | 3 << 40 | EOP | rs),
                    ]
                }
                Kind::Contexts => {
                    // The checksum from byte 18 or so on; where it goes is another place each few packets.
                    let at = 20 + u64::from(n / 2 % 5) * 2;
                    let places = 14 | 14 << 8 | 18 << 32 | at << 40;
                    let context = if n.is_multiple_of(2) { DEXT | rs } else { DEXT };
                    vec![
                        (places, context),
                        (buffer, 20 | DATA),
                        (buffer + 20, (len - 20) | DATA | TXSM | EOP | rs),
                    ]
                }
                _ => vec![(buffer, len | EOP | rs)],
            };
            // Only every other packet brings its context.
            let skip = usize::from(kind == Kind::Contexts && n % 2 == 1 && self.has_context);
            self.has_context |= kind == Kind::Contexts;
            let descs = &descs[skip..];
            for (low, high) in descs {
                let mut high = *high;
                if high & DATA == DATA && kind == Kind::Contexts {
                    high |= TXSM;
                }
                let at = RAM + u64::from(self.tail) * 16;
                side.put(at, *low);
                side.put(at + 8, high);
                self.tail = (self.tail + 1) % RING;
            }
            self.used += descs.len() as u32;
            let last = (self.tail + RING - 1) % RING;
            self.under_way
                .push_back((last, reported, descs.len() as u32));
        }
    }

    /// Takes back what is done.
    fn reclaim(&mut self, side: &Life) {
        if self.kind == Kind::Csb {
            let head = word(side, at::HOST_TDH);
            assert!(head < RING, "the CSB says {head}");
            let clean = (self.tail + RING - self.used) % RING;
            let done = (head + RING - clean) % RING;
            assert!(done <= self.used, "more is sent than there was");
            // Each is one descriptor.
            self.under_way.drain(..done as usize);
            self.used -= done;
            return;
        }
        while let Some(at) = self.under_way.iter().position(|(_, reported, _)| *reported) {
            let high = RAM + u64::from(self.under_way[at].0) * 16 + 8;
            if side.word(high) >> 32 & 1 == 0 {
                return;
            }
            side.put(high, side.word(high) & 0xffff_ffff);
            for (_, _, descs) in self.under_way.drain(..=at) {
                self.used -= descs;
            }
        }
    }
}

/// The receiving guest.
struct Receiver {
    next: u32,
    tail: u32,
    got: Vec<Vec<u8>>,
}

impl Receiver {
    /// Takes what has come, and gives the buffers back. The tail is to be written.
    fn consume(&mut self, side: &Life) {
        loop {
            let at = RAM + u64::from(self.next) * 16;
            let second = side.word(at + 8);
            if second >> 32 & 1 == 0 {
                return;
            }
            let mut bytes = vec![0; second as usize & 0xffff];
            let view = side.env.memory.view();
            view.read(side.word(at), &mut bytes).expect("inside");
            self.got.push(bytes);
            // As Linux does: the status alone.
            side.put(at + 8, second & !(0xff << 32));
            self.next = (self.next + 1) % RING;
            self.tail = (self.tail + 1) % RING;
        }
    }
}

struct Host {
    sides: [Life; 2],
    /// One that cuts, and dies with them.
    switch: Option<Cutting>,
    sender: Sender,
    receiver: Receiver,
    /// Frames that may be lost.
    unsure: u64,
    torn: u64,
}

impl Host {
    fn new(kind: Kind, torn: u64) -> Host {
        let ring = RING * 16;
        // CTRL.SLU, the rings, TCTL.EN, RCTL.EN with the FCS stripped.
        let tx = [
            (0, 1 << 6),
            (0x3800, RAM as u32),
            (0x3808, ring),
            (0x400, 2),
        ];
        let rx = [
            (0, 1 << 6),
            (0x2800, RAM as u32),
            (0x2808, ring),
            (0x2818, RING - 1),
            (0x100, 2 | 1 << 26),
        ];
        let sides = match kind {
            Kind::Csb => {
                let csb = [(csb::CSBAH.into(), 0), (csb::CSBAL.into(), PAGE as u32)];
                let sides = [life(MAKE_WITH_CSB[0], &[]), life(MAKE_WITH_CSB[1], &[])];
                let mut sides = sides.into_iter().zip([&tx[..], &rx[..]]);
                [(); 2].map(|()| {
                    let (mut side, ring) = sides.next().expect("two");
                    put_word(&side, at::HOST_NEED_TXKICK, 1);
                    put_word(&side, at::HOST_RXKICK_AT, csb::NONE);
                    put_word(&side, at::GUEST_RDT, RING - 1);
                    put_word(&side, at::GUEST_CSB_ON, 1);
                    for (at, value) in csb.iter().chain(ring) {
                        side.write(*at, &value.to_le_bytes());
                    }
                    side
                })
            }
            _ => [life(MAKE[0], &tx), life(MAKE[1], &rx)],
        };
        let host = Host {
            sides,
            switch: None,
            sender: Sender {
                kind,
                tail: 0,
                under_way: Default::default(),
                used: 0,
                next: 0,
                has_context: false,
            },
            receiver: Receiver {
                next: 0,
                tail: RING - 1,
                got: Vec::new(),
            },
            unsure: 0,
            torn,
        };
        for i in 0..RING {
            let at = RAM + u64::from(i) * 16;
            host.sides[1].put(at, BUFFERS + u64::from(i) * SLOT);
        }
        host
    }

    /// What the guests do by themselves, and then say.
    fn guests(&mut self, post: u32) {
        self.receiver.consume(&self.sides[1]);
        self.sender.reclaim(&self.sides[0]);
        self.sender.post(&self.sides[0], post);
    }

    fn say(&mut self) {
        if self.sender.kind == Kind::Csb {
            return self.tell();
        }
        self.sides[1].write(0x2818, &self.receiver.tail.to_le_bytes());
        self.sides[0].write(0x3818, &self.sender.tail.to_le_bytes());
    }

    /// The same by the CSB, and by a register if the NIC asks for it.
    fn tell(&mut self) {
        let [a, b] = &mut self.sides;
        let (old, new) = (word(b, at::GUEST_RDT), self.receiver.tail);
        put_word(b, at::GUEST_RDT, new);
        if csb::passes(old, new, word(b, at::HOST_RXKICK_AT), RING) {
            put_word(b, at::HOST_RXKICK_AT, csb::NONE);
            b.write(0x2818, &new.to_le_bytes());
        }
        put_word(a, at::GUEST_TDT, self.sender.tail);
        if word(a, at::HOST_NEED_TXKICK) != 0 {
            put_word(a, at::HOST_NEED_TXKICK, 0);
            a.write(0x3818, &self.sender.tail.to_le_bytes());
        }
    }

    fn turn(&mut self) {
        let [a, b] = &mut self.sides;
        let to = || To(Arc::clone(&b.nic.receive), b.env.clone());
        let plain = to();
        let to: &dyn Sink = match self.sender.kind {
            Kind::Large => self.switch.get_or_insert_with(|| Cutting::new(to())),
            _ => &plain,
        };
        b.nic.receive.poll(&b.env);
        for _ in 0..4 {
            if a.nic.transmit.run(&a.env, to, 256) == Progress::Idle {
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
        let open = |word: u64| word >> 63 != 0;
        let [a, b] = &self.sides;
        if self.sender.kind == Kind::Csb && some() {
            // It was not told of all that is sent.
            let clean = (self.sender.tail + RING - self.sender.used) % RING;
            put_word(a, at::HOST_TDH, clean);
        }
        let second = |at: u64| RAM + at % u64::from(RING) * 16 + 8;
        let rx = b.words[0].load(std::sync::atomic::Ordering::Relaxed);
        let first = rx & 0xffff;
        if open(rx) && b.word(second(first)) == RX_MARK {
            for at in first + 1..first + (rx >> 16 & 0xffff) {
                if some() {
                    b.put(second(at), 64 | 3 << 32);
                }
            }
        }
        let tx = a.words[1].load(std::sync::atomic::Ordering::Relaxed);
        let marked = tx >> 32 & 0xffff;
        let (head, next) = (tx & 0xffff, tx >> 16 & 0xffff);
        let waits = tx >> 61 & 1 != 0 && a.word(second(marked)) >> 32 & 0xf == u64::from(TX_MARK);
        if open(tx) && tx >> 62 & 1 == 0 && waits {
            let mut at = head;
            while at != next {
                let word = a.word(second(at));
                if at != marked && word & RS != 0 && some() {
                    a.put(second(at), word | 1 << 32);
                }
                at = (at + 1) % u64::from(RING);
            }
        }
    }

    fn revive(&mut self, steps: u64) {
        self.switch = None;
        let went = death::living(steps, || {
            let mut lost = 0;
            for side in &mut self.sides {
                lost += side.go_on().expect("sound");
                side.nic.control.settled();
            }
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
fn run(kind: Kind, steps: u64, again: u64, torn: u64) -> (Vec<Vec<u8>>, u64, bool) {
    let mut host = Host::new(kind, torn);
    let mut left = steps;
    let mut died = false;
    let mut posted = 0;
    let mut while_dead = 0..0;
    for round in 0..40 {
        let most = [1, 9, 3, 15, 2, 7][round % 6].min(FIRST - posted);
        let before = host.sender.next;
        host.guests(most);
        host.say();
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
            let from = host.sender.next;
            host.guests(5.min(FIRST - posted - (from - before)));
            if kind == Kind::Csb {
                put_word(&host.sides[0], at::GUEST_TDT, host.sender.tail);
            }
            while_dead = from..host.sender.next;
            host.revive(again);
            host.guests(0);
            host.say();
            host.turn();
        }
        posted += host.sender.next - before;
    }
    for _ in 0..40 {
        let before = host.sender.next;
        host.guests(ALL - posted);
        posted += host.sender.next - before;
        host.say();
        host.turn();
    }
    host.guests(0);
    let left: Vec<_> = host
        .sender
        .under_way
        .iter()
        .filter(|(_, rs, _)| *rs || kind == Kind::Csb)
        .collect();
    assert!(left.is_empty(), "the sender waits for ever: {left:?}");
    assert_eq!(posted, ALL, "all was posted");
    let number = |bytes: &Vec<u8>| u32::from_be_bytes(*bytes[14..].first_chunk().expect("four"));
    let came: Vec<_> = host.receiver.got.iter().map(number).collect();
    if kind == Kind::Csb {
        // What the NIC was told while nobody served was not sent by who died.
        assert!(
            while_dead.clone().all(|n| came.contains(&n)),
            "{while_dead:?}"
        );
    }
    (host.receiver.got, host.unsure, died)
}

fn wherever_it_dies(kind: Kind) {
    let (undisturbed, ..) = run(kind, u64::MAX, u64::MAX, 0);
    match kind {
        // Ten of four segments, and six of five.
        Kind::Large => assert_eq!(undisturbed.len(), 64 + 10 + 70, "{kind:?}"),
        _ => assert_eq!(undisturbed.len(), ALL as usize, "{kind:?}"),
    }
    let mut deaths = 0;
    let some = 0xaaaa_5555_3333_cccc;
    let ways = [(u64::MAX, 0), (1, 0), (u64::MAX, u64::MAX), (4, some)];
    // Later ones come while it is passed over what was sent.
    let later = (5..40).step_by(4).filter(|_| kind == Kind::Large);
    for (again, torn) in ways.into_iter().chain(later.map(|again| (again, some))) {
        for steps in 0.. {
            let (got, unsure, died) = run(kind, steps, again, torn);
            let what = format!("{kind:?} dead at step {steps}, again at {again}, torn {torn:x}");
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
    assert!(deaths > 400, "{kind:?}: {deaths}");
}

#[test]
fn runs_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(Kind::Alike);
}

#[test]
fn reports_that_are_seldom_come_wherever_the_process_dies() {
    wherever_it_dies(Kind::Seldom);
}

#[test]
fn contexts_are_as_they_were_wherever_the_process_dies() {
    wherever_it_dies(Kind::Contexts);
}

#[test]
fn mixed_packets_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(Kind::Mixed);
}

#[test]
fn large_packets_are_cut_once_wherever_the_process_dies() {
    wherever_it_dies(Kind::Large);
}

#[test]
fn guests_with_a_csb_go_on_wherever_the_process_dies() {
    wherever_it_dies(Kind::Csb);
}

/// The words are another process's, which may have gone mad.
#[test]
fn words_that_nobody_leaves_are_refused_or_harmless() {
    use proptest::prelude::*;
    let words = proptest::collection::vec(
        (
            0..24usize,
            prop_oneof![any::<u64>(), 0..64u64, (0..64u32).prop_map(|n| 1 << n)],
        ),
        1..8,
    );
    proptest!(|(words in words)| {
        let mut host = Host::new(Kind::Mixed, 0);
        host.guests(9);
        host.say();
        host.turn();
        for (at, value) in words {
            host.sides[0].words[at].store(value, std::sync::atomic::Ordering::Relaxed);
            host.sides[1].words[at].store(value, std::sync::atomic::Ordering::Relaxed);
        }
        for side in &mut host.sides {
            let _ = side.go_on();
            side.nic.control.settled();
        }
        host.turn();
    });
}

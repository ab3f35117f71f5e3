//! The contract between chip and driver, checked by a driver after each step of traffic at random. What it expects comes from
//! what the drivers of Linux, FreeBSD and U-Boot rely on, not from the model.
//!
//! - Whose a descriptor is, OWN says, and who does not own it leaves it alone.
//! - Descriptors come back in order. One that was sent comes back without OWN and otherwise as it was; one that was filled
//!   keeps its address and EOR.
//! - A packet is sent once, whole and in order, and not before all of its descriptors have OWN.
//! - A frame is received once, whole and in order, in a buffer of its own, with four bytes behind it and nothing written
//!   beyond the buffer.
//! - Whenever descriptors have come back, ISR says so until it is acknowledged; the line is ISR and IMR; and a driver that
//!   waits for messages has got one since it last wrote either.
//! - There is no receive doorbell: buffers that come back are found within a millisecond while frames wait.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::common::*;
use hypernic_r8169::{Config, Variant};
use model_testkit::CountedWake;
use proptest::prelude::*;

const GROUPS: [[u8; 6]; 2] = [MAC, [0xff; 6]];
const SIZE: u32 = 1600;
const TX_STEP: u64 = 0x1000;
const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Step {
    /// A packet of these pieces goes into the ring. `open`: the first descriptor's OWN is not set before the next packet's.
    Queue {
        pieces: Vec<usize>,
        open: bool,
    },
    Doorbell,
    Room(usize),
    /// So many frames come.
    Come {
        count: usize,
        len: usize,
        to: usize,
    },
    /// The driver takes so many filled buffers out, and gives them back.
    Take(u32),
    Give(u32),
    Mask(u16),
    /// It acknowledges these of the causes it reads.
    Acknowledge(u16),
    Sleep(u64),
    Link(bool),
    Enable {
        tx: bool,
        rx: bool,
    },
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let mask = prop::sample::select(vec![0, ROK | TOK, 0xffff, TOK, ROK | RER | TOK | TER]);
    let bits = prop::sample::select(vec![0xffff, 0xffff, ROK, TOK, ROK | TOK, RDU | TDU]);
    prop_oneof![
        6 => (prop::collection::vec(1usize..700, 1..4), prop::bool::weighted(0.2))
            .prop_map(|(pieces, open)| Step::Queue { pieces, open }),
        5 => Just(Step::Doorbell),
        2 => (0usize..6).prop_map(Step::Room),
        6 => (1usize..5, 14usize..1400, 0usize..2)
            .prop_map(|(count, len, to)| Step::Come { count, len, to }),
        4 => (1u32..6).prop_map(Step::Take),
        4 => (1u32..6).prop_map(Step::Give),
        3 => mask.prop_map(Step::Mask),
        3 => bits.prop_map(Step::Acknowledge),
        3 => (1u64..3 * MS).prop_map(Step::Sleep),
        1 => any::<bool>().prop_map(Step::Link),
        1 => (prop::bool::weighted(0.8), prop::bool::weighted(0.8))
            .prop_map(|(tx, rx)| Step::Enable { tx, rx }),
        1 => Just(Step::Reset),
    ]
}

/// What a descriptor is to say while it is not the driver's, or was when it was last looked at.
type Words = (u32, u32, u64);

/// The driver, and what it knows.
struct Driver {
    m: Machine,
    msi: bool,
    len: u32,
    // Transmission: descriptors from `dirty` to `next` were given. Those of a packet whose first has no OWN yet wait for it.
    tx: Vec<Words>,
    dirty: u32,
    next: u32,
    open: Option<(u32, u32)>,
    /// Packets under way: how many descriptors, and their bytes.
    packets: VecDeque<(u32, Vec<u8>)>,
    /// Since their first descriptor came back.
    back: u32,
    sent: u64,
    // Reception: buffers from `taken` on are filled or the chip's; from `given` to `taken` they are the driver's.
    rx: Vec<Words>,
    given: u32,
    taken: u32,
    filled: u32,
    /// Frames that came: those in buffers, then those that wait.
    frames: VecDeque<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
    received: u64,
    waker: Arc<CountedWake>,
    // Causes that must be told.
    owed: u16,
    mask: u16,
    told: bool,
    /// The link stands, and what is enabled.
    link: bool,
    on: (bool, bool),
}

fn desc(m: &Machine, ring: u64, index: u32) -> Words {
    let bytes = m.peek(ring + u64::from(index) * 16, 16);
    let word = |at: usize| {
        let four = bytes[at..at + 4].try_into().expect("four");
        u32::from_le_bytes(four)
    };
    (
        word(0),
        word(4),
        u64::from(word(12)) << 32 | u64::from(word(8)),
    )
}

impl Driver {
    fn new(variant: Variant, msi: bool, len: u32) -> Self {
        let mut m = Machine::with(Config::of(variant, MAC), Wire::default());
        m.pci(msi, false);
        let mut driver = Driver {
            m,
            msi,
            len,
            tx: Vec::new(),
            dirty: 0,
            next: 0,
            open: None,
            packets: VecDeque::new(),
            back: 0,
            sent: 0,
            rx: Vec::new(),
            given: 0,
            taken: 0,
            filled: 0,
            frames: VecDeque::new(),
            waiting: VecDeque::new(),
            received: 0,
            waker: Arc::default(),
            owed: 0,
            mask: 0,
            told: false,
            link: true,
            on: (true, true),
        };
        driver.set_up();
        driver
    }

    fn end(&self, index: u32) -> u32 {
        if index + 1 == self.len { EOR } else { 0 }
    }

    /// RST, and rings anew, as after a timeout. Frames that wait, wait on.
    fn set_up(&mut self) {
        self.m.w8(reg::CHIP_CMD, 0x10);
        assert_eq!(self.m.r8(reg::CHIP_CMD), 0);
        self.m.wire.unlimit();
        self.m.rings(self.len, SIZE);
        // The link's wave may have come and gone.
        self.on = (true, true);
        (self.owed, self.mask, self.told) = (0, 0, false);
        (self.dirty, self.next, self.open, self.back) = (0, 0, None, 0);
        (self.given, self.taken, self.filled) = (0, 0, 0);
        self.packets.clear();
        self.frames.clear();
        for i in 0..self.len {
            // What stands behind each buffer stays.
            let behind = RX_BUFFERS + u64::from(i) * RX_STEP + u64::from(SIZE);
            self.m.poke(behind, &[0xa5; 64]);
        }
        self.tx = (0..self.len).map(|i| desc(&self.m, TX_RING, i)).collect();
        self.rx = (0..self.len).map(|i| desc(&self.m, RX_RING, i)).collect();
        self.m.messages();
        self.m.wire.take();
    }

    fn queue(&mut self, pieces: &[usize], open: bool) {
        self.close();
        let count = pieces.len() as u32;
        if self.next - self.dirty + count > self.len || pieces.iter().sum::<usize>() < 14 {
            return;
        }
        let number = self.next;
        let bytes: Vec<u8> = (0..pieces.iter().sum())
            .map(|i: usize| (i as u32 * 7 + number * 13) as u8)
            .collect();
        let mut from = 0;
        let first = self.next % self.len;
        for (i, piece) in pieces.iter().enumerate() {
            let index = self.next % self.len;
            let at = TX_BUFFERS + u64::from(index) * TX_STEP;
            self.m.poke(at, &bytes[from..from + piece]);
            from += piece;
            let fs = if i == 0 { FS } else { OWN };
            let ls = if i + 1 == pieces.len() { LS } else { 0 };
            let word = fs | ls | self.end(index) | *piece as u32;
            self.m.tx_desc(index, word, 0, at);
            self.tx[index as usize] = (word, 0, at);
            self.next += 1;
        }
        self.packets.push_back((count, bytes));
        let word = self.tx[first as usize].0 | OWN;
        self.open = Some((first, word));
        if !open {
            self.close();
        }
    }

    /// OWN of the first is set last.
    fn close(&mut self) {
        if let Some((index, word)) = self.open.take() {
            let (_, second, at) = self.tx[index as usize];
            self.m.tx_desc(index, word, second, at);
            self.tx[index as usize].0 = word;
        }
    }

    /// Offers what waits; the rest goes on to wait, and wants to be woken.
    fn offer(&mut self) {
        let frames: Vec<&[u8]> = self.waiting.iter().map(Vec::as_slice).collect();
        let dealt = self.m.offer(&frames);
        let goes_in = self.link && self.on.1;
        for frame in self.waiting.drain(..dealt) {
            // A receiver that is off loses them.
            if goes_in {
                self.frames.push_back(frame);
            }
        }
        if !self.waiting.is_empty() {
            assert!(goes_in, "a receiver that is off keeps nobody waiting");
            let wake: Arc<dyn frame::Wake> = self.waker.clone();
            self.m.nic.receive.want_room(&wake);
            self.owed |= RDU;
        }
    }

    fn take(&mut self, most: u32) {
        for _ in 0..most.min(self.filled) {
            let index = self.taken % self.len;
            let frame = self.frames.pop_front().expect("as many as were filled");
            assert_eq!(self.m.buffer(index, frame.len()), frame);
            self.taken += 1;
            self.filled -= 1;
        }
    }

    fn give(&mut self, most: u32) {
        for _ in 0..most.min(self.taken - self.given) {
            let index = self.given % self.len;
            let at = RX_BUFFERS + u64::from(index) * RX_STEP;
            let word = OWN | self.end(index) | SIZE;
            self.m.rx_desc(index, word, at);
            self.rx[index as usize] = (word, 0, at);
            self.given += 1;
        }
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Queue { pieces, open } => self.queue(pieces, *open),
            Step::Doorbell => self.m.w8(reg::TX_POLL, 0x40),
            Step::Room(room) => self.m.wire.set_room(*room),
            Step::Come { count, len, to } => {
                let number = self.received as usize + self.waiting.len();
                self.waiting.extend((0..*count).map(|i| {
                    let mut frame = plain(GROUPS[*to], *len);
                    frame.extend((number + i).to_le_bytes());
                    frame
                }));
                self.offer();
            }
            Step::Take(most) => self.take(*most),
            Step::Give(most) => self.give(*most),
            Step::Mask(mask) => {
                self.told = false;
                self.mask = *mask;
                self.m.w16(reg::IMR, *mask);
            }
            Step::Acknowledge(bits) => {
                let isr = self.m.r16(reg::ISR);
                // To acknowledge nothing asks for nothing.
                self.told &= isr & bits == 0;
                self.m.w16(reg::ISR, isr & bits);
                self.owed &= !(isr & bits);
            }
            Step::Sleep(nanos) => self.m.sleep(*nanos),
            Step::Link(up) => {
                self.m.nic.control.set_link(&self.m.env, *up);
                self.m.work();
                if *up {
                    self.m.sleep(20 * MS);
                }
                self.link = *up;
            }
            Step::Enable { tx, rx } => {
                self.m
                    .w8(reg::CHIP_CMD, u8::from(*tx) << 2 | u8::from(*rx) << 3);
                self.on = (*tx, *rx);
            }
            Step::Reset => self.set_up(),
        }
    }

    /// What came back to the sender.
    fn check_sent(&mut self) {
        let mut whole = Vec::new();
        let mut passed = true;
        for number in self.dirty..self.next {
            let index = number % self.len;
            let (word, second, at) = self.tx[index as usize];
            let now = desc(&self.m, TX_RING, index);
            let back = passed && word & OWN != 0 && now.0 & OWN == 0;
            let want = if back { word & !OWN } else { word };
            assert_eq!(now, (want, second, at), "descriptor {index}");
            passed = back;
            if !back {
                continue;
            }
            self.tx[index as usize].0 = want;
            self.dirty += 1;
            self.back += 1;
            let (count, _) = self.packets[0];
            if self.back == count {
                self.back = 0;
                whole.extend(self.packets.pop_front());
                self.owed |= TOK;
            }
        }
        // A packet goes or stays as a whole.
        assert_eq!(self.back, 0);
        let wire = self.m.wire.take();
        let want: Vec<_> = whole
            .into_iter()
            .map(|(_, mut bytes)| {
                bytes.resize(bytes.len().max(60), 0);
                bytes
            })
            .collect();
        assert_eq!(wire, want);
        self.sent += wire.len() as u64;
        // Those that are the driver's are left alone.
        for number in self.next..self.dirty + self.len {
            let index = number % self.len;
            assert_eq!(desc(&self.m, TX_RING, index), self.tx[index as usize]);
        }
    }

    /// What was received.
    fn check_received(&mut self) {
        let mut passed = true;
        for number in self.taken..self.given + self.len {
            let index = number % self.len;
            let (word, second, at) = self.rx[index as usize];
            let now = desc(&self.m, RX_RING, index);
            if word & OWN == 0 {
                // It was filled before, and not taken out yet.
                assert_eq!(now, (word, second, at));
                continue;
            }
            if !passed || now.0 & OWN != 0 {
                assert_eq!(now, (word, second, at), "descriptor {index}");
                passed = false;
                continue;
            }
            let frame = &self.frames[self.filled as usize];
            let to = if frame[0] == 0xff { 1 << 25 } else { 1 << 26 };
            let len = frame.len().max(60) as u32 + 4;
            assert_eq!(now, (BOTH | to | self.end(index) | len, 0, at));
            let behind = self.m.peek(at + u64::from(SIZE), 64);
            assert_eq!(behind, [0xa5; 64]);
            self.rx[index as usize] = now;
            self.filled += 1;
            self.received += 1;
            self.owed |= ROK;
        }
        assert_eq!(self.filled as usize, self.frames.len(), "each in a buffer");
        for number in self.given..self.taken {
            let index = number % self.len;
            let now = desc(&self.m, RX_RING, index);
            assert_eq!(now, self.rx[index as usize], "the driver's");
        }
    }

    fn check_interrupts(&mut self) {
        let isr = self.m.r16(reg::ISR);
        assert_eq!(self.owed & !isr, 0, "owed {:x}, told {isr:x}", self.owed);
        assert_eq!(isr & !(ROK | TOK | RDU | TDU | LINK_CHG | RER | TER), 0);
        assert_eq!(isr & (RER | TER), 0, "nothing is wrong");
        // What is told anyway is owed from then on, until it is acknowledged.
        self.owed |= isr;
        let pending = isr & self.mask != 0;
        if self.msi {
            self.told |= self.m.messages() > 0;
            assert!(!pending || self.told, "{isr:x} & {:x}", self.mask);
            assert!(!self.m.line());
        } else {
            assert_eq!(self.m.line(), pending);
        }
    }

    fn check(&mut self) {
        self.check_sent();
        self.check_received();
        self.check_interrupts();
    }

    /// Everything arrives in the end, with what drivers do anyway: a doorbell, buffers given back, and time.
    fn settle(&mut self) {
        self.act(&Step::Link(true));
        self.act(&Step::Enable { tx: true, rx: true });
        self.m.wire.unlimit();
        self.close();
        self.act(&Step::Doorbell);
        self.check();
        assert_eq!((self.next - self.dirty, self.packets.len()), (0, 0));
        let mut rounds = 0;
        loop {
            let rung = self.waker.rung();
            self.offer();
            self.check();
            if self.waiting.is_empty() {
                break;
            }
            self.take(self.len);
            self.give(self.len);
            self.m.sleep(MS);
            assert!(self.waker.rung() > rung, "buffers were not found");
            rounds += 1;
            assert!(rounds < 1000);
        }
        self.take(self.len);
        assert!(self.frames.is_empty());
    }

    /// What the chip counts is what came and went.
    fn check_statistics(&mut self) {
        self.m.w32(reg::COUNTER_HIGH, 0);
        self.m.w32(reg::COUNTER_LOW, STATS as u32);
        self.m.w32(reg::COUNTER_LOW, STATS as u32 | 8);
        assert_eq!(self.m.r32(reg::COUNTER_LOW) & 8, 0);
        let bytes = self.m.peek(STATS, 64);
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        assert_eq!((long(0), long(8)), (self.sent, self.received));
        assert_eq!(long(16), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 1000 }))]
    #[test]
    fn the_contract_holds_after_every_step(
        variant in prop::sample::select(vec![Variant::Rtl8168C, Variant::Rtl8168H, Variant::Rtl8169S]),
        msi: bool, len in 3u32..12,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let msi = msi && variant != Variant::Rtl8169S;
        let mut driver = Driver::new(variant, msi, len);
        for step in &steps {
            driver.act(step);
            driver.check();
        }
        driver.settle();
        driver.check();
        driver.check_statistics();
    }
}

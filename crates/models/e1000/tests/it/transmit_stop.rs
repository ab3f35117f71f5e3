//! The transmitter stopped and started in mid-ring, and the interrupts of its thresholds.

use crate::common::*;
use crate::packet::*;
use intel_offsets::e1000::long::TXDCTL;
use proptest::prelude::*;

const TXD_LOW: u32 = 0x8000;
const TXQE: u32 = 2;
const RING: u32 = 64;

#[derive(Clone, Copy, Debug)]
enum Packet {
    /// One descriptor.
    Plain,
    /// In three pieces.
    Pieces,
    /// Cut into three frames.
    Segmented,
}

#[derive(Clone, Debug)]
enum Step {
    Queue(Vec<Packet>),
    Enable(bool),
    Room(usize),
    Link(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let packet = prop::sample::select(vec![Packet::Plain, Packet::Pieces, Packet::Segmented]);
    prop_oneof![
        3 => prop::collection::vec(packet, 1..8).prop_map(Step::Queue),
        2 => any::<bool>().prop_map(Step::Enable),
        3 => (0usize..9).prop_map(Step::Room),
        1 => any::<bool>().prop_map(Step::Link),
    ]
}

/// A TCP frame with `id` as its source port, and payload for three segments of 100 bytes.
fn numbered(id: u16, len: usize) -> Vec<u8> {
    let mut frame = tcp4(&payload(len));
    frame[34..36].copy_from_slice(&id.to_be_bytes());
    frame
}

struct Driver {
    m: Machine,
    tail: u32,
    room: u32,
    next: u16,
    expected: Vec<u16>,
    reports: Vec<u32>,
}

impl Driver {
    fn desc(&mut self, low: u64, high: u64) {
        self.m.tx_desc(self.tail, low, high);
        self.tail = (self.tail + 1) % RING;
    }

    fn queue(&mut self, packet: Packet) {
        let (need, len) = match packet {
            Packet::Plain => (1, 50),
            Packet::Pieces => (3, 50),
            Packet::Segmented => (2, 250),
        };
        if self.room < need {
            return;
        }
        self.room -= need;
        let at = TX_BUFFERS + u64::from(self.next) * 512;
        let frame = numbered(self.next, len);
        self.m.poke(at, &frame);
        let end = IFCS | EOP | RS;
        let whole = frame.len() as u32;
        match packet {
            Packet::Plain => self.desc(at, data(whole, end, 0, 0)),
            Packet::Pieces => {
                self.desc(at, data(20, IFCS, 0, 0));
                self.desc(at + 20, data(1, IFCS, 0, 0));
                self.desc(at + 21, data(whole - 21, end, 0, 0));
            }
            Packet::Segmented => {
                let (low, high) = Ctx {
                    ip: (14, 24, 33),
                    tu: (34, 50, 0),
                    paylen: len as u32,
                    cmd: 1 | 2 | 4,
                    hdrlen: 54,
                    mss: 100,
                }
                .words();
                self.desc(low, high);
                self.desc(at, data(whole, end | TSE, 3, 0));
            }
        }
        let frames = if let Packet::Segmented = packet { 3 } else { 1 };
        self.expected.extend([self.next].repeat(frames));
        self.reports.push((self.tail + RING - 1) % RING);
        self.next += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Nothing is lost, doubled or reordered, whenever TCTL.EN or the link goes away and comes back
    /// and however little the sink takes, even in the middle of a segmented packet; the head is at
    /// the tail in the end and every report was made.
    #[test]
    fn stopping_anywhere_loses_and_doubles_nothing(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut m = Machine::default();
        m.tx_on(RING);
        m.wire.set_room(0);
        let mut d = Driver {
            m,
            tail: 0,
            room: RING - 1,
            next: 0,
            expected: Vec::new(),
            reports: Vec::new(),
        };
        let mut on = true;
        for step in steps {
            match step {
                Step::Queue(packets) => {
                    packets.into_iter().for_each(|p| d.queue(p));
                    let tail = d.tail;
                    d.m.w(reg::TDT, tail);
                }
                Step::Enable(enable) => {
                    on = enable;
                    d.m.w(reg::TCTL, if on { 2 } else { 0 });
                }
                Step::Room(room) => {
                    d.m.wire.set_room(room);
                    let before = d.m.r(reg::TDH);
                    let had = d.m.wire.frames.lock().expect("frames").len();
                    d.m.run();
                    if !on {
                        prop_assert_eq!(d.m.r(reg::TDH), before);
                        let has = d.m.wire.frames.lock().expect("frames").len();
                        prop_assert_eq!(has, had, "sent while disabled");
                    }
                }
                Step::Link(up) => {
                    d.m.nic.control.set_link(&d.m.env, up);
                    d.m.sleep(20_000_000);
                }
            }
        }
        d.m.wire.unlimit();
        d.m.nic.control.set_link(&d.m.env, true);
        d.m.sleep(20_000_000);
        d.m.w(reg::TCTL, 2);
        d.m.run();
        let sent = d.m.wire.take();
        let ids: Vec<u16> = sent
            .iter()
            .map(|f| u16::from_be_bytes([f[34], f[35]]))
            .collect();
        prop_assert_eq!(ids, d.expected);
        prop_assert_eq!(d.m.r(reg::TDH), d.tail);
        prop_assert!(d.reports.iter().all(|at| d.m.tx_done(*at)));
        prop_assert_eq!(d.m.r(0x4080) as usize, sent.len(), "GPTC");
    }
}

/// TXDCTL.LWTHRESH counts in eights of descriptors; TXD_LOW comes when the threshold is crossed from
/// above, once, and TXQE when the ring is empty (manual §13.4.43, §13.4.17).
#[test]
fn low_and_empty_are_told_when_they_are_reached() {
    let mut m = Machine::default();
    m.tx_on(64);
    m.w(TXDCTL, 2 << 25);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    for i in 0..40 {
        m.tx_desc(i, TX_BUFFERS, legacy(60, EOP | IFCS));
    }
    m.wire.set_room(0);
    m.w(reg::TDT, 40);
    m.r(reg::ICR);
    let mut seen = Vec::new();
    for left in (0..40).rev() {
        m.wire.set_room(1);
        m.run();
        assert_eq!(40 - m.r(reg::TDH), left);
        let causes = m.r(reg::ICR) & (TXD_LOW | TXQE);
        if causes != 0 {
            seen.push((left, causes));
        }
    }
    assert_eq!(seen, [(16, TXD_LOW), (0, TXQE)]);
}

/// Moving the head by hand while the transmitter is off starts over from there.
#[test]
fn the_head_may_be_set_while_it_is_off() {
    let mut m = Machine::default();
    m.tx_on(16);
    m.w(reg::TCTL, 0);
    for i in 0..8u32 {
        let mut frame = plain(PEER, 60);
        frame[20] = i as u8;
        m.poke(TX_BUFFERS + u64::from(i) * 64, &frame);
        let at = TX_BUFFERS + u64::from(i) * 64;
        m.tx_desc(i, at, legacy(60, EOP | IFCS | RS));
    }
    m.w(reg::TDT, 8);
    m.w(reg::TDH, 5);
    m.w(reg::TCTL, 2);
    let sent: Vec<u8> = m.wire.take().iter().map(|f| f[20]).collect();
    assert_eq!(sent, [5, 6, 7]);
    assert!(!m.tx_done(4) && m.tx_done(5));
}

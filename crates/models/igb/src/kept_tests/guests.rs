//! The drivers of both guests.

use std::collections::VecDeque;

use model_testkit::packet::numbered;

use super::{MACS, RAM, Side};

pub(super) const RING: u32 = 16;
/// Packets that are sent while somebody may die, and with those behind them.
pub(super) const FIRST: u32 = 80;
pub(super) const ALL: u32 = 90;
/// Bytes of a buffer.
const SLOT: u64 = 0x800;
/// Bytes between rings.
const APART: u64 = 0x1000;
const BUFFERS: u64 = RAM + 0x2_0000;
/// Where a head is written to.
const HEADS: u64 = RAM + 0x1_0000;

pub(super) const RS: u64 = 8 << 24;
const EOP: u64 = 3 << 24; // with IFCS
const DEXT: u64 = 0x20 << 24;
const DATA: u64 = 3 << 20 | DEXT;
const CONTEXT: u64 = 2 << 20 | DEXT;
const TXSM: u64 = 2 << 40;
const IDX: u64 = 1 << 36;
const TSE: u64 = 0x80 << 24;
/// Bytes of a segment.
const MSS: u16 = 400;

/// How packets are sent and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All alike, each reported.
    Alike,
    /// Every third is reported.
    Seldom,
    /// With contexts, for checksums, which are reported now and then.
    Contexts,
    /// Some of everything, in several descriptors and lengths.
    Mixed,
    /// The head is written to memory in place of reports.
    HeadInMemory,
    /// Each header in a buffer of its own.
    Split,
    /// Frames that take several buffers, in legacy descriptors.
    Long,
    /// Two queues that send.
    Queues,
    /// Some are large, and the chip or the switch cuts them.
    Large,
}

impl Kind {
    fn queues(self) -> &'static [u64] {
        match self {
            Kind::Queues => &[0, 2],
            Kind::Contexts => &[1],
            _ => &[0],
        }
    }

    /// Which of the queues a frame was sent by.
    pub(super) fn queue_of(self, frame: &[u8]) -> usize {
        frame[17] as usize % self.queues().len()
    }
}

pub(super) fn tx_descriptor(queue: u64, at: u64) -> u64 {
    RAM + APART * queue + at % u64::from(RING) * 16
}

pub(super) fn rx_descriptor(at: u64) -> u64 {
    RAM + at % u64::from(RING) * 16
}

/// A transmit ring as its driver has it.
#[derive(Default)]
struct Ring {
    tail: u32,
    /// Packets under way: behind the last descriptor, whether it is to be reported, and their descriptors.
    under_way: VecDeque<(u32, bool, u32)>,
    used: u32,
    has_context: [bool; 2],
}

/// The sending guest.
pub(super) struct Sender {
    pub kind: Kind,
    rings: Vec<Ring>,
    pub next: u32,
}

impl Sender {
    pub(super) fn new(kind: Kind) -> Sender {
        Sender {
            kind,
            rings: kind.queues().iter().map(|_| Ring::default()).collect(),
            next: 0,
        }
    }

    pub(super) fn start(&self, side: &mut Side) {
        for queue in self.kind.queues() {
            let at = 0x3800 + 0x100 * queue;
            side.write(at, tx_descriptor(*queue, 0) as u32);
            side.write(at + 8, RING * 16);
            if self.kind == Kind::HeadInMemory {
                side.write(at + 0x38, HEADS as u32 | 1);
            }
            side.write(at + 0x28, 1 << 25);
        }
    }

    /// Posts packets while there is room, at most `most`. The tails are to be written.
    pub(super) fn post(&mut self, side: &Side, most: u32) {
        for _ in 0..most {
            let n = self.next;
            let at = n as usize % self.rings.len();
            let queue = self.kind.queues()[at];
            let kind = match self.kind {
                Kind::Mixed => [Kind::Alike, Kind::Contexts, Kind::Seldom][n as usize % 3],
                Kind::Large if n % 5 != 2 || n >= FIRST => Kind::Alike,
                kind => kind,
            };
            let ring = &mut self.rings[at];
            let need = match kind {
                Kind::Contexts => 3,
                Kind::Large => 2,
                _ => 1,
            };
            if ring.used + need > RING - 1 {
                return;
            }
            self.next += 1;
            let index = queue * u64::from(RING) + u64::from(ring.tail);
            let buffer = BUFFERS + index * SLOT;
            let len = match self.kind {
                Kind::Mixed | Kind::Split => 60 + n % 7 * 50,
                Kind::Long => 100 + n % 5 * 300,
                _ => 64,
            };
            let bytes = match kind {
                Kind::Large => numbered(MACS[1], n, 1000 + 10 * n as usize, MSS),
                _ => frame(n, len),
            };
            let view = side.env.memory.view();
            view.write(buffer, &bytes).expect("inside");
            let reported = kind != Kind::Seldom || n.is_multiple_of(3);
            let rs = if reported { RS } else { 0 };
            let len = bytes.len() as u64;
            let paylen = len << 46;
            let slot = n / 2 % 2;
            let idx = u64::from(slot) * IDX;
            let descs = match kind {
                Kind::Contexts => {
                    // The checksum from byte 18 or so on; where it goes is another place each few packets.
                    let places = 14 << 9 | (4 + u64::from(n / 2 % 5) * 2);
                    let rs = if n.is_multiple_of(2) { rs } else { 0 };
                    vec![
                        (places, CONTEXT | rs | idx),
                        (buffer, 20 | DATA | TXSM | idx | paylen),
                        (buffer + 20, (len - 20) | DATA | TXSM | idx | EOP | RS),
                    ]
                }
                Kind::Large => {
                    let sizes = 20 << 40 | u64::from(MSS) << 48;
                    let sums = 3 << 40 | (len - 54) << 46;
                    vec![
                        (14 << 9 | 20, CONTEXT | 3 << 10 | sizes | idx),
                        (buffer, len | DATA | TSE | EOP | rs | sums | idx),
                    ]
                }
                _ => vec![(buffer, len | DATA | EOP | rs | paylen)],
            };
            // Only every other packet brings its context.
            let has_context = &mut ring.has_context[slot as usize];
            let skip = usize::from(kind == Kind::Contexts && n % 2 == 1 && *has_context);
            *has_context |= kind == Kind::Contexts;
            let descs = &descs[skip..];
            for (low, high) in descs {
                let at = tx_descriptor(queue, ring.tail.into());
                side.put(at, *low);
                side.put(at + 8, *high);
                ring.tail = (ring.tail + 1) % RING;
            }
            ring.used += descs.len() as u32;
            let packet = (ring.tail, reported, descs.len() as u32);
            ring.under_way.push_back(packet);
        }
    }

    /// Takes back what is done.
    pub(super) fn reclaim(&mut self, side: &Side) {
        for (ring, queue) in self.rings.iter_mut().zip(self.kind.queues()) {
            if self.kind == Kind::HeadInMemory {
                let head = side.word(HEADS) as u32;
                while let Some(at) = ring.under_way.iter().position(|(next, ..)| *next == head) {
                    let done = ring.under_way.drain(..=at);
                    ring.used -= done.map(|(_, _, descs)| descs).sum::<u32>();
                }
                continue;
            }
            while let Some(at) = ring.under_way.iter().position(|(_, reported, _)| *reported) {
                let last = (ring.under_way[at].0 + RING - 1) % RING;
                let high = tx_descriptor(*queue, last.into()) + 8;
                if side.word(high) >> 32 & 1 == 0 {
                    break;
                }
                side.put(high, side.word(high) & 0xffff_ffff);
                let done = ring.under_way.drain(..=at);
                ring.used -= done.map(|(_, _, descs)| descs).sum::<u32>();
            }
        }
    }

    pub(super) fn say(&self, side: &mut Side) {
        for (ring, queue) in self.rings.iter().zip(self.kind.queues()) {
            side.write(0x3818 + 0x100 * queue, ring.tail);
        }
    }

    /// Nothing is waited for that does not come.
    pub(super) fn check(&self) {
        for ring in &self.rings {
            let left = ring.under_way.iter().filter(|(_, reported, _)| *reported);
            assert_eq!(left.count(), 0, "the sender waits for ever");
        }
    }
}

fn frame(n: u32, len: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + n) as u8).collect();
    bytes[..6].copy_from_slice(&MACS[1]);
    bytes[6..12].copy_from_slice(&MACS[0]);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..18].copy_from_slice(&n.to_be_bytes());
    // Where a checksum goes.
    bytes[20..40].fill(0);
    bytes
}

/// The receiving guest.
pub(super) struct Receiver {
    kind: Kind,
    next: u32,
    tail: u32,
    /// The beginning of a frame.
    begun: Vec<u8>,
    pub got: Vec<Vec<u8>>,
}

impl Receiver {
    pub(super) fn new(kind: Kind) -> Receiver {
        Receiver {
            kind,
            next: 0,
            tail: RING - 1,
            begun: Vec::new(),
            got: Vec::new(),
        }
    }

    pub(super) fn start(&self, side: &mut Side) {
        for at in 0..RING {
            self.give(side, at);
        }
        let shape = match self.kind {
            Kind::Split => 5 << 25 | 4 << 8 | 1,
            Kind::Long => 0, // legacy, of RCTL's size
            _ => 1 << 25 | 2,
        };
        if self.kind == Kind::Long {
            // 256 bytes.
            side.write(0x100, 2 | 1 << 3 | 1 << 26 | 3 << 16);
        }
        side.write(0x2800, rx_descriptor(0) as u32);
        side.write(0x2808, RING * 16);
        side.write(0x280c, shape);
        side.write(0x2828, 1 << 25);
        side.write(0x2818, RING - 1);
    }

    fn buffer(at: u32) -> u64 {
        BUFFERS + u64::from(at) * SLOT
    }

    fn give(&self, side: &Side, at: u32) {
        let header = match self.kind {
            Kind::Split => Self::buffer(at) + 0x400,
            _ => 0,
        };
        side.put(rx_descriptor(at.into()), Self::buffer(at));
        side.put(rx_descriptor(at.into()) + 8, header);
    }

    /// Takes what has come, and gives the buffers back. The tail is to be written.
    pub(super) fn consume(&mut self, side: &Side) {
        loop {
            let at = rx_descriptor(self.next.into());
            let (first, second) = (side.word(at), side.word(at + 8));
            let legacy = self.kind == Kind::Long;
            let (status, len) = match legacy {
                true => (second >> 32, second as usize & 0xffff),
                false => (second, (second >> 32) as usize & 0xffff),
            };
            if status & 1 == 0 {
                // As Linux has it: a length is a done descriptor too.
                assert_eq!(len * usize::from(!legacy && self.kind != Kind::Split), 0);
                return;
            }
            if self.kind == Kind::Split {
                let header = (first >> 21) as usize & 0x3ff;
                self.begun
                    .extend(side.bytes(Self::buffer(self.next) + 0x400, header));
            }
            self.begun.extend(side.bytes(Self::buffer(self.next), len));
            if status & 2 != 0 {
                self.got.push(std::mem::take(&mut self.begun));
            }
            self.give(side, self.next);
            self.next = (self.next + 1) % RING;
            self.tail = (self.tail + 1) % RING;
        }
    }

    pub(super) fn say(&self, side: &mut Side) {
        side.write(0x2818, self.tail);
    }
}

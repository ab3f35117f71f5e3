//! A driver of rings of either format, as plain as possible.

use std::io;

use virtio_net::regs::{common as c, feature, page, status};

use super::{Machine, RAM};

pub(super) const RX: usize = 0;
pub(super) const TX: usize = 1;
pub(super) const CTRL: usize = 2;
/// Entries of each ring.
pub(super) const SIZE: u16 = 32;
/// Bytes of a queue's areas, and where they are.
const QUEUE: u64 = 0x2000;
const AVAIL: u64 = 0x800;
const USED: u64 = 0x1000;
/// Where indirect tables are.
const TABLES: u64 = RAM + 0x8000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A part of a buffer: where, how many bytes, whether it is to be written.
pub(super) type Part = (u64, u32, bool);

#[derive(Clone, Debug, Default)]
struct Queue {
    /// Descriptors given, and buffers.
    next: u64,
    given: u16,
    /// Of used ones, and of these when it was last asked whether they have gone around.
    seen: u64,
    told: u64,
    /// It is broken: what is used of it is what the device likes.
    broken: bool,
    /// Parts of the buffers that are out, by their ids.
    out: Vec<(u16, u16, Vec<Part>)>,
}

/// A driver.
pub(super) struct Driver<'m> {
    pub m: &'m mut dyn Machine,
    pub features: u64,
    queues: [Queue; 3],
    tables: u64,
}

fn desc(queue: usize) -> u64 {
    RAM + QUEUE * queue as u64
}

impl<'m> Driver<'m> {
    /// A device that this driver has brought up.
    pub fn start(m: &'m mut dyn Machine, features: u64) -> io::Result<Self> {
        m.restart()?;
        let mut d = Driver {
            m,
            features,
            queues: Default::default(),
            tables: 0,
        };
        for value in [0, 1, 3] {
            d.m.write(c::STATUS, &[value])?;
        }
        for half in 0..2u32 {
            d.m.write(c::DRIVER_FEATURE_SELECT, &half.to_le_bytes())?;
            let word = (features >> (32 * half)) as u32;
            d.m.write(c::DRIVER_FEATURE, &word.to_le_bytes())?;
        }
        d.m.write(c::STATUS, &[3 | status::FEATURES_OK])?;
        for queue in [RX, TX, CTRL] {
            d.begin(queue)?;
        }
        let ok = 3 | status::FEATURES_OK | status::DRIVER_OK;
        d.m.write(c::STATUS, &[ok])?;
        Ok(d)
    }

    /// Sets a queue up, which is disabled.
    pub fn begin(&mut self, queue: usize) -> io::Result<()> {
        self.queues[queue] = Queue::default();
        self.m.poke(desc(queue), &[0; QUEUE as usize])?;
        self.m
            .write(c::QUEUE_SELECT, &(queue as u16).to_le_bytes())?;
        self.m.write(c::QUEUE_SIZE, &SIZE.to_le_bytes())?;
        for (at, area) in [
            (c::QUEUE_DESC, 0),
            (c::QUEUE_DRIVER, AVAIL),
            (c::QUEUE_DEVICE, USED),
        ] {
            let area = (desc(queue) + area) as u32;
            self.m.write(at, &area.to_le_bytes())?;
            self.m.write(at + 4, &[0; 4])?;
        }
        self.m.write(c::QUEUE_ENABLE, &1u16.to_le_bytes())
    }

    /// Whether used buffers of a packed ring have gone around it since this was last asked.
    pub fn has_gone_around(&mut self, queue: usize) -> bool {
        let q = &mut self.queues[queue];
        let told = std::mem::replace(&mut q.told, q.seen);
        self.features & feature::PACKED != 0 && q.seen / u64::from(SIZE) != told / u64::from(SIZE)
    }

    fn is_packed(&self) -> bool {
        self.features & feature::PACKED != 0
    }

    /// Descriptors that are not out.
    pub fn room(&self, queue: usize) -> usize {
        let out = self.queues[queue]
            .out
            .iter()
            .map(|(_, slots, _)| usize::from(*slots));
        usize::from(SIZE) - out.sum::<usize>()
    }

    fn put(&mut self, at: u64, (addr, len, flags): (u64, u32, u16), other: u16) -> io::Result<()> {
        let (third, fourth) = if self.is_packed() {
            (other, flags)
        } else {
            (flags, other)
        };
        let mut bytes = addr.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(third.to_le_bytes());
        bytes.extend(fourth.to_le_bytes());
        self.m.poke(at, &bytes)
    }

    /// Gives a buffer; in a table of its own, if it is `indirect`. There is room for it.
    pub fn give(&mut self, queue: usize, parts: &[Part], indirect: bool) -> io::Result<()> {
        let flags = |part: &Part| if part.2 { WRITE } else { 0 };
        let mut list: Vec<_> = parts
            .iter()
            .map(|part| (part.0, part.1, flags(part)))
            .collect();
        if indirect {
            let table = TABLES + 0x200 * (self.tables % 64);
            self.tables += 1;
            let more = if self.is_packed() { 0 } else { NEXT };
            for (i, &(at, len, flags)) in list.iter().enumerate() {
                let more = if i + 1 < list.len() { more } else { 0 };
                self.put(table + 16 * i as u64, (at, len, flags | more), i as u16 + 1)?;
            }
            list = vec![(table, 16 * list.len() as u32, INDIRECT)];
        }
        let (size, packed) = (u64::from(SIZE), self.is_packed());
        let first = self.queues[queue].next;
        let id = (first % size) as u16;
        for (i, &(at, len, flags)) in list.iter().enumerate().rev() {
            let this = first + i as u64;
            let mut flags = flags | if i + 1 < list.len() { NEXT } else { 0 };
            let mut other = ((this + 1) % size) as u16;
            if self.is_packed() {
                flags |= if (this / size).is_multiple_of(2) {
                    1 << 7
                } else {
                    1 << 15
                };
                other = id;
            }
            self.put(desc(queue) + 16 * (this % size), (at, len, flags), other)?;
        }
        let q = &mut self.queues[queue];
        q.next += list.len() as u64;
        q.out.push((id, list.len() as u16, parts.to_vec()));
        if packed {
            return Ok(());
        }
        let slot = u64::from(q.given % SIZE);
        q.given = q.given.wrapping_add(1);
        let given = q.given;
        let avail = desc(queue) + AVAIL;
        self.m.poke(avail + 4 + 2 * slot, &id.to_le_bytes())?;
        self.m.poke(avail + 2, &given.to_le_bytes())
    }

    /// Makes more available than there is, or something else that no driver does.
    pub fn break_ring(&mut self, queue: usize, how: u64) -> io::Result<()> {
        let avail = desc(queue) + AVAIL;
        let given = self.queues[queue].given;
        let slot = u64::from(given % SIZE);
        self.queues[queue].broken = true;
        if self.is_packed() {
            return self.break_packed(queue, how);
        }
        let step = if how == 0 { SIZE + 1 } else { 1 };
        let head = if how == 1 { SIZE } else { 0 };
        if how > 1 {
            // In circles, into nothing, and tables of half an entry and in a table.
            let (flags, len, next) = [
                (NEXT, 16, 0),
                (NEXT, 16, SIZE),
                (INDIRECT, 8, 0),
                (INDIRECT, 16, 0),
            ][(how - 2) as usize % 4];
            self.put(desc(queue), (TABLES, len, flags), next)?;
            self.put(TABLES, (TABLES, 16, INDIRECT), 0)?;
            // A device that does not mind gives it back.
            let q = &mut self.queues[queue];
            q.given = q.given.wrapping_add(1);
            q.out.push((0, 1, Vec::new()));
        }
        self.m.poke(avail + 4 + 2 * slot, &head.to_le_bytes())?;
        let index = given.wrapping_add(step);
        self.m.poke(avail + 2, &index.to_le_bytes())
    }

    /// The same in a packed ring, of which no buffer is out.
    fn break_packed(&mut self, queue: usize, how: u64) -> io::Result<()> {
        let size = u64::from(SIZE);
        let first = self.queues[queue].next;
        let lap = |slot: u64| -> u16 {
            if (slot / size).is_multiple_of(2) {
                1 << 7
            } else {
                1 << 15
            }
        };
        self.put(TABLES, (TABLES, 16, INDIRECT), 0)?;
        // In circles; tables of half an entry, of none, in a table, with another behind them.
        let (slots, flags, len) = [
            (size, NEXT, 16),
            (1, INDIRECT, 8),
            (1, INDIRECT, 0),
            (1, INDIRECT, 16),
            (1, INDIRECT | NEXT, 16),
            (1, INDIRECT, 24),
        ][how as usize % 6];
        for slot in (first..first + slots).rev() {
            let at = desc(queue) + 16 * (slot % size);
            self.put(at, (TABLES, len, flags | lap(slot)), 0)?;
        }
        // A device that does not mind gives it back.
        let q = &mut self.queues[queue];
        q.next += slots;
        q.out.push((0, slots as u16, Vec::new()));
        Ok(())
    }

    pub fn kick(&mut self, queue: usize) -> io::Result<()> {
        let at = page::NOTIFY + 4 * queue as u64;
        self.m.write(at, &(queue as u16).to_le_bytes())
    }

    /// When it wants to be called: from the next buffer on, or (without event indices) not at all.
    pub fn arm(&mut self, queue: usize, on: bool) -> io::Result<()> {
        let at = desc(queue) + AVAIL;
        let events = self.features & feature::EVENT_IDX != 0;
        if self.is_packed() {
            let seen = self.queues[queue].seen;
            let lap = (seen / u64::from(SIZE)).is_multiple_of(2);
            let place = (seen % u64::from(SIZE)) as u16 | if lap { 1 << 15 } else { 0 };
            let flags: u16 = if !on {
                1
            } else if events {
                2
            } else {
                0
            };
            return self
                .m
                .poke(at, &[place.to_le_bytes(), flags.to_le_bytes()].concat());
        }
        if events {
            let event = if on {
                self.queues[queue].seen as u16
            } else {
                (self.queues[queue].seen as u16).wrapping_sub(1)
            };
            return self
                .m
                .poke(at + 4 + 2 * u64::from(SIZE), &event.to_le_bytes());
        }
        self.m.poke(at, &u16::from(!on).to_le_bytes())
    }

    /// Buffers used since the last call: how many bytes, and which.
    pub fn used(&mut self, queue: usize) -> io::Result<Vec<(u32, Vec<Part>)>> {
        let mut found = Vec::new();
        loop {
            let size = u64::from(SIZE);
            let seen = self.queues[queue].seen;
            let (id, len) = if self.is_packed() {
                let slot = self.m.peek(desc(queue) + 16 * (seen % size), 16)?;
                let flags = u16::from_le_bytes([slot[14], slot[15]]);
                let lap = (seen / size).is_multiple_of(2);
                if [1 << 7, 1 << 15].map(|bit| flags & bit != 0) != [lap; 2]
                    || self.queues[queue].out.is_empty()
                {
                    return Ok(found);
                }
                (
                    u16::from_le_bytes([slot[12], slot[13]]),
                    u32::from_le_bytes([slot[8], slot[9], slot[10], slot[11]]),
                )
            } else {
                let used = desc(queue) + USED;
                let index = self.m.peek(used + 2, 2)?;
                if u16::from_le_bytes([index[0], index[1]]) == seen as u16 {
                    return Ok(found);
                }
                let element = self.m.peek(used + 4 + 8 * (seen % size), 8)?;
                let word = |at: usize| {
                    u32::from_le_bytes([
                        element[at],
                        element[at + 1],
                        element[at + 2],
                        element[at + 3],
                    ])
                };
                (word(0) as u16, word(4))
            };
            let q = &mut self.queues[queue];
            let Some(at) = q.out.iter().position(|(out, ..)| *out == id) else {
                if q.broken {
                    return Ok(found);
                }
                return Err(io::Error::other(format!(
                    "queue {queue}: used {id}, which is not out"
                )));
            };
            let (_, slots, parts) = q.out.remove(at);
            q.seen += if self.features & feature::PACKED != 0 {
                u64::from(slots)
            } else {
                1
            };
            found.push((len, parts));
        }
    }

    /// What is in the first `len` bytes of these parts.
    pub fn bytes(&mut self, parts: &[Part], len: u32) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for &(at, part, _) in parts.iter().filter(|part| part.2) {
            let n = (len as usize - bytes.len()).min(part as usize);
            if n > 0 {
                bytes.extend(self.m.peek(at, n)?);
            }
        }
        Ok(bytes)
    }
}

//! The driver's side of a ring, as plain as possible, in memory of its own.

use guest_mem::Memory;

use crate::core::chain::{Chain, Part};
use crate::core::ring::{Format, Place, Position, Ring};

pub const DESC: u64 = 0x1000;
pub const DRIVER: u64 = 0x8000;
pub const DEVICE: u64 = 0x9000;
pub const TABLES: u64 = 0x1_0000;
pub const MEMORY: u64 = 0x10_0000;
pub const WRAP: u16 = 1 << 15;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

pub struct Driver {
    pub memory: Memory,
    pub format: Format,
    pub size: u16,
    /// Where it gives next, and what it looks at next; with the wrap counter in bit 15 in a packed ring.
    pub next: u16,
    pub seen: u16,
    /// Slots that are free, and the slots of each buffer that is not.
    pub free: u16,
    slots: std::collections::VecDeque<u16>,
    ids: u16,
}

impl Driver {
    pub fn new(format: Format, size: u16) -> Self {
        let memory = Memory::new();
        memory.map_anon(0, MEMORY).expect("memory");
        let start = Position::start(format).next;
        Self {
            memory,
            format,
            size,
            next: start,
            seen: start,
            free: size,
            slots: std::collections::VecDeque::new(),
            ids: 0,
        }
    }

    pub fn place(&self) -> Place {
        Place {
            size: self.size,
            desc: DESC,
            driver: DRIVER,
            device: DEVICE,
        }
    }

    pub fn ring(&self) -> Ring {
        Ring::new(self.place(), self.format, Position::start(self.format)).expect("possible")
    }

    pub fn poke(&self, at: u64, bytes: &[u8]) {
        self.memory.view().write(at, bytes).expect("mapped");
    }

    pub fn poke16(&self, at: u64, value: u16) {
        self.poke(at, &value.to_le_bytes());
    }

    pub fn peek<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.view().read(at, &mut bytes).expect("mapped");
        bytes
    }

    pub fn peek16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.peek(at))
    }

    pub fn step(&self, cursor: u16, slots: u16) -> u16 {
        if !self.format.packed {
            return cursor.wrapping_add(slots);
        }
        let index = (cursor & !WRAP) + slots;
        if index < self.size {
            index | cursor & WRAP
        } else {
            (index - self.size) | !cursor & WRAP
        }
    }

    /// Writes a descriptor of a packed ring, its flags as they are.
    pub fn packed_desc(&self, at: u64, part: Part, id: u16, flags: u16) {
        self.poke(at, &part.at.to_le_bytes());
        self.poke(at + 8, &part.len.to_le_bytes());
        self.poke16(at + 12, id);
        self.poke16(at + 14, flags);
    }

    /// Writes a descriptor of a split ring or a table.
    pub fn split_desc(&self, at: u64, part: Part, flags: u16, next: u16) {
        self.poke(at, &part.at.to_le_bytes());
        self.poke(at + 8, &part.len.to_le_bytes());
        self.poke16(at + 12, flags);
        self.poke16(at + 14, next);
    }

    /// The flags by which a packed descriptor is available at this place.
    pub fn available(cursor: u16) -> u16 {
        if cursor & WRAP != 0 { AVAIL } else { USED }
    }

    /// Gives a buffer, in a table or not. Returns its id, or nothing if there is no room.
    pub fn give(&mut self, parts: &[(Part, bool)], in_table: bool) -> Option<u16> {
        let slots = if in_table { 1 } else { parts.len() as u16 };
        if slots > self.free {
            return None;
        }
        self.free -= slots;
        self.slots.push_back(slots);
        let id = if self.format.packed {
            self.give_packed(parts, in_table)
        } else {
            self.give_split(parts, in_table)
        };
        Some(id)
    }

    fn table(&self, parts: &[(Part, bool)], slot: u16) -> Part {
        let table = TABLES + 0x200 * u64::from(slot);
        for (i, (part, write)) in parts.iter().enumerate() {
            let at = table + 16 * i as u64;
            let flags = if *write { WRITE } else { 0 };
            if self.format.packed {
                self.packed_desc(at, *part, 0, flags);
            } else {
                let last = i + 1 == parts.len();
                let flags = if last { flags } else { flags | NEXT };
                self.split_desc(at, *part, flags, i as u16 + 1);
            }
        }
        Part {
            at: table,
            len: 16 * parts.len() as u32,
        }
    }

    fn give_packed(&mut self, parts: &[(Part, bool)], in_table: bool) -> u16 {
        let id = self.ids;
        self.ids = (self.ids + 1) % 500;
        let first = self.next;
        let at = |cursor: u16| DESC + 16 * u64::from(cursor & !WRAP);
        if in_table {
            let table = self.table(parts, first & !WRAP);
            self.packed_desc(at(first), table, id, INDIRECT | Self::available(first));
            self.next = self.step(first, 1);
            return id;
        }
        let mut head = 0;
        for (i, (part, write)) in parts.iter().enumerate() {
            let mut flags = Self::available(self.next) | if *write { WRITE } else { 0 };
            if i + 1 < parts.len() {
                flags |= NEXT;
            }
            if i == 0 {
                // Seen as available last.
                head = flags;
                flags = self.peek16(at(first) + 14);
            }
            self.packed_desc(at(self.next), *part, id, flags);
            self.next = self.step(self.next, 1);
        }
        self.poke16(at(first) + 14, head);
        id
    }

    /// Slots are used one after the other, which is right for a device that uses buffers in order.
    fn give_split(&mut self, parts: &[(Part, bool)], in_table: bool) -> u16 {
        let head = self.ids;
        let slots = if in_table { 1 } else { parts.len() as u16 };
        if in_table {
            let table = self.table(parts, head);
            self.split_desc(DESC + 16 * u64::from(head), table, INDIRECT, 0);
        } else {
            for (i, (part, write)) in parts.iter().enumerate() {
                let this = (head + i as u16) % self.size;
                let last = i + 1 == parts.len();
                let flags = if *write { WRITE } else { 0 } | if last { 0 } else { NEXT };
                let next = (this + 1) % self.size;
                self.split_desc(DESC + 16 * u64::from(this), *part, flags, next);
            }
        }
        self.ids = (head + slots) % self.size;
        self.poke16(DRIVER + 4 + 2 * u64::from(self.next % self.size), head);
        self.next = self.next.wrapping_add(1);
        self.poke16(DRIVER + 2, self.next);
        head
    }

    /// The next buffer that is used: id and bytes.
    pub fn used(&mut self) -> Option<(u16, u32)> {
        let found = if self.format.packed {
            let at = DESC + 16 * u64::from(self.seen & !WRAP);
            let flags = self.peek16(at + 14);
            let both = if self.seen & WRAP != 0 {
                AVAIL | USED
            } else {
                0
            };
            let used = flags & (AVAIL | USED) == both && !self.slots.is_empty();
            used.then(|| (self.peek16(at + 12), u32::from_le_bytes(self.peek(at + 8))))?
        } else {
            if self.peek16(DEVICE + 2) == self.seen {
                return None;
            }
            let at = DEVICE + 4 + 8 * u64::from(self.seen % self.size);
            let id = u32::from_le_bytes(self.peek(at));
            (id as u16, u32::from_le_bytes(self.peek(at + 4)))
        };
        let slots = self.slots.pop_front().expect("more used than given");
        self.free += slots;
        self.seen = self.step(self.seen, if self.format.packed { slots } else { 1 });
        Some(found)
    }

    /// Asks to be called once the buffers up to `behind` further ones are used; `None`: never.
    pub fn arm(&self, behind: Option<u16>) {
        match (self.format.packed, self.format.event_idx, behind) {
            (true, true, Some(behind)) => {
                self.poke16(DRIVER, self.step(self.seen, behind));
                self.poke16(DRIVER + 2, 2);
            }
            (true, _, behind) => self.poke16(DRIVER + 2, behind.is_none().into()),
            (false, true, behind) => {
                // Never: an index that has just passed.
                let event = behind.map_or(self.seen.wrapping_sub(1), |b| self.seen.wrapping_add(b));
                self.poke16(DRIVER + 4 + 2 * u64::from(self.size), event);
            }
            (false, false, behind) => self.poke16(DRIVER, behind.is_none().into()),
        }
    }

    /// Whether the device wants to be told of what was given between `old` and now, `slots` in number.
    pub fn must_kick(&self, slots: u16) -> bool {
        let passed = |event: u16, new: u16| new.wrapping_sub(event).wrapping_sub(1) < slots;
        if !self.format.packed {
            if self.format.event_idx {
                let event = self.peek16(DEVICE + 4 + 8 * u64::from(self.size));
                return passed(event, self.next);
            }
            return self.peek16(DEVICE) & 1 == 0;
        }
        let (off, flags) = (self.peek16(DEVICE), self.peek16(DEVICE + 2));
        match flags {
            0 => true,
            1 => false,
            2 => {
                let mut event = off & !WRAP;
                if off & WRAP != self.next & WRAP {
                    event = event.wrapping_sub(self.size);
                }
                passed(event, self.next & !WRAP)
            }
            other => panic!("the device wrote flags {other}"),
        }
    }
}

/// A part of `len` bytes.
pub fn part(len: u32) -> Part {
    Part { at: 0x4000, len }
}

/// Takes a buffer; its id, and how many parts are to be read and written.
pub fn take(driver: &Driver, ring: &mut Ring) -> Option<(u16, usize, usize)> {
    let mut chain = Chain::default();
    let found = ring.take(&driver.memory.view(), &mut chain);
    found
        .expect("an honest driver")
        .then(|| (chain.id, chain.readable().len(), chain.writable().len()))
}

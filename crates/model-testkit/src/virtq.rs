//! A driver's side of a virtio ring, split or packed (virtio 1.4 §2.7, §2.8): enough to give buffers and take them back.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use guest_mem::Memory;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// Bytes of a descriptor.
const DESC: u64 = 16;
/// Most parts of a buffer in a table of its own.
const PARTS: u64 = 16;

/// How a ring is used.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Packed, not split.
    pub packed: bool,
    /// One used element may stand for several buffers.
    pub in_order: bool,
    /// Buffers of several parts have tables.
    pub indirect: bool,
}

/// A part of a buffer: where it is, its bytes, and whether it is to be written.
pub type VirtPart = (u64, u32, bool);

/// The driver's side of a ring.
pub struct VirtQueue {
    memory: Memory,
    how: How,
    size: u16,
    at: u64,
    /// What can be given to it: ids, or descriptors of a split ring.
    free: VecDeque<u16>,
    /// Buffers that the device has, in order: id, slots, and all descriptors of it in a split ring.
    under_way: VecDeque<(u16, u16, Vec<u16>)>,
    /// Where the next is given, and the next taken back; with the wrap counter of each.
    next: (u16, bool),
    last: (u16, bool),
    room: u16,
}

impl VirtQueue {
    /// A ring of so many entries, with all its areas from `at` on.
    pub fn new(memory: Memory, at: u64, size: u16, how: How) -> Self {
        Self {
            memory,
            how,
            size,
            at,
            free: (0..size).collect(),
            under_way: VecDeque::new(),
            next: (0, true),
            last: (0, true),
            room: size,
        }
    }

    /// Bytes of its areas and of its tables.
    pub fn bytes(size: u16) -> u64 {
        0x6000 + u64::from(size) * PARTS * DESC
    }

    /// Where its areas are: descriptors, the driver's, the device's.
    pub fn areas(&self) -> [u64; 3] {
        [self.at, self.at + 0x4000, self.at + 0x5000]
    }

    /// Slots that are free.
    pub fn room(&self) -> u16 {
        self.room
    }

    /// Buffers that the device has.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let view = self.memory.view();
        view.write_release(at, bytes).expect("mapped");
    }

    fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let view = self.memory.view();
        view.read_acquire(at, &mut bytes).expect("mapped");
        bytes
    }

    fn word(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.read(at))
    }

    /// Gives the device a buffer. `None`: there is no room.
    pub fn give(&mut self, parts: &[VirtPart]) -> Option<u16> {
        let table = self.how.indirect && parts.len() > 1;
        let slots = if table { 1 } else { parts.len() as u16 };
        if self.room < slots {
            return None;
        }
        let entries: Vec<_> = match table {
            false => parts.to_vec(),
            true => {
                let id = *self.free.front()?;
                let at = self.at + 0x6000 + u64::from(id) * PARTS * DESC;
                for (i, &(part, len, write)) in parts.iter().enumerate() {
                    let mut flags = if write { WRITE } else { 0 };
                    let mut next = 0;
                    if !self.how.packed && i + 1 < parts.len() {
                        (flags, next) = (flags | NEXT, i as u16 + 1);
                    }
                    let last = if self.how.packed {
                        [0, flags]
                    } else {
                        [flags, next]
                    };
                    self.write(at + DESC * i as u64, &desc(part, len, last));
                }
                vec![(at, DESC as u32 * parts.len() as u32, false)]
            }
        };
        self.room -= slots;
        match self.how.packed {
            true => Some(self.give_packed(&entries, table)),
            false => self.give_split(&entries, table),
        }
    }

    fn give_split(&mut self, entries: &[VirtPart], table: bool) -> Option<u16> {
        let descs: Vec<_> = self.free.drain(..entries.len()).collect();
        for (i, (&(at, len, write), own)) in entries.iter().zip(&descs).enumerate() {
            let mut flags = if write { WRITE } else { 0 };
            flags |= if table { INDIRECT } else { 0 };
            let next = descs.get(i + 1);
            flags |= if next.is_some() { NEXT } else { 0 };
            let last = [flags, next.copied().unwrap_or(0)];
            self.write(self.at + DESC * u64::from(*own), &desc(at, len, last));
        }
        let [_, driver, _] = self.areas();
        let (index, _) = self.next;
        let slot = driver + 4 + 2 * u64::from(index & (self.size - 1));
        self.write(slot, &descs[0].to_le_bytes());
        self.next.0 = index.wrapping_add(1);
        self.write(driver + 2, &self.next.0.to_le_bytes());
        self.under_way
            .push_back((descs[0], descs.len() as u16, descs.clone()));
        Some(descs[0])
    }

    fn give_packed(&mut self, entries: &[VirtPart], table: bool) -> u16 {
        let id = self.free.pop_front().expect("as many as slots");
        let (mut index, mut wrap) = self.next;
        let mut all = Vec::new();
        for (i, &(at, len, write)) in entries.iter().enumerate() {
            let mut flags = if wrap { AVAIL } else { USED };
            flags |= if write { WRITE } else { 0 };
            flags |= if table { INDIRECT } else { 0 };
            flags |= if i + 1 < entries.len() { NEXT } else { 0 };
            all.push((index, desc(at, len, [id, flags])));
            index += 1;
            if index == self.size {
                (index, wrap) = (0, !wrap);
            }
        }
        // The first last, which gives it all of them.
        for (index, bytes) in all.iter().rev() {
            let at = self.at + DESC * u64::from(*index);
            self.write(at, &bytes[..8]);
            self.write(at + 8, &bytes[8..]);
        }
        self.next = (index, wrap);
        self.under_way
            .push_back((id, entries.len() as u16, Vec::new()));
        id
    }

    /// Takes back what the device has used: ids in order, and the bytes it has written.
    ///
    /// # Panics
    /// The device has used what it does not have, or not in order.
    pub fn take(&mut self) -> Vec<(u16, u32)> {
        let mut taken = Vec::new();
        loop {
            let (id, len) = if self.how.packed {
                let (index, wrap) = self.last;
                let word = u64::from_le_bytes(self.read(self.at + DESC * u64::from(index) + 8));
                let flags = (word >> 48) as u16;
                if (flags & AVAIL != 0) != wrap || (flags & USED != 0) != wrap {
                    return taken;
                }
                ((word >> 32) as u16, word as u32)
            } else {
                let [.., device] = self.areas();
                let (last, _) = self.last;
                if self.word(device + 2) == last {
                    return taken;
                }
                let slot = u64::from(last & (self.size - 1));
                let element = u64::from_le_bytes(self.read_unaligned(device + 4 + 8 * slot));
                (element as u16, (element >> 32) as u32)
            };
            loop {
                let (own, slots, descs) = self.under_way.pop_front().expect("it has that");
                self.room += slots;
                if self.how.packed {
                    self.free.push_back(own);
                    self.last.0 += slots;
                    if self.last.0 >= self.size {
                        self.last = (self.last.0 - self.size, !self.last.1);
                    }
                } else {
                    self.free.extend(descs);
                    self.last.0 = self.last.0.wrapping_add(1);
                }
                let is_last = own == id;
                taken.push((own, if is_last { len } else { 0 }));
                if is_last {
                    break;
                }
                assert!(self.how.in_order, "{id} used before {own}");
            }
            fence(Ordering::SeqCst);
        }
    }

    /// Used elements are aligned to 4 only.
    fn read_unaligned(&self, at: u64) -> [u8; 8] {
        let [low, high]: [[u8; 4]; 2] = [self.read(at), self.read(at + 4)];
        let mut both = [0; 8];
        both[..4].copy_from_slice(&low);
        both[4..].copy_from_slice(&high);
        both
    }
}

fn desc(at: u64, len: u32, [a, b]: [u16; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&at.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[12..14].copy_from_slice(&a.to_le_bytes());
    bytes[14..].copy_from_slice(&b.to_le_bytes());
    bytes
}

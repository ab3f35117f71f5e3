//! Look-up by offset, and the storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Register, Status};

/// A register's place in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u16);

impl Id {
    /// The register at `index` of the table.
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// Its place in the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What stands at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which register.
    pub id: Id,
    /// Which element of it.
    pub element: u32,
}

/// All registers of a model, found by offset in constant time.
#[derive(Debug)]
pub struct Table {
    registers: &'static [Register],
    /// Per 32-bit word of the window: where its storage is, or `NONE`.
    words: Vec<u32>,
    /// Per stored word: what it is.
    found: Vec<Found>,
    /// Per register: its first stored word.
    first: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Table {
    /// Indexes `registers`, which lie in a window of `span` bytes.
    ///
    /// # Panics
    /// When two registers overlap, one is misaligned or lies outside: a mistake in the table.
    pub fn new(registers: &'static [Register], span: u32) -> Self {
        let mut words = vec![NONE; span as usize / 4];
        let (mut found, mut first) = (Vec::new(), Vec::new());
        for (index, r) in registers.iter().enumerate() {
            first.push(found.len() as u32);
            for element in 0..r.count {
                let offset = r.offset + element * r.stride;
                assert!(offset.is_multiple_of(4), "{} is misaligned", r.name);
                let word = &mut words[offset as usize / 4];
                assert!(*word == NONE, "{} overlaps another register", r.name);
                *word = found.len() as u32;
                let id = Id::new(index as u16);
                found.push(Found { id, element });
            }
        }
        Self {
            registers,
            words,
            found,
            first,
        }
    }

    /// What stands at `offset` (rounded down to 4).
    pub fn find(&self, offset: u32) -> Option<Found> {
        let word = *self.words.get(offset as usize / 4)?;
        self.found.get(word as usize).copied()
    }

    /// The description of `id`.
    pub fn register(&self, id: Id) -> &'static Register {
        &self.registers[id.index()]
    }

    /// All registers, in table order.
    pub fn registers(&self) -> &'static [Register] {
        self.registers
    }
}

/// The words behind a table. Shared by the parts of a model; each word is an atomic of its own.
#[derive(Debug)]
pub struct File {
    table: Arc<Table>,
    words: Box<[AtomicU32]>,
}

impl File {
    /// All registers at their reset values. Devices of one kind can share a table.
    pub fn new(table: impl Into<Arc<Table>>) -> Self {
        let table = table.into();
        let words = table.found.iter().map(|_| AtomicU32::new(0)).collect();
        let file = Self { table, words };
        file.reset();
        file
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Puts every word at its reset value.
    pub fn reset(&self) {
        for (word, found) in self.words.iter().zip(&self.table.found) {
            let reset = self.table.register(found.id).reset;
            word.store(reset, Ordering::Release);
        }
    }

    fn word(&self, id: Id, element: u32) -> &AtomicU32 {
        let count = self.table.register(id).count;
        debug_assert!(element < count);
        let at = self.table.first[id.index()] + element.min(count - 1);
        &self.words[at as usize]
    }

    /// The stored value of a single register.
    pub fn get(&self, id: Id) -> u32 {
        self.word(id, 0).load(Ordering::Acquire)
    }

    /// The stored value of one element.
    pub fn get_at(&self, id: Id, element: u32) -> u32 {
        self.word(id, element).load(Ordering::Acquire)
    }

    /// Stores without a mask: what the device itself does.
    pub fn set(&self, id: Id, value: u32) {
        self.word(id, 0).store(value, Ordering::Release);
    }

    /// As [`File::set`], one element.
    pub fn set_at(&self, id: Id, element: u32, value: u32) {
        self.word(id, element).store(value, Ordering::Release);
    }

    /// Stores within the writable mask: what the guest does. Returns the new value.
    pub fn write(&self, id: Id, element: u32, value: u32) -> u32 {
        let register = self.table.register(id);
        if matches!(register.status, Status::Absent(_)) {
            return 0;
        }
        let word = self.word(id, element);
        let old = word.load(Ordering::Acquire);
        let new = (old & !register.mask) | (value & register.mask);
        word.store(new, Ordering::Release);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    const fn rw(name: &'static str, offset: u32, count: u32, stride: u32) -> Register {
        Register {
            name,
            offset,
            count,
            stride,
            access: Access::ReadWrite,
            reset: 5,
            mask: 0xf0,
            section: "1",
            status: Status::Implemented,
        }
    }

    static TWO: [Register; 2] = [rw("A", 0, 1, 4), rw("B", 8, 3, 8)];
    static CLASH: [Register; 2] = [rw("A", 0, 2, 4), rw("B", 4, 1, 4)];

    #[test]
    fn finds_each_element_and_nothing_between() {
        let table = Table::new(&TWO, 0x40);
        let at = |offset| table.find(offset).map(|f| (f.id.index(), f.element));
        assert_eq!(at(0), Some((0, 0)));
        assert_eq!(at(3), Some((0, 0)));
        assert_eq!(at(4), None);
        assert_eq!(at(8), Some((1, 0)));
        assert_eq!(at(12), None);
        assert_eq!(at(24), Some((1, 2)));
        assert_eq!(at(32), None);
        assert_eq!(at(u32::MAX), None);
    }

    #[test]
    fn writes_keep_to_the_mask_and_reset_undoes_them() {
        let file = File::new(Table::new(&TWO, 0x40));
        assert_eq!(file.get(Id::new(0)), 5);
        assert_eq!(file.write(Id::new(1), 2, 0xffff), 0xf5);
        assert_eq!(file.get_at(Id::new(1), 1), 5);
        assert_eq!(file.get_at(Id::new(1), 2), 0xf5);
        file.set(Id::new(0), 0xffff);
        file.reset();
        assert_eq!(file.get(Id::new(0)), 5);
        assert_eq!(file.get_at(Id::new(1), 2), 5);
    }

    #[test]
    #[should_panic(expected = "overlaps")]
    fn an_overlap_is_a_mistake() {
        Table::new(&CLASH, 0x40);
    }
}

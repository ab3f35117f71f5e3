//! Look-up by offset, and the storage.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::register::{Access, Alias, Id, Register, Status};

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
    aliases: &'static [Alias],
    /// Per 32-bit word of the window: its place in `found` and 1, or 0 for none. (Zeroed memory costs nothing.)
    words: Vec<u32>,
    /// What has storage in a [`File`], element by element in the order of the storage.
    found: Vec<Found>,
    /// Per register: its first element in `found`; `NONE` for memory.
    first: Vec<u32>,
    /// The reset value of each of `found`.
    resets: Vec<u32>,
    /// Memory, where in the window and whose: too many words to list one by one.
    memories: Vec<(Range<u32>, Id)>,
}

const NONE: u32 = u32::MAX;

/// Where a [`File`] keeps an element, for those who ask for it again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u32);

/// A table that all NICs of the process share, indexed when the first asks: the index has a word for each of the
/// window.
#[derive(Debug)]
pub struct Shared {
    registers: &'static [Register],
    aliases: &'static [Alias],
    span: u32,
    table: OnceLock<Arc<Table>>,
}

impl Shared {
    /// One of what [`Table::with_aliases`] takes.
    pub const fn new(registers: &'static [Register], aliases: &'static [Alias], span: u32) -> Self {
        Self {
            registers,
            aliases,
            span,
            table: OnceLock::new(),
        }
    }

    /// The table.
    pub fn get(&self) -> Arc<Table> {
        let index = || Arc::new(Table::with_aliases(self.registers, self.aliases, self.span));
        Arc::clone(self.table.get_or_init(index))
    }
}

impl Table {
    /// Indexes `registers`, which lie in a window of `span` bytes.
    ///
    /// # Panics
    /// When two registers overlap, one is misaligned or lies outside: a mistake in the table.
    pub fn new(registers: &'static [Register], span: u32) -> Self {
        Self::with_aliases(registers, &[], span)
    }

    /// As [`Table::new`], with registers that answer at a second address.
    ///
    /// # Panics
    /// As [`Table::new`]; an alias overlaps something, or is one of nothing.
    pub fn with_aliases(
        registers: &'static [Register],
        aliases: &'static [Alias],
        span: u32,
    ) -> Self {
        let mut table = Self {
            registers,
            aliases,
            words: vec![0; span as usize / 4],
            found: Vec::new(),
            first: vec![NONE; registers.len()],
            resets: Vec::new(),
            memories: Vec::new(),
        };
        // Memory first: the others see to it that they are not within it.
        for memory in [true, false] {
            let those = registers.iter().enumerate();
            for (index, r) in those.filter(|(_, r)| (r.access == Access::Memory) == memory) {
                table.add(index, r);
            }
        }
        for alias in aliases {
            let first = table.first[alias.of.index()];
            assert!(first != NONE, "{} is one of memory", alias.name);
            let elements = registers[alias.of.index()].count;
            assert!(
                alias.count <= elements,
                "{} has more elements than what it is",
                alias.name
            );
            table.place(alias.name, alias.offset, alias.count, alias.stride, first);
        }
        table
    }

    fn add(&mut self, index: usize, r: &Register) {
        let id = Id::new(index as u16);
        if r.access == Access::Memory {
            self.add_memory(id, r);
            return;
        }
        let first = self.found.len() as u32;
        self.first[index] = first;
        for element in 0..r.count {
            self.found.push(Found { id, element });
            self.resets.push(r.reset);
        }
        self.place(r.name, r.offset, r.count, r.stride, first);
    }

    fn add_memory(&mut self, id: Id, r: &Register) {
        let fits = r.offset.is_multiple_of(4) && r.stride == 4;
        assert!(fits, "{} is misaligned", r.name);
        let place = r.offset..r.offset + 4 * r.count;
        let window = 4 * self.words.len() as u32;
        assert!(place.end <= window, "{} lies outside", r.name);
        self.memories.push((place, id));
    }

    fn place(&mut self, name: &str, offset: u32, count: u32, stride: u32, first: u32) {
        // Of those behind one address another register chooses one; the first stands for them.
        let places = if stride == 0 { 1 } else { count };
        for element in 0..places {
            let offset = offset + element * stride;
            assert!(offset.is_multiple_of(4), "{name} is misaligned");
            let within = |(place, _): &(Range<u32>, Id)| place.contains(&offset);
            let word = &mut self.words[offset as usize / 4];
            let free = *word == 0 && !self.memories.iter().any(within);
            assert!(free, "{name} overlaps another register");
            *word = first + element + 1;
        }
    }

    /// What stands at `offset` (rounded down to 4).
    pub fn find(&self, offset: u32) -> Option<Found> {
        let word = *self.words.get(offset as usize / 4)?;
        let Some(at) = word.checked_sub(1) else {
            return self.find_memory(offset);
        };
        self.found.get(at as usize).copied()
    }

    fn find_memory(&self, offset: u32) -> Option<Found> {
        let within = |(place, _): &&(Range<u32>, Id)| place.contains(&offset);
        let (place, id) = self.memories.iter().find(within)?;
        Some(Found {
            id: *id,
            element: (offset - place.start) / 4,
        })
    }

    /// The description of `id`.
    pub fn register(&self, id: Id) -> &'static Register {
        &self.registers[id.index()]
    }

    /// Shows what a [`File`] keeps, element by element, and where it is. What is absent and plain memory are left
    /// out, and what stands behind one address in turn but for the first.
    pub fn each(&self, mut visit: impl FnMut(Found, u32)) {
        for found in &self.found {
            let register = self.register(found.id);
            let hidden = register.stride == 0 && found.element > 0;
            if !hidden && !matches!(register.status, Status::Absent(_)) {
                visit(*found, register.offset + found.element * register.stride);
            }
        }
    }

    /// The second addresses.
    pub fn aliases(&self) -> &'static [Alias] {
        self.aliases
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
    /// All registers at their reset values. Files of many NICs may share their table.
    pub fn new(table: impl Into<Arc<Table>>) -> Self {
        let table = table.into();
        let words = table.resets.iter().map(|r| AtomicU32::new(*r)).collect();
        Self { table, words }
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Puts every word at its reset value.
    pub fn reset(&self) {
        for (word, reset) in self.words.iter().zip(&self.table.resets) {
            word.store(*reset, Ordering::Release);
        }
    }

    /// `None` for memory, which is kept elsewhere.
    fn word(&self, id: Id, element: u32) -> Option<&AtomicU32> {
        let count = self.table.register(id).count;
        debug_assert!(element < count);
        let first = self.table.first[id.index()] as usize;
        self.words.get(first + element.min(count - 1) as usize)
    }

    /// The stored value of a single register.
    #[inline]
    pub fn get(&self, id: Id) -> u32 {
        let first = self.table.first[id.index()] as usize;
        self.words
            .get(first)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The stored value of one element; 0 for memory.
    #[inline]
    pub fn get_at(&self, id: Id, element: u32) -> u32 {
        self.word(id, element)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Where one element is. Of memory: nowhere.
    pub fn place(&self, id: Id, element: u32) -> Place {
        let count = self.table.register(id).count;
        let first = self.table.first[id.index()];
        Place(first.saturating_add(element.min(count - 1)))
    }

    /// The word of one element, for those who ask where it is in memory. `None` for memory, which is kept elsewhere.
    pub fn cell(&self, id: Id, element: u32) -> Option<&AtomicU32> {
        self.word(id, element)
    }

    /// As [`File::get_at`], of the element there.
    #[inline]
    pub fn at(&self, place: Place) -> u32 {
        let word = self.words.get(place.0 as usize);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// As [`File::set_at`], of the element there.
    #[inline]
    pub fn put(&self, place: Place, value: u32) {
        if let Some(word) = self.words.get(place.0 as usize) {
            word.store(value, Ordering::Release);
        }
    }

    /// Stores without a mask: what the device itself does.
    #[inline]
    pub fn set(&self, id: Id, value: u32) {
        let first = self.table.first[id.index()] as usize;
        if let Some(word) = self.words.get(first) {
            word.store(value, Ordering::Release);
        }
    }

    /// As [`File::set`], one element. Memory is not kept here.
    pub fn set_at(&self, id: Id, element: u32, value: u32) {
        if let Some(word) = self.word(id, element) {
            word.store(value, Ordering::Release);
        }
    }

    /// Stores within the writable mask: what the guest does. Returns the new value.
    pub fn write(&self, id: Id, element: u32, value: u32) -> u32 {
        let register = self.table.register(id);
        if matches!(register.status, Status::Absent(_)) {
            return 0;
        }
        let word = self.word(id, element);
        let old = word.map_or(0, |word| word.load(Ordering::Acquire));
        let new = (old & !register.mask) | (value & register.mask);
        if let Some(word) = word {
            word.store(new, Ordering::Release);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn several_behind_one_address_are_found_as_the_first() {
        static CHOSEN: [Register; 2] = [rw("A", 4, 3, 0), rw("B", 8, 1, 4)];
        let table = Table::new(&CHOSEN, 0x40);
        let at = |offset| table.find(offset).map(|f| (f.id.index(), f.element));
        assert_eq!([at(0), at(4), at(8)], [None, Some((0, 0)), Some((1, 0))]);
        let file = File::new(table);
        file.write(Id::new(0), 2, 0x30);
        let all = [0, 1, 2].map(|n| file.get_at(Id::new(0), n));
        assert_eq!(all, [5, 5, 0x35]);
    }

    #[test]
    fn each_is_shown_where_it_is_and_what_is_absent_is_not() {
        static SOME: [Register; 4] = [
            rw("A", 0, 2, 8),
            rw("B", 4, 3, 0),
            Register {
                status: Status::Absent("not on this chip"),
                ..rw("C", 12, 1, 4)
            },
            Register {
                access: Access::Memory,
                ..rw("M", 0x20, 4, 4)
            },
        ];
        let mut shown = Vec::new();
        Table::new(&SOME, 0x40).each(|found, at| shown.push((found.id.index(), found.element, at)));
        assert_eq!(shown, [(0, 0, 0), (0, 1, 8), (1, 0, 4)]);
    }

    #[test]
    fn what_is_absent_keeps_nothing() {
        static ABSENT: [Register; 1] = [Register {
            status: Status::Absent("not on this chip"),
            ..rw("A", 0, 1, 4)
        }];
        let file = File::new(Table::new(&ABSENT, 0x40));
        assert_eq!(file.write(Id::new(0), 0, 0xff), 0);
        assert_eq!(file.get(Id::new(0)), 5);
    }

    #[test]
    fn writes_keep_to_the_mask_and_reset_undoes_them() {
        let file = File::new(Table::new(&TWO, 0x40));
        assert_eq!(file.get(Id::new(0)), 5);
        assert_eq!(file.write(Id::new(1), 2, 0xffff), 0xf5);
        assert_eq!(file.get_at(Id::new(1), 1), 5);
        assert_eq!(file.get_at(Id::new(1), 2), 0xf5);
        let place = file.place(Id::new(1), 2);
        assert_eq!(file.at(place), 0xf5);
        file.put(place, 7);
        assert_eq!(
            (file.get_at(Id::new(1), 2), file.get_at(Id::new(1), 1)),
            (7, 5)
        );
        file.set(Id::new(0), 0xffff);
        file.reset();
        assert_eq!(file.get(Id::new(0)), 5);
        assert_eq!(file.get_at(Id::new(1), 2), 5);
    }

    static SECOND: [Alias; 2] = [
        Alias {
            name: "A2",
            offset: 0x30,
            count: 1,
            stride: 4,
            of: Id::new(0),
        },
        Alias {
            name: "B2",
            offset: 0x34,
            count: 2,
            stride: 4,
            of: Id::new(1),
        },
    ];
    static OVER: [Alias; 1] = [Alias {
        name: "A2",
        offset: 0x10,
        count: 1,
        stride: 4,
        of: Id::new(0),
    }];
    static MANY: [Alias; 1] = [Alias {
        name: "A3",
        count: 2,
        ..SECOND[0]
    }];

    #[test]
    fn an_alias_is_the_register_itself() {
        let file = File::new(Table::with_aliases(&TWO, &SECOND, 0x48));
        assert_eq!(file.table().find(0x30), file.table().find(0));
        for i in 0..2 {
            let (a, b) = (
                file.table().find(8 + 8 * i),
                file.table().find(0x34 + 4 * i),
            );
            assert_eq!(a, b);
            assert!(b.is_some());
        }
        assert_eq!(file.table().find(0x3c), None);
        assert_eq!(file.table().aliases().len(), 2);
    }

    #[test]
    #[should_panic(expected = "A2 overlaps")]
    fn an_alias_over_a_register_is_a_mistake() {
        Table::with_aliases(&TWO, &OVER, 0x40);
    }

    #[test]
    #[should_panic(expected = "A3 has more elements")]
    fn an_alias_is_not_longer_than_its_register() {
        Table::with_aliases(&TWO, &MANY, 0x40);
    }

    static MEMORY: [Register; 2] = [
        Register {
            access: Access::Memory,
            count: 4,
            ..rw("M", 0x20, 4, 4)
        },
        rw("A", 0, 1, 4),
    ];

    #[test]
    fn memory_is_found_and_not_kept() {
        let file = File::new(Table::new(&MEMORY, 0x40));
        let m = file.table().find(0x2c).expect("M");
        assert_eq!((m.id.index(), m.element), (0, 3));
        assert_eq!(file.write(m.id, m.element, 0xff), 0xf0);
        assert_eq!(file.get_at(m.id, m.element), 0);
        assert_eq!(file.get(Id::new(1)), 5);
    }

    #[test]
    #[should_panic(expected = "A overlaps")]
    fn a_register_in_memory_is_a_mistake() {
        static WITHIN: [Register; 2] = [rw("A", 0x28, 1, 4), MEMORY[0]];
        Table::new(&WITHIN, 0x40);
    }

    #[test]
    #[should_panic(expected = "overlaps")]
    fn an_overlap_is_a_mistake() {
        Table::new(&CLASH, 0x40);
    }
}

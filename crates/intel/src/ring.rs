//! Rings of 16-byte descriptors, and reading them.

use guest_mem::{Fault, View};
use regs::{File, Id};

/// Bytes of a descriptor.
pub const SIZE: u64 = 16;
/// Descriptors fetched with one read.
const WINDOW: usize = 64;

/// Descriptor done, the status bit both directions share.
pub const DD: u8 = 1;

/// Registers that place a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingIds {
    /// Low half of the base.
    pub base_low: Id,
    /// High half of the base.
    pub base_high: Id,
    /// Bytes of the ring.
    pub len: Id,
    /// The next descriptor of the device.
    pub head: Id,
    /// The next descriptor of the driver.
    pub tail: Id,
}

/// A ring as its registers describe it, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Where it begins.
    pub base: u64,
    /// Descriptors; more than 0.
    pub len: u32,
    /// The next descriptor of the device.
    pub head: u32,
    /// The first that is not the device's.
    pub tail: u32,
}

impl Ring {
    /// No ring at all.
    pub const NONE: Ring = Ring {
        base: 0,
        len: 0,
        head: 0,
        tail: 0,
    };

    /// `None` when the registers describe no ring: no length, or an index outside of it.
    #[inline]
    pub fn read(file: &File, ids: &RingIds) -> Option<Ring> {
        Ring::of(ids, |id| file.get(id))
    }

    /// As [`Ring::read`], the ring of one queue of many.
    #[inline]
    pub fn read_at(file: &File, ids: &RingIds, queue: u32) -> Option<Ring> {
        Ring::of(ids, |id| file.get_at(id, queue))
    }

    #[inline]
    fn of(ids: &RingIds, get: impl Fn(Id) -> u32) -> Option<Ring> {
        let ring = Ring {
            base: u64::from(get(ids.base_high)) << 32 | u64::from(get(ids.base_low)),
            len: get(ids.len) / SIZE as u32,
            head: get(ids.head),
            tail: get(ids.tail),
        };
        (ring.head < ring.len && ring.tail < ring.len).then_some(ring)
    }

    /// Descriptors the guest has handed over: from head to before tail.
    #[inline]
    pub fn available(&self) -> u32 {
        if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.len - self.head + self.tail
        }
    }

    /// The descriptor `n` behind the head; less than a ring of them.
    #[inline]
    pub fn behind(&self, n: u32) -> u32 {
        let index = self.head + n;
        if index >= self.len {
            index.saturating_sub(self.len)
        } else {
            index
        }
    }

    /// The descriptor behind `index`.
    #[inline]
    pub fn next(&self, index: u32) -> u32 {
        if index + 1 >= self.len { 0 } else { index + 1 }
    }

    /// The descriptor `n` before `index`; less than a ring of them.
    #[inline]
    pub fn before(&self, index: u32, n: u32) -> u32 {
        if index >= n {
            index - n
        } else {
            (index + self.len).saturating_sub(n)
        }
    }

    /// How many descriptors `index` is behind `from`; both inside.
    #[inline]
    pub fn distance(&self, from: u32, index: u32) -> u32 {
        if index >= from {
            index - from
        } else {
            (index + self.len).saturating_sub(from)
        }
    }

    /// Where the descriptor at `index` is; addresses wrap at 2^64.
    #[inline]
    pub fn address(&self, index: u32) -> u64 {
        self.base.wrapping_add(u64::from(index) * SIZE)
    }
}

/// Descriptors copied out of a ring, many at a time. What is decided is decided on the copy.
#[derive(Debug)]
pub struct Fetcher {
    copy: [u8; WINDOW * SIZE as usize],
    first: u32,
    count: u32,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetcher {
    /// Nothing is read yet.
    pub fn new() -> Self {
        Self {
            copy: [0; WINDOW * SIZE as usize],
            first: 0,
            count: 0,
        }
    }

    /// Has the next descriptor read anew.
    #[inline]
    pub fn forget(&mut self) {
        self.count = 0;
    }

    /// The descriptor at `index`, of which at least `ready` from there on belong to us, and those
    /// behind it that were copied at once: one at least. `fetched` counts descriptors read from memory.
    ///
    /// # Errors
    /// They are not in reach.
    #[inline]
    pub fn get(
        &mut self,
        view: &View<'_>,
        ring: &Ring,
        index: u32,
        ready: u32,
        fetched: &mut u64,
    ) -> Result<&[[u8; SIZE as usize]], Fault> {
        let inside = index.wrapping_sub(self.first) < self.count;
        if !inside {
            let count = ready.min(WINDOW as u32).min(ring.len - index).max(1);
            let bytes = &mut self.copy[..count as usize * SIZE as usize];
            self.count = 0;
            view.read_acquire(ring.address(index), bytes)?;
            *fetched += u64::from(count);
            self.first = index;
            self.count = count;
        }
        let (all, _) = self.copy.as_chunks();
        Ok(&all[(index - self.first) as usize..self.count as usize])
    }
}

#[cfg(test)]
mod proofs;

#[cfg(test)]
mod tests {
    use regs::{Access, Register, Status, Table};

    use super::*;

    const fn place(name: &'static str, offset: u32) -> Register {
        Register {
            name,
            offset,
            count: 2,
            stride: 0x40,
            access: Access::ReadWrite,
            reset: 0,
            mask: !0,
            section: "1",
            status: Status::Implemented,
        }
    }

    static TABLE: [Register; 5] = [
        place("BAL", 0),
        place("BAH", 4),
        place("LEN", 8),
        place("H", 12),
        place("T", 16),
    ];
    const IDS: RingIds = RingIds {
        base_low: Id::new(0),
        base_high: Id::new(1),
        len: Id::new(2),
        head: Id::new(3),
        tail: Id::new(4),
    };

    #[test]
    fn a_ring_needs_a_length_and_indices_inside() {
        let ring = Ring {
            base: 0,
            len: 8,
            head: 6,
            tail: 2,
        };
        assert_eq!(ring.available(), 4);
        assert_eq!(ring.next(7), 0);
        assert_eq!(ring.before(5, 2), 3);
        assert_eq!(ring.before(0, 3), 5);
        assert_eq!((ring.distance(6, 1), ring.distance(2, 5)), (3, 3));
        let file = File::new(Table::new(&TABLE, 0x80));
        assert_eq!(Ring::read(&file, &IDS), None);
        file.set(IDS.len, 128);
        assert_eq!(Ring::read(&file, &IDS).map(|r| r.len), Some(8));
        assert_eq!(Ring::read_at(&file, &IDS, 1), None);
        file.set_at(IDS.len, 1, 256);
        file.set_at(IDS.base_high, 1, 1);
        let second = Ring::read_at(&file, &IDS, 1).map(|r| (r.base, r.len));
        assert_eq!(second, Some((1 << 32, 16)));
        file.set(IDS.tail, 8);
        assert_eq!(Ring::read(&file, &IDS), None);
    }
}

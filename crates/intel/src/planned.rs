//! What follows from a set-up, worked out once per generation of it.

use regs::{File, Place};

use crate::ring::{Ring, RingIds, SIZE};

/// What a set-up says, as long as it is the same ([`datapath::Generation`]).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Planned<P> {
    generation: u32,
    plan: P,
}

impl<P> Planned<P> {
    /// The plan by the set-up of this generation; `make` works it out, unless it is known.
    #[inline]
    pub fn of(&mut self, generation: u32, make: impl FnOnce() -> P) -> &P {
        if self.generation != generation {
            *self = Planned {
                generation,
                plan: make(),
            };
        }
        &self.plan
    }
}

/// Where a ring is, and where its head and its tail are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingPlace {
    base: u64,
    len: u32,
    head: Place,
    tail: Place,
}

impl RingPlace {
    /// That of a queue.
    pub fn of(file: &File, ids: &RingIds, queue: u32) -> RingPlace {
        let get = |id| file.get_at(id, queue);
        RingPlace {
            base: u64::from(get(ids.base_high)) << 32 | u64::from(get(ids.base_low)),
            len: get(ids.len) / SIZE as u32,
            head: file.place(ids.head, queue),
            tail: file.place(ids.tail, queue),
        }
    }

    /// The ring with its head and its tail as they are now, as [`Ring::read_at`] has it.
    #[inline]
    pub fn ring(&self, file: &File) -> Option<Ring> {
        let ring = Ring {
            base: self.base,
            len: self.len,
            head: self.head(file),
            tail: self.tail(file),
        };
        (ring.head < ring.len && ring.tail < ring.len).then_some(ring)
    }

    /// Its head now.
    #[inline]
    pub fn head(&self, file: &File) -> u32 {
        file.at(self.head)
    }

    /// Its tail now.
    #[inline]
    pub fn tail(&self, file: &File) -> u32 {
        file.at(self.tail)
    }

    /// Its head is there now.
    #[inline]
    pub fn set_head(&self, file: &File, head: u32) {
        file.put(self.head, head);
    }
}

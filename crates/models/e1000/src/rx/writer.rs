//! The descriptors that one call of the receiver fills.

use guest_mem::View;
use intel::Ring;
use intel::rx::{self, Room};

/// Writes into the buffers of the ring.
pub(crate) struct Writer<'v> {
    pub descs: rx::Writer<'v>,
    pub room: Room,
    /// The first descriptor of those taken since the lock was taken.
    pub begun: u32,
    /// Written back, while RDH does not say so yet.
    pub flushed: u32,
    /// Descriptors that are kept back, to leave the guest time.
    pub rationed: u32,
}

impl<'v> Writer<'v> {
    #[inline]
    pub(crate) fn new(view: &'v View<'v>) -> Self {
        Writer {
            descs: rx::Writer::new(view),
            room: Room::NONE,
            begun: 0,
            flushed: 0,
            rationed: 0,
        }
    }

    /// Begins with the head of `ring`, with the lock just taken.
    #[inline]
    pub(crate) fn begin(&mut self, ring: Ring, free: u32, rationed: u32) {
        self.room = Room {
            ring,
            first: ring.head,
            free,
        };
        self.begun = ring.head;
        self.rationed = rationed;
        self.descs.forget();
    }

    /// Descriptors filled in this call that are not written back.
    pub(crate) fn held(&self) -> u32 {
        self.descs.storage.second.len() as u32
    }

    /// The ring from `head` on.
    pub(crate) fn ring_from(&self, head: u32) -> Ring {
        Ring {
            head,
            ..self.room.ring
        }
    }
}

//! Those who take frames.

use std::sync::Arc;

use guest_mem::Hot;
use wire::{Gso, Offload};

use crate::batch::Batch;
use crate::cut::Cut;
use crate::run::{Mix, Run};

/// Takes frames: a NIC's receive side, a port's way out, a switch port.
///
/// A sink may be called from any thread; it orders concurrent senders itself and never calls
/// back into the sender.
pub trait Sink: Send + Sync {
    /// Offers the frames of `batch` at the indices `picks`, in that order.
    ///
    /// Returns how many were dealt with: delivered, filtered, or dropped with a counted reason.
    /// The rest found no room now; the caller keeps them and tries later (see
    /// [`Sink::want_room`]), or drops and counts them itself.
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize;

    /// As [`Sink::deliver`], for a caller that keeps what finds no room. A sink that could store frames
    /// until there is room leaves them with such a caller, and so copies none twice.
    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.deliver(batch, picks)
    }

    /// Offers a run, in the short way: only what needs no more than a copy is dealt with, from the front on. Returns
    /// how many frames were. `None`, or less than all: the caller offers the others as a [`Batch`], which has every
    /// frame dealt with as it should be; nothing has been counted of them.
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        let _ = run;
        None
    }

    /// Offers frames whose headers may differ, in the short way, to a sink that knows how to sort them. Returns how many
    /// were dealt with, from the front on, as [`Sink::deliver_run`] does.
    fn deliver_mix(&self, mix: &Mix<'_>) -> Option<usize> {
        self.deliver_run(&mix.as_run()?)
    }

    /// Offers the segments of a large frame from number `from` on, in the short way, to a sink that takes none whole: only
    /// what needs no more than a buffer and a copy is dealt with, from the front on. Returns how many segments were. `None`,
    /// or less than all: the caller offers the others as a [`Batch`], as after [`Sink::deliver_run`].
    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        let _ = (cut, from);
        None
    }

    /// Which unfinished frames it can take as they are. Senders finish the others first
    /// ([`Caps::accepts`]).
    fn caps(&self) -> Caps;

    /// Asks for one [`Wake::wake`] when there may be room again. Register after a short
    /// [`Sink::deliver`], then try once more before sleeping: room may have come in between.
    /// A sink that is never short ignores it.
    fn want_room(&self, waker: &Arc<dyn Wake>);

    /// The lines of memory that a delivery touches, as far as they stay where they are.
    fn hot(&self, hot: &mut Hot) {
        let _ = hot;
    }

    /// Frames will come soon, most likely for where the last ones went: has the processor fetch what a delivery there touches. Only
    /// a hint, for a caller that serves many senders in turn.
    fn prefetch(&self) {}

    /// The caller drops the frames at `picks`, for which the last [`Sink::deliver`] found no room.
    /// It has counted them; a sink that plays a NIC counts them too, as that NIC would have missed
    /// them.
    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        let _ = (batch, picks);
    }

    /// Whether it is told of what its sender cannot send ([`Sink::unsent`]): somebody looks. The same for as long as a call lasts
    /// that it is handed to.
    fn hears_of_unsent(&self) -> bool {
        false
    }

    /// The sender could make no frame of what its guest gave, and this counter of it rose. `bytes` are what there is: descriptors,
    /// or how the packet begins.
    fn unsent(&self, counter: &'static str, bytes: &[u8]) {
        let _ = (counter, bytes);
    }
}

/// Wakes a waiting thread or task, from any thread, without blocking.
pub trait Wake: Send + Sync {
    /// Wakes. More calls than sleeps are harmless.
    fn wake(&self);
}

/// What a sink can take unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Frames whose L4 checksum is still to be written.
    pub csum: bool,
    /// Unsegmented TCP over IPv4 (needs `csum`).
    pub tso4: bool,
    /// Unsegmented TCP over IPv6 (needs `csum`).
    pub tso6: bool,
    /// Unsegmented UDP over IPv4 (needs `csum`).
    pub uso4: bool,
    /// Unsegmented UDP over IPv6 (needs `csum`).
    pub uso6: bool,
    /// Unsegmented TCP of which only the first segment has CWR (needs `tso4` or `tso6`).
    pub ecn: bool,
    /// A VLAN tag beside the frame.
    pub vlan: bool,
}

impl Caps {
    /// Only finished frames.
    pub const NONE: Caps = Caps {
        csum: false,
        tso4: false,
        tso6: false,
        uso4: false,
        uso6: false,
        ecn: false,
        vlan: false,
    };
    /// Everything there is a note for.
    pub const ALL: Caps = Caps {
        csum: true,
        tso4: true,
        tso6: true,
        uso4: true,
        uso6: true,
        ecn: true,
        vlan: true,
    };

    /// What a sink must be able to take for a frame with these notes to be handed over as it is.
    pub fn asked_by(notes: &Offload) -> Caps {
        Caps {
            csum: notes.csum.is_some(),
            tso4: notes.gso == Gso::Tcp4,
            tso6: notes.gso == Gso::Tcp6,
            uso4: notes.gso == Gso::Udp4,
            uso6: notes.gso == Gso::Udp6,
            ecn: notes.ecn && matches!(notes.gso, Gso::Tcp4 | Gso::Tcp6),
            vlan: notes.vlan.is_some(),
        }
    }

    /// Whether a frame with these notes can be handed over as it is.
    pub fn accepts(&self, notes: &Offload) -> bool {
        let asked = Caps::asked_by(notes);
        asked.and(*self) == asked
    }

    /// What either can take.
    pub fn or(self, other: Caps) -> Caps {
        Caps {
            csum: self.csum || other.csum,
            tso4: self.tso4 || other.tso4,
            tso6: self.tso6 || other.tso6,
            uso4: self.uso4 || other.uso4,
            uso6: self.uso6 || other.uso6,
            ecn: self.ecn || other.ecn,
            vlan: self.vlan || other.vlan,
        }
    }

    /// What both can take.
    pub fn and(self, other: Caps) -> Caps {
        Caps {
            csum: self.csum && other.csum,
            tso4: self.tso4 && other.tso4,
            tso6: self.tso6 && other.tso6,
            uso4: self.uso4 && other.uso4,
            uso6: self.uso6 && other.uso6,
            ecn: self.ecn && other.ecn,
            vlan: self.vlan && other.vlan,
        }
    }
}

/// Counters, by name. Names are `snake_case`, values only grow.
pub trait Counted: Send + Sync {
    /// Visits every counter, zero or not, always in the same order.
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64));
}
